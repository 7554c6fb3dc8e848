"""What is said about a queue before it loses anything, held to what then happens."""

from dataclasses import replace

import pytest

from holdfast.broker.chores import Chores
from holdfast.broker.observe import forecast
from holdfast.broker.observe.forecast import ALARM_S, SLICE_SESSIONS, Forecast
from holdfast.broker.state.broker import look_at
from tests.simulation.peer import Peer, Stand, sleep, with_broker
from tests.simulation.whole import CONFIG

MAXIMUM = 100
LIMITED = replace(CONFIG, queue_messages_maximum=MAXIMUM)


SECONDS_MAXIMUM = 1_000
"""A round of so few sessions takes less."""


class Ahead:
    """A forecast whose pieces are done when it is told."""

    def __init__(self, stand: Stand) -> None:
        server = stand.server
        self._stand = stand
        self._chores = Chores(lambda: None)
        self.forecast = Forecast(replace(look_at(server, "absent"), chores=self._chores))
        self.waiting_messages = 0
        self.first_loss_in_s: int | None = None

    def ends_round(self) -> None:
        """A whole round, one piece a second."""
        for _ in range(SECONDS_MAXIMUM):
            self.forecast.look(self._stand.server.now_us())
            self._chores.run_piece()
            if not len(self._chores):
                break
        else:
            raise AssertionError("the round does not end")
        self.waiting_messages = self.forecast.waiting_messages
        self.first_loss_in_s = self.forecast.first_loss_in_s


async def with_absent(stand: Stand, *names: str) -> Peer:
    """These have subscribed and gone; the answer publishes."""
    for name in names:
        peer = await stand.connect(name)
        await stand.subscribe(peer, "reads")
        peer.cut()
    await sleep(1)
    return await stand.connect("publisher", clean=True)


async def publish(publisher: Peer, seconds: int, *, since: int) -> int:
    """One message a second; returns the last one's number."""
    for number in range(since + 1, since + seconds + 1):
        publisher.publish("reads", b"x", identifier=number)
        await sleep(1)
    return since + seconds


def test_a_queue_that_fills_up_says_when_it_will_lose_its_first_message() -> None:
    async def body(stand: Stand) -> None:
        ahead = Ahead(stand)
        publisher = await with_absent(stand, "away")
        number = await publish(publisher, 65, since=0)
        ahead.ends_round()
        assert ahead.waiting_messages == 65
        told_s = ahead.first_loss_in_s
        assert told_s is not None
        # It is as full as it may be exactly then, and one more is too many.
        number = await publish(publisher, told_s, since=number)
        assert abs(number - MAXIMUM) <= 0.2 * told_s
        await publish(publisher, MAXIMUM + 7 - number, since=number)
        ahead.ends_round()
        assert ahead.first_loss_in_s == 0
        await stand.connect("away")
        await sleep(2)
        assert stand.losses() == [("away", "overflow", 7)]

    with_broker(body, LIMITED)


def test_a_queue_that_nothing_comes_to_loses_what_becomes_too_old() -> None:
    async def body(stand: Stand) -> None:
        ahead = Ahead(stand)
        publisher = await with_absent(stand, "away")
        await publish(publisher, 3, since=0)
        await sleep(300)
        ahead.ends_round()
        told_s = ahead.first_loss_in_s
        assert told_s is not None
        assert abs(told_s - (1_000 - 303)) <= 3
        await sleep(told_s + 5)
        await stand.connect("away")
        await sleep(2)
        assert stand.losses() == [("away", "ttl", 3)]

    with_broker(body, replace(LIMITED, queue_ttl_s=1_000))


def test_a_round_sees_all_sessions_and_tells_the_soonest_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(stand: Stand) -> None:
        ahead = Ahead(stand)
        names = [f"away-{number}" for number in range(2 * SLICE_SESSIONS + 1)]
        publisher = await with_absent(stand, *names)
        await publish(publisher, 10, since=0)
        for _ in range(3):
            ahead.ends_round()
        assert ahead.waiting_messages == 10 * len(names)
        assert ahead.first_loss_in_s is not None
        assert ahead.first_loss_in_s < ALARM_S

    told: list[str] = []

    def warning(_words: str, *, extra: dict[str, dict[str, str]]) -> None:
        told.append(extra["fields"]["client_identifier"])

    monkeypatch.setattr(forecast.log, "warning", warning)
    with_broker(body, LIMITED)
    assert sorted(told) == sorted(f"away-{number}" for number in range(2 * SLICE_SESSIONS + 1))


@pytest.mark.parametrize("maximum", [0, 2**63 - 1])
def test_a_queue_without_a_limit_has_no_loss_in_sight(maximum: int) -> None:
    async def body(stand: Stand) -> None:
        ahead = Ahead(stand)
        publisher = await with_absent(stand, "away")
        await publish(publisher, 30, since=0)
        ahead.ends_round()
        assert ahead.waiting_messages == 30
        assert ahead.first_loss_in_s is None

    with_broker(body, replace(LIMITED, queue_messages_maximum=maximum, queue_ttl_s=0))


def test_nothing_is_in_sight_of_who_has_nothing_waiting() -> None:
    async def body(stand: Stand) -> None:
        ahead = Ahead(stand)
        await with_absent(stand, "away")
        ahead.ends_round()
        assert ahead.first_loss_in_s is None
        assert ahead.waiting_messages == 0

    with_broker(body, CONFIG)
