"""What is measured: each row is one load, each of its lines one figure of it."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

PAYLOAD_BYTES = 64
"""Of a message where nothing else is said."""
OFFICIAL_PAYLOAD_BYTES = 100
PAIRS_WINDOW_QOS_0 = "100"
PAIRS_WINDOW = "20"
KIB = 1_024
MQTT, PULSAR = "mqtt", "pulsar"
"""What clients speak."""

APPLICATIONS: dict[str, int | str] = {"application.client_identifiers": "subscriber*,returning*"}
"""Makes the generator's subscribers APPLICATION clients."""

PAIR_WINDOW = "100"
"""So few that a pair mostly waits: what a message takes on its way is then its throughput."""

OURS, JAVA, PYTHON = "ours", "java", "python"
"""Whose clients load the broker: `bench/load`'s, or Pulsar's official ones."""

REFERENCE = "mosquitto"
"""The peer that every load is compared with, where it can carry it."""
FASTEST = "flashmq"
APACHE_PULSAR = "pulsar"
FORWARDER = "forwarder"
"""No broker: the least that passes a message on."""
EVERYBODY = (REFERENCE, FASTEST, "nats", "rabbitmq", "amqtt")
NO_SLOW_ONE = (REFERENCE, FASTEST, "nats", "rabbitmq")
BOTH = (REFERENCE, FASTEST)


@dataclass(frozen=True)
class Allowed:
    """What a broker may take for a message: as long as the bare forwarder, so many times that
    repetition's fdatasync, and this."""

    syncs: float
    us: int = 0
    of_row: str | None = None  # The row in which the forwarder was measured; None: the same one.

    def __str__(self) -> str:
        row = f" in {self.of_row}" if self.of_row else ""
        us = f" + {self.us} us" if self.us else ""
        return f"({FORWARDER}{row} + {self.syncs:g} fdatasync{us})"


DELIVERED = Allowed(syncs=1.3, us=60)
"""From the publisher to the subscriber."""


@dataclass(frozen=True)
class Target:
    """A step to reach: a bound on the ratio to a peer, or to another row of our own, or to what a
    bare forwarder and a sync take, or on the figure itself as it is shown."""

    at_least: float | None = None
    at_most: float | None = None
    of_row: str | None = None  # None: of a peer's figure for the same row, ...
    of_peer: str = REFERENCE  # ... of this one's, ...
    of_allowed: Allowed | None = None  # ... of the latency that is allowed, ...
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
        if self.of_allowed:
            return f"{bound} x {self.of_allowed}"
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
    speaks: tuple[str, str] = (MQTT, MQTT)
    """Publishers, and subscribers."""
    clients: str = OURS
    parts: tuple[str, ...] = ()
    """What official clients do, part by part, as the figure that is the rate of each."""

    @property
    def payload_bytes(self) -> int:
        """Of each message."""
        if self.clients != OURS:
            return OFFICIAL_PAYLOAD_BYTES
        given = dict(zip(self.arguments, self.arguments[1:], strict=False))
        return int(given.get("--payload", PAYLOAD_BYTES))


DISK_SHARE = Line(
    "- payload, of what the disk takes in order",
    "disk_share", "", 1, (Target(at_least=0.7, of_itself=True),),
)  # fmt: skip


def throughput(title: str, *targets: Target) -> Line:
    """Messages that came to subscribers."""
    return Line(title, "messages_per_second", "k/s", 1e-3, targets)


def of_fastest(at_least: float) -> Target:
    """A step beside the fastest broker."""
    return Target(at_least=at_least, of_peer=FASTEST)


def _pairs(pairs: int) -> str:
    return "one pair" if pairs == 1 else f"{pairs} pairs"


def without_qos_2(peers: tuple[str, ...], qos: int) -> tuple[str, ...]:
    """Those that carry this QoS: NATS and RabbitMQ have no QoS 2."""
    return peers if qos < 2 else tuple(peer for peer in peers if peer in (*BOTH, "amqtt"))


def pair(pairs: int, qos: int, window: str, *targets: Target, name: str = "") -> Row:
    """Publishers with a subscriber each."""
    return Row(
        f"{pairs}-pair-qos-{qos}{name}",
        ("pair", "--pairs", str(pairs), "--qos", str(qos), "--window", window),
        (throughput(f"{_pairs(pairs)}, QoS {qos}, {window} outstanding each", *targets),),
        peers=without_qos_2(EVERYBODY, qos),
    )


def waiting(pairs: int, qos: int, window: str, *targets: Target) -> Row:
    """The same with fewer messages outstanding."""
    return pair(pairs, qos, window, *targets, name=f"-window-{window}")


def large(pairs: int, qos: int, window: str, *targets: Target) -> Row:
    """The same with 1 KiB in each message."""
    return Row(
        f"{pairs}-pair-qos-{qos}-1-kib",
        (*pair(pairs, qos, window).arguments, "--payload", str(KIB)),
        (
            throughput(f"{_pairs(pairs)}, QoS {qos}, 1 KiB", *targets),
            *((DISK_SHARE,) if qos else ()),
        ),
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


def quantiles(title: str, *p50: Target) -> Iterator[Line]:
    """Of a latency."""
    for quantile, targets in (("p50", p50), ("p90", ()), ("p99", ()), ("maximum", ())):
        yield Line(f"{title}, {quantile}", f"latency_{quantile}_us", "us", 1, targets, True)


def latency(rate: int, p50: Target, p99_to_p50: Target, processor: tuple[Target, ...] = ()) -> Row:
    """One pair at a rate."""
    return Row(
        f"latency-{rate}",
        ("latency", "--rate", str(rate), "--qos", "1"),
        (
            *quantiles(f"latency at {rate}/s, QoS 1", p50),
            Line("- p99 to p50", "latency_p99_to_p50", "", 1, (p99_to_p50,), True),
            Line("- the machine stood still, p99", "standstill_p99_us", "us", 1, (), True),
            processor_line(*processor),
        ),
        peers=(*NO_SLOW_ONE, FORWARDER),
    )


def processor_line(*targets: Target) -> Line:
    """What a message costs, beside a figure of another kind."""
    title = "- broker's processor time a message"
    return Line(title, "broker_processor_us", "us", 1, targets, True)


def beside(name: str, title: str, option: str, count: int, *targets: Target) -> Row:
    """One pair at QoS 1, and others who are there and have nothing to do with it."""
    return Row(
        f"{name}-{count}",
        ("pair", "--pairs", "1", "--qos", "1", "--window", "1000", option, str(count)),
        (throughput(f"one pair, QoS 1, beside {count} {title}", *targets),),
    )


def backlog(
    name: str, messages: int, title: str, take_in: tuple[Target, ...], drain: tuple[Target, ...]
) -> Row:
    """An APPLICATION client that is away while messages come, and returns."""
    return Row(
        name,
        ("backlog", "--messages", str(messages), "--qos", "1", "--window", "1000"),
        (
            Line(f"{title}: take-in", "take_in_per_second", "k/s", 1e-3, take_in),
            Line("- drain", "drain_per_second", "k/s", 1e-3, drain),
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
            processor_line(),
        ),
    )


def absent(
    sessions: int,
    targets: tuple[Target, Target] | None = None,
    peers: tuple[str, ...] = BOTH,
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


ENTRIES = ("--payload", "100", "--qos", "1")
"""Messages as the rows of entries have them."""
BATCH, BATCHES_WINDOW = "1000", "20000"
BATCHES_A_SECOND = 2_000
"""Thousands of messages in batches; or half of what the disk takes in order."""


def mqtt_beside(pairs: int, window: str) -> Row:
    """MQTT's pairs, as entries are compared with them."""
    return Row(
        f"mqtt-{pairs}-pair",
        ("pair", "--pairs", str(pairs), "--window", window, *ENTRIES),
        (throughput(f"MQTT, {_pairs(pairs)}, QoS 1, 100 bytes, {window} outstanding each"),),
        peers=(),
    )


def entries(name: str, title: str, speaks: tuple[str, str], pairs: int, window: str) -> Row:
    """Entries of one message each, on one side or on both, beside MQTT's pairs."""
    at_least = 0.9 if speaks == (PULSAR, PULSAR) else 0.6
    return Row(
        name,
        mqtt_beside(pairs, window).arguments,
        (
            throughput(
                f"{title}, {_pairs(pairs)}, 100 bytes, {window} outstanding each",
                Target(at_least=at_least, of_row=f"mqtt-{pairs}-pair"),
            ),
        ),
        peers=(),
        speaks=speaks,
    )


def batches() -> Row:
    """Entries of many messages."""
    return Row(
        "pulsar-batches",
        ("pair", "--batch", BATCH, "--window", BATCHES_WINDOW, *ENTRIES),
        (
            throughput(
                f"Pulsar, one pair, batches of {BATCH} of 100 bytes, {BATCHES_WINDOW} outstanding",
                Target(at_least=BATCHES_A_SECOND, of_itself=True),
            ),
            replace(DISK_SHARE, targets=(Target(at_least=0.5, of_itself=True),)),
        ),
        peers=(),
        speaks=(PULSAR, PULSAR),
    )


SENT = Allowed(syncs=2, of_row="mqtt-send")
"""Until the acknowledgement; the forwarder's is a PUBACK."""


def send(protocol: str, title: str, peers: tuple[str, ...]) -> Row:
    """Messages one by one: each after the acknowledgement of the one before."""
    return Row(
        f"{protocol}-send",
        ("send", *ENTRIES),
        tuple(quantiles(title, Target(at_most=1, of_allowed=SENT))),
        peers=peers,
        speaks=(protocol, protocol),
    )


def official(
    name: str, clients: str, arguments: tuple[str, ...], parts: tuple[str, ...], *lines: Line
) -> Row:
    """Pulsar's official clients on both sides, beside Pulsar's own broker."""
    return Row(
        f"official-{name}",
        arguments,
        lines,
        peers=(APACHE_PULSAR,),
        speaks=(PULSAR, PULSAR),
        clients=clients,
        parts=parts,
    )


def java_pair(name: str, title: str, window: str, batch: str, at_least: float) -> Row:
    """The Java client's producer and consumer, both as fast as they go."""
    return official(
        f"java-{name}",
        JAVA,
        (window, batch),
        ("messages_per_second",),
        throughput(
            f"Pulsar's Java client, one pair, {title}, 100 bytes, {window} outstanding",
            Target(at_least=at_least, of_peer=APACHE_PULSAR),
        ),
        processor_line(Target(at_most=0.2, of_peer=APACHE_PULSAR)),
    )


AS_FAST = Target(at_least=1, of_peer=APACHE_PULSAR)


def python_batches() -> Row:
    """The Python client, which produces first and consumes then: it is the limit of a pair."""
    return official(
        "python-batches",
        PYTHON,
        ("batches",),
        ("take_in_per_second", "drain_per_second"),
        Line(
            "Pulsar's Python client, batches of 1000 of 100 bytes: producer",
            "take_in_per_second", "k/s", 1e-3, (AS_FAST,),
        ),
        Line("- consumer of what waits", "drain_per_second", "k/s", 1e-3, (AS_FAST,)),
        processor_line(),
    )  # fmt: skip


def python_send() -> Row:
    """The Python client, one message after the other."""
    return official(
        "python-send",
        PYTHON,
        ("send",),
        ("acknowledged_per_second",),
        *quantiles(
            "Pulsar's Python client, one by one until SEND_RECEIPT",
            Target(at_most=1, of_peer=APACHE_PULSAR),
        ),
        processor_line(),
    )


ROWS = (
    pair(1, 0, "1000", Target(at_least=10), Target(at_least=0.7, of_peer="nats")),
    pair(1, 1, "1000", Target(at_least=8), Target(at_least=1, of_peer="nats"), of_fastest(1)),
    pair(1, 2, "1000", Target(at_least=8), of_fastest(1)),
    waiting(1, 0, PAIR_WINDOW, of_fastest(8)),
    waiting(1, 1, PAIR_WINDOW, of_fastest(1)),
    waiting(1, 2, PAIR_WINDOW, of_fastest(1)),
    pair(
        50, 0, PAIRS_WINDOW_QOS_0, Target(at_least=14), Target(at_least=0.7, of_peer="nats")
    ),
    waiting(50, 0, PAIRS_WINDOW, of_fastest(1.7)),
    pair(
        50, 1, PAIRS_WINDOW,
        Target(at_least=10), Target(at_least=1, of_peer="nats"), of_fastest(1.2),
    ),
    pair(50, 2, PAIRS_WINDOW, Target(at_least=10), of_fastest(1.2)),
    large(1, 0, PAIR_WINDOW, of_fastest(2.3)),
    large(1, 1, PAIR_WINDOW, of_fastest(1)),
    large(1, 2, PAIR_WINDOW, of_fastest(1)),
    large(50, 0, PAIRS_WINDOW_QOS_0, of_fastest(1.3)),
    large(50, 1, PAIRS_WINDOW, of_fastest(1)),
    large(50, 2, PAIRS_WINDOW, of_fastest(1)),
    fan_out(0, "100", Target(at_least=5), of_fastest(4.2)),
    fan_out(1, "20", Target(at_least=5), of_fastest(1)),
    Row(
        "fan-in",
        ("fanin", "--publishers", "100", "--qos", "1", "--window", "20"),
        (throughput("fan-in 100 to 1 persistent, QoS 1", Target(at_least=8), of_fastest(1.2)),),
        peers=NO_SLOW_ONE,
    ),
    Row(
        "shared",
        ("shared", "--publishers", "10", "--subscribers", "4", "--qos", "1", "--window", "20"),
        (throughput("shared: 10 to a group of 4, QoS 1", Target(at_least=12), of_fastest(1)),),
        peers=BOTH,
    ),
    Row(
        "shared-100",
        ("shared", "--publishers", "100", "--subscribers", "4", "--qos", "1", "--window", "20"),
        (throughput("shared: 100 to a group of 4, QoS 1", of_fastest(1)),),
        peers=BOTH,
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
    latency(
        1_000,
        Target(at_most=1, of_allowed=DELIVERED),
        Target(at_most=3, of_itself=True),
        (Target(at_most=100, of_itself=True),),
    ),
    latency(
        10_000, Target(at_most=2, of_row="latency-1000"), Target(at_most=4, of_itself=True)
    ),
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
        (Target(at_least=6), of_fastest(1)), (Target(at_least=3), of_fastest(1)),
    ),
    backlog(
        "application-backlog", 1_000_000, "1 000 000 for an absent APPLICATION client",
        (Target(at_least=6),), (Target(at_least=3),),
    ),
    Row(
        "connect",
        ("connect", "--connections", "5000"),
        (
            Line(
                "new connections", "connections_per_second", "k/s", 1e-3,
                (Target(at_least=15, of_itself=True), Target(at_least=1)),
            ),
            Line(
                "- memory of each", "broker_kib_per_connection", "KiB", 1,
                (Target(at_most=4, of_itself=True),), True,
            ),
        ),
        peers=NO_SLOW_ONE,
    ),
    batches(),
    mqtt_beside(1, "1000"),
    entries("pulsar-1-pair", "Pulsar, sent singly", (PULSAR, PULSAR), 1, "1000"),
    entries("mqtt-to-pulsar", "MQTT QoS 1 to Pulsar", (MQTT, PULSAR), 1, "1000"),
    entries("pulsar-to-mqtt", "Pulsar, sent singly, to MQTT QoS 1", (PULSAR, MQTT), 1, "1000"),
    mqtt_beside(50, PAIRS_WINDOW),
    entries("pulsar-50-pair", "Pulsar, sent singly", (PULSAR, PULSAR), 50, PAIRS_WINDOW),
    send(MQTT, "MQTT, QoS 1, one by one until PUBACK", (REFERENCE, FORWARDER)),
    send(PULSAR, "Pulsar, one by one until SEND_RECEIPT", ()),
    java_pair("batches", "batches of 1000", "20000", "1000", 1.3),
    java_pair("singly", "sent singly", "1000", "1", 4),
    python_batches(),
    python_send(),
)  # fmt: skip
