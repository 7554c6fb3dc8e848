"""Understand the options of a writer.

Owns: their names, forms and defaults. Never: talks to a broker.

Invariant: what is misspelt or contradicts itself raises `OptionError`, which names the option.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from holdfast.kernel import is_valid_topic_name
from holdfast.pipeline.source.forms import OptionError

PATIENCE_S: Final = 300
"""Longer than a broker takes to start again, and shorter than somebody waits for a task."""


class WriterOption(NamedTuple):
    """One option of a writer."""

    name: str
    form: str
    default: str
    meaning: str
    kafka: str


WRITER_OPTIONS: Final = (
    WriterOption(
        "broker",
        "host:port, or https://host:port",
        "",
        "The broker's HTTP listener.",
        "kafka.bootstrap.servers",
    ),
    WriterOption("user", "text", "none", "A user whose rules allow it to publish.", ""),
    WriterOption("password", "text", "none", "That user's password.", ""),
    WriterOption(
        "topic", "topic name", "none", "The topic of all rows, in place of a column.", "topic"
    ),
    WriterOption(
        "producer",
        "text",
        "the query, or a new name",
        "Of a batch: under which name the broker remembers that it was written. Goes with batch.",
        "",
    ),
    WriterOption(
        "batch",
        "number",
        "none",
        "Of a batch: its number. What the producer has written under it, or under a greater one, is"
        " not written again.",
        "",
    ),
    WriterOption(
        "patience",
        "seconds",
        str(PATIENCE_S),
        "How long a broker is waited for that does not answer or has no room.",
        "kafka.delivery.timeout.ms",
    ),
)
_KNOWN: Final = {option.name.lower(): option.name for option in WRITER_OPTIONS}
_SPARK_ITS_OWN: Final = {"checkpointlocation", "queryname", "outputmode"}
"""Spark hands these over too; they are its own."""
_NAME: Final = re.compile(r"[A-Za-z0-9._:~@=,+-]{1,1024}")


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """What one `save()` or `start()` asked for."""

    broker: str
    user: str | None
    password: str | None = field(repr=False)
    topic: str | None
    producer: str | None
    batch: int | None
    patience_s: int


def parse_writer_options(given: Mapping[str, str]) -> WriterOptions:
    """Options as Spark hands them over: text, with names in any case."""
    options = _known(given)
    broker = options.get("broker")
    if broker is None:
        raise OptionError("broker", "is missing: host:port of the broker's HTTP listener")
    for one, other in (("user", "password"), ("password", "user"), ("producer", "batch")):
        if one in options and other not in options:
            raise OptionError(one, f"goes with '{other}'")
    if "batch" in options and "producer" not in options:
        raise OptionError("batch", "goes with 'producer'")
    topic = options.get("topic")
    if topic is not None and not is_valid_topic_name(topic.encode()):
        raise OptionError("topic", f"must be a topic without wildcards, not {topic!r}")
    producer = options.get("producer")
    if producer is not None and not _NAME.fullmatch(producer):
        raise OptionError(
            "producer", f"has letters, digits and . _ : ~ @ = , + -, not {producer!r}"
        )
    return WriterOptions(
        broker=broker,
        user=options.get("user"),
        password=options.get("password"),
        topic=topic,
        producer=producer,
        batch=_number("batch", options["batch"]) if "batch" in options else None,
        patience_s=_number("patience", options.get("patience", str(PATIENCE_S))),
    )


def _known(given: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for name, value in given.items():
        if name.lower() in _SPARK_ITS_OWN:
            continue
        if name.lower() == "datadir":
            raise OptionError(name, "is for reading; a writer needs a running 'broker'")
        if name.lower() not in _KNOWN:
            known = ", ".join(option.name for option in WRITER_OPTIONS)
            raise OptionError(name, f"is unknown to a writer; there are {known}")
        known = _KNOWN[name.lower()]
        found[known] = value if known == "password" else value.strip()
    return found


def _number(option: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise OptionError(option, f"must be a whole number, not {text!r}")
    return int(text)
