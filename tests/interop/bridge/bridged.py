"""A broker with bridges, in a process of its own."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.process import HOST, BrokerProcess


def bridge(name: str, port: int, **fields: object) -> dict[str, object]:
    """A bridge to a broker of this machine."""
    return {"name": name, "address": f"{HOST}:{port}", **fields}


def carries(*filters: str, **fields: object) -> dict[str, object]:
    """A subscription of a bridge."""
    return {"filters": list(filters), **fields}


class BridgedBroker(BrokerProcess):
    """One broker with these bridges in its configuration."""

    def __init__(
        self, directory: Path, bridges: Sequence[Mapping[str, object]], **settings: object
    ) -> None:
        directory.mkdir(exist_ok=True)
        self._file = directory / "holdfast.toml"
        self.configure(bridges)
        super().__init__(directory, "--config", str(self._file), **settings)

    def configure(self, bridges: Sequence[Mapping[str, object]]) -> None:
        """These are its bridges from its next start on."""
        write_configuration(self._file, bridges)


def write_configuration(file: Path, bridges: Sequence[Mapping[str, object]]) -> None:
    """These bridges are in a file, and nothing else."""
    file.write_text("".join(f"[[bridge]]\n{_toml(each)}" for each in bridges))


def _toml(table: Mapping[str, object]) -> str:
    # What TOML has in common with JSON is enough for values; tables are written inline.
    return "".join(f"{name} = {_value(value)}\n" for name, value in table.items())


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {_value(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return json.dumps(value)
