"""A bridge over a relay that is not ours, and is slow, narrow, choppy, mute or breaks off: counted
at both ends, nothing of QoS 1 and 2 is lost, and nothing of QoS 2 is doubled."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.interop.bridge.bridged import BridgedBroker, bridge
from tests.interop.bridge.toxiproxy import Toxiproxy, running
from tests.interop.bridge.traffic import SETTINGS, SUBSCRIPTIONS, Traffic
from tests.interop.device import Device
from tests.process import BrokerProcess

pytestmark = pytest.mark.long
KEEP_ALIVE_S = 2
WITHIN_S = 60
UNDER_A_TOXIC = 100
"""Messages that pass in each direction."""
Is = Callable[[dict[str, Any]], bool]


@pytest.fixture
def proxy() -> Iterator[Toxiproxy]:
    with running() as found:
        yield found


@pytest.fixture
def traffic(proxy: Toxiproxy, tmp_path: Path) -> Iterator[Traffic]:
    """Two brokers with a bridge over the relay, and clients at both."""
    with ExitStack() as stack:
        (tmp_path / "far").mkdir()
        far = BrokerProcess(tmp_path / "far", **SETTINGS)
        far.start()
        stack.callback(far.kill)
        port = proxy.lead_to(far.port)
        bridged = bridge("b", port, keep_alive_s=KEEP_ALIVE_S, **SUBSCRIPTIONS)
        near = BridgedBroker(tmp_path / "near", [bridged], **SETTINGS)
        near.start()
        stack.callback(near.kill)
        clients = Device(near.port, "near"), Device(far.port, "far")
        yield Traffic(*clients, near.data_directory, stack)


def has_carried(messages: int) -> Is:
    """So many in each direction."""
    return lambda seen: min(seen["acknowledged"], seen["received"]) >= messages


@pytest.mark.slow
@pytest.mark.parametrize(
    ("toxic", "attributes"),
    [
        ("latency", {"latency": 50, "jitter": 40}),
        ("bandwidth", {"rate": 20}),
        ("slicer", {"average_size": 7, "size_variation": 3, "delay": 100}),
    ],
)
def test_a_bad_way_delays_messages_and_ends_no_connection(
    proxy: Toxiproxy, traffic: Traffic, toxic: str, attributes: Mapping[str, int]
) -> None:
    before = traffic.until(has_carried(1), WITHIN_S)
    proxy.poison(toxic, **attributes)
    enough = max(before["acknowledged"], before["received"]) + UNDER_A_TOXIC
    traffic.until(has_carried(enough), WITHIN_S)
    proxy.heal()
    traffic.assert_all_is_there()
    assert traffic.bridge()["failures"] == {}


@pytest.mark.slow
@pytest.mark.accepts("S1.63", "S1.70")
@pytest.mark.parametrize(
    ("toxic", "attributes", "failures", "ends"),
    [
        ("limit_data", {"bytes": 20_000}, {"closed"}, 3),
        ("reset_peer", {"timeout": 300}, {"closed"}, 3),
        # Whichever end misses the other first.
        ("timeout", {"timeout": 0}, {"silent", "closed"}, 1),
    ],
)
def test_a_way_that_breaks_off_loses_and_doubles_nothing(
    proxy: Toxiproxy,
    traffic: Traffic,
    toxic: str,
    attributes: Mapping[str, int],
    failures: set[str],
    ends: int,
) -> None:
    traffic.until(has_carried(1), WITHIN_S)
    proxy.poison(toxic, **attributes)
    seen = traffic.until(lambda seen: sum(seen["failures"].values()) >= ends, WITHIN_S)
    assert seen["failures"].keys() <= failures
    proxy.heal()
    traffic.until(lambda seen: seen["state"] == "connected", WITHIN_S)
    traffic.assert_all_is_there()
    assert traffic.bridge()["lost"] == {}
