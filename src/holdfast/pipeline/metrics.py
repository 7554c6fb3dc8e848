"""What the queries of an application do, as Prometheus metrics.

Owns: a listener that remembers what each query said last, and the text of it.
Never: asks the broker, or holds up a query: what it knows came with the queries' own progress.

    metrics = QueryMetrics()
    spark.streams.addListener(metrics)
    with metrics.served(9465): ...

Invariant: there is one series for each query of this application and metric, and no other.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

METRICS: Final = (
    ("active", "gauge", "1 while the query runs."),
    ("failures_total", "counter", "How often it ended with an error."),
    ("batches_total", "counter", "Micro-batches with something in them."),
    ("rows_total", "counter", "Rows that they had."),
    ("batch_seconds", "gauge", "How long the last one took."),
    ("rows_per_second", "gauge", "How fast rows were processed in it."),
    (
        "lag_messages",
        "gauge",
        "Messages of its topics behind the last micro-batch, or at least so many.",
    ),
    ("lag_seconds", "gauge", "Age of the oldest of them when that micro-batch was planned."),
    ("lost_messages_total", "counter", "What retention took before it was read."),
    ("waiting", "gauge", "1 while a broker that is away is waited for."),
)
"""Name behind `holdfast_query_`, kind, and what it says."""
PATH: Final = "/metrics"


@dataclass(slots=True)
class _Seen:
    """What a query said so far."""

    values: dict[str, float] = field(default_factory=lambda: {name: 0.0 for name, _, _ in METRICS})
    last_batch: int = -1
    lost_of_run: float = 0.0


class QueryMetrics(StreamingQueryListener):
    """Listens to all queries of a session."""

    def __init__(self) -> None:
        self._queries: dict[str, _Seen] = {}
        self._names: dict[str, str] = {}
        self._lock = threading.Lock()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """A query runs, perhaps again."""
        with self._lock:
            name = event.name or str(event.id)
            self._names[str(event.id)] = name
            seen = self._queries.setdefault(name, _Seen())
            seen.values["active"] = 1
            seen.lost_of_run = 0.0

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A micro-batch is done, or there was none for a while."""
        progress = event.progress
        with self._lock:
            seen = self._queries.setdefault(progress.name or str(progress.id), _Seen())
            _note(seen, progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing new was there."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """A query has ended."""
        with self._lock:
            # The event has no name, and what ends has started.
            name = self._names.get(str(event.id), str(event.id))
            values = self._queries.setdefault(name, _Seen()).values
            values["active"] = 0
            values["failures_total"] += event.exception is not None

    def text(self) -> str:
        """All metrics, as Prometheus reads them."""
        with self._lock:
            queries = [(name, dict(seen.values)) for name, seen in sorted(self._queries.items())]
        lines = []
        for metric, kind, told in METRICS:
            full = f"holdfast_query_{metric}"
            lines += [f"# HELP {full} {told}", f"# TYPE {full} {kind}"]
            lines += [
                f'{full}{{query="{_escaped(name)}"}} {_number(values[metric])}'
                for name, values in queries
            ]
        return "\n".join([*lines, ""])

    @contextmanager
    def served(self, port: int, host: str = "127.0.0.1") -> Iterator[int]:
        """Serves /metrics until the block ends, on this port, or any if it is 0."""
        listener = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_known = self.path == PATH
                body = listener.text().encode() if is_known else b""
                self.send_response(200 if is_known else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Says nothing: somebody asks every few seconds."""

        server = ThreadingHTTPServer((host, port), Answer)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def _escaped(text: str) -> str:
    """As the value of a label has it, which knows no other escapes."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    """Every digit; whole numbers without a fraction."""
    return str(int(value)) if float(value).is_integer() else str(value)


def _note(seen: _Seen, progress: StreamingQueryProgress) -> None:
    values = seen.values
    if progress.numInputRows > 0 and progress.batchId != seen.last_batch:
        seen.last_batch = progress.batchId
        values["batches_total"] += 1
        values["rows_total"] += progress.numInputRows
        values["batch_seconds"] = progress.batchDuration / 1000
        values["rows_per_second"] = progress.processedRowsPerSecond
    told = [_told(source.latestOffset) for source in progress.sources]
    values["lag_messages"] = sum(each.get("lagMessages", 0) for each in told)
    values["lag_seconds"] = max((each.get("lagSeconds", 0) for each in told), default=0)
    lost = sum(each.get("lostMessages", 0) for each in told)
    values["lost_messages_total"] += max(0, lost - seen.lost_of_run)
    seen.lost_of_run = lost
    values["waiting"] = any("waitingFor" in each for each in told)


def lag_of(progress: StreamingQueryProgress | None) -> int | None:
    """Messages of a query's topics behind its last micro-batch, or at least so many; none if it has
    not said."""
    found = (
        [_told(each.latestOffset).get("lagMessages") for each in progress.sources]
        if progress
        else []
    )
    known = [each for each in found if each is not None]
    return sum(known) if known else None


def _told(latest_offset: str | None) -> dict[str, Any]:
    """What our source says in its latest offset; nothing, of another source."""
    try:
        found = json.loads(latest_offset or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
