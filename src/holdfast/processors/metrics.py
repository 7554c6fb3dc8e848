"""What is counted of processors, for Prometheus, on a registry of its own.

Owns: names, meanings and labels. Never: decides what is counted; `running` does.
"""

from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

LABELS: Final = ("processor", "environment")
BATCH_MESSAGES_BUCKETS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
COMMIT_SECONDS_BUCKETS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers of one processor."""

    received: Counter
    redelivered: Counter
    committed: Counter
    written: Counter
    repeats: Counter
    rejected: Counter
    dead_letters: Counter
    failed_attempts: Counter
    reconnects: Counter
    sessions_lost: Counter
    sink_away: Counter
    open: Gauge
    oldest_open_s: Gauge
    batch_messages: Histogram
    commit_s: Histogram


class Metrics:
    """The metrics of all processors of a process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._families = Counts(
            received=self._counter("messages_received", "Messages that the broker has delivered"),
            redelivered=self._counter("messages_redelivered", "Of those, what had come before"),
            committed=self._counter("messages_committed", "Messages whose rows are in the sink"),
            written=self._counter("rows_written", "Rows that were written"),
            repeats=self._counter("rows_repeated", "Rows that the sink had already"),
            rejected=self._counter("messages_rejected", "Messages that cannot be worked on"),
            dead_letters=self._counter("dead_letters", "Of those, what the broker has taken back"),
            failed_attempts=self._counter("attempts_failed", "Attempts that are made again"),
            reconnects=self._counter("reconnects", "Connections after the first"),
            sessions_lost=self._counter("sessions_lost", "Sessions that the broker had no more"),
            sink_away=self._counter("sink_away", "Commits that the sink could not take"),
            open=self._gauge("open_messages", "Messages that are not acknowledged yet"),
            oldest_open_s=self._gauge("oldest_open_seconds", "For how long the oldest is open"),
            batch_messages=Histogram(
                "holdfast_processor_batch_messages",
                "Messages in a batch",
                LABELS,
                buckets=BATCH_MESSAGES_BUCKETS,
                registry=self._registry,
            ),
            commit_s=Histogram(
                "holdfast_processor_commit_seconds",
                "Time in which a batch was parsed and committed",
                LABELS,
                buckets=COMMIT_SECONDS_BUCKETS,
                registry=self._registry,
            ),
        )

    def of(self, processor: str, environment: str) -> Counts:
        """The numbers of one processor, from zero."""
        names = Counts.__dataclass_fields__
        found = {name: getattr(self._families, name) for name in names}
        return Counts(
            **{name: family.labels(processor, environment) for name, family in found.items()}
        )

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self._registry)

    def _counter(self, name: str, meaning: str) -> Counter:
        return Counter(f"holdfast_processor_{name}", meaning, LABELS, registry=self._registry)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(f"holdfast_processor_{name}", meaning, LABELS, registry=self._registry)
