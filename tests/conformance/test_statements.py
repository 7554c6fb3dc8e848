"""Run the cases in `mqtt5/*.toml` and `mqtt311/*.toml` through the codec and through an inbox.

A case has a `statement` (its number in the specification, or a section), `what`, `bytes` in hex and
either `accepts` (kinds of packets, in order) or `refuses` (the reason code). `role` is "server"
unless it says "client"; `fields` names values that the last packet must have. Cases with
`after_connect = true` run through an inbox that has accepted a client of that version, with Receive
Maximum 2, Maximum Packet Size 200 and Topic Alias Maximum 5.
"""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from holdfast.kernel import Arrivals, Inbox, decode_packets
from holdfast.testing.model.codec import decode

FOLDER = Path(__file__).parent
VERSIONS = {"mqtt5": 5, "mqtt311": 4}


def cases() -> list[Any]:
    found = []
    for folder, version in VERSIONS.items():
        for file in sorted((FOLDER / folder).glob("*.toml")):
            for case in tomllib.loads(file.read_text())["case"]:
                name = f"{folder}-{case['statement']}-{case['what']}".replace(" ", "_")
                found.append(pytest.param(case, version, id=name))
    return found


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
        received=b"",
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


def test_each_case_says_what_must_become_of_it() -> None:
    assert len(cases()) > 100
    assert all(("accepts" in p.values[0]) != ("refuses" in p.values[0]) for p in cases())
