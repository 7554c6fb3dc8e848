"""What is measured: each row is one load, each of its lines one figure of it."""

from dataclasses import dataclass, field

PAIRS_WINDOW_QOS_0 = "100"
PAIRS_WINDOW = "20"
KIB = 1_024

APPLICATIONS: dict[str, int | str] = {"application.client_identifiers": "subscriber*,returning*"}
"""Makes the generator's subscribers APPLICATION clients."""

REFERENCE = "mosquitto"
"""The peer that every load is compared with, where it can carry it."""
EVERYBODY = (REFERENCE, "nats", "rabbitmq", "amqtt")
NO_SLOW_ONE = (REFERENCE, "nats", "rabbitmq")


@dataclass(frozen=True)
class Target:
    """A step to reach: a bound on the ratio to a peer, or to another row of our own, or on the
    figure itself as it is shown."""

    at_least: float | None = None
    at_most: float | None = None
    of_row: str | None = None  # None: of a peer's figure for the same row, ...
    of_peer: str = REFERENCE  # ... of this one's, ...
    of_itself: bool = False  # ... or of nothing else.

    def is_met(self, ratio: float) -> bool:
        """Whether a median ratio reaches the step."""
        if self.at_least is not None and ratio < self.at_least:
            return False
        return self.at_most is None or ratio <= self.at_most

    def __str__(self) -> str:
        bound = f"at least {self.at_least:g}" if self.at_least else f"at most {self.at_most:g}"
        if self.of_itself:
            return f"itself {bound}"
        if self.of_row:
            return f"{bound} x {self.of_row}"
        return bound if self.of_peer == REFERENCE else f"{bound} x {self.of_peer}"


@dataclass(frozen=True)
class Line:
    """One figure of a row as the table shows it."""

    title: str
    figure: str
    unit: str
    scale: float = 1.0  # The figure is multiplied by it to be shown in `unit`.
    targets: tuple[Target, ...] = ()
    lower_is_better: bool = False


@dataclass(frozen=True)
class Row:
    """One load: what the generator is told, what Holdfast is told beyond its defaults."""

    name: str
    arguments: tuple[str, ...]
    lines: tuple[Line, ...]
    holdfast_settings: dict[str, int | str] = field(default_factory=dict)
    peers: tuple[str, ...] = (REFERENCE,)


DISK_SHARE = Line(
    "- payload, of what the disk takes in order",
    "disk_share", "", 1, (Target(at_least=0.7, of_itself=True),),
)  # fmt: skip


def throughput(title: str, *targets: Target) -> Line:
    """Messages that came to subscribers."""
    return Line(title, "messages_per_second", "k/s", 1e-3, targets)


def without_qos_2(peers: tuple[str, ...], qos: int) -> tuple[str, ...]:
    """Those that carry this QoS: NATS and RabbitMQ have no QoS 2."""
    return peers if qos < 2 else tuple(peer for peer in peers if peer in (REFERENCE, "amqtt"))


def pair(pairs: int, qos: int, window: str, *targets: Target) -> Row:
    """Publishers with a subscriber each."""
    who = "one pair" if pairs == 1 else f"{pairs} pairs"
    return Row(
        f"{pairs}-pair-qos-{qos}",
        ("pair", "--pairs", str(pairs), "--qos", str(qos), "--window", window),
        (throughput(f"{who}, QoS {qos}, {window} outstanding each", *targets),),
        peers=without_qos_2(EVERYBODY, qos),
    )


def large(pairs: int, qos: int, window: str) -> Row:
    """The same with 1 KiB in each message."""
    who = "one pair" if pairs == 1 else f"{pairs} pairs"
    return Row(
        f"{pairs}-pair-qos-{qos}-1-kib",
        (*pair(pairs, qos, window).arguments, "--payload", str(KIB)),
        (throughput(f"{who}, QoS {qos}, 1 KiB"), *((DISK_SHARE,) if qos else ())),
        peers=without_qos_2(NO_SLOW_ONE, qos),
    )


def fan_out(qos: int, window: str, *targets: Target) -> Row:
    """One publisher to 500 subscribers."""
    return Row(
        f"fan-out-qos-{qos}",
        ("fanout", "--subscribers", "500", "--qos", str(qos), "--window", window),
        (throughput(f"fan-out 1 to 500, QoS {qos}", *targets),),
        peers=NO_SLOW_ONE,
    )


LATENCY_RANGE = Line(
    "- p99 to p50", "latency_p99_to_p50", "", 1, (Target(at_most=4, of_itself=True),), True
)


def latency(rate: int) -> Row:
    """One pair at a rate."""
    return Row(
        f"latency-{rate}",
        ("latency", "--rate", str(rate), "--qos", "1"),
        (
            *(
                Line(f"latency at {rate}/s, QoS 1, {quantile}", figure, "us", 1, (), True)
                for quantile, figure in (
                    ("p50", "latency_p50_us"),
                    ("p90", "latency_p90_us"),
                    ("p99", "latency_p99_us"),
                    ("maximum", "latency_maximum_us"),
                )
            ),
            LATENCY_RANGE,
        ),
        peers=NO_SLOW_ONE,
    )


def beside(name: str, title: str, option: str, count: int, *targets: Target) -> Row:
    """One pair at QoS 1, and others who are there and have nothing to do with it."""
    return Row(
        f"{name}-{count}",
        ("pair", "--pairs", "1", "--qos", "1", "--window", "1000", option, str(count)),
        (throughput(f"one pair, QoS 1, beside {count} {title}", *targets),),
    )


def backlog(name: str, messages: int, title: str, *targets: Target) -> Row:
    """An APPLICATION client that is away while messages come, and returns."""
    return Row(
        name,
        ("backlog", "--messages", str(messages), "--qos", "1", "--window", "1000"),
        (
            Line(f"{title}: take-in", "take_in_per_second", "k/s", 1e-3, targets[:1]),
            Line("- drain", "drain_per_second", "k/s", 1e-3, targets[1:]),
            Line("- came", "received", "k", 1e-3),
            Line("- memory when taken in", "resident_mib_taken_in", "MiB", 1, (), True),
        ),
        APPLICATIONS,
        peers=NO_SLOW_ONE if messages < 1_000_000 else (REFERENCE,),
    )


def payload(size: int) -> Row:
    """How the cost of a message grows with what is in it."""
    return Row(
        f"payload-{size}",
        ("pair", "--pairs", "1", "--qos", "1", "--window", "200", "--payload", str(size)),
        (
            throughput(f"one pair, QoS 1, {size} bytes"),
            Line("- broker's processor time a message", "broker_processor_us", "us", 1, (), True),
        ),
    )


def absent(
    sessions: int,
    targets: tuple[Target, Target] | None = None,
    peers: tuple[str, ...] = (REFERENCE,),
) -> Row:
    """Ten pairs beside persistent sessions that match every message and are away."""
    title = f"10 pairs, QoS 1, beside {sessions} absent sessions"
    return Row(
        f"absent-{sessions}",
        ("absent", "--absent", str(sessions), "--pairs", "10", "--qos", "1", "--window", "20"),
        (
            throughput(title, *(targets[:1] if targets else ())),
            Line(
                "- memory after it", "resident_mib_after", "MiB", 1,
                targets[1:] if targets else (), True,
            ),
            Line("- memory grown", "resident_mib_grown", "MiB", 1, (), True),
        ),
        peers=peers,
    )  # fmt: skip


ROWS = (
    pair(1, 0, "1000", Target(at_least=10), Target(at_least=0.7, of_peer="nats")),
    pair(1, 1, "1000", Target(at_least=8), Target(at_least=1, of_peer="nats")),
    pair(1, 2, "1000", Target(at_least=8)),
    pair(
        50, 0, PAIRS_WINDOW_QOS_0, Target(at_least=14), Target(at_least=0.7, of_peer="nats")
    ),
    pair(50, 1, PAIRS_WINDOW, Target(at_least=10), Target(at_least=1, of_peer="nats")),
    pair(50, 2, PAIRS_WINDOW, Target(at_least=10)),
    large(1, 0, "200"),
    large(1, 1, "200"),
    large(1, 2, "200"),
    large(50, 0, PAIRS_WINDOW_QOS_0),
    large(50, 1, PAIRS_WINDOW),
    large(50, 2, PAIRS_WINDOW),
    fan_out(0, "100", Target(at_least=5)),
    fan_out(1, "20", Target(at_least=5)),
    Row(
        "fan-in",
        ("fanin", "--publishers", "100", "--qos", "1", "--window", "20"),
        (throughput("fan-in 100 to 1 persistent, QoS 1", Target(at_least=8)),),
        peers=NO_SLOW_ONE,
    ),
    Row(
        "shared",
        ("shared", "--publishers", "10", "--subscribers", "4", "--qos", "1", "--window", "20"),
        (throughput("shared: 10 to a group of 4, QoS 1", Target(at_least=12)),),
    ),
    Row(
        "shared-100",
        ("shared", "--publishers", "100", "--subscribers", "4", "--qos", "1", "--window", "20"),
        (throughput("shared: 100 to a group of 4, QoS 1"),),
    ),
    Row(
        "application-fan-in",
        ("fanin", "--publishers", "100", "--qos", "1", "--window", "20"),
        (
            throughput("100 publishers to 1 persistent APPLICATION client, QoS 1"),
            Line("- memory after it", "resident_mib_after", "MiB", 1, (), True),
        ),
        APPLICATIONS,
    ),
    Row(
        "application-shared",
        ("shared", "--publishers", "10", "--subscribers", "4", "--qos", "1", "--window", "20"),
        (throughput("shared: 10 to a group of 4 APPLICATION clients, QoS 1"),),
        APPLICATIONS,
    ),
    latency(1_000),
    latency(10_000),
    payload(64),
    payload(KIB),
    payload(16 * KIB),
    beside("subscriptions", "other subscriptions", "--beside-subscriptions", 100),
    beside(
        "subscriptions", "other subscriptions", "--beside-subscriptions", 100_000,
        Target(at_least=1 / 1.3, of_row="subscriptions-100"),
    ),
    beside("connections", "idle connections", "--beside-connections", 5_000),
    Row(
        "topics",
        ("pair", "--pairs", "1", "--qos", "1", "--window", "1000", "--topics", "1000000"),
        (
            throughput("one pair, QoS 1, over 1 000 000 topics in turn"),
            Line("- memory after it", "resident_mib_after", "MiB", 1, (), True),
        ),
    ),
    Row(
        "retained",
        ("retained", "--messages", "100000", "--qos", "1", "--window", "1000"),
        (
            Line("100 000 retained messages: take-in", "take_in_per_second", "k/s", 1e-3),
            Line("- to a new subscriber", "drain_per_second", "k/s", 1e-3),
        ),
    ),
    absent(0),
    absent(100),
    absent(
        1_000,
        (Target(at_least=0.9, of_row="absent-0"), Target(at_most=1.25, of_row="absent-0")),
    ),
    absent(
        10_000,
        (Target(at_least=0.9, of_row="absent-0"), Target(at_most=1.25, of_row="absent-0")),
        peers=(),
    ),
    Row(
        "return",
        ("return", "--absent", "10000", "--messages", "100", "--qos", "1", "--window", "100"),
        (
            Line("10 000 sessions return for 100 messages each", "drain_per_second", "k/s", 1e-3),
            Line("- came", "received", "k", 1e-3),
        ),
        peers=(),
    ),
    backlog(
        "backlog", 200_000, "200 000 for an absent subscriber",
        Target(at_least=6), Target(at_least=3),
    ),
    backlog(
        "application-backlog", 1_000_000, "1 000 000 for an absent APPLICATION client",
        Target(at_least=6), Target(at_least=3),
    ),
    Row(
        "connect",
        ("connect", "--connections", "5000"),
        (
            Line(
                "new connections", "connections_per_second", "k/s", 1e-3,
                (Target(at_least=15, of_itself=True),),
            ),
            Line(
                "- memory of each", "broker_kib_per_connection", "KiB", 1,
                (Target(at_most=4, of_itself=True),), True,
            ),
        ),
        peers=NO_SLOW_ONE,
    ),
)  # fmt: skip
