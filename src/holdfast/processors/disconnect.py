"""The decision record's controlled disconnect test: what is published, and what it comes to.

Owns: synthetic reads and the verdict. Never: starts or stops anything, or waits.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from holdfast.client.mqtt import Publication
from holdfast.core.units import SECOND_US
from holdfast.processors.arrivals import Marked

ZEBRA_TOPIC: Final = "zebra/fx/{mark}/reads"
ZEBRA_READ: Final = (
    '{"type":"SIMPLE","timestamp":"{time}","data":{"eventNum":{number},"format":"epc",'
    '"idHex":"E28011602000A001","antenna":1,"peakRssi":-50,"reads":1,"hostName":"{mark}"}}'
)
PROBE: Final = 0
"""The number of the read that shows that the processor works, before it is stopped."""
TOGETHER_S: Final = 10.0
"""What has waited arrives within that, more or less: the record asks for similar times."""


@dataclass(frozen=True, slots=True)
class Reads:
    """How synthetic reads are made: `{mark}`, `{number}` and `{time}` are filled in."""

    topic: str = ZEBRA_TOPIC
    payload: str = ZEBRA_READ

    def publication(self, mark: str, number: int, now_us: int) -> Publication:
        """One of them, at QoS 2."""
        moment = datetime.fromtimestamp(now_us / SECOND_US, UTC)
        time = moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03}+0000"
        filled = {"{mark}": mark, "{number}": str(number), "{time}": time}
        topic, payload = self.topic, self.payload
        for name, value in filled.items():
            topic, payload = topic.replace(name, value), payload.replace(name, value)
        return Publication(topic, payload.encode(), qos=2)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found in the table."""

    published: int
    missing: tuple[int, ...]
    twice: tuple[int, ...]
    arrival_span_s: float
    """From the first to the last commit of what had waited."""
    event_span_s: float
    """From the first to the last event of it."""

    @property
    def is_good(self) -> bool:
        """Every read is there once, and those that had waited came close together."""
        return not self.missing and not self.twice and self.arrival_span_s <= TOGETHER_S

    def text(self) -> str:
        """In one sentence."""
        if self.missing:
            return f"{len(self.missing)} of {self.published} reads are missing"
        if self.twice:
            return f"{len(self.twice)} of {self.published} reads are there more than once"
        spans = f"committed within {self.arrival_span_s:.1f} s, events of {self.event_span_s:.1f} s"
        if not self.is_good:
            return f"all {self.published} reads are there, but not close together: {spans}"
        return (
            f"all {self.published} reads that were published while it was away are there: {spans}"
        )


def judge(rows: Sequence[Marked], published: int) -> Verdict:
    """Rows of the numbers 1 to `published`, the probe left out."""
    found = [row for row in rows if row.number != PROBE]
    counts = Counter(row.number for row in found)
    arrived = [row.arrived for row in found]
    events = [row.event for row in found if row.event is not None]
    return Verdict(
        published=published,
        missing=tuple(number for number in range(1, published + 1) if not counts[number]),
        twice=tuple(sorted(number for number, count in counts.items() if count > 1)),
        arrival_span_s=_span_s(arrived),
        event_span_s=_span_s(events),
    )


def _span_s(moments: Sequence[datetime]) -> float:
    return (max(moments) - min(moments)).total_seconds() if moments else 0.0
