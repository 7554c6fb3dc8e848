"""Where a message of a bridge is, told from what its queue says."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.broker.observe.bridges import BridgesSeen
from holdfast.core.loss_reason import LossReason

DURABLE = 10
POLLED_TO = 6
DONE = (0, 1)
FLIGHTS = {2: "published", 3: "received"}
LOST = SimpleNamespace(spans=[(1, 2)], reason=LossReason.EXPIRED)


@pytest.mark.accepts("S1.66")
@pytest.mark.parametrize(
    ("offset", "connected", "away"),
    [
        (0, "delivered", "delivered"),
        (1, "lost", "lost"),
        (2, "waiting_for_acknowledgement", "retry_pending"),
        (3, "waiting_for_acknowledgement", "retry_pending"),
        (4, "polled", "buffered"),
        (6, "queued", "queued"),
        (10, "received", "received"),
    ],
)
def test_a_message_is_where_its_queue_says(offset: int, connected: str, away: str) -> None:
    broker = SimpleNamespace(log=SimpleNamespace(durable_offset=lambda: DURABLE))
    seen = BridgesSeen(cast(Any, broker), cast(Any, None))
    for is_connected, state in ((True, connected), (False, away)):
        contents = SimpleNamespace(
            is_connected=is_connected, polled_to=POLLED_TO, is_done=lambda offset: offset in DONE
        )
        found = seen._state(cast(Any, contents), offset, FLIGHTS, [cast(Any, LOST)])
        assert (found.offset, found.state) == (offset, state)
        assert found.reason == ("expired" if state == "lost" else None)
