"""Questions about queues: pieces that give way, and answers that say how exact they are."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from holdfast.broker.chores import PIECE_EFFORT, Pieces, at_once
from holdfast.broker.store.questions import EXACT, SUBSCRIPTION_EFFORT, Inquiry
from holdfast.core.layout import LOG_DIRECTORY
from holdfast.core.subscription import IN_FORCE, Rules, Subscription
from holdfast.kernel import Log
from tests.builders.stored import SEGMENT_BYTES, START_US, STEP_US, Message, store

TOPICS = 12_000
EVERYTHING = Subscription(topic_filter="fleet/+/reads", qos=1, from_offset=0)
WHOLE: tuple[list[Subscription], int, int, int] = ([EVERYTHING], 3, 1, TOPICS - 1)
SLACK = 10_000
"""Reading the directory of one segment is one step."""


@pytest.fixture(name="log", scope="module")
def _log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    data_dir: Path = tmp_path_factory.mktemp("data")
    store(data_dir, [Message(f"fleet/{number}/reads", b"x" * 40) for number in range(TOPICS)])
    log, _ = Log.open(
        str(data_dir / LOG_DIRECTORY),
        segment_bytes=SEGMENT_BYTES,
        cache_bytes=1 << 20,
        reserve_bytes=1 << 20,
        durability="fsync",
        seed=1,
        now_us=START_US,
    )
    yield log
    log.close()


def efforts(log: Log, pieces: Pieces[Any]) -> Iterator[int]:
    """What each piece takes."""
    while True:
        before = log.effort()
        try:
            next(pieces)
        except StopIteration:
            return
        finally:
            after = log.effort()
        yield after - before


def test_a_count_over_many_topics_gives_way_and_is_exact(log: Log) -> None:
    inquiry = Inquiry(log)
    spent = list(efforts(log, inquiry.count(*WHOLE)))
    assert len(spent) > 1
    assert max(spent) <= PIECE_EFFORT + SLACK
    assert at_once(inquiry.count(*WHOLE)) == TOPICS - 2
    assert inquiry.is_exact


@pytest.mark.parametrize("maximum", [0, 2_000, 8_000])
def test_an_inquiry_with_little_effort_says_at_least(log: Log, maximum: int) -> None:
    inquiry = Inquiry(log, maximum)
    counted = at_once(inquiry.count(*WHOLE))
    assert not inquiry.is_exact
    assert 0 <= counted < TOPICS - 2
    assert at_once(Inquiry(log, EXACT).count(*WHOLE)) == TOPICS - 2


def test_many_small_questions_give_way_too(log: Log) -> None:
    def ask() -> Pieces[None]:
        inquiry = Inquiry(log)
        one = EVERYTHING._replace(topic_filter="fleet/7/reads")
        for _ in range(1_000):
            assert (yield from inquiry.count([one], 3, 0, TOPICS)) == 1

    assert len(list(efforts(log, ask()))) >= 3


def test_the_first_message_and_its_time_are_found_without_counting(log: Log) -> None:
    late = EVERYTHING._replace(topic_filter="fleet/9000/reads")
    first = at_once(Inquiry(log).first([late], 3, 0, TOPICS))
    assert (first, log.stored_at(first)) == (9_000, START_US + 9_000 * STEP_US)
    assert log.stored_at(TOPICS) is None


def test_questions_with_many_subscriptions_give_way_for_what_it_takes_to_put_them(
    log: Log,
) -> None:
    many = [EVERYTHING._replace(topic_filter=f"nobody/{number}") for number in range(500)]

    def ask(wanted: list[Subscription], questions: int) -> int:
        inquiry = Inquiry(log)

        def pieces() -> Pieces[None]:
            for _ in range(questions):
                yield from inquiry.first(wanted, 3, TOPICS - 2, TOPICS - 1)

        return sum(1 for _ in pieces())

    # The log looks at next to nothing for either.
    assert ask(many[:1], 40) == 0
    assert ask(many, 40) >= 40 * 500 * SUBSCRIPTION_EFFORT // (2 * PIECE_EFFORT)


LEAST = "fleet/1/reads"
LEVELS = ("1", "2", "3", "77", "198", "199")
FEW = 200
filters = st.sampled_from([*(f"fleet/{level}/reads" for level in LEVELS), "fleet/+/reads", "+/1/#"])
kept = st.builds(
    Subscription,
    topic_filter=filters,
    qos=st.integers(0, 2),
    identifier=st.none(),
    from_offset=st.sampled_from([0, 2, 50]),
    until_offset=st.sampled_from([3, 150, IN_FORCE]),
)


@given(
    wanted=st.lists(kept, max_size=3),
    rules=st.lists(st.tuples(filters, st.booleans()), min_size=1, max_size=5).map(tuple),
    begin=st.integers(0, FEW),
    messages=st.integers(1, 3),
)
@example(wanted=[Subscription(LEAST, 2, 0)], rules=((LEAST, False),), begin=0, messages=1)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_waits_is_what_is_kept_at_qos_1_or_2_and_no_rule_leaves_out(
    log: Log, wanted: list[Subscription], rules: Rules, begin: int, messages: int
) -> None:
    def waits(offset: int) -> bool:
        topic = f"fleet/{offset}/reads"
        is_left_out = next((not keeps for text, keeps in rules if matches(text, topic)), False)
        return not is_left_out and any(
            item.qos and item.from_offset <= offset < item.until_offset
            for item in wanted
            if matches(item.topic_filter, topic)
        )

    def matches(text: str, topic: str) -> bool:
        return text == topic or text == "fleet/+/reads" or (text, topic) == ("+/1/#", LEAST)

    inquiry, span = Inquiry(log), (3, begin, FEW)
    waiting = [offset for offset in range(begin, FEW) if waits(offset)]
    assert at_once(inquiry.count(wanted, *span, rules=rules)) == len(waiting)
    assert at_once(inquiry.first(wanted, *span, rules=rules)) == next(iter(waiting), FEW)
    newest = at_once(inquiry.newest(wanted, *span, messages, rules=rules))
    if len(waiting) >= messages:
        assert newest == waiting[-messages]
    else:
        assert newest == begin


@pytest.mark.parametrize("maximum", [0, 2_000, 8_000, 20_000])
def test_what_is_not_counted_to_the_end_is_at_least_so_much_beside_rules_too(
    log: Log, maximum: int
) -> None:
    rules = (("fleet/7/reads", True), ("fleet/+/reads", False))
    assert at_once(Inquiry(log, maximum).count(*WHOLE, rules=rules)) <= 1
