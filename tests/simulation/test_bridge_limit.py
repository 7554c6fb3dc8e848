"""What a bridge has beyond its limit is counted in pieces when it connects, and what happens
meanwhile changes nothing of the outcome."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast.broker.chores import PIECE_EFFORT
from holdfast.broker.delivery.entrance import Publication
from holdfast.core.units import MIB
from holdfast.protocols.mqtt.reason_code import ReasonCode
from tests.equipment.checkers import check_steps_of_the_loop_are_short
from tests.equipment.history import History
from tests.simulation.bulk import BATCH_MESSAGES, BulkPublisher
from tests.simulation.effort import Effort
from tests.simulation.remote import Bridged, with_remote
from tests.simulation.test_link_changes import KEPT, LONGEST_WAIT_S, Keeper, cut
from tests.simulation.whole import HOST, PORT

LIMIT = 100
BACKLOG = 5 * BATCH_MESSAGES
LARGE = replace(
    KEPT,
    receive_maximum=BATCH_MESSAGES,
    segment_bytes=MIB,
    checkpoint_bytes=4 * MIB,
    reserve_bytes=4 * MIB,
)
BOTH_WAYS: dict[str, Any] = {
    "queue_limit": LIMIT,
    "local_subscriptions": [{"filters": ["t/x"]}],
    "remote_subscriptions": [{"filters": ["down/#"]}],
}
STEP_EFFORT_MAXIMUM = 3 * PIECE_EFFORT
"""A turn may read some of the log for whoever is behind; counting the backlog takes far more."""


async def fill(bridged: Bridged) -> None:
    """As many messages wait."""
    publisher = BulkPublisher()
    await publisher.connect(HOST, PORT)
    for begin in range(0, BACKLOG, BATCH_MESSAGES):
        await publisher.publish(begin, begin + BATCH_MESSAGES, 1)
    publisher.transport.close()


def at_each_piece(bridged: Bridged, meanwhile: Callable[[int], None]) -> list[bool]:
    """Calls it between pieces of the count on a connection, with their number; returns for each
    piece whether the bridge was ready when it had ended."""
    chores, queue = bridged.server.stages.chores, bridged.link.queue
    run_piece, found = chores.run_piece, list[bool]()

    def watched() -> str:
        name = run_piece()
        if queue.is_connected and name == "_weighed":
            found.append(queue.is_ready())
            meanwhile(len(found) - 1)
        return name

    chores.run_piece = watched  # type: ignore[method-assign]
    return found


def lost(bridged: Bridged) -> dict[str, int]:
    """What is on the ledger, by reason."""
    found = Counter[str]()
    for _, reason, count in bridged.losses():
        found[reason] += count
    return found


async def come_back(remote: Keeper) -> list[int]:
    """The numbers of the messages that are sent once the remote is there again."""
    before = len(remote.all("publish"))
    remote.is_away = False
    await asyncio.sleep(LONGEST_WAIT_S)
    return [int(fields["payload"]) for fields in remote.all("publish")[before:]]


def test_a_long_backlog_is_counted_in_pieces_and_what_comes_meanwhile_is_kept() -> None:
    async def body(bridged: Bridged) -> None:
        cut(remote)
        await fill(bridged)
        history = History()
        Effort(bridged.server, history.add, STEP_EFFORT_MAXIMUM)

        def publish(number: int) -> None:
            if number < 3:
                payload = str(BACKLOG + number).encode()
                message = Publication(topic_name="t/x", payload=payload, qos=1, retain=False)
                bridged.server.stages.entrance.publish(message)

        pieces = at_each_piece(bridged, publish)
        assert await come_back(remote) == [*range(BACKLOG - LIMIT, BACKLOG + 3)]
        assert pieces.count(False) > BACKLOG / PIECE_EFFORT
        assert check_steps_of_the_loop_are_short(history) == []
        assert lost(bridged) == {"overflow": BACKLOG - LIMIT}

    remote = Keeper()
    with_remote(body, remote, LARGE, **BOTH_WAYS)


def test_what_is_in_flight_no_more_while_it_is_counted_leaves_its_room() -> None:
    async def body(bridged: Bridged) -> None:
        remote.silent_about = {"publish"}
        await bridged.publish("t/x", b"0", b"1", qos=1)
        cut(remote)
        await fill(bridged)

        def refuse(number: int) -> None:
            if number == 1:
                bridged.link.queue.refuse(0)

        pieces = at_each_piece(bridged, refuse)
        remote.silent_about = set()
        assert await come_back(remote) == [1, *range(BACKLOG - (LIMIT - 1), BACKLOG)]
        assert pieces.count(False) > BACKLOG / PIECE_EFFORT
        assert lost(bridged) == {"refused": 1, "overflow": BACKLOG - (LIMIT - 1)}

    remote = Keeper()
    with_remote(body, remote, LARGE, **BOTH_WAYS)


def test_a_connection_that_breaks_while_it_is_counted_is_followed_by_a_count_of_its_own() -> None:
    async def body(bridged: Bridged) -> None:
        cut(remote)
        await fill(bridged)

        def break_off(number: int) -> None:
            if number == 1:
                connection = bridged.server.stages.connections.get(bridged.link.handle)
                assert connection is not None
                bridged.server.stages.closing.expel(connection, ReasonCode.SUCCESS, 0)

        at_each_piece(bridged, break_off)
        assert await come_back(remote) == [*range(BACKLOG - LIMIT, BACKLOG)]
        assert bridged.link.counts.connections == 3
        assert lost(bridged) == {"overflow": BACKLOG - LIMIT}

    remote = Keeper()
    with_remote(body, remote, LARGE, **BOTH_WAYS)
