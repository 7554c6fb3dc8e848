"""What counts as progress on the connection of a bridge."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.broker.bridge.link import Link, State
from holdfast.core.bridge import Bridge, LocalSubscription
from holdfast.core.units import SECOND_US

TIMEOUT_S = 60


def connected(queue: object) -> Link:
    """A bridge that is connected, with this queue."""
    bridge = Bridge(name="b", address="x", local_subscriptions=(LocalSubscription(filters=("#",)),))
    kernel = SimpleNamespace(inbox=SimpleNamespace(lost=lambda _: 0))
    nothing = cast(Any, None)
    link = Link(
        bridge,
        lambda: None,
        cast(Any, kernel),
        nothing,
        lambda: cast(Any, SimpleNamespace(bridges_stall_timeout_s=TIMEOUT_S)),
        nothing,
        cast(Any, queue),
        nothing,
        nothing,
    )
    link._connection = cast(Any, SimpleNamespace(handle=1))
    link.granted = cast(Any, SimpleNamespace(keep_alive_s=0))
    return link


@pytest.mark.parametrize(("grows", "is_alive"), [(True, True), (False, False)])
def test_acknowledgements_are_progress_although_the_mark_stays(
    *, grows: bool, is_alive: bool
) -> None:
    acknowledged = 0
    queue = SimpleNamespace(
        mark=lambda: 7,
        acknowledged=lambda: acknowledged,
        in_flight=lambda: 1,
        is_ready=lambda: True,
        known_as=lambda bridge: bridge.client_identifier,
    )
    link = connected(queue)
    alive = True
    for second in range(2 * TIMEOUT_S):
        acknowledged += grows
        alive = link.sweep(second * SECOND_US)
    assert alive is is_alive
    assert link.state is State.STOPPED, "whoever calls ends it"
