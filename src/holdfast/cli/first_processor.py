"""What `holdfast processors new` writes: a processor of a few lines, and its configuration.

Owns: both texts, and which names they can have. Never: overwrites a file.
"""

import json
import keyword
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Final

from holdfast.core.errors import ConfigurationError

CONFIGURATION: Final = "appsettings.json"
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,40}")
_MODULE: Final = Template('''\
"""What is published to `$module/SENSOR`, as rows of the table `$module`."""

import json
from collections.abc import Sequence

from holdfast.processors.message import Message
from holdfast.processors.processor import Processor, RejectedError
from holdfast.processors.table import Column, ColumnType, Row, Table


class $name(Processor):
    """Takes {"value": 21.5}."""

    table = Table(
        "$module",
        (Column("sensor", ColumnType.TEXT), Column("value", ColumnType.REAL)),
    )

    def parse(self, message: Message) -> Sequence[Row]:
        """The rows of one message; what can never be read is rejected."""
        try:
            value = float(json.loads(message.payload)["value"])
        except (KeyError, TypeError, ValueError) as error:
            raise RejectedError('expected {"value": NUMBER}') from error
        return [{"sensor": message.topic.partition("/")[2], "value": value}]
''')


def write_first(name: str, folder: Path) -> tuple[Path, Path]:
    """Writes a processor and its configuration for a broker on this machine. Raises
    `ConfigurationError` where one of them is there already; then none is written."""
    module = _module_name(name)
    class_name = name[0].upper() + name[1:]
    files = folder / f"{module}.py", folder / CONFIGURATION
    for file in files:
        if file.exists():
            raise ConfigurationError(f"{file} is there already; it was left as it is")
    folder.mkdir(parents=True, exist_ok=True)
    source = _MODULE.substitute(name=class_name, module=module)
    configuration = json.dumps(_configuration(class_name, module), indent=2) + "\n"
    for file, content in zip(files, (source, configuration), strict=True):
        with file.open("x") as new:
            new.write(content)
    return files


def _module_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!a} is no name of a class: it has letters and digits, a letter first"
        )
    module = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    is_taken = module in sys.stdlib_module_names or find_spec(module) is not None
    if keyword.iskeyword(module) or is_taken:
        raise ConfigurationError(f"{module} is a word or a module of Python; choose another name")
    return module


def _configuration(class_name: str, module: str) -> dict[str, object]:
    keys = {
        "Processor": f"{module}:{class_name}",
        "BrokerHost": "localhost",
        "BrokerPort": 1883,
        "UseTls": False,
        "ClientId": module,
        "SubscribeTopics": [f"{module}/+"],
        "SharedSubscriptionGroup": module,
        "Sink": f"sqlite:///{module}.db",
    }
    return {"Mqtt": {class_name: keys}}
