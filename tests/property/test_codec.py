"""The compiled codec agrees with itself, backwards and in pieces, and with its plain twin."""

from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from holdfast.kernel import decode_packets, encode_packet
from tests.property.packets import ROLES, VERSIONS, mutated, packets, streams
from tests.property.twins.codec import decode


def compiled(data: bytes, version: int, role: Any) -> tuple[list[tuple[str, dict[str, Any]]], int]:
    """What the kernel says, without the words of a fault."""
    found, taken = decode_packets(data, protocol_version=version, role=role)
    for packet in found:
        packet.fields.pop("reason", None)
    return [(packet.kind, packet.fields) for packet in found], taken


@given(st.data(), VERSIONS, ROLES)
def test_decode_inverts_encode(data: st.DataObject, version: int, role: str) -> None:
    kind, fields = data.draw(packets(version, role))
    encoded = encode_packet(kind, fields, protocol_version=version)
    assert compiled(encoded, version, role) == ([(kind, fields)], len(encoded))


@given(st.data(), VERSIONS, ROLES)
def test_twin_agrees_on_valid_packets(data: st.DataObject, version: int, role: str) -> None:
    stream = data.draw(streams(version, role))
    assert compiled(stream, version, role) == decode(stream, version, role)


@given(st.data(), VERSIONS, ROLES)
def test_twin_agrees_on_mutated_packets(data: st.DataObject, version: int, role: str) -> None:
    stream = data.draw(mutated(version, role))
    found = decode(stream, version, role)
    codes = [f"0x{fields['reason_code']:02X}" for kind, fields in found[0] if kind == "fault"]
    event(f"refused with {codes[0]}" if codes else "accepted")
    assert compiled(stream, version, role) == found


@given(st.binary(max_size=64), VERSIONS, ROLES)
def test_twin_agrees_on_any_bytes(stream: bytes, version: int, role: str) -> None:
    assert compiled(stream, version, role) == decode(stream, version, role)


@given(st.data(), VERSIONS, ROLES)
def test_pieces_decode_as_the_whole(data: st.DataObject, version: int, role: str) -> None:
    stream = data.draw(streams(version, role) | mutated(version, role))
    whole, _ = compiled(stream, version, role)
    found: list[tuple[str, dict[str, Any]]] = []
    waiting, spoken = b"", version
    while stream and not (found and found[-1][0] == "fault"):
        size = data.draw(st.integers(1, len(stream)))
        waiting, stream = waiting + stream[:size], stream[size:]
        more, taken = compiled(waiting, spoken, role)
        waiting = waiting[taken:]
        found += more
        spoken = next(
            (f["protocol_version"] for kind, f in reversed(found) if kind == "connect"), version
        )
    assert found == whole
