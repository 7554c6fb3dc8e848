"""How what a bridge asks for is divided over SUBSCRIBE packets."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.bridge import terms
from holdfast.broker.bridge.asking import divided, filters_of
from holdfast.core.bridge import Bridge, BridgeSubscription
from holdfast.kernel import encode_packet
from holdfast.protocols.mqtt.remote import Granted

GRANTED = Granted(
    session_present=False,
    receive_maximum=10,
    maximum_qos=2,
    retain_available=True,
    maximum_packet_size_bytes=1,
    topic_alias_maximum=0,
    keep_alive_s=60,
    client_identifier=None,
    session_expiry_s=None,
    wildcards_available=True,
)
FILTERS = st.lists(st.text("aé/", min_size=1, max_size=200), min_size=1, max_size=8)


def bridge_of(filters: list[str], version: str) -> Bridge:
    asked = (BridgeSubscription(filters=tuple(filters)),)
    return Bridge(name="b", address="x", protocol_version=version, remote_subscriptions=asked)


def size_bytes(asked: list[dict[str, Any]], version: int) -> int:
    fields = {"packet_identifier": 1, "subscriptions": asked, "properties": {}}
    return len(encode_packet("subscribe", fields, protocol_version=version))


@pytest.mark.parametrize("version", ["5", "3.1.1"])
@given(filters=FILTERS, maximum=st.integers(5, 700))
def test_packets_are_as_few_as_fit_and_have_all_that_fits(
    version: str, filters: list[str], maximum: int
) -> None:
    bridge = bridge_of(filters, version)
    granted = replace(GRANTED, maximum_packet_size_bytes=maximum)
    packets, too_large = divided(bridge, granted)
    mqtt_version = bridge.mqtt_version
    assert all(size_bytes(asked, mqtt_version) <= maximum for asked in packets)
    alone = terms.subscriptions(bridge, granted)
    fits = [item for item in alone if size_bytes([item], mqtt_version) <= maximum]
    assert [item for asked in packets for item in asked] == fits
    assert too_large == filters_of(item for item in alone if item not in fits)
    for before, after in pairwise(packets):
        assert size_bytes([*before, after[0]], mqtt_version) > maximum
