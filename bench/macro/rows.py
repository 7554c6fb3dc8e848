"""What is measured: each row is one load, each of its lines one figure of it."""

from dataclasses import dataclass, field

PAIRS_WINDOW_QOS_0 = "100"
PAIRS_WINDOW = "20"


@dataclass(frozen=True)
class Target:
    """A step to reach: a bound on the ratio to the peer, or to another row of our own."""

    at_least: float | None = None
    at_most: float | None = None
    of_row: str | None = None  # None: of the peer's figure for the same row.

    def is_met(self, ratio: float) -> bool:
        """Whether a median ratio reaches the step."""
        if self.at_least is not None and ratio < self.at_least:
            return False
        return self.at_most is None or ratio <= self.at_most

    def __str__(self) -> str:
        bound = f"at least {self.at_least:g}" if self.at_least else f"at most {self.at_most:g}"
        return f"{bound} x {self.of_row}" if self.of_row else bound


@dataclass(frozen=True)
class Line:
    """One figure of a row as the table shows it."""

    title: str
    figure: str
    unit: str
    scale: float = 1.0  # The figure is multiplied by it to be shown in `unit`.
    target: Target | None = None
    lower_is_better: bool = False


@dataclass(frozen=True)
class Row:
    """One load: what the generator is told, what Holdfast is told beyond its defaults."""

    name: str
    arguments: tuple[str, ...]
    lines: tuple[Line, ...]
    holdfast_settings: dict[str, int] = field(default_factory=dict)


def throughput(title: str, target: Target | None = None) -> Line:
    """Messages that came to subscribers."""
    return Line(title, "messages_per_second", "k/s", 1e-3, target)


def pair(pairs: int, qos: int, window: str, target: Target | None) -> Row:
    """Publishers with a subscriber each."""
    who = "one pair" if pairs == 1 else f"{pairs} pairs"
    return Row(
        f"{pairs}-pair-qos-{qos}",
        ("pair", "--pairs", str(pairs), "--qos", str(qos), "--window", window),
        (throughput(f"{who}, QoS {qos}, {window} outstanding each", target),),
    )


def fan_out(qos: int, window: str, target: Target | None) -> Row:
    """One publisher to 500 subscribers."""
    return Row(
        f"fan-out-qos-{qos}",
        ("fanout", "--subscribers", "500", "--qos", str(qos), "--window", window),
        (throughput(f"fan-out 1 to 500, QoS {qos}", target),),
    )


def absent(sessions: int, targets: tuple[Target, Target] | tuple[None, None]) -> Row:
    """Ten pairs beside persistent sessions that match every message and are away."""
    title = f"10 pairs, QoS 1, beside {sessions} absent sessions"
    return Row(
        f"absent-{sessions}",
        ("absent", "--absent", str(sessions), "--pairs", "10", "--qos", "1", "--window", "20"),
        (
            throughput(title, targets[0]),
            Line("- memory after it", "resident_mib_after", "MiB", 1, targets[1], True),
            Line("- memory grown", "resident_mib_grown", "MiB", 1, None, True),
        ),
    )


ROWS = (
    pair(1, 0, "1000", Target(at_least=6)),
    pair(1, 1, "1000", Target(at_least=4)),
    pair(1, 2, "1000", Target(at_least=3)),
    pair(50, 0, PAIRS_WINDOW_QOS_0, Target(at_least=6)),
    pair(50, 1, PAIRS_WINDOW, Target(at_least=4)),
    pair(50, 2, PAIRS_WINDOW, Target(at_least=3)),
    fan_out(0, "100", Target(at_least=3)),
    fan_out(1, "20", None),
    Row(
        "fan-in",
        ("fanin", "--publishers", "100", "--qos", "1", "--window", "20"),
        (throughput("fan-in 100 to 1 persistent, QoS 1", Target(at_least=3)),),
    ),
    Row(
        "shared",
        ("shared", "--publishers", "10", "--subscribers", "4", "--qos", "1", "--window", "20"),
        (throughput("10 to a group of 4, QoS 1"),),
    ),
    Row(
        "latency",
        ("latency", "--rate", "1000", "--qos", "1"),
        tuple(
            Line(f"latency at 1 000/s, QoS 1, {quantile}", figure, "us", 1, None, True)
            for quantile, figure in (
                ("p50", "latency_p50_us"),
                ("p90", "latency_p90_us"),
                ("p99", "latency_p99_us"),
                ("maximum", "latency_maximum_us"),
            )
        ),
    ),
    absent(0, (None, None)),
    absent(100, (None, None)),
    absent(
        1_000,
        (Target(at_least=0.9, of_row="absent-0"), Target(at_most=1.25, of_row="absent-0")),
    ),
    Row(
        "backlog",
        ("backlog", "--messages", "200000", "--qos", "1", "--window", "1000"),
        (
            Line("200 000 for an absent subscriber: take-in", "take_in_per_second", "k/s", 1e-3),
            Line("- drain", "drain_per_second", "k/s", 1e-3),
            Line("- came", "received", "k", 1e-3),
            Line("- memory when taken in", "resident_mib_taken_in", "MiB", 1, None, True),
        ),
        # The most that one session may be set to keep.
        {"queue_messages_maximum": 65_535},
    ),
    Row(
        "connect",
        ("connect", "--connections", "5000"),
        (
            Line("new connections", "connections_per_second", "k/s", 1e-3),
            Line("- memory of each", "broker_kib_per_connection", "KiB", 1, None, True),
        ),
    ),
)
