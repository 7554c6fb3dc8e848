"""From what is written to the settings of each processor, and where each value came from.

Owns: what counts where several sources write a key, and what follows from several keys. Never:
reads a file, the environment or a clock; `documents` and `Start` are handed in.

Invariants:
1. Everything that is wrong is told, not only the first of it.
2. No password is in a text that is handed out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.core.errors import ConfigurationError
from holdfast.processors import identity
from holdfast.processors.documents import Document
from holdfast.processors.identity import Build, EnvironmentName, NamedBy
from holdfast.processors.keys import KEYS, Key
from holdfast.processors.settings import ProcessorSettings
from holdfast.processors.sources import (
    MissingVariableError,
    Sources,
    Written,
    filled,
    read_sources,
)

DEFAULT: Final = "default"
REASON_CHARACTERS_MAXIMUM: Final = 240
SQLITE: Final = "sqlite:///"
FILES: Final = ("TlsAuthority", "TlsCertificate", "TlsKey")
"""Keys that name files, beside the configuration where they are relative."""


@dataclass(frozen=True, slots=True)
class Start:
    """What makes one start of a processor differ from another."""

    variables: Mapping[str, str]
    machine_name: str
    build: Build
    timestamp: str
    """The day, as in `20241205`."""
    unique: str
    """A few characters that nobody has had before."""
    folder: Path
    """That of the configuration: what is relative is relative to it."""


@dataclass(frozen=True, slots=True)
class Value:
    """One effective value, as it may be shown."""

    name: str
    shown: str
    place: str


@dataclass(frozen=True, slots=True)
class Configured:
    """One processor that is enabled."""

    settings: ProcessorSettings
    class_reference: str | None
    """`module:Class`; None: the one that is built in by that name."""
    values: tuple[Value, ...]
    """Every key, and then what follows from them."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """All processors of a configuration."""

    processors: tuple[Configured, ...]
    disabled: Mapping[str, str]
    """The others, with where that is written."""

    def chosen(self, names: Sequence[str]) -> tuple[Configured, ...]:
        """Those of these names, or all that are enabled. Raises `ConfigurationError`."""
        by_name = {each.settings.name.lower(): each for each in self.processors}
        places = {name.lower(): place for name, place in self.disabled.items()}
        for name in names:
            if name.lower() in places:
                raise ConfigurationError(f"{name} is not enabled ({places[name.lower()]})")
            if name.lower() not in by_name:
                known = ", ".join(each.settings.name for each in self.processors)
                raise ConfigurationError(f"there is no processor {name}; there are: {known}")
        if not self.processors:
            raise ConfigurationError("no processor is enabled")
        return tuple(by_name[name] for name in dict.fromkeys(map(str.lower, names or by_name)))


class WrongConfigurationError(ConfigurationError):
    """Several things may be wrong; each has a sentence."""

    def __init__(self, problems: Sequence[str]) -> None:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(problems[0] + more)
        self.problems = tuple(problems)


def read_configuration(documents: Sequence[Document], start: Start) -> Configuration:
    """The processors that documents and environment configure. Raises
    `WrongConfigurationError`."""
    sources = read_sources(documents, start.variables)
    problems = list(sources.problems)
    processors: list[Configured] = []
    disabled: dict[str, str] = {}
    for name in sources.names.values():
        reading = _Reading(name, sources, start)
        enabled = reading.value(KEYS["Enabled"])
        if enabled is False:
            disabled[name] = reading.places["Enabled"]
        elif (found := reading.configured()) is not None:
            processors.append(found)
        problems += reading.problems
    if problems:
        # What is wrong for every processor is told once.
        raise WrongConfigurationError(tuple(dict.fromkeys(problems)))
    return Configuration(tuple(processors), disabled)


class _Reading:
    """One processor while it is read."""

    def __init__(self, name: str, sources: Sources, start: Start) -> None:
        self._name = name
        self._sources = sources
        self._start = start
        self.problems: list[str] = []
        self.places: dict[str, str] = {}

    def value(self, key: Key) -> Any:
        """The effective value, None where it is wrong; its place is noted."""
        written = self._sources.of(self._name, key.name)
        self.places[key.name] = DEFAULT if written is None else written.place
        if written is None:
            return key.default
        try:
            written = filled(written, self._start.variables)
        except MissingVariableError as missing:
            self.problems.append(str(missing))
            return None
        self.places[key.name] = written.place
        return key.default if _is_unset(key, written) else self._parsed(key, written)

    def _parsed(self, key: Key, written: Written) -> Any:
        try:
            return key.kind.parse(written.value)
        except RecursionError:
            reason = "it is nested too deep"
        except ValueError as error:
            # A password that is a number in the file would otherwise be in the sentence.
            reason = "it is not" if key.secret else _shortened(str(error))
        self.problems.append(f"{written.place}: expected {key.kind.expects}, but {reason}")
        return None

    def configured(self) -> Configured | None:
        """All of it; None where something is wrong."""
        values = {name: self.value(key) for name, key in KEYS.items()}
        if values["BrokerHost"] is None and not self._is_problem("BrokerHost"):
            self.problems.append(f"Mqtt.{self._name}.BrokerHost: it is required")
        if self.problems:
            return None
        for name in FILES:
            if values[name] is not None:
                values[name] = str(self._start.folder / values[name])
        values["Sink"] = self._sink(values["Sink"])
        try:
            return self._with_identity(values)
        except ConfigurationError as error:
            self.problems.append(f"Mqtt.{self._name}: {error}")
            return None

    def _is_problem(self, name: str) -> bool:
        return any(problem.startswith(self.places[name]) for problem in self.problems)

    def _sink(self, url: str | None) -> str:
        if url is None:
            return SQLITE + str(self._start.folder.absolute() / f"{self._name}.db")
        if url.startswith(SQLITE):
            return SQLITE + str(self._start.folder.absolute() / url.removeprefix(SQLITE))
        return url

    def _with_identity(self, values: Mapping[str, Any]) -> Configured:
        start = self._start
        variable = start.variables.get(identity.ENVIRONMENT_VARIABLE)
        environment = identity.environment_name(
            values["EnvironmentId"], variable, start.machine_name, start.build
        )
        settings = ProcessorSettings(
            name=self._name,
            environment=environment.name,
            client_identifier=self._client_identifier(values, environment),
            group=identity.group_name(values["SharedSubscriptionGroup"], environment.name),
            **{key.attribute: values[key.name] for key in KEYS.values() if key.attribute},
        )
        for topic_filter in settings.topic_filters:
            identity.check_filter(topic_filter)
        return Configured(
            settings, values["Processor"], self._values(values, settings, environment)
        )

    def _client_identifier(self, values: Mapping[str, Any], environment: EnvironmentName) -> str:
        client_id, start = values["ClientId"], self._start
        if values["AppendUniqueIdToClientId"]:
            return identity.ephemeral_client_identifier(
                client_id, environment.name, start.timestamp, start.unique
            )
        instance = identity.instance_name(values["InstanceId"], start.machine_name)
        return identity.persistent_client_identifier(client_id, environment.name, instance)

    def _values(
        self, values: Mapping[str, Any], settings: ProcessorSettings, environment: EnvironmentName
    ) -> tuple[Value, ...]:
        keys = [
            Value(name, key.shown(values[name]), self.places[name]) for name, key in KEYS.items()
        ]
        named_by = environment.named_by
        configured = named_by is NamedBy.CONFIGURATION
        where = self.places["EnvironmentId"] if configured else named_by.value
        last = "a part of its own" if values["AppendUniqueIdToClientId"] else "InstanceId"
        follows = [
            Value("environment", settings.environment, where),
            Value(
                "client identifier",
                settings.client_identifier,
                f"ClientId, the environment, {last}",
            ),
            Value(
                "subscriptions",
                ", ".join(settings.topic_filters) or "(none)",
                "SubscribeTopics, SharedSubscriptionGroup, the environment",
            ),
            Value("dead letters", settings.dead_letters, "DeadLetterTopic"),
        ]
        return (*keys, *follows)


def _shortened(reason: str) -> str:
    """A reason quotes what is written, which may be long; its end says what is wrong with that."""
    most = REASON_CHARACTERS_MAXIMUM
    return reason if len(reason) <= most else f"{reason[: most // 2]}...{reason[-most // 2 :]}"


def _is_unset(key: Key, written: Written) -> bool:
    """`null`, and blanks where nothing is a value, say that nothing is set, also over a value of an
    earlier source."""
    if written.value is None:
        return True
    if key.default is not None or not isinstance(written.value, str):
        return False
    return not written.value if key.secret else not written.value.strip()
