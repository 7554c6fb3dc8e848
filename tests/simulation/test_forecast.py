"""What is said about a queue before it loses anything, held to what then happens."""

from dataclasses import replace

import pytest

from holdfast.broker.admin import forecast
from holdfast.broker.admin.forecast import ALARM_S, SESSIONS_PER_LOOK, Forecast
from tests.simulation.peer import Peer, Stand, sleep, with_broker
from tests.simulation.whole import CONFIG

MAXIMUM = 100
LIMITED = replace(CONFIG, queue_messages_maximum=MAXIMUM)


def forecast_of(stand: Stand) -> Forecast:
    server = stand.server
    return Forecast(server.stages.kernel.log, server.records, lambda: server.config)


def ends_round(ahead: Forecast, stand: Stand, sessions: int = 1) -> None:
    for _ in range(sessions // SESSIONS_PER_LOOK + 1):
        ahead.look(stand.server.now_us())


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
        ahead = forecast_of(stand)
        publisher = await with_absent(stand, "away")
        number = await publish(publisher, 65, since=0)
        ends_round(ahead, stand)
        assert ahead.waiting_messages == 65
        told_s = ahead.first_loss_in_s
        assert told_s is not None
        # It is as full as it may be exactly then, and one more is too many.
        number = await publish(publisher, told_s, since=number)
        assert abs(number - MAXIMUM) <= 0.2 * told_s
        await publish(publisher, MAXIMUM + 7 - number, since=number)
        ends_round(ahead, stand)
        assert ahead.first_loss_in_s == 0
        await stand.connect("away")
        await sleep(2)
        assert stand.losses() == [("away", "overflow", 7)]

    with_broker(body, LIMITED)


def test_a_queue_that_nothing_comes_to_loses_what_becomes_too_old() -> None:
    async def body(stand: Stand) -> None:
        ahead = forecast_of(stand)
        publisher = await with_absent(stand, "away")
        await publish(publisher, 3, since=0)
        await sleep(300)
        ends_round(ahead, stand)
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
        ahead = forecast_of(stand)
        names = [f"away-{number}" for number in range(2 * SESSIONS_PER_LOOK + 1)]
        publisher = await with_absent(stand, *names)
        await publish(publisher, 10, since=0)
        for _ in range(3):
            ends_round(ahead, stand, len(names))
        assert ahead.waiting_messages == 10 * len(names)
        assert ahead.first_loss_in_s is not None
        assert ahead.first_loss_in_s < ALARM_S

    told: list[str] = []

    def warning(_words: str, *, extra: dict[str, dict[str, str]]) -> None:
        told.append(extra["fields"]["client_identifier"])

    monkeypatch.setattr(forecast.log, "warning", warning)
    with_broker(body, LIMITED)
    assert sorted(told) == sorted(f"away-{number}" for number in range(2 * SESSIONS_PER_LOOK + 1))


def test_nothing_is_in_sight_of_who_has_nothing_waiting() -> None:
    async def body(stand: Stand) -> None:
        ahead = forecast_of(stand)
        await with_absent(stand, "away")
        ends_round(ahead, stand)
        assert ahead.first_loss_in_s is None
        assert ahead.waiting_messages == 0

    with_broker(body, CONFIG)
