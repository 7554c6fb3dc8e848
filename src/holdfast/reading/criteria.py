"""What a reader wants, as a value: which topics, and which of their messages.

Invariant: all criteria have to be met; one that is not given is met by anything.
"""

from dataclasses import dataclass
from typing import Final

EVERYTHING_FROM: Final = 0
EVERYTHING_UNTIL: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Span:
    """A topic filter that holds between two offsets, and not for what one party published."""

    topic_filter: str
    from_offset: int = EVERYTHING_FROM
    until_offset: int = EVERYTHING_UNTIL
    without_publisher: int = 0
    """0: nobody's messages are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """What a reader wants."""

    filters: tuple[str, ...] = ()
    """MQTT topic filters, of which one has to match, or one of `spans`. Without both every topic is
    meant that `#` matches."""
    spans: tuple[Span, ...] = ()
    pattern: str | None = None
    """A regular expression that the whole name of the topic matches."""
    topics: tuple[str, ...] | None = None
    """The topic is one of these."""
    prefix: str = ""
    """The topic's name begins with this."""
    qos: tuple[int, ...] | None = None
    retain: bool | None = None
    keys: tuple[bytes, ...] | None = None

    def __str__(self) -> str:
        told = list(self.filters[:SHOWN]) + [span.topic_filter for span in self.spans[:SHOWN]]
        more = len(self.filters) + len(self.spans) - len(told)
        if self.pattern is not None:
            told.append(f"topics like {self.pattern}")
        return (", ".join(told) or "#") + (f" and {more} more" if more > 0 else "")


SHOWN: Final = 5
"""Filters in a sentence for people."""
EVERYTHING: Final = Criteria()
