"""A bridge that is changed, removed or begun anew while messages wait for its remote: what was for
it stays for it, or is on the ledger, and no session is taken for another one."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from msgspec import structs

from holdfast.broker.bridge import bridges
from holdfast.broker.bridge_commands import BridgeCommands
from holdfast.broker.chores import Pieces
from holdfast.broker.commands import CommandRefusedError
from holdfast.broker.delivery.queues import Left, Queues
from holdfast.broker.store.tables import parse_queue
from holdfast.core.bridge import Bridge, BridgeSubscription, LocalSubscription
from tests.simulation.remote import REMOTE_HOST, REMOTE_PORT, Bridged, Remote, names, with_remote
from tests.simulation.whole import CONFIG

sleep = asyncio.sleep
KEPT = replace(CONFIG, bridges_storage="FILE_NATIVE")
LONGEST_WAIT_S = 160
FROM_X = (LocalSubscription(filters=("x/a", "x/b")),)
MADE = Bridge(name="made", address=f"{REMOTE_HOST}:{REMOTE_PORT}", local_subscriptions=FROM_X)


class Keeper(Remote):
    """Keeps a session under each client identifier, until a client begins anew."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: set[str] = set()
        self.is_away = False

    def answer(self, connect: Mapping[str, Any]) -> dict[str, Any]:
        if self.is_away:
            return super().answer(connect) | {"reason_code": 0x88}
        name = connect["client_identifier"]
        is_kept = name in self.kept and not connect["clean_start"]
        self.kept.add(name)
        return super().answer(connect) | {"session_present": is_kept}

    def of_made(self, kind: str) -> list[dict[str, Any]]:
        """The fields of packets of a kind that came from the bridge that was made."""
        mine = [
            visit
            for visit in self.visits
            for fields in visit.of_kind("connect")
            if fields["client_identifier"] != "holdfast-b"
        ]
        return [fields for visit in mine for fields in visit.of_kind(kind)]


async def put(bridged: Bridged, bridge: Bridge) -> None:
    bridged.server.stages.bridges.put(bridge, 0)
    await sleep(1)


def cut(remote: Remote, *, is_away: bool = True) -> None:
    """Its connections break; nobody gets another one while it is away."""
    assert isinstance(remote, Keeper)
    remote.is_away = is_away
    for visit in remote.visits:
        visit.transport.abort()


def carried(remote: Keeper) -> list[tuple[str, int]]:
    return [(fields["topic_name"], fields["qos"]) for fields in remote.of_made("publish")]


def test_a_bridge_that_is_what_it_is_made_keeps_its_connection() -> None:
    async def body(bridged: Bridged) -> None:
        commands = BridgeCommands(bridged.server.stages, lambda: 1)
        await commands.make(MADE)
        await sleep(1)
        assert isinstance(bridged.remote, Keeper)
        await commands.change(MADE)
        await sleep(1)
        assert len(bridged.remote.of_made("connect")) == 1
        await commands.change(structs.replace(MADE, keep_alive_s=90))
        await sleep(1)
        assert len(bridged.remote.of_made("connect")) == 2

    with_remote(body, Keeper())


# --- what waits ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        (LocalSubscription(filters=("x/#",)),),
        (LocalSubscription(filters=("x/+", "other/#")),),
        (LocalSubscription(filters=("x/a",)), LocalSubscription(filters=("x/b",), max_qos=1)),
        (LocalSubscription(filters=("x/a", "x/b"), persist=False),),
        (LocalSubscription(filters=("x/a", "x/b"), max_qos=0),),
        (LocalSubscription(filters=("x/a", "x/b"), preserve_retain=True),),
    ],
)
@pytest.mark.accepts("S1.69", "S1.70")
def test_what_waits_is_carried_whatever_is_changed_meanwhile(
    changed: tuple[LocalSubscription, ...],
) -> None:
    async def body(bridged: Bridged) -> None:
        await put(bridged, MADE)
        cut(remote)
        await bridged.publish("x/a", b"1", qos=1)
        await bridged.publish("x/b", b"2", qos=2)
        await put(bridged, structs.replace(MADE, local_subscriptions=changed))
        await put(bridged, structs.replace(MADE, local_subscriptions=changed, keep_alive_s=30))
        remote.is_away = False
        await sleep(LONGEST_WAIT_S)
        assert carried(remote) == [("x/a", 1), ("x/b", 2)]
        assert bridged.losses() == []
        await bridged.publish("x/b", b"3", qos=2)
        last = changed[-1]
        assert carried(remote)[2:] == [("x/b", min(last.max_qos, 2 if last.persist else 0))]

    remote = Keeper()
    with_remote(body, remote, KEPT)


def test_what_no_filter_is_about_any_more_is_on_the_ledger() -> None:
    async def body(bridged: Bridged) -> None:
        await put(bridged, MADE)
        cut(remote)
        await bridged.publish("x/a", b"1", qos=1)
        await bridged.publish("x/b", b"2", qos=1)
        only_a = (LocalSubscription(filters=("x/a",), destination="far/{#}"),)
        await put(bridged, structs.replace(MADE, local_subscriptions=only_a))
        await bridged.publish("x/b", b"3", qos=1)
        remote.is_away = False
        await sleep(LONGEST_WAIT_S)
        assert carried(remote) == [("far/x/a", 1)]
        assert bridged.losses() == [("made", "denied", 1)]

    remote = Keeper()
    with_remote(body, remote, KEPT)


def test_what_is_changed_again_and_again_while_much_waits_is_changed_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def about(letter: str) -> Bridge:
        items = (LocalSubscription(filters=(f"{letter}/+",)),)
        return structs.replace(MADE, local_subscriptions=items)

    async def body(bridged: Bridged) -> None:
        commands = BridgeCommands(bridged.server.stages, lambda: 0)
        await put(bridged, about("a"))
        cut(remote)
        for before, after in pairwise("abc"):
            await bridged.publish(f"{before}/x", b"1", qos=1)
            await commands.change(about(after))
        await bridged.publish("c/x", b"1", qos=1)
        with pytest.raises(CommandRefusedError, match="once the remote is back"):
            await commands.change(about("d"))
        remote.is_away = False
        await sleep(LONGEST_WAIT_S)
        assert carried(remote) == [("c/x", 1)]
        assert bridged.losses() == [("made", "denied", 2)]
        await commands.change(about("d"))
        await bridged.publish("d/x", b"1", qos=1)
        assert carried(remote)[1:] == [("d/x", 1)]

    # So much as two filters take.
    monkeypatch.setattr(bridges, "BRIDGE_FORMER_BYTES_MAXIMUM", 2 * (len("a/+") + 64))
    remote = Keeper()
    with_remote(body, remote, KEPT)


def test_what_another_filter_had_before_it_was_asked_for_is_not_carried() -> None:
    async def body(bridged: Bridged) -> None:
        await put(bridged, MADE)
        await bridged.publish("other/x", b"before", qos=1)
        wider = (*FROM_X, LocalSubscription(filters=("other/#",)))
        await put(bridged, structs.replace(MADE, local_subscriptions=wider))
        await bridged.publish("other/x", b"after", qos=1)
        assert [fields["payload"] for fields in remote.of_made("publish")] == [b"after"]

    remote = Keeper()
    with_remote(body, remote, KEPT)


@pytest.mark.accepts("S1.69")
def test_what_waits_for_a_remote_that_takes_qos_0_alone_is_on_the_ledger() -> None:
    async def body(bridged: Bridged) -> None:
        cut(remote)
        await bridged.publish("up/x", b"1", b"2", qos=1)
        await bridged.publish("up/x", b"3", qos=2)
        remote.properties = {"maximum_qos": 0}
        remote.is_away = False
        await sleep(LONGEST_WAIT_S)
        assert remote.all("publish") == []
        assert bridged.losses() == [("b", "refused", 3)]
        await bridged.publish("up/x", b"4", qos=2)
        assert [fields["payload"] for fields in remote.all("publish")] == [b"4"]
        cut(remote, is_away=False)
        await sleep(LONGEST_WAIT_S)
        assert bridged.losses() == [("b", "refused", 3)], "what was sent is not lost"

    remote = Keeper()
    with_remote(body, remote, KEPT)


@pytest.mark.accepts("S1.13")
def test_a_remote_that_takes_qos_0_alone_for_a_while_mistakes_no_message_for_another() -> None:
    async def body(bridged: Bridged) -> None:
        remote.silent_about = {"publish"}
        await bridged.publish("up/x", b"1", b"2", qos=2)
        begun = {fields["packet_identifier"] for fields in remote.all("publish")}
        remote.silent_about = set()
        remote.properties = {"maximum_qos": 0}
        cut(remote, is_away=False)
        await sleep(LONGEST_WAIT_S)
        assert bridged.losses() == [("b", "refused", 2)]
        assert {fields["packet_identifier"] for fields in remote.visit.of_kind("pubrel")} == begun
        remote.properties = {}
        cut(remote, is_away=False)
        await sleep(LONGEST_WAIT_S)
        await bridged.publish("up/x", b"3", qos=2)
        (after,) = remote.visit.of_kind("publish")
        assert after["packet_identifier"] not in begun
        assert bridged.losses() == [("b", "refused", 2)]

    remote = Keeper()
    with_remote(body, remote, KEPT)


@pytest.mark.accepts("S1.69")
def test_what_waited_in_a_bridge_that_is_made_anew_is_on_the_ledger_after_a_crash_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*_: object) -> Pieces[Left]:
        yield lambda: False
        raise AssertionError

    async def body(bridged: Bridged) -> None:
        await put(bridged, MADE)
        cut(remote)
        await bridged.publish("x/a", b"1", b"2", qos=1)
        with monkeypatch.context() as patch:
            patch.setattr(Queues, "left", never)
            bridged.server.stages.bridges.remove("made", 0)
            await put(bridged, MADE)
            await bridged.publish("x/a", b"3", qos=1)
        await bridged.restart(crashes=True)
        assert bridged.losses() == [("made", "session_ended", 2)]
        view = bridged.server.records.catch_up()
        parties = [record.party for record in map(parse_queue, view.shared_queues())]
        assert len(parties) == 2, "one of each bridge"
        bridges = bridged.server.stages.bridges
        assert {bridges.name_of(party) for party in parties} == {"b", "made"}
        remote.is_away = False
        await sleep(LONGEST_WAIT_S)
        assert [fields["payload"] for fields in remote.of_made("publish")] == [b"3"]

    remote = Keeper()
    with_remote(body, remote, KEPT)


# --- what comes ----------------------------------------------------------------------------------


def test_what_is_not_asked_for_any_more_is_not_taken_over() -> None:
    async def body(bridged: Bridged) -> None:
        client = await bridged.connect("client", clean=True)
        await bridged.subscribe(client, "#")
        remote.visit.publish("old/1", b"1", qos=1, identifier=7)
        remote.visit.publish("down/1", b"2", qos=1, identifier=8)
        await sleep(1)
        assert [fields["topic_name"] for fields in client.of_kind("publish")] == ["in/down/1"]
        acknowledged = [fields["packet_identifier"] for fields in remote.all("puback")]
        assert acknowledged == [7, 8], "or the remote would send it again and again"

    remote = Remote()
    asked = [{"filters": ["down/#"], "destination": "in/{#}"}]
    with_remote(body, remote, remote_subscriptions=asked)


DOWN = structs.replace(MADE, remote_subscriptions=(BridgeSubscription(filters=("down/#", "old")),))
NOT_OLD = structs.replace(MADE, remote_subscriptions=(BridgeSubscription(filters=("down/#",)),))
NOTHING = MADE


@pytest.mark.parametrize(("now", "gone"), [(NOT_OLD, ["old"]), (NOTHING, ["down/#", "old"])])
def test_the_remote_is_told_what_is_not_asked_for_any_more(now: Bridge, gone: list[str]) -> None:
    async def body(bridged: Bridged) -> None:
        await put(bridged, DOWN)
        await put(bridged, structs.replace(DOWN, keep_alive_s=30))
        assert remote.of_made("unsubscribe") == []
        cut(remote)
        await put(bridged, now)
        await bridged.restart(crashes=True)
        remote.is_away = False
        await sleep(LONGEST_WAIT_S)
        (told,) = remote.of_made("unsubscribe")
        assert told["topic_filters"] == gone
        await bridged.publish("x/a", b"1", qos=2)
        assert carried(remote) == [("x/a", 2)]
        cut(remote, is_away=False)
        await sleep(LONGEST_WAIT_S)
        assert len(remote.of_made("unsubscribe")) == 1, "it is told once"

    remote = Keeper()
    with_remote(body, remote, KEPT)


def test_a_remote_that_has_forgotten_the_session_is_not_told_of_what_it_has_not() -> None:
    async def body(bridged: Bridged) -> None:
        await put(bridged, DOWN)
        cut(remote)
        remote.kept.clear()
        await put(bridged, NOT_OLD)
        remote.is_away = False
        await sleep(LONGEST_WAIT_S)
        assert remote.of_made("unsubscribe") == []

    remote = Keeper()
    with_remote(body, remote, KEPT)


def test_an_unsubscribe_that_was_not_answered_is_sent_again() -> None:
    async def body(bridged: Bridged) -> None:
        await put(bridged, DOWN)
        remote.silent_about = {"unsubscribe"}
        await put(bridged, NOT_OLD)
        cut(remote, is_away=False)
        remote.silent_about = set()
        await sleep(LONGEST_WAIT_S)
        told = [fields["topic_filters"] for fields in remote.of_made("unsubscribe")]
        assert told == [["old"], ["old"]]
        await bridged.publish("x/a", b"1", qos=2)
        assert carried(remote) == [("x/a", 2)]

    remote = Keeper()
    with_remote(body, remote, KEPT)


def test_an_answer_to_another_question_is_none() -> None:
    async def body(bridged: Bridged) -> None:
        await put(bridged, DOWN)
        remote.silent_about = {"unsubscribe"}
        await put(bridged, NOT_OLD)
        (asked,) = remote.of_made("unsubscribe")
        identifier = asked["packet_identifier"]
        remote.visit.send("suback", packet_identifier=identifier, reason_codes=[0])
        await sleep(0.5)
        assert remote.visit.ended_at is not None

    remote = Keeper()
    with_remote(body, remote, KEPT)


def test_of_two_to_one_filter_the_first_says_what_the_remote_is_asked_for() -> None:
    async def body(_bridged: Bridged) -> None:
        (fields,) = remote.all("subscribe")
        asked = [(item["topic_filter"], item["qos"]) for item in fields["subscriptions"]]
        assert asked == [("down/#", 2), ("else", 0)]

    remote = Remote()
    items = [{"filters": ["down/#"]}, {"filters": ["down/#", "else"], "max_qos": 0}]
    with_remote(body, remote, remote_subscriptions=items)


# --- whose session it is -------------------------------------------------------------------------


def clean_starts(remote: Keeper) -> list[bool]:
    return [fields["clean_start"] for fields in remote.of_made("connect")]


@pytest.mark.accepts("S1.13")
def test_a_bridge_that_begins_anew_does_not_resume_the_session_of_a_former_one() -> None:
    async def body(bridged: Bridged) -> None:
        bridges = bridged.server.stages.bridges
        await put(bridged, MADE)
        cut(remote, is_away=False)
        await sleep(3)
        assert clean_starts(remote) == [True, False]
        bridges.remove("made", 0)
        await sleep(1)
        (goodbye,) = remote.of_made("disconnect")
        assert goodbye["properties"] == {"session_expiry_interval": 0}
        await put(bridged, MADE)
        assert clean_starts(remote) == [True, False, True]
        await put(bridged, structs.replace(MADE, client_identifier="other"))
        await put(bridged, structs.replace(MADE, client_identifier="other", keep_alive_s=30))
        assert clean_starts(remote)[3:] == [True, False]

    remote = Keeper()
    with_remote(body, remote)


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.accepts("S1.13", "S1.70")
def test_a_restart_without_storage_ends_the_exchanges_that_the_remote_knows(
    *, crashes: bool
) -> None:
    async def body(bridged: Bridged) -> None:
        remote.silent_about = {"pubrel"}
        await bridged.publish("up/x", b"1", qos=2)
        remote.silent_about = {"publish", "pubrel"}
        await bridged.publish("up/x", b"2", qos=2)
        await bridged.publish("up/x", b"3", qos=1)
        remote.silent_about = {"pubrel"}
        await bridged.restart(crashes=crashes)
        assert remote.visit.of_kind("publish") == [], "nothing that waited is left"
        begun = {
            fields["packet_identifier"] for fields in remote.all("publish") if fields["qos"] == 2
        }
        ended = {fields["packet_identifier"] for fields in remote.visit.of_kind("pubrel")}
        assert ended == begun, "or the remote would take the next message for one of them"
        await bridged.publish("up/x", b"4", qos=2)
        (after,) = remote.visit.of_kind("publish")
        assert after["packet_identifier"] not in ended
        assert [fields["clean_start"] for fields in remote.all("connect")] == [True, False]

    remote = Keeper()
    with_remote(body, remote)


def test_before_mqtt_5_a_bridge_never_begins_with_a_session_that_does_not_last() -> None:
    async def body(bridged: Bridged) -> None:
        assert [fields["clean_start"] for fields in remote.all("connect")] == [False]
        assert bridged.link.granted is not None

    remote = Remote(version=4)
    with_remote(body, remote)


@pytest.mark.parametrize(
    "changed", [{"client_identifier": "other"}, {"address": f"remote.example:{REMOTE_PORT}"}]
)
@pytest.mark.accepts("S1.70")
def test_what_a_remote_had_said_to_have_is_sent_to_another_one(changed: dict[str, str]) -> None:
    async def body(bridged: Bridged) -> None:
        names(bridged)["remote.example"] = [REMOTE_HOST]
        await put(bridged, MADE)
        remote.silent_about = {"pubrel"}
        await bridged.publish("x/a", b"1", qos=2)
        remote.silent_about.clear()
        remote.kept.clear()
        await put(bridged, structs.replace(MADE, **changed))
        assert carried(remote) == [("x/a", 2)] * 2
        assert remote.of_made("publish")[1]["dup"] is False
        assert bridged.losses() == []

    remote = Keeper()
    with_remote(body, remote, KEPT)


@pytest.mark.parametrize("happens", ["forgets", "forgets and crashes", "takes less"])
@pytest.mark.accepts("S1.13")
def test_packet_identifiers_go_on_where_an_earlier_session_may_still_have_them(
    happens: str,
) -> None:
    async def body(bridged: Bridged) -> None:
        await bridged.publish("up/x", *[b"%d" % number for number in range(20)], qos=2)
        remote.silent_about = {"pubrel"}
        await bridged.publish("up/x", b"held", qos=2)
        remote.silent_about = {"publish"}
        await bridged.publish("up/x", b"not acknowledged", qos=2)
        before = {fields["packet_identifier"] for fields in remote.all("publish")}
        remote.silent_about = set()
        if happens == "takes less":
            remote.properties = {"maximum_qos": 1}
        else:
            remote.kept.clear()
        if happens == "forgets and crashes":
            await bridged.restart(crashes=True)
        cut(remote, is_away=False)
        await sleep(LONGEST_WAIT_S)
        remote.properties = {}
        cut(remote, is_away=False)
        await sleep(LONGEST_WAIT_S)
        await bridged.publish("up/x", b"new", b"newer", qos=2)
        after = [fields["packet_identifier"] for fields in remote.all("publish")[22:]]
        assert len(after) == 3
        assert not before & set(after)

    remote = Keeper()
    with_remote(body, remote, KEPT)


def test_a_remote_that_has_moved_and_kept_the_session_goes_on_with_it() -> None:
    async def body(bridged: Bridged) -> None:
        names(bridged)["remote.example"] = [REMOTE_HOST]
        asked = (BridgeSubscription(filters=("down/#",)),)
        both = structs.replace(MADE, remote_subscriptions=asked)
        await put(bridged, both)
        remote.silent_about = {"pubrel"}
        await bridged.publish("x/a", b"1", qos=2)
        await put(bridged, structs.replace(both, address=f"remote.example:{REMOTE_PORT}"))
        assert clean_starts(remote) == [True, False]
        assert carried(remote) == [("x/a", 2)]
        assert len(remote.of_made("pubrel")) == 2

    remote = Keeper()
    with_remote(body, remote, KEPT)
