"""MQTT packets to bytes and back, written for these tests alone: none of the broker's own codec.

Owns: what a client may send, right or wrong, and a reader of what a server sends that refuses
whatever the specification refuses. Every packet that any test receives goes through that reader.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Property = tuple[str, Any]

FORMS = {
    "payload_format_indicator": (0x01, "byte"),
    "message_expiry_interval": (0x02, "four"),
    "content_type": (0x03, "text"),
    "response_topic": (0x08, "text"),
    "correlation_data": (0x09, "binary"),
    "subscription_identifier": (0x0B, "variable"),
    "session_expiry_interval": (0x11, "four"),
    "assigned_client_identifier": (0x12, "text"),
    "server_keep_alive": (0x13, "two"),
    "authentication_method": (0x15, "text"),
    "authentication_data": (0x16, "binary"),
    "request_problem_information": (0x17, "byte"),
    "will_delay_interval": (0x18, "four"),
    "request_response_information": (0x19, "byte"),
    "response_information": (0x1A, "text"),
    "server_reference": (0x1C, "text"),
    "reason_string": (0x1F, "text"),
    "receive_maximum": (0x21, "two"),
    "topic_alias_maximum": (0x22, "two"),
    "topic_alias": (0x23, "two"),
    "maximum_qos": (0x24, "byte"),
    "retain_available": (0x25, "byte"),
    "user_property": (0x26, "pair"),
    "maximum_packet_size": (0x27, "four"),
    "wildcard_subscription_available": (0x28, "byte"),
    "subscription_identifier_available": (0x29, "byte"),
    "shared_subscription_available": (0x2A, "byte"),
}
NAMES = {identifier: (name, form) for name, (identifier, form) in FORMS.items()}
SIZES = {"byte": 1, "two": 2, "four": 4}

KINDS = {
    2: "connack",
    3: "publish",
    4: "puback",
    5: "pubrec",
    6: "pubrel",
    7: "pubcomp",
    9: "suback",
    11: "unsuback",
    13: "pingresp",
    14: "disconnect",
    15: "auth",
}
ACKNOWLEDGEMENTS = {"puback": 0x40, "pubrec": 0x50, "pubrel": 0x62, "pubcomp": 0x70}

MESSAGE_PROPERTIES = set(list(FORMS)[:6]) | {"topic_alias", "user_property"}
ANSWER_PROPERTIES = {"reason_string", "user_property"}
CONNACK_PROPERTIES = set(FORMS) & {
    *("session_expiry_interval", "assigned_client_identifier", "server_keep_alive"),
    *("authentication_method", "authentication_data", "response_information"),
    *("server_reference", "reason_string", "receive_maximum", "topic_alias_maximum"),
    *("maximum_qos", "retain_available", "user_property", "maximum_packet_size"),
    *("wildcard_subscription_available", "subscription_identifier_available"),
    "shared_subscription_available",
}
# [MQTT-3.14.2-2]: no Session Expiry Interval from a server.
DISCONNECT_PROPERTIES = ANSWER_PROPERTIES | {"server_reference"}

PUBLISH_CODES = {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}
REASON_CODES = {
    "connack": {0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, *range(0x99, 0x9E), 0x9F},
    "puback": PUBLISH_CODES,
    "pubrec": PUBLISH_CODES,
    "pubrel": {0x00, 0x92},
    "pubcomp": {0x00, 0x92},
    "suback": {0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2},
    "unsuback": {0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91},
    "disconnect": {0x00, *range(0x80, 0x84), 0x87, 0x89, 0x8B, *range(0x8D, 0x91)}
    | set(range(0x93, 0xA3)),
    "auth": {0x00, 0x18},
}


@dataclass(frozen=True, slots=True)
class Will:
    """The Will of a CONNECT."""

    topic: str | bytes
    payload: bytes = b"gone"
    qos: int = 0
    retain: bool = False
    properties: Sequence[Property] = ()


@dataclass(slots=True)
class Packet:
    """A packet that a server sent."""

    kind: str
    size_bytes: int
    fields: dict[str, Any] = field(default_factory=dict)
    properties: list[Property] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(f"{self.kind} has no {name}") from None

    def property(self, name: str) -> Any:
        """The value of a property that comes once; `None` if it is not there."""
        return next((value for found, value in self.properties if found == name), None)

    def every(self, name: str) -> list[Any]:
        """All values of a property, in order."""
        return [value for found, value in self.properties if found == name]


# --- to bytes ----------------------------------------------------------------------------------


def variable(value: int) -> bytes:
    """A Variable Byte Integer."""
    found = bytearray()
    while True:
        value, digit = divmod(value, 128)
        found.append(digit | (0x80 if value else 0))
        if not value:
            return bytes(found)


def text(value: str | bytes) -> bytes:
    """Text or Binary Data with its length; bytes as they are, so that text may be wrong."""
    data = value.encode() if isinstance(value, str) else value
    return len(data).to_bytes(2, "big") + data


def properties(items: Sequence[Property], version: int = 5) -> bytes:
    """Properties with their length; nothing before MQTT 5."""
    if version < 5:
        return b""
    data = b"".join(_property(name, value) for name, value in items)
    return variable(len(data)) + data


def _property(name: str, value: Any) -> bytes:
    identifier, form = FORMS[name]
    first = bytes([identifier])
    if form in SIZES:
        return first + int(value).to_bytes(SIZES[form], "big")
    if form == "variable":
        return first + variable(value)
    if form == "pair":
        return first + text(value[0]) + text(value[1])
    return first + text(value)


def packet(first: int, body: bytes) -> bytes:
    """A packet with any first byte."""
    return bytes([first]) + variable(len(body)) + body


def connect(
    client: str | bytes,
    *,
    version: int = 5,
    clean: bool = True,
    keep_alive_s: int = 0,
    will: Will | None = None,
    user_name: str | bytes | None = None,
    password: bytes | None = None,
    items: Sequence[Property] = (),
    flags: int | None = None,
    name: str | None = None,
) -> bytes:
    """CONNECT; `flags` and `name` replace what would be right."""
    right = int(clean) << 1
    payload = text(client)
    if will is not None:
        right |= 0x04 | will.qos << 3 | int(will.retain) << 5
        payload += properties(will.properties, version) + text(will.topic) + text(will.payload)
    if user_name is not None:
        right |= 0x80
        payload += text(user_name)
    if password is not None:
        right |= 0x40
        payload += text(password)
    name = name or ("MQIsdp" if version == 3 else "MQTT")
    head = text(name) + bytes([version, right if flags is None else flags])
    body = head + keep_alive_s.to_bytes(2, "big") + properties(items, version) + payload
    return packet(0x10, body)


def publish(
    topic: str | bytes,
    payload: bytes = b"",
    *,
    version: int = 5,
    qos: int = 0,
    identifier: int | None = None,
    retain: bool = False,
    dup: bool = False,
    items: Sequence[Property] = (),
) -> bytes:
    """PUBLISH."""
    body = text(topic)
    if identifier is not None:
        body += identifier.to_bytes(2, "big")
    first = 0x30 | int(dup) << 3 | qos << 1 | int(retain)
    return packet(first, body + properties(items, version) + payload)


def acknowledge(
    kind: str, identifier: int, reason_code: int = 0, items: Sequence[Property] = ()
) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP, as short as it may be."""
    body = identifier.to_bytes(2, "big")
    if reason_code or items:
        body += bytes([reason_code])
    if items:
        body += properties(items)
    return packet(ACKNOWLEDGEMENTS[kind], body)


def subscribe(
    identifier: int,
    *filters: tuple[str | bytes, int],
    version: int = 5,
    items: Sequence[Property] = (),
    first: int = 0x82,
) -> bytes:
    """SUBSCRIBE to (topic filter, options byte)."""
    body = identifier.to_bytes(2, "big") + properties(items, version)
    return packet(first, body + b"".join(text(name) + bytes([byte]) for name, byte in filters))


def unsubscribe(
    identifier: int, *filters: str | bytes, version: int = 5, first: int = 0xA2
) -> bytes:
    """UNSUBSCRIBE."""
    body = identifier.to_bytes(2, "big") + properties((), version)
    return packet(first, body + b"".join(text(name) for name in filters))


def disconnect(reason_code: int = 0, items: Sequence[Property] = ()) -> bytes:
    """DISCONNECT; of older versions without arguments."""
    body = bytes([reason_code]) if reason_code or items else b""
    return packet(0xE0, body + (properties(items) if items else b""))


def auth(reason_code: int, items: Sequence[Property] = (), first: int = 0xF0) -> bytes:
    """AUTH."""
    return packet(first, bytes([reason_code]) + properties(items))


PINGREQ = b"\xc0\x00"


# --- from bytes --------------------------------------------------------------------------------


class Bytes:
    """Reads fields from the start of a packet's body."""

    def __init__(self, data: bytes) -> None:
        self.rest = data

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        assert count <= len(self.rest), "a field passes the end of its packet"
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def number(self, count: int) -> int:
        """A number of `count` bytes."""
        return int.from_bytes(self.take(count), "big")

    def binary(self) -> bytes:
        """Binary Data."""
        return self.take(self.number(2))

    def text(self) -> str:
        """Text [MQTT-1.5.4-1] [MQTT-1.5.4-2]."""
        found = self.binary().decode()
        assert "\0" not in found
        return found

    def variable(self) -> int:
        """A Variable Byte Integer in as few bytes as possible [MQTT-1.5.5-1]."""
        found = length(self.rest)
        assert found is not None, "a Variable Byte Integer passes the end of its packet"
        value, size = found
        assert variable(value) == self.take(size), "a Variable Byte Integer with needless bytes"
        return value

    def properties(self, allowed: set[str]) -> list[Property]:
        """Properties, each where it may stand and as often as it may."""
        reader = Bytes(self.take(self.variable()))
        found: list[Property] = []
        while reader.rest:
            name, form = NAMES[reader.number(1)]
            assert name in allowed, f"{name} may not stand here"
            repeats = name in {"user_property", "subscription_identifier"}
            assert repeats or name not in dict(found), f"{name} twice"
            found.append((name, reader.value(form)))
        return found

    def value(self, form: str) -> Any:
        """The value of a property."""
        if form in SIZES:
            return self.number(SIZES[form])
        if form == "pair":
            return (self.text(), self.text())
        return {"variable": self.variable, "text": self.text, "binary": self.binary}[form]()


def length(data: bytes) -> tuple[int, int] | None:
    """The Variable Byte Integer at the start of `data` and its size, if it is whole."""
    value = 0
    for index, byte in enumerate(data[:4]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, index + 1
    assert len(data) < 4, "a Variable Byte Integer of more than four bytes"
    return None


def read_packet(data: bytes, version: int) -> Packet | None:
    """The packet at the start of `data`, if it is whole."""
    found = length(data[1:5])
    if found is None or len(data) < 1 + sum(found):
        return None
    size = 1 + sum(found)
    body = Bytes(data[1 + found[1] : size])
    kind = KINDS[data[0] >> 4]
    flags = data[0] & 0x0F
    result = Packet(kind, size)
    if kind == "publish":
        _read_publish(result, flags, body, version)
        return result
    assert flags == (2 if kind == "pubrel" else 0), "reserved flags [MQTT-2.1.3-1]"
    if kind == "connack":
        _read_connack(result, body, version)
    elif kind in ACKNOWLEDGEMENTS:
        result.fields["packet_identifier"] = body.number(2)
        _read_reason(result, body, version, ANSWER_PROPERTIES)
    elif kind in {"suback", "unsuback"}:
        _read_answers(result, body, version)
    elif kind in {"disconnect", "auth"}:
        assert version == 5, f"{kind} to a client of an older version"
        authentication = {"authentication_method", "authentication_data"}
        extra = DISCONNECT_PROPERTIES if kind == "disconnect" else authentication
        _read_reason(result, body, version, ANSWER_PROPERTIES | extra)
    assert not body.rest, "bytes after the last field"
    return result


def _read_connack(result: Packet, body: Bytes, version: int) -> None:
    flags = body.number(1)
    assert flags <= (0 if version == 3 else 1), "reserved flags of CONNACK [MQTT-3.2.2-1]"
    code = body.number(1)
    assert code in (REASON_CODES["connack"] if version == 5 else range(6)), f"CONNACK {code:#x}"
    assert not (flags and code), "Session Present in a refusal [MQTT-3.2.2-6]"
    result.fields |= {"session_present": bool(flags), "reason_code": code}
    if version == 5:
        result.properties = body.properties(CONNACK_PROPERTIES)


def _read_publish(result: Packet, flags: int, body: Bytes, version: int) -> None:
    qos = flags >> 1 & 3
    dup = bool(flags & 8)
    assert qos < 3, "QoS 3 [MQTT-3.3.1-4]"
    assert qos or not dup, "DUP at QoS 0 [MQTT-3.3.1-2]"
    result.fields |= {"topic": body.text(), "qos": qos, "dup": dup, "retain": bool(flags & 1)}
    assert not {"+", "#"} & set(result.fields["topic"]), "wildcards in a topic name"
    if qos:
        result.fields["packet_identifier"] = body.number(2)
        assert result.fields["packet_identifier"], "packet identifier 0 [MQTT-2.2.1-4]"
    if version == 5:
        result.properties = body.properties(MESSAGE_PROPERTIES)
    result.fields["payload"], body.rest = body.rest, b""


def _read_reason(result: Packet, body: Bytes, version: int, allowed: set[str]) -> None:
    code = body.number(1) if version == 5 and body.rest else 0
    assert code in REASON_CODES[result.kind], f"{result.kind} with {code:#x}"
    result.fields["reason_code"] = code
    if version == 5 and body.rest:
        result.properties = body.properties(allowed)


def _read_answers(result: Packet, body: Bytes, version: int) -> None:
    result.fields["packet_identifier"] = body.number(2)
    if version == 5:
        result.properties = body.properties(ANSWER_PROPERTIES)
    codes = list(body.take(len(body.rest)))
    allowed = REASON_CODES[result.kind] if version == 5 else {0, 1, 2, 0x80}
    assert set(codes) <= allowed, f"{result.kind} with {codes}"
    assert result.kind == "suback" or version == 5 or not codes, "UNSUBACK has no payload"
    result.fields["reason_codes"] = codes
