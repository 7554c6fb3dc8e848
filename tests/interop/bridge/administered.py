"""A broker with bridges whose admin interface is used."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.interop.bridge.bridged import write_configuration
from tests.interop.seen import Seen
from tests.interop.test_admin import eventually

HOLDFAST = Path(sys.executable).with_name("holdfast")


class AdministeredBroker(Seen):
    """One broker with these bridges in its configuration; every answer is held to the OpenAPI
    document."""

    def __init__(self, directory: Path, *bridges: Mapping[str, object], **settings: object) -> None:
        directory.mkdir(exist_ok=True)
        file = directory / "holdfast.toml"
        write_configuration(file, bridges)
        super().__init__(directory, **settings)
        self._arguments = ("--config", str(file))

    def bridge(self, name: str) -> dict[str, Any]:
        """A bridge as it is shown."""
        return self.get(f"/v1/bridges/{name}")

    def wait_state(self, name: str, *states: str) -> dict[str, Any]:
        """Waits until a bridge is in one of these states."""
        eventually(lambda: self.bridge(name)["state"] in states, f"{name} is {states}")
        return self.bridge(name)

    def wait_number(self, name: str, field: str, value: object) -> None:
        """Waits until a bridge has this number."""
        eventually(lambda: self.bridge(name)[field] == value, f"{field} of {name} is {value}")

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What the command line says about it."""
        where = ["--data-dir", str(self.data_directory)]
        return subprocess.run(
            [HOLDFAST, *arguments, *where], capture_output=True, text=True, check=False
        )
