"""One frame of `holdfast top`.

Owns: what is put where. Never: counts; every number is one of /v1/statistics.
"""

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from holdfast import system
from holdfast.cli import bridge_frame
from holdfast.cli.record_text import printable
from holdfast.client.http import HttpClient
from holdfast.core.settings import show_duration

QUEUES_SHOWN = 10
REASONS_SHOWN = 10
CURSORS_SHOWN = 10
BRIDGES_SHOWN = 10
ENVIRONMENTS_SHOWN = 10
SUBSCRIPTIONS_SHOWN = 10
CURSOR_LAG = "holdfast_cursor_lag_messages"
CURSOR_OLDEST = "holdfast_cursor_oldest_seconds"
CURSOR_FIRST_LOSS = "holdfast_cursor_first_loss_seconds"
SUBSCRIPTION_BACKLOG = "holdfast_durable_subscription_backlog_messages"
SUBSCRIPTION_OLDEST = "holdfast_durable_subscription_oldest_seconds"
SUBSCRIPTION_CONSUMERS = "holdfast_durable_subscription_consumers"
RATES = (
    ("published", 'holdfast_packets_received{kind="publish"}'),
    ("delivered", 'holdfast_packets_sent{kind="publish"}'),
    ("bytes in", "holdfast_received_bytes"),
    ("bytes out", "holdfast_sent_bytes"),
    ("connects", "holdfast_connects_accepted"),
    ("commits", "holdfast_commits"),
    ("turns", "holdfast_turns"),
)
LEVELS = (
    ("clients", 'holdfast_sessions{state="connected"}'),
    ("at rest", 'holdfast_sessions{state="at_rest"}'),
    ("subscriptions", "holdfast_subscriptions"),
    ("shared groups", "holdfast_shared_groups"),
    ("retained", "holdfast_retained_messages"),
    ("backlog", "holdfast_backlog_messages"),
    ("in flight", "holdfast_in_flight_messages"),
)
SIZES = (
    ("log", "holdfast_log_bytes"),
    ("disk free", "holdfast_disk_free_bytes"),
    ("waits for disk", "holdfast_log_uncommitted_bytes"),
    ("memory", "process_resident_memory_bytes"),
)
LONGEST_STEP = 'holdfast_step_longest_seconds{{step="{}",since="minute"}}'
STEPS_OVER_BUDGET = "holdfast_steps_over_budget{"
REASONS = (
    "holdfast_connects_refused{",
    "holdfast_connections_turned_away{",
    "holdfast_connections_ended_by_broker{",
    "holdfast_subscriptions_refused{",
    "holdfast_publishes_refused{",
    "holdfast_publishes_denied",
    "holdfast_messages_lost{",
    "holdfast_queues_stuck{",
)


class Sample:
    """What a broker said at one moment."""

    def __init__(self, broker: HttpClient) -> None:
        self.numbers: dict[str, float] = broker.get("/v1/statistics")["statistics"]
        self.queues: list[dict[str, Any]] = broker.get("/v1/backlog/longest")["queues"]
        self.bridges: list[dict[str, Any]] = broker.get("/v1/bridges")["bridges"]
        environments = broker.get("/v1/environments")
        self.environments: list[dict[str, Any]] = environments["environments"]
        self.thefts: list[dict[str, Any]] = environments["thefts"]
        self.at_s = system.monotonic_s()


def frame(about: dict[str, Any], before: Sample, now: Sample) -> RenderableType:
    """One frame of two samples."""
    elapsed_s = max(now.at_s - before.at_s, 0.001)
    up = show_duration(int(now.numbers["holdfast_uptime_seconds"]))
    listens = ", ".join(f"{each['protocol']} {each['address']}" for each in about["listeners"])
    title = f"holdfast {about['version']}  up {up}  durability {about['durability']}  {listens}"
    figures = Table.grid(padding=(0, 4))
    figures.add_row(
        _column("a second", [_rate(row, before, now, elapsed_s) for row in RATES]),
        _column("now", [(name, _count(now.numbers.get(key, 0))) for name, key in LEVELS]),
        _column("bytes", [(name, _bytes(now.numbers[key])) for name, key in SIZES]),
        Group(
            _column("commit", _commit(before, now)), _column("longest step", _steps(before, now))
        ),
    )
    below = [
        _queues(now),
        *_cursors(now),
        *_durable_subscriptions(now),
        *_bridges(now),
        *_environments(now),
        _reasons(before, now),
    ]
    return Group(Text(title), Text(""), figures, Text(""), *below)


def _column(title: str, rows: list[tuple[str, str]]) -> Table:
    table = Table(title=title, box=None, show_header=False, title_justify="left")
    table.add_column()
    table.add_column(justify="right")
    for name, value in rows:
        table.add_row(name, value)
    return table


def _rate(row: tuple[str, str], before: Sample, now: Sample, elapsed_s: float) -> tuple[str, str]:
    name, key = row
    grown = (now.numbers.get(key, 0) - before.numbers.get(key, 0)) / elapsed_s
    return name, _bytes(grown) if name.startswith("bytes") else _count(grown)


def _commit(before: Sample, now: Sample) -> list[tuple[str, str]]:
    def grown(key: str) -> float:
        return now.numbers.get(key, 0) - before.numbers.get(key, 0)

    count = grown('holdfast_commit_seconds{le="+Inf"}')
    mean_ms = grown("holdfast_commit_seconds_sum") / count * 1_000 if count else 0.0
    each = grown("holdfast_committed_bytes") / max(grown("holdfast_commits"), 1)
    return [("mean", f"{mean_ms:.1f} ms"), ("size", _bytes(each))]


def _steps(before: Sample, now: Sample) -> list[tuple[str, str]]:
    """The longest of the last minute, and how many were over their budget since the last frame."""

    def over_budget(sample: Sample) -> float:
        return sum(
            value for name, value in sample.numbers.items() if name.startswith(STEPS_OVER_BUDGET)
        )

    rows = [
        (kind, f"{now.numbers.get(LONGEST_STEP.format(kind), 0) * 1_000:.1f} ms")
        for kind in ("turn", "piece", "sweep", "answer")
    ]
    return [*rows, ("over budget", _count(over_budget(now) - over_budget(before)))]


def _queues(now: Sample) -> Table:
    table = Table(title="longest queues", box=None, title_justify="left")
    for heading in ("client", "messages", "in flight", "unchanged", "stuck"):
        table.add_column(heading, justify="left" if heading in ("client", "stuck") else "right")
    for queue in now.queues[:QUEUES_SHOWN]:
        table.add_row(
            Text(printable(queue["client_identifier"])),
            _count(queue["messages"]),
            _count(queue["in_flight"]),
            f"{queue['unchanged_s']} s",
            queue["stuck"],
        )
    return table


def _labelled(now: Sample, metric: str) -> dict[str, float]:
    """By what stands behind its name."""
    return {
        name.removeprefix(metric): value
        for name, value in now.numbers.items()
        if name.startswith(f"{metric}{{")
    }


def _cursors(now: Sample) -> list[Table]:
    """Those that are furthest behind, if there are any."""
    lags = _labelled(now, CURSOR_LAG)
    if not lags:
        return []
    table = Table(title="cursors", box=None, title_justify="left")
    for heading in ("cursor", "messages", "oldest", "time to loss"):
        table.add_column(heading, justify="left" if heading == "cursor" else "right")
    for label, lag in sorted(lags.items(), key=lambda row: -row[1])[:CURSORS_SHOWN]:
        name = label.removeprefix('{cursor="').removesuffix('"}')
        oldest = show_duration(int(now.numbers[CURSOR_OLDEST + label]))
        first_loss = now.numbers.get(CURSOR_FIRST_LOSS + label)
        in_sight = "-" if first_loss is None else show_duration(int(first_loss))
        table.add_row(Text(name), _count(lag), oldest, in_sight)
    return [table]


def _durable_subscriptions(now: Sample) -> list[Table]:
    """Those of Pulsar clients with the most that nobody has, if there are any."""
    backlogs = _labelled(now, SUBSCRIPTION_BACKLOG)
    if not backlogs:
        return []
    table = Table(title="durable subscriptions", box=None, title_justify="left")
    for heading in ("topic", "subscription", "messages", "oldest", "consumers"):
        table.add_column(
            heading, justify="left" if heading in ("topic", "subscription") else "right"
        )
    for label, backlog in sorted(backlogs.items(), key=lambda row: -row[1])[:SUBSCRIPTIONS_SHOWN]:
        topic, _, name = label.removeprefix('{topic="').partition('",subscription="')
        table.add_row(
            Text(printable(topic)),
            Text(printable(name.removesuffix('"}'))),
            _count(backlog),
            show_duration(int(now.numbers.get(SUBSCRIPTION_OLDEST + label, 0))),
            _count(now.numbers.get(SUBSCRIPTION_CONSUMERS + label, 0)),
        )
    return [table]


def _bridges(now: Sample) -> list[Table]:
    """If there are any."""
    return [bridge_frame.frame(now.bridges[:BRIDGES_SHOWN])] if now.bridges else []


def _environments(now: Sample) -> list[RenderableType]:
    """If any are known; below them, which of them takes the messages of another one."""
    if not now.environments:
        return []
    table = Table(title="environments", box=None, title_justify="left")
    for heading in ("environment", "clients", "groups", "waiting", "in flight"):
        table.add_column(heading, justify="left" if heading == "environment" else "right")
    for row in now.environments[:ENVIRONMENTS_SHOWN]:
        numbers = (_count(row[name]) for name in ("clients", "groups", "waiting", "in_flight"))
        table.add_row(Text(printable(row["name"])), *numbers)
    going_on = [theft for theft in now.thefts if theft["until_us"] is None]
    return [table, *(_theft(theft) for theft in going_on[:ENVIRONMENTS_SHOWN])]


def _theft(theft: dict[str, Any]) -> Text:
    return Text(printable(f"{theft['told']} ({theft['group']})"), style="bold red")


def _reasons(before: Sample, now: Sample) -> Table:
    table = Table(title="refused, ended and lost, by reason", box=None, title_justify="left")
    table.add_column("what")
    table.add_column("total", justify="right")
    table.add_column("new", justify="right")
    found = [
        (name, value) for name, value in now.numbers.items() if name.startswith(REASONS) and value
    ]
    for name, value in sorted(found, key=lambda row: -row[1])[:REASONS_SHOWN]:
        shown = Text(name.removeprefix("holdfast_"))
        table.add_row(shown, _count(value), _count(value - before.numbers.get(name, 0)))
    return table


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _bytes(number: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if abs(number) < 1_000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1_000
    return f"{number:.1f} TB"
