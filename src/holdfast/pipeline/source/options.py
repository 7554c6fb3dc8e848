"""Understand the options of the data source `holdfast`.

Owns: the table of options with their forms, defaults and Kafka's names for them, in the style of
Spark's Kafka source; docs/pipeline/coming-from-kafka.md is made of it.
Never: talks to a broker or a directory.

Invariants:
1. What is misspelt or contradicts itself raises `OptionError`, which names the option.
2. `Options` is a value: it travels to executors and means the same there.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from holdfast.core.limits import READ_PARTS_MAXIMUM
from holdfast.pipeline.source import forms
from holdfast.pipeline.source.columns import DEFAULT_COLUMNS
from holdfast.pipeline.source.forms import Boundary, OptionError
from holdfast.reading.criteria import Criteria

Use = Literal["batch", "stream", "write"]
READ: Final[tuple[Use, ...]] = ("batch", "stream")


@dataclass(frozen=True, slots=True)
class Option:
    """One option: a row of the table."""

    name: str
    form: Callable[[str, str], Any]
    """Reads the text, given the name for what is wrong with it."""
    default: str
    meaning: str
    uses: tuple[Use, ...] = READ
    kafka: str = ""
    """Kafka's name of what means the same; empty: there is none."""


OPTIONS: Final = (
    Option(
        "broker",
        forms.address,
        "",
        "host:port of the HTTP listener, or https://host:port",
        ("batch", "stream", "write"),
        "kafka.bootstrap.servers",
    ),
    Option(
        "dataDir",
        forms.text,
        "",
        "in place of `broker`: a broker's data directory on this machine, also beside a running"
        " broker",
    ),
    Option(
        "user",
        forms.text,
        "",
        "where credentials are set up: a reader or an administrator",
        ("batch", "stream", "write"),
        "kafka.sasl.jaas.config",
    ),
    Option(
        "password",
        forms.text,
        "",
        "of that user; in no plan and no log line",
        ("batch", "stream", "write"),
        "kafka.sasl.jaas.config",
    ),
    Option(
        "passwordFile",
        forms.password_file,
        "",
        "in place of `password`: a file that holds it, on the driver's machine; over Spark Connect"
        " on the server's",
        ("batch", "stream", "write"),
        "kafka.sasl.jaas.config",
    ),
    Option(
        "brokerTimeout",
        forms.patience_s,
        "batch 60s, stream forever",
        "how long a broker may be away before the query fails",
        READ,
        "kafkaConsumer.pollTimeoutMs, fetchOffset.numRetries",
    ),
    Option(
        "subscribe",
        forms.filters,
        "",
        "topics or MQTT filters, separated by commas",
        READ,
        "subscribe",
    ),
    Option(
        "subscribePattern",
        forms.pattern,
        "",
        "in place of `subscribe`: a regular expression that the whole topic name matches",
        READ,
        "subscribePattern",
    ),
    Option(
        "queue",
        forms.text,
        "",
        "in place of `subscribe`: what a named queue shows, read or not",
        ("batch",),
    ),
    Option(
        "cursor",
        forms.cursor,
        "",
        "a durable place at the broker, with this name: what the query has not committed is kept"
        " for it; a batch reads from there and moves nothing",
        READ,
        "kafka.group.id",
    ),
    Option(
        "startingOffsets",
        forms.boundary,
        "batch earliest, stream latest",
        'earliest (-2), latest (-1), a number, or one of these as JSON for the shard: {"0": 17}',
        READ,
        "startingOffsets",
    ),
    Option(
        "startingTimestamp",
        forms.time_us,
        "",
        "instead: milliseconds since 1970, or ISO 8601",
        READ,
        "startingTimestamp",
    ),
    Option(
        "startingOffsetsByTimestamp",
        forms.shard_time_us,
        "",
        'instead, as JSON for the shard: {"0": milliseconds since 1970}',
        READ,
        "startingOffsetsByTimestamp",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        forms.strategy,
        "latest",
        "a starting time later than every message means: `latest`, nothing is there yet; `error`,"
        " Kafka's default, fail",
        READ,
        "startingOffsetsByTimestampStrategy",
    ),
    Option(
        "endingOffsets",
        forms.boundary,
        "latest",
        'latest (-1), a number, or {"0": 17}',
        ("batch",),
        "endingOffsets",
    ),
    Option(
        "endingTimestamp",
        forms.time_us,
        "",
        "instead: milliseconds since 1970, or ISO 8601",
        ("batch",),
        "endingTimestamp",
    ),
    Option(
        "endingOffsetsByTimestamp",
        forms.shard_time_us,
        "",
        "instead, as JSON for the shard",
        ("batch",),
        "endingOffsetsByTimestamp",
    ),
    Option(
        "maxOffsetsPerTrigger",
        forms.count,
        "500000",
        "messages in a micro-batch, at most",
        ("stream",),
        "maxOffsetsPerTrigger",
    ),
    Option(
        "maxBytesPerTrigger",
        forms.size,
        "128m",
        "bytes of them in the log, about",
        ("stream",),
    ),
    Option(
        "minOffsetsPerTrigger",
        forms.count,
        "",
        "a micro-batch waits until there are so many, or until",
        ("stream",),
        "minOffsetsPerTrigger",
    ),
    Option(
        "maxTriggerDelay",
        forms.duration_s,
        "15m",
        "so much time has passed since the last one",
        ("stream",),
        "maxTriggerDelay",
    ),
    Option(
        "minPartitions",
        forms.partitions,
        "2, or 1 for a small range",
        f"tasks, each with about as many bytes; {READ_PARTS_MAXIMUM} at most",
        READ,
        "minPartitions",
    ),
    Option(
        "maxRecordsPerPartition",
        forms.count,
        "",
        "messages of a task, at most: there are more tasks where needed, up to"
        f" {READ_PARTS_MAXIMUM}; what needs more is refused",
        READ,
        "maxRecordsPerPartition",
    ),
    Option(
        "failOnDataLoss",
        forms.flag,
        "true",
        "fail if retention has taken, or the disk damaged, what was to be read; `false` goes on and"
        " counts what is lost",
        READ,
        "failOnDataLoss",
    ),
    Option(
        "failOnSelectionChange",
        forms.flag,
        "true",
        "fail if the checkpoint was made with other topics; `false` goes on at its offset: what the"
        " new topics had before that is not read",
        ("stream",),
    ),
    Option(
        "columns",
        forms.columns,
        "all without a star",
        "read only these columns; the others are not even filled",
    ),
    Option(
        "includeHeaders",
        forms.flag,
        "false",
        "add the column `headers`",
        READ,
        "includeHeaders",
    ),
    Option(
        "pushdown",
        forms.flag,
        "false",
        "hand filters on topic, offset, timestamp, qos, key and retain to the broker: for a frame"
        " that is used in one place of one query, since Spark keeps what the filters left for every"
        " other use of it; the session needs spark.sql.python.filterPushdown.enabled, which"
        " `local_session` sets",
        ("batch",),
    ),
)
"""Every option of the source."""

INSTEAD: Final = {
    "assign": "there are no partitions to choose: give 'subscribe', and 'startingOffsets' for where"
    " to begin",
    "kafka.bootstrap.servers": "give 'broker', host:port of the HTTP listener",
    "kafka.group.id": "give 'cursor', a durable place with a name",
    "groupIdPrefix": "give 'cursor', a durable place with a name",
    "kafka.security.protocol": "give 'broker' as https://host:port",
    "kafka.sasl.jaas.config": "give 'user' and 'password' or 'passwordFile'",
    "kafka.sasl.mechanism": "give 'user' and 'password' or 'passwordFile'",
    "fetchOffset.numRetries": "give 'brokerTimeout'",
    "fetchOffset.retryIntervalMs": "give 'brokerTimeout'",
    "kafkaConsumer.pollTimeoutMs": "give 'brokerTimeout'",
}
"""Options of Spark's Kafka source that cannot be here, and what to use."""
_INSTEAD: Final = {name.lower(): instead for name, instead in INSTEAD.items()}
_KNOWN: Final = {option.name.lower(): option for option in OPTIONS}
_OF_A_TABLE: Final = frozenset({"owner", "provider"})
"""Spark adds both where a table is made."""
_GIVEN_TO_A_TABLE: Final = "option."
"""Before the name of each option that a table is made with. Without it they are among the table's
properties too, and these are not all ours."""
_AT_MOST_ONE: Final = (
    ("subscribe", "subscribePattern", "queue"),
    ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
    ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
    ("password", "passwordFile"),
)


@dataclass(frozen=True, slots=True)
class Options:
    """What one `load()` asked for."""

    given: tuple[str, ...]
    """The names of what was given."""
    broker: str | None
    user: str | None
    password: str | None = field(repr=False)
    data_dir: str | None
    timeout_s: float | None
    criteria: Criteria
    queue: str | None
    cursor: str | None
    starting_offset: Boundary | None
    starting_time_us: int | None
    starting_strategy: str
    ending_offset: Boundary | None
    ending_time_us: int | None
    offsets_per_trigger: int | None
    bytes_per_trigger: int | None
    offsets_to_wait_for: int | None
    trigger_delay_s: float | None
    partitions: int | None
    records_per_partition: int | None
    fail_on_data_loss: bool
    fail_on_selection_change: bool
    columns: tuple[str, ...]
    pushdown: bool
    reader: str | None = None
    """By what the broker knows that driver and tasks are one query; nobody gives it."""

    def refuse_unless(self, use: Use, sentence: str) -> None:
        """Raises for an option that is not for this use, with what it is."""
        for name in self.given:
            uses = _KNOWN[name.lower()].uses
            if use not in uses:
                where = {"batch": "batches", "stream": "streams", "write": "writing"}
                among = " and ".join(where[each] for each in uses)
                raise OptionError(name, f"is for {among}; {sentence}")


def parse_options(given: Mapping[str, str]) -> Options:
    """Options as Spark hands them over: text, with names in any case."""
    found = _known(given)
    _check_together(found)
    starting = found.get("startingOffsetsByTimestamp", found.get("startingTimestamp"))
    ending = found.get("endingOffsetsByTimestamp", found.get("endingTimestamp"))
    return Options(
        given=tuple(found),
        broker=found.get("broker"),
        user=found.get("user"),
        password=found.get(password_option(found)),
        data_dir=found.get("dataDir"),
        timeout_s=found.get("brokerTimeout"),
        criteria=Criteria(
            filters=found.get("subscribe", ()), pattern=found.get("subscribePattern")
        ),
        queue=found.get("queue"),
        cursor=found.get("cursor"),
        starting_offset=found.get("startingOffsets"),
        starting_time_us=starting,
        starting_strategy=found.get("startingOffsetsByTimestampStrategy", "latest"),
        ending_offset=found.get("endingOffsets"),
        ending_time_us=ending,
        offsets_per_trigger=found.get("maxOffsetsPerTrigger"),
        bytes_per_trigger=found.get("maxBytesPerTrigger"),
        offsets_to_wait_for=found.get("minOffsetsPerTrigger"),
        trigger_delay_s=found.get("maxTriggerDelay"),
        partitions=found.get("minPartitions"),
        records_per_partition=found.get("maxRecordsPerPartition"),
        fail_on_data_loss=found.get("failOnDataLoss", True),
        fail_on_selection_change=found.get("failOnSelectionChange", True),
        columns=_columns(found),
        pushdown=found.get("pushdown", False),
    )


def password_option(found: Collection[str]) -> str:
    """The name of the option that the password came by."""
    return "passwordFile" if "passwordFile" in found else "password"


def is_of_a_table(given: Mapping[str, str]) -> bool:
    """True while `CREATE TABLE` asks, which has options of Spark's own."""
    return {name.lower() for name in given} >= _OF_A_TABLE


def options_of_user(given: Mapping[str, str]) -> dict[str, str]:
    """The options without what Spark adds where a table is made."""
    if not is_of_a_table(given):
        return dict(given)
    prefix = _GIVEN_TO_A_TABLE
    return {
        name[len(prefix) :]: value
        for name, value in given.items()
        if name.lower().startswith(prefix)
    }


def _known(given: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in options_of_user(given).items():
        lower = name.lower()
        if lower == "path":
            raise OptionError(
                name, "is not used; give 'broker' or 'dataDir', and load() without a path"
            )
        if lower in _INSTEAD or lower.startswith("kafka."):
            instead = _INSTEAD.get(lower, "a broker here has no such setting; leave it out")
            raise OptionError(name, f"is Kafka's own; {instead}")
        option = _KNOWN.get(lower)
        if option is None:
            known = ", ".join(each.name for each in OPTIONS)
            raise OptionError(name, f"is unknown; there are {known}")
        # A password may begin or end with a space.
        text = value if option.name == "password" else value.strip()
        found[option.name] = option.form(option.name, text)
    return found


def _check_together(found: Mapping[str, Any]) -> None:
    if ("broker" in found) == ("dataDir" in found):
        raise OptionError("broker", "or 'dataDir' must be given, and not both")
    secret = password_option(found)
    for one, other in (("user", secret), (secret, "user")):
        if one in found and ("broker" not in found or other not in found):
            raise OptionError(one, f"goes with 'broker' and '{other}'")
    for names in _AT_MOST_ONE:
        first, *more = [name for name in names if name in found] or [names[0]]
        if more:
            raise OptionError(more[0], f"cannot be combined with '{first}'")
    if not any(name in found for name in _AT_MOST_ONE[0]):
        raise OptionError("subscribe", "is missing: topics or MQTT filters, separated by commas")
    if "queue" in found and "broker" not in found:
        raise OptionError("queue", "goes with 'broker', which knows what a queue shows")
    if "cursor" in found and "broker" not in found:
        raise OptionError("cursor", "is kept by a running broker: it goes with 'broker'")
    if "cursor" in found and "subscribe" not in found:
        raise OptionError("cursor", "keeps what filters match: it goes with 'subscribe'")
    if "maxTriggerDelay" in found and "minOffsetsPerTrigger" not in found:
        raise OptionError("maxTriggerDelay", "goes with 'minOffsetsPerTrigger'")
    least, most = found.get("minOffsetsPerTrigger", 0), found.get("maxOffsetsPerTrigger")
    if most is not None and least > most:
        raise OptionError("minOffsetsPerTrigger", "is greater than 'maxOffsetsPerTrigger'")


def _columns(found: Mapping[str, Any]) -> tuple[str, ...]:
    headers = found.get("includeHeaders")
    names: tuple[str, ...] = found.get("columns", DEFAULT_COLUMNS)
    if "headers" in names:
        if headers is False:
            raise OptionError("columns", "names 'headers', and 'includeHeaders' is false")
        return names
    return (*names, "headers") if headers else names
