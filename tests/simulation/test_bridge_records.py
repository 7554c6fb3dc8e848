"""Bridges that are made while the broker runs: what a change leaves as it is, and what a restart
makes of them beside the configuration file and of a record that cannot be carried out."""

import asyncio
import logging

import pytest
from msgspec.structs import replace

from holdfast.broker.bridge.bridges import Bridges
from holdfast.core.bridge import TEXT_BYTES_MAXIMUM, Bridge, LocalSubscription
from tests.equipment.history import Ledger
from tests.simulation.carriage import left_over
from tests.simulation.pair import Pair, with_pair
from tests.simulation.sites import carries

NAME = "c"
TOO_LONG = "x" * (TEXT_BYTES_MAXIMUM + 1)


def bridges(pair: Pair) -> Bridges:
    return pair.near.server.stages.bridges


def made(pair: Pair, **fields: object) -> Bridge:
    """A bridge beside the one of the file, to the same remote."""
    found = bridges(pair).find("b")
    assert found is not None
    rules = (LocalSubscription(filters=("made/#",)),)
    own = {"name": NAME, "client_identifier": NAME, "local_subscriptions": rules}
    return replace(found[0], **own | fields)


def put(pair: Pair, bridge: Bridge) -> None:
    bridges(pair).put(bridge, 1)


def runs(pair: Pair) -> bool:
    found = bridges(pair).find(NAME)
    assert found is not None
    return found[2] is not None


def said(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, object]]:
    """The fields of lines with this message."""
    return [vars(record)["fields"] for record in caplog.records if record.message == message]


def test_a_change_of_a_bridge_that_was_stopped_leaves_it_stopped() -> None:
    async def body(pair: Pair) -> None:
        put(pair, made(pair))
        bridges(pair).run(NAME, False, 1)
        put(pair, made(pair, keep_alive_s=30))
        assert not runs(pair)
        bridges(pair).run(NAME, True, 1)
        put(pair, made(pair, keep_alive_s=40))
        assert runs(pair)

    with_pair(body)


def test_a_change_of_enabled_is_obeyed_and_a_start_outlives_other_changes() -> None:
    async def body(pair: Pair) -> None:
        put(pair, made(pair, enabled=False))
        assert not runs(pair)
        bridges(pair).run(NAME, True, 1)
        put(pair, made(pair, enabled=False, keep_alive_s=30))
        assert runs(pair)
        put(pair, made(pair, enabled=True))
        bridges(pair).run(NAME, False, 1)
        put(pair, made(pair, enabled=False))
        put(pair, made(pair, enabled=True))
        assert runs(pair)

    with_pair(body)


def test_a_record_that_cannot_be_carried_out_is_left_out_and_its_queue_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body(pair: Pair) -> None:
        put(pair, made(pair))
        put(pair, made(pair, enabled=False, hop_property=TOO_LONG))
        await pair.publish("kept", topic="made/x")
        await pair.restart()
        assert bridges(pair).names() == ["b"]
        (told,) = said(caplog, "bridge left out")
        assert told["bridge"] == NAME
        assert str(told["reason"]) == "its record: hop_property has 65536 bytes; it can have 65535"
        record = bridges(pair).record(NAME)
        assert record is not None
        assert bridges(pair).target(record.party) is None
        bridges(pair).grant_redrives(record.party)
        put(pair, made(pair))
        await pair.until(lambda: pair.collector.payloads() == [b"kept"])
        assert pair.lost() == {}

    with_pair(body)


def test_a_bridge_that_gets_into_the_file_ends_when_it_goes_from_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body(pair: Pair) -> None:
        put(pair, made(pair))
        pair.near.join(NAME, local_subscriptions=[carries("file/#")])
        with caplog.at_level(logging.WARNING):
            await pair.restart(clean=True)
        found = bridges(pair).find(NAME)
        assert found is not None
        assert (found[0].local_subscriptions[0].filters, found[1]) == (("file/#",), True)
        (told,) = said(caplog, "bridge belongs to the configuration file now")
        assert told["bridge"] == NAME
        await pair.publish("lost", topic="file/x")
        pair.near.part(NAME)
        with caplog.at_level(logging.WARNING):
            await pair.restart()
        assert bridges(pair).names() == ["b"]
        (told,) = said(caplog, "bridge is in the configuration no more")
        assert told["bridge"] == NAME
        await asyncio.sleep(2)
        assert Ledger(NAME, "session_ended", 1) in list(left_over(pair.near))

    with_pair(body)
