"""The report's page: what it says of names that clients have chosen."""

from html import escape
from typing import Any

from holdfast.pipeline.report.page import page

MARKUP = '<img src=x onerror="alert(1)">'
AT = "2026-01-31T10:00:00+00:00"
PERCENTILES = {"windowStart": AT, "p50Ms": 1.0, "p95Ms": 2.0, "p99Ms": 3.0}
COUNTED = ("records", "reads", "events", "readers", "tags", "duplicates", "late", "rejected")


def named(name: str) -> dict[str, Any]:
    """A report in which everything that has a name has this one."""
    return {
        "made_at": AT,
        "log": {"epoch": name, "subscribe": name},
        "window_s": 60,
        "totals": dict.fromkeys((*COUNTED, "behind"), 1),
        "throughput": [{"environment": name, "windowStart": AT, "messages": 1}],
        "latency": [{"environment": name, **PERCENTILES}],
        "consumer_latency": [{"queue": f"$share/bbu/{name}/#", **PERCENTILES}],
        "readers": [
            {
                "reader": name,
                "tags": 1,
                "visits": 1,
                "reads": 1,
                "meanDwellSeconds": 1.0,
                "longestDwellSeconds": 1.0,
            }
        ],
        "visits": [{"hostName": name, "idHex": name, "startedAt": AT, "endedAt": AT}],
        "queued_deliveries": [],
        "gaps": [{"device": name, "silentSeconds": 1.0, "heardAgainAt": AT}],
        "rejected": [{"rule": name, "rows": 1}],
        "tables": [
            {
                "table": name,
                "reads": name,
                "rows": 1,
                "files": 1,
                "size_bytes": 1,
                "commits": 1,
                "version": 1,
                "behind": 0,
            }
        ],
    }


def test_no_name_is_markup_on_the_page() -> None:
    made = page(named(MARKUP))
    assert "<img" not in made
    assert f"<h2>From log to {escape(f'$share/bbu/{MARKUP}/#')}</h2>" in made
    # The marks of the page are there, and as many as with a name of letters alone.
    assert made.count("<") == page(named("name")).count("<")
