"""Toxiproxy between a bridge and its remote: a relay that is not ours.

Owns: its process and its one proxy, until the test ends. Never: knows what passes.
"""

import contextlib
import http.client
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast import system
from tests.interop.installation import toxiproxy
from tests.ports import HeldPort
from tests.process import HOST

SEED = 14
"""Of what its toxics draw."""
START_WITHIN_S = 30.0
ASK_EVERY_S = 0.02
NAME = "bridge"
STREAMS = ("upstream", "downstream")


class Toxiproxy:
    """A way to one port, with toxics in it."""

    def __init__(self, api_port: int) -> None:
        self._api_port = api_port
        self._types: list[str] = []

    def lead_to(self, port: int) -> int:
        """Begins the way to a port; returns where it begins."""
        body = {"name": NAME, "listen": f"{HOST}:0", "upstream": f"{HOST}:{port}", "enabled": True}
        return int(self._ask("POST", "/proxies", body)["listen"].rpartition(":")[2])

    def poison(self, toxic: str, **attributes: int) -> None:
        """This happens from now on, in both directions."""
        self._types.append(toxic)
        for stream in STREAMS:
            body = {"name": f"{toxic}-{stream}", "type": toxic, "stream": stream}
            self._ask("POST", f"/proxies/{NAME}/toxics", body | {"attributes": attributes})

    def heal(self) -> None:
        """Bytes pass as they come."""
        for toxic in self._types:
            for stream in STREAMS:
                self._ask("DELETE", f"/proxies/{NAME}/toxics/{toxic}-{stream}")
        self._types.clear()

    def is_up(self) -> bool:
        """True once it answers."""
        try:
            self._ask("GET", "/version")
        except OSError:
            return False
        return True

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, str]:
        connection = http.client.HTTPConnection(HOST, self._api_port, timeout=START_WITHIN_S)
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            said = answer.read()
        assert answer.status < http.client.BAD_REQUEST, said
        found: dict[str, str] = json.loads(said) if said.startswith(b"{") else {}
        return found


@contextmanager
def running() -> Iterator[Toxiproxy]:
    """One that runs."""
    held = HeldPort()
    command = [str(toxiproxy()), "-host", HOST, "-port", str(held.number), "-seed", str(SEED)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        proxy, began = Toxiproxy(held.number), system.monotonic_s()
        while not proxy.is_up():
            assert system.monotonic_s() - began < START_WITHIN_S, "toxiproxy does not answer"
            with contextlib.suppress(subprocess.TimeoutExpired):
                raise AssertionError(f"toxiproxy ended with {process.wait(ASK_EVERY_S)}")
        yield proxy
    finally:
        process.kill()
        process.wait()
