"""Losses of a bridge that are driven again, while its remote forgets the session or takes less than
before: what was on its way is driven again or on the ledger."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from holdfast.broker.delivery import redrives
from holdfast.core.bridge import LocalSubscription
from tests.simulation.remote import REMOTE_HOST, REMOTE_PORT, Bridged, names, with_remote
from tests.simulation.test_link_changes import MADE, Keeper, cut, put
from tests.simulation.whole import CONFIG

sleep = asyncio.sleep
KEPT = replace(CONFIG, bridges_storage="FILE_NATIVE")
LONGEST_WAIT_S = 160
QUOTA_EXCEEDED = 0x97


async def lose(bridged: Bridged, *topics: str) -> int:
    """The remote refuses a message to each; returns the number of the row that tells of them."""
    bridged.remote.refusal = QUOTA_EXCEEDED
    publisher = await bridged.connect("publisher", clean=True)
    for identifier, topic in enumerate(topics, 1):
        publisher.send(
            "publish",
            packet_identifier=identifier,
            qos=2,
            retain=False,
            dup=False,
            topic_name=topic,
            payload=b"1",
        )
    await sleep(2)
    bridged.remote.refusal = 0
    ((key, _),) = bridged.server.records.catch_up().losses(1)
    return int.from_bytes(key)


async def on_its_way(bridged: Bridged, topic: str = "up/x") -> None:
    """A message is driven again, and the remote says nothing of it."""
    row = await lose(bridged, topic)
    bridged.remote.silent_about = {"publish"}
    assert (await bridged.server.commands.redrive(row)).messages == 1
    await sleep(2)
    assert len(bridged.remote.all("publish")) == 2
    bridged.remote.silent_about = set()


async def come_back(bridged: Bridged) -> None:
    cut(bridged.remote, is_away=False)
    await sleep(LONGEST_WAIT_S)


def again(remote: Keeper) -> list[tuple[int, bool]]:
    """QoS and DUP of what came after the refusal and the first attempt."""
    return [(fields["qos"], fields["dup"]) for fields in remote.all("publish")[2:]]


@pytest.mark.parametrize("crashes", [None, True, False])
@pytest.mark.accepts("S1.69")
def test_what_is_driven_again_is_sent_as_new_to_a_remote_that_has_forgotten_the_session(
    crashes: bool | None,
) -> None:
    async def body(bridged: Bridged) -> None:
        await on_its_way(bridged)
        remote.kept.clear()
        if crashes is None:
            await come_back(bridged)
        else:
            await bridged.restart(crashes=crashes)
        assert again(remote) == [(2, False)]
        assert bridged.losses() == [("b", "refused", 1)]
        assert len(bridged.server.stages.redrives) == 0
        await come_back(bridged)
        assert again(remote) == [(2, False)], "it is done"

    remote = Keeper()
    with_remote(body, remote, KEPT)


def test_what_is_driven_again_and_the_remote_has_is_not_sent_after_it_has_forgotten() -> None:
    async def body(bridged: Bridged) -> None:
        row = await lose(bridged, "up/x")
        remote.silent_about = {"pubrel"}
        await bridged.server.commands.redrive(row)
        await sleep(2)
        remote.kept.clear()
        await come_back(bridged)
        assert again(remote) == []

    remote = Keeper()
    with_remote(body, remote, KEPT)


def test_what_is_driven_again_and_another_remote_has_is_sent_to_this_one() -> None:
    async def body(bridged: Bridged) -> None:
        names(bridged)["remote.example"] = [REMOTE_HOST]
        await put(bridged, MADE)
        row = await lose(bridged, "x/a")
        remote.silent_about = {"pubrel"}
        await bridged.server.commands.redrive(row)
        await sleep(2)
        remote.silent_about = set()
        remote.kept.clear()
        await put(bridged, structs.replace(MADE, address=f"remote.example:{REMOTE_PORT}"))
        assert again(remote) == [(2, False)]

    remote = Keeper()
    with_remote(body, remote, KEPT)


@pytest.mark.accepts("S1.69")
def test_what_is_driven_again_is_sent_as_new_to_a_remote_that_takes_qos_2_no_more() -> None:
    async def body(bridged: Bridged) -> None:
        await on_its_way(bridged)
        remote.properties = {"maximum_qos": 1}
        await come_back(bridged)
        assert [qos for qos, _ in again(remote)] == [1]
        assert bridged.losses() == [("b", "refused", 1)]

    remote = Keeper()
    with_remote(body, remote, KEPT)


@pytest.mark.accepts("S1.69")
def test_what_is_driven_again_is_on_the_ledger_if_the_remote_takes_qos_0_alone() -> None:
    async def body(bridged: Bridged) -> None:
        await on_its_way(bridged)
        remote.properties = {"maximum_qos": 0}
        await come_back(bridged)
        assert again(remote) == []
        assert bridged.losses() == [("b", "refused", 1)] * 2

    remote = Keeper()
    with_remote(body, remote, KEPT)


@pytest.mark.accepts("S1.69")
def test_what_is_driven_again_and_no_filter_is_about_any_more_is_on_the_ledger() -> None:
    async def body(bridged: Bridged) -> None:
        await put(bridged, MADE)
        await on_its_way(bridged, "x/a")
        cut(remote)
        remote.kept.clear()
        other = (LocalSubscription(filters=("other",)),)
        await put(bridged, structs.replace(MADE, local_subscriptions=other))
        await come_back(bridged)
        assert again(remote) == []
        assert bridged.losses() == [("made", "refused", 1), ("made", "denied", 1)]

    remote = Keeper()
    with_remote(body, remote, KEPT)


TWO_OF_DIFFERENT_TERMS: list[dict[str, Any]] = [
    {"filters": ["up/#"], "max_qos": 1},
    {"filters": ["up/x"], "max_qos": 2, "preserve_retain": True, "destination": "other/{#}"},
    {"filters": ["#"], "persist": False},
]


@pytest.mark.accepts("S1.69")
def test_what_two_subscriptions_match_is_driven_again_once_at_the_higher_qos() -> None:
    async def body(bridged: Bridged) -> None:
        row = await lose(bridged, *(f"up/{letter}" for letter in "xyyxxy"))
        sent = [(fields["topic_name"], fields["qos"]) for fields in remote.all("publish")]
        assert Counter(sent) == {("up/x", 2): 3, ("up/y", 1): 3}
        assert (await bridged.server.commands.redrive(row)).messages == len(sent)
        await sleep(2)
        again = [(fields["topic_name"], fields["qos"]) for fields in remote.all("publish")]
        assert Counter(again[len(sent) :]) == Counter(sent)

    remote = Keeper()
    with_remote(body, remote, KEPT, local_subscriptions=TWO_OF_DIFFERENT_TERMS)


def test_of_more_than_a_record_has_room_for_the_rest_is_driven_again_by_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(bridged: Bridged) -> None:
        row = await lose(bridged, "up/x", "up/x", "up/x")
        assert (await bridged.server.commands.redrive(row)).messages == 3 + 2 + 2
        await sleep(2)
        came = Counter(fields["qos"] for fields in remote.all("publish")[3:])
        assert came == {2: 3, 1: 2, 0: 2}

    monkeypatch.setattr(redrives, "ONCE_MAXIMUM", 1)
    remote = Keeper()
    with_remote(body, remote, KEPT, local_subscriptions=TWO_OF_DIFFERENT_TERMS)
