"""The configuration as it is on this machine: its files, its environment, its name, now.

Owns: what is handed to `documents` and `configuration`. Never: decides anything about a value.
"""

from datetime import UTC, datetime
from pathlib import Path

from holdfast import system
from holdfast.core.sources import BUILD_VARIABLE
from holdfast.core.units import SECOND_US
from holdfast.processors.configuration import Configuration, Start, read_configuration
from holdfast.processors.documents import deployment_of, read_documents
from holdfast.processors.identity import Build, build_of

UNIQUE_BYTES = 3
"""They tell starts of one day apart, as in `a1b2c3`."""


def read_deployed(
    file: Path, *, deployment: str | None = None, is_development: bool = False
) -> Configuration:
    """The processors that a file configures here. A development build is said here or by
    `HOLDFAST_BUILD`. Raises `ConfigurationError`."""
    variables = system.environment()
    build = Build.DEVELOPMENT if is_development else build_of(variables.get(BUILD_VARIABLE))
    documents = read_documents(file, deployment_of(deployment, variables))
    start = Start(
        variables=variables,
        machine_name=system.machine_name(),
        build=build,
        timestamp=datetime.fromtimestamp(system.now_us() // SECOND_US, UTC).strftime("%Y%m%d"),
        unique=system.entropy(UNIQUE_BYTES).hex(),
        folder=file.parent,
    )
    return read_configuration(documents, start)
