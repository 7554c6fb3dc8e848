"""A network that falls silent is no socket that closes: the bridge finds it out, says so, connects
again when it can, and nothing is lost or doubled by it.

The brokers run in networks of their own with a cable between them; clients come by Unix sockets,
which lead into any network.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.interop.bridge.bridged import BridgedBroker, bridge
from tests.interop.bridge.cable import ADDRESSES, FAR, NEAR, Cable, cable
from tests.interop.bridge.traffic import BURST_MESSAGES, SETTINGS, SUBSCRIPTIONS, Traffic
from tests.interop.device import Device
from tests.process import BrokerProcess

MQTT_PORT = 1883
STALL_TIMEOUT_S = 5
"""The shortest that can be set."""
NOTICED_WITHIN_S = 30
"""Far more than the bound and two sweeps, for a busy machine; asserted is what noticed it."""
BACK_WITHIN_S = 30


@pytest.mark.slow
@pytest.mark.accepts("S1.43", "S1.57", "S1.70")
@pytest.mark.parametrize(("keep_alive_s", "failure"), [(2, "silent"), (60, "stalled")])
def test_a_cable_that_is_pulled_out_under_load_loses_and_doubles_nothing(
    tmp_path: Path, keep_alive_s: int, failure: str
) -> None:
    with cable() as laid, ExitStack() as stack:
        traffic = _joined(laid, tmp_path, keep_alive_s, stack)
        traffic.until(lambda seen: seen["acknowledged"] > BURST_MESSAGES, BACK_WITHIN_S)
        laid.pull()
        noticed = traffic.until(lambda seen: seen["state"] != "connected", NOTICED_WITHIN_S)
        assert noticed["failures"] == {failure: 1}
        assert noticed["last_error"]
        traffic.until(lambda seen: seen["failures"].get("unreachable", 0) > 0, BACK_WITHIN_S)
        laid.plug()
        back = traffic.until(lambda seen: seen["state"] == "connected", BACK_WITHIN_S)
        assert back["sessions_forgotten"] == 0
        traffic.assert_all_is_there()


def _joined(laid: Cable, directory: Path, keep_alive_s: int, stack: ExitStack) -> Traffic:
    """Two brokers with a bridge over the cable, and clients at both."""
    (directory / FAR).mkdir()
    far = BrokerProcess(directory / FAR, **_at(FAR, directory))
    address = f"{ADDRESSES[FAR]}:{MQTT_PORT}"
    bridged = bridge("b", 0, address=address, keep_alive_s=keep_alive_s, **SUBSCRIPTIONS)
    near = BridgedBroker(
        directory / NEAR,
        [bridged],
        bridges_stall_timeout_s=STALL_TIMEOUT_S,
        **_at(NEAR, directory),
    )
    for end, broker in ((FAR, far), (NEAR, near)):
        broker.program = [*laid.prefix(end), *broker.program]
        broker.launch()
        stack.callback(broker.kill)
        broker.wait_administered()
    clients = [_client(end, directory) for end in (NEAR, FAR)]
    return Traffic(*clients, near.data_directory, stack)


def _at(end: str, directory: Path) -> dict[str, Any]:
    return SETTINGS | {
        "host": ADDRESSES[end],
        "mqtt_port": MQTT_PORT,
        "mqtt_unix_socket": _socket(end, directory),
        "anonymous": True,
    }


def _client(end: str, directory: Path) -> Device:
    # Paho wants a port, and does not use it.
    return Device(1, end, host=str(_socket(end, directory)), transport="unix")


def _socket(end: str, directory: Path) -> Path:
    return directory / f"{end}.sock"
