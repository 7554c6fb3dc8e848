"""Run the cases in `mqtt5/*.toml` and `mqtt311/*.toml` through the codec, through an inbox, and on
the wire through a whole broker.

A case has a `statement` (its number in the specification, or a section), `what`, `bytes` in hex and
either `accepts` (kinds of packets, in order) or `refuses` (the reason code). `role` is "server"
unless it says "client"; `fields` names values that the last packet must have. Cases with
`after_connect = true` run through an inbox that has accepted a client of that version, with Receive
Maximum 2, Maximum Packet Size 200 and Topic Alias Maximum 5.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.kernel import Arrivals, Inbox, decode_packets
from tests.conformance.brokers import VirtualBroker
from tests.conformance.packets import PINGREQ
from tests.conformance.peer import Peer
from tests.property.twins.codec import decode

FOLDER = Path(__file__).parent
UNSUPPORTED = 0x84
VERSIONS = {"mqtt5": 5, "mqtt311": 4}


def cases() -> list[Any]:
    found = []
    for folder, version in VERSIONS.items():
        for file in sorted((FOLDER / folder).glob("*.toml")):
            for case in tomllib.loads(file.read_text())["case"]:
                name = f"{folder}-{case['statement']}-{case['what']}".replace(" ", "_")
                found.append(pytest.param(case, version, id=name))
    return found


def to_a_server() -> list[Any]:
    return [case for case in cases() if case.values[0].get("role") != "client"]


def through_codec(data: bytes, case: dict[str, Any], version: int) -> list[tuple[str, Any]]:
    role = case.get("role", "server")
    packets, _ = decode_packets(data, protocol_version=version, role=role)
    twins, _ = decode(data, version, role)
    assert [packet.kind for packet in packets] == [kind for kind, _ in twins]
    assert packets, "the case is not a whole packet"
    return [(packet.kind, packet.fields) for packet in packets]


def through_inbox(data: bytes, version: int) -> list[tuple[str, Any]]:
    inbox, arrivals = Inbox(bytearray(data)), Arrivals()
    inbox.open(0)
    inbox.accept(
        0,
        party=1,
        protocol_version=version,
        keep_alive_s=0,
        receive_maximum=2,
        maximum_packet_size_bytes=200,
        topic_alias_maximum=5,
        unreleased=b"",
    )
    inbox.feed(0, len(data), 0)
    found: list[tuple[str, Any]] = []
    while inbox.ready():
        events = inbox.decode(arrivals)
        found += [("publish", {})] * arrivals.publishes
        found += [("acknowledgement", {})] * arrivals.acknowledgements
        found += [(packet.kind, packet.fields) for _, packet in events]
        inbox.release(0)
    return found


@pytest.mark.parametrize(("case", "version"), cases())
def test_statement(case: dict[str, Any], version: int) -> None:
    data = bytes.fromhex(case["bytes"])
    if case.get("after_connect"):
        found = through_inbox(data, version)
    else:
        found = through_codec(data, case, version)
    if "refuses" in case:
        kind, refusal = found[-1]
        assert (kind, refusal["reason_code"]) == ("fault", case["refuses"]), found
    else:
        assert [kind for kind, _ in found] == case["accepts"]
    fields = case.get("fields", {})
    assert {name: found[-1][1][name] for name in fields} == fields


@pytest.fixture(scope="module")
def limited() -> Iterator[VirtualBroker]:
    """A broker with the limits that the cases after CONNECT count on."""
    limits = {"receive_maximum": 2, "maximum_packet_size_bytes": 200, "topic_alias_maximum": 5}
    broker = VirtualBroker(**limits)
    yield broker
    broker.close()


@pytest.fixture(scope="module")
def plain() -> Iterator[VirtualBroker]:
    """A broker with its defaults."""
    broker = VirtualBroker()
    yield broker
    broker.close()


@pytest.mark.parametrize(("case", "version"), to_a_server())
def test_statement_on_the_wire(
    plain: VirtualBroker, limited: VirtualBroker, case: dict[str, Any], version: int
) -> None:
    """What is refused ends the connection, with the reason code where that can be said."""
    data = bytes.fromhex(case["bytes"])
    is_connect = data[0] >> 4 == 1 and not case.get("after_connect")
    peer = Peer(limited if case.get("after_connect") else plain, version)
    if not is_connect:
        peer.connect("case")
    peer.send(data)
    if "refuses" in case:
        if is_connect and case["refuses"] == UNSUPPORTED:
            # Answered in the nearest version that there is, if in any.
            peer.version = case.get("fields", {}).get("protocol_version", 4)
        found = peer.next()
        while found is not None and found.kind not in {"connack", "disconnect"}:
            found = peer.next()
        assert found is None or peer.is_closed()
        if found is not None and peer.version == 5:
            assert found.reason_code == case["refuses"]
        assert found is not None or is_connect or version < 5
    elif "connect" in case["accepts"][-1:]:
        assert peer.next() is not None
    elif "disconnect" not in case["accepts"]:
        peer.send(PINGREQ)
        found = peer.next()
        while found is not None and found.kind != "pingresp":
            found = peer.next()
        assert found is not None or "auth" in case["accepts"]
    peer.close()


def test_each_case_says_what_must_become_of_it() -> None:
    assert len(cases()) > 100
    assert all(("accepts" in p.values[0]) != ("refuses" in p.values[0]) for p in cases())
