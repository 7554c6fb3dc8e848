"""A Java virtual machine with one client's jars, whose classes a driver in Python calls.

They are called over Py4J, which comes with PySpark, so a Java runtime is enough: nothing is
compiled.
Never: knows a client library.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

THREADS = 256
"""Each waits for one answer; Java's futures block who asks them."""


class Java:
    """The virtual machine, and its classes by their packages."""

    def __init__(self, java: str, jars: Path, py4j_jar: str) -> None:
        class_path = ":".join(str(jar) for jar in sorted(jars.glob("*.jar")))
        # It ends with this process, however that ends.
        port, token = launch_gateway(
            *(0, py4j_jar, class_path), java_path=java, enable_auth=True, die_on_exit=True
        )
        gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_field=False)
        )
        self.packages = gateway.jvm
        self.milliseconds = gateway.jvm.java.util.concurrent.TimeUnit.MILLISECONDS
        self._threads = ThreadPoolExecutor(THREADS)

    async def call(self, method: Any, *arguments: Any) -> Any:
        """What a method of Java returns that may wait."""
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, _call, method, arguments
        )

    async def result(self, future: Any) -> Any:
        """What a Java future comes to."""
        return await self.call(future.get)


def _call(method: Any, arguments: tuple[Any, ...]) -> Any:
    try:
        return method(*arguments)
    except Py4JJavaError as error:
        # Its text asks the virtual machine, which must be done on this thread.
        raise RuntimeError(str(error.java_exception.toString())) from None
