"""Who a processor is: its environment, its group, its client identifier.

Owns: in which order an environment's name is looked for, how the other names follow from it, and
which names cannot be used. Never: asks the machine, the clock or the environment; whatever makes
two starts differ is an argument.

Invariants:
1. Two environments have different groups, so that none takes messages of another (S3.9).
2. Without a name that somebody has given, only a development build begins (S3.17, S3.18).
3. Every name that is handed out can stand in a share name and in a topic level of any broker.
"""

import unicodedata
from dataclasses import dataclass
from enum import Enum
from typing import Final

from holdfast.core.errors import ConfigurationError

ENVIRONMENT_VARIABLE: Final = "MQTT_ENVIRONMENT_ID"
BUILD_VARIABLE: Final = "HOLDFAST_BUILD"
TEXT_BYTES_MAXIMUM: Final = 65_535
"""What any text of MQTT has at most, in UTF-8."""
NO_SHARE_NAME: Final = "/+#"
"""Characters that end a share name or are wildcards in it [MQTT-4.8.2-2]."""


class Build(Enum):
    """What a start is for. It is said explicitly; whoever says nothing has a release, so that
    forgetting it fails instead of inventing an environment."""

    DEVELOPMENT = "development"
    RELEASE = "release"


class NamedBy(Enum):
    """Where the name of an environment comes from."""

    CONFIGURATION = "EnvironmentId"
    VARIABLE = ENVIRONMENT_VARIABLE
    MACHINE = "the name of the machine, in a development build"


@dataclass(frozen=True, slots=True)
class EnvironmentName:
    """An environment's name, and who gave it."""

    name: str
    named_by: NamedBy


def build_of(variable: str | None) -> Build:
    """The build that `HOLDFAST_BUILD` names. Raises `ConfigurationError`."""
    if is_blank(variable):
        return Build.RELEASE
    try:
        return Build(variable)
    except ValueError:
        raise ConfigurationError(
            f'environment variable {BUILD_VARIABLE}: "{variable}" is neither development nor'
            " release"
        ) from None


def environment_name(
    configured: str | None, variable: str | None, machine_name: str, build: Build
) -> EnvironmentName:
    """The environment: as configured, else as the variable says, else that of the machine in a
    development build. Raises `ConfigurationError` where it has no name or an unusable one."""
    for value, named_by in ((configured, NamedBy.CONFIGURATION), (variable, NamedBy.VARIABLE)):
        if value is not None and not is_blank(value):
            return EnvironmentName(usable(value, named_by.value), named_by)
    if build is Build.RELEASE:
        raise ConfigurationError(
            "EnvironmentId must be configured explicitly in a release: set it, or"
            f" {ENVIRONMENT_VARIABLE}, or say that this is development (--dev, or"
            f" {BUILD_VARIABLE}=development)"
        )
    name = f"local-{usable(machine_name.lower(), 'the name of the machine')}"
    return EnvironmentName(name, NamedBy.MACHINE)


def group_name(configured: str | None, environment: str) -> str | None:
    """The group with its environment; None where none is configured. Raises
    `ConfigurationError`."""
    if configured is None or is_blank(configured):
        return None
    return usable(f"{usable(configured, 'SharedSubscriptionGroup')}-{environment}", "the group")


def instance_name(configured: str | None, machine_name: str) -> str:
    """The instance: as configured, else the machine, in lower case as in the name of its
    environment (S3.54). Raises `ConfigurationError`."""
    if configured is not None and not is_blank(configured):
        return usable(configured, "InstanceId")
    return usable(machine_name.lower(), "the name of the machine")


def persistent_client_identifier(client_id: str, environment: str, instance: str) -> str:
    """The same at each start. Raises `ConfigurationError`."""
    return _joined(client_id, environment, instance)


def ephemeral_client_identifier(
    client_id: str, environment: str, timestamp: str, unique: str
) -> str:
    """Another one at each start, for tests: its session is nobody's afterwards. Raises
    `ConfigurationError`."""
    return _joined(client_id, environment, timestamp, unique)


def _joined(client_id: str, *rest: str) -> str:
    return usable("-".join([usable(client_id, "ClientId"), *rest]), "the client identifier")


def is_blank(value: str | None) -> bool:
    """True for what counts as not set: nothing, or only blanks (S3.19)."""
    return value is None or not value.strip()


def usable(name: str, what: str) -> str:
    """The name, if it can stand wherever names stand. Raises `ConfigurationError`, which says
    `what` cannot be used and why."""
    if reason := _flaw(name):
        raise ConfigurationError(f"{what}: {_shown(name)} {reason}")
    return name


def check_filter(topic_filter: str) -> None:
    """Refuses a filter that is too long with its group. Raises `ConfigurationError`."""
    if len(topic_filter.encode()) > TEXT_BYTES_MAXIMUM:
        raise ConfigurationError(
            f"SubscribeTopics: {_shown(topic_filter)} has more than {TEXT_BYTES_MAXIMUM} bytes"
        )


def _flaw(name: str) -> str | None:
    if not name.strip():
        return "is empty"
    if name != name.strip():
        return "begins or ends with a blank"
    for character in name:
        if character in NO_SHARE_NAME:
            return f'has a "{character}", which no share name may have'
        if unicodedata.category(character) in ("Cc", "Cs") or _is_no_character(ord(character)):
            return f"has U+{ord(character):04X}, which brokers may refuse"
    if len(name.encode()) > TEXT_BYTES_MAXIMUM:
        return f"has more than {TEXT_BYTES_MAXIMUM} bytes"
    return None


def _is_no_character(code: int) -> bool:
    """Unicode's noncharacters, which MQTT advises against (1.5.4)."""
    return 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE


def _shown(name: str) -> str:
    """In one line that any terminal takes, and not endless."""
    return ascii(name if len(name) <= 80 else name[:77] + "...")
