"""Understand the options of a writer.

Owns: those that a writer alone has, as rows of the same kind as the source's, and what goes
together. Never: talks to a broker.

Invariant: what is misspelt or contradicts itself raises `OptionError`, which names the option.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.kernel import is_valid_topic_name
from holdfast.pipeline.source import forms
from holdfast.pipeline.source.forms import OptionError
from holdfast.pipeline.source.options import OPTIONS, Option, options_of_user, password_option

TIMEOUT_S: Final = 300.0
"""Longer than a broker takes to start again, and shorter than somebody waits for a task."""
_NAME: Final = re.compile(r"[A-Za-z0-9._:~@=,+-]{1,1024}")


def _topic(option: str, given: str) -> str:
    if not is_valid_topic_name(given.encode()):
        raise OptionError(option, f"must be a topic without wildcards, not {given!r}")
    return given


def _producer(option: str, given: str) -> str:
    if not _NAME.fullmatch(given):
        raise OptionError(option, f"has letters, digits and . _ : ~ @ = , + -, not {given!r}")
    return given


def _number(option: str, given: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", given):
        raise OptionError(option, f"must be a whole number, not {given!r}")
    return int(given)


WRITER_OPTIONS: Final = (
    Option("topic", _topic, "", "the topic of all rows, in place of a column", ("write",), "topic"),
    Option(
        "producer",
        _producer,
        "the query, or a new name",
        "of a batch: under which name the broker remembers that it was written; with `batch`",
        ("write",),
    ),
    Option(
        "batch",
        _number,
        "",
        "of a batch: its number; what the producer has written under it or a greater one is not"
        " written again",
        ("write",),
    ),
    Option(
        "brokerTimeout",
        forms.patience_s,
        "300s",
        "how long a broker may be away, or have no room, before the write fails",
        ("write",),
        "kafka.delivery.timeout.ms",
    ),
)
"""Besides those of the source that are for writers too."""
_KNOWN: Final = {
    option.name.lower(): option
    for option in (*(each for each in OPTIONS if "write" in each.uses), *WRITER_OPTIONS)
}
_SPARK_ITS_OWN: Final = {"checkpointlocation", "queryname", "outputmode"}
"""Spark hands these over too; they are its own."""


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """What one `save()` or `start()` asked for."""

    broker: str
    user: str | None
    password: str | None = field(repr=False)
    topic: str | None
    producer: str | None
    batch: int | None
    timeout_s: float


def parse_writer_options(given: Mapping[str, str]) -> WriterOptions:
    """Options as Spark hands them over: text, with names in any case."""
    found = _known(given)
    if "broker" not in found:
        raise OptionError("broker", "is missing: host:port of the broker's HTTP listener")
    if {"password", "passwordFile"} <= found.keys():
        raise OptionError("passwordFile", "cannot be combined with 'password'")
    secret = password_option(found)
    together = ("user", secret), (secret, "user"), ("producer", "batch")
    for one, other in (*together, ("batch", "producer")):
        if one in found and other not in found:
            raise OptionError(one, f"goes with '{other}'")
    return WriterOptions(
        broker=found["broker"],
        user=found.get("user"),
        password=found.get(secret),
        topic=found.get("topic"),
        producer=found.get("producer"),
        batch=found.get("batch"),
        timeout_s=found.get("brokerTimeout", TIMEOUT_S),
    )


def _known(given: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in options_of_user(given).items():
        if name.lower() in _SPARK_ITS_OWN:
            continue
        if name.lower() == "datadir":
            raise OptionError(name, "is for reading; a writer needs a running 'broker'")
        option = _KNOWN.get(name.lower())
        if option is None:
            known = ", ".join(each.name for each in _KNOWN.values())
            raise OptionError(name, f"is unknown to a writer; there are {known}")
        # A password may begin or end with a space.
        text = value if option.name == "password" else value.strip()
        found[option.name] = option.form(option.name, text)
    return found
