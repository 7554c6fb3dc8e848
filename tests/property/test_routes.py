"""The kernel's routes equal a list of subscriptions, whatever is remembered and forgotten."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast import kernel
from holdfast.core.subscription import Subscription as Reads
from tests.property.test_inbox import accepted_inbox
from tests.property.twins.routes import Grant, Routes, Subscription, allows, filter_matches

LEVELS = st.sampled_from([b"a", b"b", b"", b"$s", b"\xc3\xbc"])
NAMES = st.lists(LEVELS, min_size=1, max_size=5).map(b"/".join).filter(bool)
FILTERS = (
    st.builds(
        lambda levels, rest: b"/".join([*levels, b"#"] if rest else levels),
        st.lists(st.one_of(LEVELS, st.just(b"+")), max_size=4),
        st.booleans(),
    )
).filter(bool)
QUEUES = st.integers(1, 4)
TABLES = st.none() | st.lists(st.tuples(FILTERS, st.booleans()), max_size=4)
SUBSCRIPTIONS = st.builds(
    Subscription,
    connection=st.integers(1, 3),
    owner=st.integers(1, 3),
    qos=st.integers(0, 2),
    no_local=st.booleans(),
    retain_as_published=st.booleans(),
    identifier=st.one_of(st.none(), st.integers(1, 9)),
)


def subscribe(
    routes: kernel.Routes, queue: int, topic_filter: bytes, subscription: Subscription
) -> None:
    routes.subscribe(
        queue,
        subscription.connection,
        subscription.owner,
        [
            Reads(
                topic_filter=topic_filter.decode(),
                qos=subscription.qos,
                from_offset=0,
                no_local=subscription.no_local,
                retain_as_published=subscription.retain_as_published,
                identifier=subscription.identifier,
            )
        ],
    )


class RoutesMachine(RuleBasedStateMachine):
    """Topics are asked for again and again, so that what was remembered too long shows."""

    def __init__(self) -> None:
        super().__init__()
        self.compiled, self.twin = kernel.Routes(3), Routes()
        self.asked: set[bytes] = set()

    @rule(queue=QUEUES, topic_filter=FILTERS, subscription=SUBSCRIPTIONS)
    def subscribe(self, queue: int, topic_filter: bytes, subscription: Subscription) -> None:
        # A queue is on one connection as long as it has subscriptions.
        held = [one.connection for (of, _), one in self.twin.subscriptions.items() if of == queue]
        subscription = replace(subscription, connection=(held or [subscription.connection])[0])
        subscribe(self.compiled, queue, topic_filter, subscription)
        self.twin.subscribe(queue, topic_filter, subscription)

    @rule(queue=QUEUES, topic_filter=FILTERS)
    def unsubscribe(self, queue: int, topic_filter: bytes) -> None:
        answer = self.compiled.unsubscribe(queue, topic_filter)
        assert answer == self.twin.unsubscribe(queue, topic_filter)

    @rule(choice=st.integers(0, 1_000))
    def unsubscribe_what_is_there(self, choice: int) -> None:
        if self.twin.subscriptions:
            there = list(self.twin.subscriptions)
            queue, topic_filter = there[choice % len(there)]
            assert self.compiled.unsubscribe(queue, topic_filter)
            assert self.twin.unsubscribe(queue, topic_filter)

    @rule(queue=QUEUES)
    def remove(self, queue: int) -> None:
        self.compiled.remove(queue)
        self.twin.remove(queue)

    @rule(connection=st.integers(1, 3), publish=TABLES, receive=TABLES)
    def grant(self, connection: int, publish: Grant, receive: Grant) -> None:
        self.compiled.grant(connection, publish, receive)
        self.twin.grant(connection, publish, receive)

    @rule(connection=st.integers(1, 3))
    def ungrant(self, connection: int) -> None:
        self.compiled.ungrant(connection)
        self.twin.grant(connection, None, None)

    @rule(name=NAMES)
    def ask(self, name: bytes) -> None:
        self.asked.add(name)

    @rule(queue=QUEUES, first=FILTERS, topic_filter=FILTERS, times=st.integers(1, 100))
    def many_come_and_go(self, queue: int, first: bytes, topic_filter: bytes, times: int) -> None:
        self.unsubscribe(queue, first)
        for _ in range(times):
            subscribe(self.compiled, 99, topic_filter, Subscription(1, 1, 1, False, False, None))
            self.compiled.remove(99)

    @invariant()
    def equals_its_twin(self) -> None:
        assert len(self.compiled) == len(self.twin)
        for name in sorted(self.asked):
            targets = self.compiled.targets(name)
            assert targets == self.twin.targets(name), name
            assert self.compiled.match(name) == [
                (queue, terms[0]) for queue, _, terms, _ in targets
            ]


TestRoutes = RoutesMachine.TestCase
TestRoutes.settings = settings(stateful_step_count=40)


@given(topic_filter=FILTERS, name=NAMES)
def test_one_rule_says_what_matches(topic_filter: bytes, name: bytes) -> None:
    routes = kernel.Routes(0)
    subscribe(routes, 1, topic_filter, Subscription(1, 1, 0, False, False, None))
    assert bool(routes.match(name)) == filter_matches(topic_filter, name)


@pytest.mark.parametrize("seed", [1, 2])
def test_thousands_of_filters_equal_a_list(seed: int) -> None:
    random = Random(seed)
    alphabet = [b"a", b"b", b"c", b"", b"$SYS", b"7"]

    def levels(also: list[bytes]) -> bytes:
        return b"/".join(random.choices(alphabet + also, k=random.randint(1, 6))) or b"/"

    compiled, twin = kernel.Routes(seed), Routes()
    for queue in range(5_000):
        topic_filter = levels([b"+", b"+"]) + random.choice([b"", b"", b"/#"])
        subscription = Subscription(queue, queue, queue % 3, queue % 2 == 0, False, None)
        subscribe(compiled, queue, topic_filter, subscription)
        twin.subscribe(queue, topic_filter, subscription)
    for queue in random.sample(range(5_000), 2_500):
        compiled.remove(queue)
        twin.remove(queue)
    for _ in range(60):
        name = levels([])
        assert compiled.targets(name) == twin.targets(name), (seed, name)


@pytest.mark.parametrize(
    ("topic_filter", "qos", "reason"),
    [
        (b"", 0, "not a topic filter"),
        (b"a/#/b", 0, "not a topic filter"),
        (b"a+", 0, "not a topic filter"),
        (b"a\x00", 0, "not a topic filter"),
        (b"a/" * 128, 0, "129 levels; 128 may be"),
        (b"a", 3, "QoS 3"),
    ],
)
def test_a_bad_subscription_is_refused_and_changes_nothing(
    topic_filter: bytes, qos: int, reason: str
) -> None:
    routes = kernel.Routes(0)
    with pytest.raises(ValueError, match=reason):
        subscribe(routes, 1, topic_filter, Subscription(1, 1, qos, False, False, None))
    assert len(routes) == 0
    assert not routes.unsubscribe(1, topic_filter)


def test_the_deepest_filter_and_the_deepest_name_match() -> None:
    routes = kernel.Routes(0)
    deepest = b"/".join([b"+"] * 128)
    subscribe(routes, 1, deepest, Subscription(1, 1, 2, False, False, None))
    subscribe(routes, 2, b"#", Subscription(1, 1, 1, False, False, None))
    assert routes.match(b"/" * 127) == [(1, 2), (2, 1)]
    assert routes.match(b"/" * 65_534) == [(2, 1)]


@pytest.mark.parametrize(
    "change", [lambda routes: routes.remove(1), lambda routes: routes.unsubscribe(1, b"a/+")]
)
def test_a_remembered_topic_follows_a_change(change: Callable[[kernel.Routes], object]) -> None:
    routes = kernel.Routes(0)
    subscribe(routes, 1, b"a/+", Subscription(1, 1, 1, False, False, None))
    subscribe(routes, 2, b"b/+", Subscription(1, 1, 1, False, False, None))
    assert (routes.match(b"a/1"), routes.match(b"b/1")) == ([(1, 1)], [(2, 1)])
    change(routes)
    assert (routes.match(b"a/1"), routes.match(b"b/1")) == ([], [(2, 1)])


@given(publish=TABLES, names=st.lists(NAMES, min_size=1, max_size=5))
def test_what_a_table_denies_is_neither_stored_nor_forwarded(
    publish: Grant, names: list[bytes]
) -> None:
    read_buffer = bytearray(4_096)
    inbox, routes, arrivals = accepted_inbox(5, read_buffer), kernel.Routes(0), kernel.Arrivals()
    disk = kernel.SimulatedDisk(1)
    log, _ = kernel.Log.open_simulated(
        disk,
        segment_bytes=1 << 20,
        cache_bytes=1 << 20,
        reserve_bytes=0,
        durability="fsync",
        seed=0,
        now_us=1,
    )
    routes.grant(1, publish, None)
    data = b"".join(
        kernel.encode_packet(
            "publish",
            {"packet_identifier": number, "qos": 2, "topic_name": name.decode(), "payload": b""},
            protocol_version=5,
        )
        for number, name in enumerate(names, 1)
    )
    read_buffer[: len(data)] = data
    inbox.feed(1, len(data), 0)
    inbox.decode(arrivals)
    routes.route(arrivals)
    log.append(arrivals, [], 2)
    inbox.forget(arrivals)
    allowed = [number for number, name in enumerate(names, 1) if allows(publish, name)]
    denied = len(names) - len(allowed)
    assert log.end_offset() == len(allowed)
    assert routes.denied() == ([(1, denied)] if denied else [])
    assert routes.counters()["publishes_denied"] == denied
    # PUBREC with 0x87 ends the exchange, so only what was taken holds a packet identifier.
    assert inbox.unreleased(1) == b"".join(number.to_bytes(2, "little") for number in allowed)


@pytest.mark.parametrize("rules", [[(b"a#", True)], [(b"", False)], [(b"a", True)] * 1_025])
def test_a_bad_table_is_refused_and_changes_nothing(rules: list[tuple[bytes, bool]]) -> None:
    routes = kernel.Routes(0)
    subscribe(routes, 1, b"a", Subscription(1, 1, 0, False, False, None))
    routes.grant(1, None, [(b"b", True)])
    with pytest.raises(ValueError, match="rule"):
        routes.grant(1, None, rules)
    assert routes.match(b"a") == []
    routes.ungrant(1)
    assert routes.match(b"a") == [(1, 0)]
