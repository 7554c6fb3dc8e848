"""Where a message of a bridge is, and since when, told from what its queue says."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.broker.observe.bridges import BridgesSeen
from holdfast.broker.state.bridges import Contents
from holdfast.core.loss_reason import LossReason

DURABLE = 10
POLLED_TO = 7
MARK = 2
DONE = ((5, 6),)
FLIGHTS = frozenset({2, 3, 6})
RECEIVED = frozenset({6})
SENT_AT_US = {2: 202}
ENDED_AT_US = 300
DONE_AT_US = {0: 400}
LOST = SimpleNamespace(spans=[(1, 2)], reason=LossReason.EXPIRED, at_us=501)


def stored_at_us(offset: int) -> int:
    return 100 + offset


@pytest.mark.accepts("S1.66")
@pytest.mark.parametrize(
    ("offset", "connected", "away"),
    [
        (0, ("delivered", 400), ("delivered", 400)),
        (1, ("lost", 501), ("lost", 501)),
        (2, ("waiting_for_acknowledgement", 202), ("retry_pending", 300)),
        # Sent on an earlier connection, and on this one not yet.
        (3, ("retry_pending", 300), ("retry_pending", 300)),
        (4, ("polled", None), ("buffered", None)),
        # Its record is gone, or not there yet.
        (5, ("delivered", None), ("delivered", None)),
        # PUBREC came on an earlier connection, PUBREL went out on this one.
        (6, ("waiting_for_acknowledgement", None), ("retry_pending", 300)),
        (7, ("queued", 107), ("queued", 107)),
        (10, ("received", 110), ("received", 110)),
    ],
)
def test_a_message_is_where_its_queue_says(
    offset: int, connected: tuple[str, int | None], away: tuple[str, int | None]
) -> None:
    log = SimpleNamespace(durable_offset=lambda: DURABLE, stored_at_us=stored_at_us)
    seen = BridgesSeen(cast(Any, SimpleNamespace(log=log)), cast(Any, None))
    for is_connected, (state, since_us) in ((True, connected), (False, away)):
        contents = Contents(
            party=1,
            record=cast(Any, None),
            mark=MARK,
            polled_to=POLLED_TO,
            is_connected=is_connected,
            ended_at_us=ENDED_AT_US,
            quota=cast(Any, None),
            flights=FLIGHTS,
            sent_at_us=SENT_AT_US if is_connected else {},
            received=RECEIVED,
            completing=(),
            acknowledged=DONE,
        )
        found = seen._state(contents, offset, [cast(Any, LOST)], DONE_AT_US)
        assert (found.offset, found.state, found.since_us) == (offset, state, since_us)
        assert found.reason == ("expired" if state == "lost" else None)
