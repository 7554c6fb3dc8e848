"""Strategies for MQTT packets: as kinds with fields, as valid bytes, as bytes that went wrong."""

from typing import Any

from hypothesis import strategies as st

from holdfast.kernel import encode_packet
from tests.property.twins.codec import OF_SERVER, PROPERTIES, REASON_CODES

VERSIONS = st.sampled_from([3, 4, 5])
ROLES = st.sampled_from(["server", "client"])
TEXT = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=12)
LEVEL = st.text(st.characters(exclude_characters="\0+#/", codec="utf-8"), max_size=4)
TOPIC_NAME = st.lists(LEVEL, min_size=1, max_size=4).map("/".join).filter(bool)
SHARE_NAME = LEVEL.filter(bool)
PACKET_IDENTIFIER = st.integers(1, 65_535)
BINARY = st.binary(max_size=20)


@st.composite
def topic_filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(LEVEL | st.just("+"), min_size=1, max_size=4))
    text = "/".join(levels + ["#"] * draw(st.integers(0, 1)))
    text = text if text and not text.startswith("$share") else "a"
    return f"$share/{draw(SHARE_NAME)}/{text}" if draw(st.integers(0, 3)) == 0 else text


def _values(name: str, form: str) -> st.SearchStrategy[Any]:
    if name == "response_topic":
        return TOPIC_NAME
    return {
        "flag": st.integers(0, 1),
        "two": st.integers(1, 2**16 - 1),
        "four": st.integers(1, 2**32 - 1),
        "variable": st.integers(1, 268_435_455),
        "text": TEXT,
        "binary": BINARY,
        "pair": st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3),
    }[form]


@st.composite
def properties(draw: st.DrawFn, place: str, to_server: bool) -> dict[str, Any]:
    allowed = {name: form for name, form, places in PROPERTIES.values() if place in places}
    names = draw(st.lists(st.sampled_from(sorted(allowed)), unique=True, max_size=5))
    found = {name: draw(_values(name, allowed[name])) for name in names}
    if place == "publish" and "subscription_identifier" in found:
        found["subscription_identifier"] = [found["subscription_identifier"]]
        if to_server:
            del found["subscription_identifier"]
    if "authentication_method" not in found:
        found.pop("authentication_data", None)
    if place == "disconnect" and not to_server:
        found.pop("session_expiry_interval", None)
    return found


@st.composite
def packets(draw: st.DrawFn, version: int, role: str) -> tuple[str, dict[str, Any]]:
    """A packet that `role` may receive, with all fields as decoding gives them."""
    to_server = role == "server"
    kinds = ["publish", "puback", "pubrec", "pubrel", "pubcomp"]
    kinds += ["connect", "subscribe", "unsubscribe", "pingreq", "disconnect"] if to_server else []
    kinds += [] if to_server else ["connack", "suback", "unsuback", "pingresp"]
    kinds += ["auth", "disconnect"] if version == 5 else []
    kind = draw(st.sampled_from(kinds))
    fields = draw(_fields(kind, version, to_server))
    if kind not in {"pingreq", "pingresp"}:
        fields["properties"] = draw(properties(kind, to_server)) if version == 5 else {}
    return kind, fields


@st.composite
def _fields(draw: st.DrawFn, kind: str, version: int, to_server: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if kind in {"puback", "pubrec", "pubrel", "pubcomp"}:
        codes = st.sampled_from(sorted(REASON_CODES[kind]))
        fields = {"packet_identifier": draw(PACKET_IDENTIFIER), "reason_code": draw(codes)}
    elif kind in {"disconnect", "auth"}:
        fields = {"reason_code": draw(st.sampled_from(_sent_codes(kind, to_server)))}
    elif kind in {"suback", "unsuback"}:
        codes = st.sampled_from([0, 1, 2, 0x80] if version < 5 else sorted(REASON_CODES[kind]))
        answers = draw(st.lists(codes, min_size=1, max_size=4))
        answers = [] if version < 5 and kind == "unsuback" else answers
        fields = {"packet_identifier": draw(PACKET_IDENTIFIER), "reason_codes": answers}
    elif kind == "connack":
        codes = [0, 0x84, 0x85, 0x86, 0x87, 0x88] if version < 5 else sorted(REASON_CODES[kind])
        code = draw(st.sampled_from(codes))
        present = draw(st.booleans()) and code == 0 and version > 3
        fields = {"reason_code": code, "session_present": present}
    elif kind == "unsubscribe":
        filters = draw(st.lists(topic_filters(), min_size=1, max_size=3))
        fields = {"packet_identifier": draw(PACKET_IDENTIFIER), "topic_filters": filters}
    elif kind == "subscribe":
        subscriptions = draw(st.lists(_subscription(version), min_size=1, max_size=3))
        fields = {"packet_identifier": draw(PACKET_IDENTIFIER), "subscriptions": subscriptions}
    elif kind == "publish":
        fields = draw(_publish())
    elif kind == "connect":
        fields = draw(_connect(version))
    if version < 5 and kind != "connack" and "reason_code" in fields:
        fields["reason_code"] = 0
    return fields


def _sent_codes(kind: str, to_server: bool) -> list[int]:
    other = {("disconnect", False): {0x04}, ("auth", False): {0x19}, ("auth", True): {0x00}}
    other["disconnect", True] = OF_SERVER
    return sorted(REASON_CODES[kind] - other.get((kind, to_server), set()))


@st.composite
def _subscription(draw: st.DrawFn, version: int) -> dict[str, Any]:
    topic_filter, new = draw(topic_filters()), version == 5
    return {
        "topic_filter": topic_filter,
        "qos": draw(st.integers(0, 2)),
        "no_local": new and not topic_filter.startswith("$share/") and draw(st.booleans()),
        "retain_as_published": new and draw(st.booleans()),
        "retain_handling": draw(st.integers(0, 2)) if new else 0,
    }


@st.composite
def _publish(draw: st.DrawFn) -> dict[str, Any]:
    qos = draw(st.integers(0, 2))
    return {
        "packet_identifier": draw(PACKET_IDENTIFIER) if qos else 0,
        "qos": qos,
        "retain": draw(st.booleans()),
        "dup": bool(qos) and draw(st.booleans()),
        "topic_name": draw(TOPIC_NAME),
        "payload": draw(BINARY),
    }


@st.composite
def _connect(draw: st.DrawFn, version: int) -> dict[str, Any]:
    user_name = draw(st.none() | TEXT)
    may_have_password = version == 5 or user_name is not None
    will = {
        "topic_name": draw(TOPIC_NAME),
        "payload": draw(BINARY),
        "qos": draw(st.integers(0, 2)),
        "retain": draw(st.booleans()),
        "properties": draw(properties("will", True)) if version == 5 else {},
    }
    return {
        "protocol_version": version,
        "client_identifier": draw(TEXT),
        "clean_start": draw(st.booleans()),
        "keep_alive_s": draw(st.integers(0, 65_535)),
        "user_name": user_name,
        "password": draw(st.none() | BINARY) if may_have_password else None,
        "will": draw(st.sampled_from([None, will])),
    }


@st.composite
def streams(draw: st.DrawFn, version: int, role: str) -> bytes:
    """Some valid packets, one after the other."""
    drawn = draw(st.lists(packets(version, role), min_size=1, max_size=4))
    return b"".join(encode_packet(k, fields, protocol_version=version) for k, fields in drawn)


def frame(first: int, body: bytes) -> bytes:
    """A packet with the right Remaining Length."""
    rest, length = len(body), bytearray()
    while True:
        length.append(rest & 0x7F | (0x80 if rest > 0x7F else 0))
        rest >>= 7
        if not rest:
            return bytes([first]) + bytes(length) + body


@st.composite
def mutated(draw: st.DrawFn, version: int, role: str) -> bytes:
    """One packet with a few bytes changed, put in or left out; its length is mostly right."""
    kind, fields = draw(packets(version, role))
    packet = bytearray(encode_packet(kind, fields, protocol_version=version))
    keeps_length = draw(st.integers(0, 4)) > 0
    header = 1 + next(index for index in range(1, 5) if packet[index] < 0x80)
    first, target = packet[0], packet[header:] if keeps_length else packet
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(len(target) - 1, 0)))
        change = draw(st.sampled_from(["set", "set", "insert", "remove", "cut", "flags"]))
        byte = draw(
            st.sampled_from([0, 1, 2, 3, 0x23, 0x2B, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)
        )
        if change == "flags":
            first = first & 0xF0 | byte & 0x0F
        elif change == "insert":
            target.insert(at, byte)
        elif change == "cut":
            del target[at:]
        elif target and change == "remove":
            del target[at]
        elif target:
            target[at] = byte
    return frame(first, bytes(target)) if keeps_length else bytes(target)
