"""What the report says, as plain values.

Owns: which rows of the tables a reader wants to see, and how many at most.
Never: starts Spark; it reads the answers, which are small, and counts of the rest from their files.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from holdfast.core.errors import OperatingError
from holdfast.pipeline.load.warehouse import Warehouse
from holdfast.pipeline.running import Pipeline
from holdfast.pipeline.status import Status, status_of

WINDOWS_MAXIMUM: Final = 720
"""The newest windows: half a day of minutes, and about as many as a chart has pixels."""
QUEUED_ROWS: Final = 20
"""As many as the decision record asks for, the newest first."""
GAPS_MAXIMUM: Final = 20
"""The longest silences: whoever looks for one looks for those."""
LANES_MAXIMUM: Final = 24
"""Readers that one looks at side by side; those with the most visits."""
VISITS_MAXIMUM: Final = 2_000
"""The newest visits: more marks in a lane are a smear."""


class ReportError(OperatingError):
    """There is nothing to report on."""

    retriable = False


def report_data(pipeline: Pipeline, made_at: datetime) -> dict[str, Any]:
    """Everything that the page shows. Times are text in ISO 8601."""
    status = status_of(pipeline)
    origin = Warehouse.recorded(pipeline.configuration.directory)
    if status is None or origin is None:
        raise ReportError(
            f"there are no tables in {pipeline.configuration.directory} yet;"
            " `holdfast pipeline run` makes them"
        )
    warehouse = Warehouse(pipeline.configuration.directory, origin)
    visits = _rows(warehouse, "presence")
    found: dict[str, Any] = _plain(
        {
            "made_at": made_at,
            "log": {"epoch": status.epoch, "subscribe": status.subscribe},
            "window_s": pipeline.configuration.answers.window_s,
            "totals": _totals(warehouse, status, visits),
            "throughput": _windows(warehouse, "throughput"),
            "latency": _windows(warehouse, "latency"),
            "consumer_latency": _windows(warehouse, "consumer_latency"),
            "readers": _readers(visits),
            "visits": _visits(visits),
            "queued_deliveries": _newest(warehouse, "queued_deliveries", "batch_time", QUEUED_ROWS),
            "gaps": _gaps(warehouse),
            "rejected": _rejected(warehouse),
            "tables": [asdict(each) for each in status.tables],
        }
    )
    return found


def _totals(warehouse: Warehouse, status: Status, visits: pa.Table) -> dict[str, Any]:
    counts = {each.table: each.rows for each in status.tables}
    late = 0
    if warehouse.table("tag_reads").exists():
        column = _rows(warehouse, "tag_reads", ["late"])["late"]
        late = pc.sum(column).as_py() or 0
    return {
        "records": counts.get("bronze", 0),
        "reads": counts.get("tag_reads", 0),
        "events": counts.get("reader_events", 0),
        "duplicates": counts.get("duplicates", 0),
        "rejected": counts.get("rejected", 0),
        "late": late,
        "readers": len(set(visits["hostName"].to_pylist())) if visits.num_rows else 0,
        "tags": len(set(visits["idHex"].to_pylist())) if visits.num_rows else 0,
        "behind": max((each.behind for each in status.tables), default=0),
    }


def _windows(warehouse: Warehouse, name: str) -> list[dict[str, Any]]:
    rows = _rows(warehouse, name)
    if not rows.num_rows:
        return []
    begins = sorted(set(rows["windowStart"].to_pylist()))[-WINDOWS_MAXIMUM:]
    kept = [row for row in rows.to_pylist() if row["windowStart"] >= begins[0]]
    return sorted(kept, key=lambda row: (row["windowStart"], row["environment"]))


def _readers(visits: pa.Table) -> list[dict[str, Any]]:
    if not visits.num_rows:
        return []
    grouped = visits.group_by("hostName").aggregate(
        [
            ("idHex", "count_distinct"),
            ("dwellSeconds", "count"),
            ("dwellSeconds", "mean"),
            ("dwellSeconds", "max"),
            ("reads", "sum"),
        ]
    )
    found = [
        {
            "reader": row["hostName"],
            "tags": row["idHex_count_distinct"],
            "visits": row["dwellSeconds_count"],
            "meanDwellSeconds": row["dwellSeconds_mean"],
            "longestDwellSeconds": row["dwellSeconds_max"],
            "reads": row["reads_sum"],
        }
        for row in grouped.to_pylist()
    ]
    most = sorted(found, key=lambda row: -row["visits"])[:LANES_MAXIMUM]
    return sorted(most, key=lambda row: str(row["reader"]))


def _visits(visits: pa.Table) -> list[dict[str, Any]]:
    if not visits.num_rows:
        return []
    names = ["hostName", "idHex", "startedAt", "endedAt"]
    newest = visits.select(names).sort_by([("endedAt", "descending")])
    return list(newest.slice(0, VISITS_MAXIMUM).to_pylist())


def _newest(warehouse: Warehouse, name: str, by: str, count: int) -> list[dict[str, Any]]:
    rows = _rows(warehouse, name)
    if not rows.num_rows:
        return []
    return list(rows.sort_by([(by, "descending")]).slice(0, count).to_pylist())


def _gaps(warehouse: Warehouse) -> list[dict[str, Any]]:
    rows = _rows(warehouse, "liveness")
    if not rows.num_rows:
        return []
    after = rows.filter(pc.is_valid(rows["silentSeconds"]))
    longest = after.sort_by([("silentSeconds", "descending")]).slice(0, GAPS_MAXIMUM)
    return [
        {
            "device": row["device"],
            "heardAgainAt": row["startedAt"],
            "silentSeconds": row["silentSeconds"],
        }
        for row in longest.to_pylist()
    ]


def _rejected(warehouse: Warehouse) -> list[dict[str, Any]]:
    rows = _rows(warehouse, "rejected", ["schema", "rule"])
    if not rows.num_rows:
        return []
    grouped = rows.group_by(["schema", "rule"]).aggregate([([], "count_all")]).to_pylist()
    found = [
        {"schema": row["schema"], "rule": row["rule"], "rows": row["count_all"]} for row in grouped
    ]
    return sorted(found, key=lambda row: (-row["rows"], row["rule"]))


def _rows(warehouse: Warehouse, name: str, columns: list[str] | None = None) -> pa.Table:
    table = warehouse.table(name)
    if not table.exists():
        return pa.table({})
    return DeltaTable(str(table.path)).to_pyarrow_table(columns=columns)


def _plain(value: Any) -> Any:
    """As JSON takes it."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [_plain(each) for each in value]
    return value
