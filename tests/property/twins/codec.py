"""A plain MQTT decoder, written from the specifications, to compare the compiled one with.

Owns: what MQTT 3.1, 3.1.1 and 5.0 allow in one packet, in the order of the specification's text.
Never: is fast. It reads one field after the other and stops at the first that is wrong.

Invariants:
1. `decode` gives what `holdfast.kernel.decode_packets` gives, except for the words of a fault.
"""

from collections.abc import Callable
from typing import Any, Final

Fields = dict[str, Any]

MALFORMED: Final = 0x81
PROTOCOL_ERROR: Final = 0x82
UNSUPPORTED_VERSION: Final = 0x84
FILTER_INVALID: Final = 0x8F
NAME_INVALID: Final = 0x90
ALIAS_INVALID: Final = 0x94
QUOTA_EXCEEDED: Final = 0x97

USER_PROPERTIES_MAXIMUM: Final = 1_024
USER_PROPERTIES_ADDED_MAXIMUM: Final = 64
FILTERS_PER_PACKET_MAXIMUM: Final = 10_000

KINDS: Final = [
    "connect",
    "connack",
    "publish",
    "puback",
    "pubrec",
    "pubrel",
    "pubcomp",
    "subscribe",
    "suback",
    "unsubscribe",
    "unsuback",
    "pingreq",
    "pingresp",
    "disconnect",
    "auth",
]
FROM_SERVER: Final = {"connack", "suback", "unsuback", "pingresp"}
FROM_CLIENT: Final = {"connect", "subscribe", "unsubscribe", "pingreq"}
ACKNOWLEDGEMENTS: Final = {"puback", "pubrec", "pubrel", "pubcomp"}
MESSAGE: Final = {"publish", "will"}
REASONED: Final = ACKNOWLEDGEMENTS | {"connack", "suback", "unsuback", "disconnect", "auth"}

PROPERTIES: Final[dict[int, tuple[str, str, set[str]]]] = {
    0x01: ("payload_format_indicator", "flag", MESSAGE),
    0x02: ("message_expiry_interval", "four", MESSAGE),
    0x03: ("content_type", "text", MESSAGE),
    0x08: ("response_topic", "text", MESSAGE),
    0x09: ("correlation_data", "binary", MESSAGE),
    0x0B: ("subscription_identifier", "variable", {"publish", "subscribe"}),
    0x11: ("session_expiry_interval", "four", {"connect", "connack", "disconnect"}),
    0x12: ("assigned_client_identifier", "text", {"connack"}),
    0x13: ("server_keep_alive", "two", {"connack"}),
    0x15: ("authentication_method", "text", {"connect", "connack", "auth"}),
    0x16: ("authentication_data", "binary", {"connect", "connack", "auth"}),
    0x17: ("request_problem_information", "flag", {"connect"}),
    0x18: ("will_delay_interval", "four", {"will"}),
    0x19: ("request_response_information", "flag", {"connect"}),
    0x1A: ("response_information", "text", {"connack"}),
    0x1C: ("server_reference", "text", {"connack", "disconnect"}),
    0x1F: ("reason_string", "text", REASONED),
    0x21: ("receive_maximum", "two", {"connect", "connack"}),
    0x22: ("topic_alias_maximum", "two", {"connect", "connack"}),
    0x23: ("topic_alias", "two", {"publish"}),
    0x24: ("maximum_qos", "flag", {"connack"}),
    0x25: ("retain_available", "flag", {"connack"}),
    0x26: ("user_property", "pair", {*KINDS, "will"} - {"pingreq", "pingresp"}),
    0x27: ("maximum_packet_size", "four", {"connect", "connack"}),
    0x28: ("wildcard_subscription_available", "flag", {"connack"}),
    0x29: ("subscription_identifier_available", "flag", {"connack"}),
    0x2A: ("shared_subscription_available", "flag", {"connack"}),
}
NOT_ZERO: Final = {"subscription_identifier", "receive_maximum", "maximum_packet_size"}

PUBACK_CODES: Final = {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}
REASON_CODES: Final[dict[str, set[int]]] = {
    "connack": {0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, *range(0x99, 0x9E), 0x9F},
    "puback": PUBACK_CODES,
    "pubrec": PUBACK_CODES,
    "pubrel": {0x00, 0x92},
    "pubcomp": {0x00, 0x92},
    "suback": {0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2},
    "unsuback": {0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91},
    "disconnect": {0x00, 0x04, *range(0x80, 0x84), 0x87, 0x89, 0x8B, *range(0x8D, 0x91)}
    | set(range(0x93, 0xA3)),
    "auth": {0x00, 0x18, 0x19},
}
OF_SERVER: Final = {0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, *range(0x9A, 0xA3)}
"""Reasons to disconnect that only a server has, table 3-13."""
RETURN_CODES: Final = {0: 0x00, 1: 0x84, 2: 0x85, 3: 0x88, 4: 0x86, 5: 0x87}


class FaultError(Exception):
    """The peer broke the protocol."""

    def __init__(self, reason_code: int, protocol_version: int | None = None) -> None:
        super().__init__(f"0x{reason_code:02X}")
        self.reason_code = reason_code
        self.protocol_version = protocol_version


def refuse_if(wrong: object, reason_code: int) -> None:
    """Raise a fault if something is wrong."""
    if wrong:
        raise FaultError(reason_code)


class Reader:
    """Section 1.5: the data types."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, count: int) -> bytes:
        """The next bytes."""
        refuse_if(count > len(self.data), MALFORMED)
        taken, self.data = self.data[:count], self.data[count:]
        return taken

    def byte(self) -> int:
        """A byte."""
        return self.take(1)[0]

    def two(self) -> int:
        """A Two Byte Integer."""
        return int.from_bytes(self.take(2), "big")

    def four(self) -> int:
        """A Four Byte Integer."""
        return int.from_bytes(self.take(4), "big")

    def variable(self) -> int:
        """A Variable Byte Integer, as short as it can be."""
        found = variable(self.data)
        refuse_if(found is None, MALFORMED)
        assert found is not None
        value, size = found
        refuse_if(size != variable_size(value), MALFORMED)
        self.take(size)
        return value

    def binary(self) -> bytes:
        """Binary Data."""
        return self.take(self.two())

    def text(self) -> str:
        """A UTF-8 Encoded String. Python refuses surrogates, as section 1.5.4 does."""
        return as_text(self.binary())


def as_text(data: bytes) -> str:
    """UTF-8 without U+0000."""
    refuse_if(b"\0" in data, MALFORMED)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FaultError(MALFORMED) from error


def variable(data: bytes) -> tuple[int, int] | None:
    """Value and size of the Variable Byte Integer at the start, or None if it is not complete."""
    value = 0
    for index in range(4):
        if index == len(data):
            return None
        value += (data[index] & 0x7F) << (7 * index)
        if data[index] < 0x80:
            return value, index + 1
    raise FaultError(MALFORMED)


def variable_size(value: int) -> int:
    """The fewest bytes that carry a value."""
    return 1 + (value >= 128) + (value >= 128**2) + (value >= 128**3)


def decode(data: bytes, protocol_version: int, role: str) -> tuple[list[tuple[str, Fields]], int]:
    """All whole packets in `data`, and the bytes they took; a fault is the last packet."""
    packets: list[tuple[str, Fields]] = []
    taken = 0
    while len(data) > taken + 1:
        try:
            length = variable(data[taken + 1 :])
            if length is None or taken + 1 + length[1] + length[0] > len(data):
                break
            body_start = taken + 1 + length[1]
            end = body_start + length[0]
            is_minimal = length[1] == variable_size(length[0])
            packet = Packet(data[taken], data[body_start:end], protocol_version, role, is_minimal)
            kind, fields = packet.decode()
        except FaultError as fault:
            is_connect = data[taken] >> 4 == 1
            version = fault.protocol_version if is_connect else protocol_version
            fields = {"reason_code": fault.reason_code, "protocol_version": version or 0}
            return [*packets, ("fault", fields)], taken
        packets.append((kind, fields))
        protocol_version = fields.get("protocol_version", protocol_version)
        taken = end
    return packets, taken


class Packet:
    """One packet on its way from bytes to fields."""

    def __init__(self, first: int, body: bytes, version: int, role: str, is_minimal: bool) -> None:
        self.kind = KINDS[(first >> 4) - 1] if first >> 4 else ""
        self.flags = first & 0x0F
        self.reader = Reader(body)
        self.version = version
        self.role = role
        self.is_minimal = is_minimal

    def decode(self) -> tuple[str, Fields]:
        """The packet's kind and fields."""
        refuse_if(not self.kind, MALFORMED)
        self.refuse_direction()
        must_be = 0b0010 if self.kind in {"pubrel", "subscribe", "unsubscribe"} else 0
        has_reserved = self.kind != "publish" and (self.version > 3 or self.kind == "connect")
        refuse_if(has_reserved and self.flags != must_be, MALFORMED)
        refuse_if(self.kind != "connect" and self.version == 5 and not self.is_minimal, MALFORMED)
        bodies: dict[str, Callable[[], Fields]] = {
            "connect": self.connect,
            "connack": self.connack,
            "publish": self.publish,
            "subscribe": self.subscribe,
            "suback": self.answers,
            "unsubscribe": self.unsubscribe,
            "unsuback": self.answers,
            "pingreq": dict,
            "pingresp": dict,
            "disconnect": self.reason,
            "auth": self.reason,
        }
        fields = bodies.get(self.kind, self.acknowledgement)()
        refuse_if(self.reader.data, MALFORMED)
        return self.kind, fields

    def refuse_direction(self) -> None:
        """Table 2-1."""
        refuse_if(self.kind == "auth" and self.version < 5, MALFORMED)
        others = FROM_SERVER if self.role == "server" else FROM_CLIENT
        refuse_if(self.kind in others, PROTOCOL_ERROR)
        from_old_server = self.kind == "disconnect" and self.role == "client" and self.version < 5
        refuse_if(from_old_server, PROTOCOL_ERROR)

    # --- properties (section 2.2.2) -------------------------------------------------------------

    def properties(self, place: str | None = None) -> Fields:
        """The properties that stand here, by name."""
        if self.version < 5:
            return {}
        place = place or self.kind
        reader = Reader(self.reader.take(self.reader.variable()))
        found: Fields = {}
        while reader.data:
            identifier = reader.variable()
            name, form, places = PROPERTIES.get(identifier, ("", "", set[str]()))
            refuse_if(place not in places, MALFORMED)
            is_repeated = self.refuse_repeated(name, place, found)
            value = self.property_value(reader, name, form)
            if is_repeated:
                found.setdefault(name, []).append(value)
            else:
                found[name] = value
        has_data_alone = "authentication_data" in found and "authentication_method" not in found
        refuse_if(has_data_alone, PROTOCOL_ERROR)
        from_server = place == "disconnect" and self.role == "client"
        refuse_if(from_server and "session_expiry_interval" in found, PROTOCOL_ERROR)
        return found

    def refuse_repeated(self, name: str, place: str, found: Fields) -> bool:
        """Refuse a property that is there twice; True if it may be."""
        if name == "user_property":
            added = USER_PROPERTIES_ADDED_MAXIMUM if self.role == "client" else 0
            refuse_if(len(found.get(name, [])) >= USER_PROPERTIES_MAXIMUM + added, QUOTA_EXCEEDED)
            return True
        if name == "subscription_identifier" and place == "publish":
            refuse_if(self.role == "server", PROTOCOL_ERROR)  # [MQTT-3.3.4-6]
            return True
        refuse_if(name in found, PROTOCOL_ERROR)
        return False

    def property_value(self, reader: Reader, name: str, form: str) -> object:
        """A property's value."""
        if form == "pair":
            return reader.text(), reader.text()
        if form == "binary":
            return reader.binary()
        if form == "text":
            text = reader.text()
            refuse_if(name == "response_topic" and not is_topic_name(text), PROTOCOL_ERROR)
            return text
        number: int = reader.byte() if form == "flag" else getattr(reader, form)()
        refuse_if(name == "topic_alias" and number == 0, ALIAS_INVALID)
        refuse_if(name in NOT_ZERO and number == 0, PROTOCOL_ERROR)
        refuse_if(form == "flag" and number > 1, PROTOCOL_ERROR)
        return number

    # --- packets (section 3) --------------------------------------------------------------------

    def connect(self) -> Fields:
        """CONNECT, section 3.1."""
        name, level = self.reader.binary(), self.reader.byte()
        if (name, level) not in {(b"MQIsdp", 3), (b"MQTT", 4), (b"MQTT", 5)}:
            version = 5 if name == b"MQTT" and level & 0x7F >= 5 else 4
            known = version if name in {b"MQTT", b"MQIsdp"} else None
            raise FaultError(UNSUPPORTED_VERSION, known)
        self.version = level
        try:
            refuse_if(level == 5 and not self.is_minimal, MALFORMED)
            fields = self.connect_fields()
            refuse_if(self.reader.data, MALFORMED)
        except FaultError as fault:
            raise FaultError(fault.reason_code, level) from fault
        return fields

    def connect_fields(self) -> Fields:
        """What follows the protocol version."""
        flags = self.reader.byte()
        user_name, password, will = flags & 0x80, flags & 0x40, flags & 0x04
        will_qos = flags >> 3 & 3
        refuse_if(flags & 1 and self.version > 3, MALFORMED)  # [MQTT-3.1.2-3]
        refuse_if(will_qos == 3, MALFORMED)  # [MQTT-3.1.2-12]
        refuse_if(not will and flags & 0x38, MALFORMED)  # [MQTT-3.1.2-11] [MQTT-3.1.2-13]
        refuse_if(password and not user_name and self.version < 5, MALFORMED)
        fields: Fields = {
            "protocol_version": self.version,
            "clean_start": bool(flags & 2),
            "keep_alive_s": self.reader.two(),
            "properties": self.properties(),
            "client_identifier": self.reader.text(),
        }
        fields["will"] = self.will(will_qos, bool(flags & 0x20)) if will else None
        fields["user_name"] = self.reader.text() if user_name else None
        fields["password"] = self.reader.binary() if password else None
        return fields

    def will(self, qos: int, retain: bool) -> Fields:
        """The Will of a CONNECT."""
        properties = self.properties("will")
        topic_name = self.reader.text()
        refuse_if(not is_topic_name(topic_name), NAME_INVALID)
        payload = self.reader.binary()
        return {
            "topic_name": topic_name,
            "payload": payload,
            "qos": qos,
            "retain": retain,
            "properties": properties,
        }

    def connack(self) -> Fields:
        """CONNACK, section 3.2."""
        flags = self.reader.byte()
        refuse_if(flags > 1 and self.version > 3, MALFORMED)
        code = self.reader.byte()
        if self.version < 5:
            refuse_if(code not in RETURN_CODES, PROTOCOL_ERROR)
            code = RETURN_CODES[code]
        refuse_if(code not in REASON_CODES["connack"], PROTOCOL_ERROR)
        session_present = flags == 1 and self.version > 3
        refuse_if(session_present and code, PROTOCOL_ERROR)  # [MQTT-3.2.2-6]
        properties = self.properties()
        return {"session_present": session_present, "reason_code": code, "properties": properties}

    def publish(self) -> Fields:
        """PUBLISH, section 3.3."""
        dup, qos, retain = bool(self.flags & 8), self.flags >> 1 & 3, bool(self.flags & 1)
        refuse_if(qos == 3, MALFORMED)  # [MQTT-3.3.1-4]
        refuse_if(dup and qos == 0, MALFORMED)  # [MQTT-3.3.1-2]
        topic_name = self.reader.text()
        refuse_if(set("+#") & set(topic_name), NAME_INVALID)  # [MQTT-3.3.2-2]
        packet_identifier = self.packet_identifier() if qos else 0
        properties = self.properties()
        refuse_if(not topic_name and "topic_alias" not in properties, PROTOCOL_ERROR)
        return {
            "packet_identifier": packet_identifier,
            "qos": qos,
            "retain": retain,
            "dup": dup,
            "topic_name": topic_name,
            "payload": self.reader.take(len(self.reader.data)),
            "properties": properties,
        }

    def packet_identifier(self) -> int:
        """A packet identifier [MQTT-2.2.1-3]."""
        packet_identifier = self.reader.two()
        refuse_if(packet_identifier == 0, PROTOCOL_ERROR)
        return packet_identifier

    def acknowledgement(self) -> Fields:
        """PUBACK, PUBREC, PUBREL and PUBCOMP, sections 3.4 to 3.7."""
        return {"packet_identifier": self.packet_identifier(), **self.shortened_reason()}

    def shortened_reason(self) -> Fields:
        """A reason code and properties, of which the end may be left out."""
        fields: Fields = {"reason_code": 0, "properties": {}}
        if self.version == 5 and self.reader.data:
            fields["reason_code"] = code = self.reader.byte()
            refuse_if(code not in REASON_CODES[self.kind] | self.other_refusals(), PROTOCOL_ERROR)
            if self.reader.data:
                fields["properties"] = self.properties()
        return fields

    def other_refusals(self) -> set[int]:
        """With what servers refuse messages although PUBACK and PUBREC do not have it."""
        is_answer = self.role == "client" and self.kind in {"puback", "pubrec"}
        return set(range(0x80, 0x100)) if is_answer else set()

    def reason(self) -> Fields:
        """DISCONNECT and AUTH, sections 3.14 and 3.15."""
        fields = self.shortened_reason()
        of_other_side = {("disconnect", "client", 0x04), ("auth", "client", 0x19)}
        of_other_side.add(("auth", "server", 0x00))
        of_other_side |= {("disconnect", "server", code) for code in OF_SERVER}
        refuse_if((self.kind, self.role, fields["reason_code"]) in of_other_side, PROTOCOL_ERROR)
        return fields

    def subscribe(self) -> Fields:
        """SUBSCRIBE, section 3.8."""
        packet_identifier, properties = self.packet_identifier(), self.properties()
        subscriptions: list[Fields] = []
        while self.reader.data:
            refuse_if(len(subscriptions) >= FILTERS_PER_PACKET_MAXIMUM, QUOTA_EXCEEDED)
            subscriptions.append(self.subscription())
        refuse_if(not subscriptions, PROTOCOL_ERROR)
        return {
            "packet_identifier": packet_identifier,
            "subscriptions": subscriptions,
            "properties": properties,
        }

    def subscription(self) -> Fields:
        """A topic filter and its options, section 3.8.3."""
        topic_filter = self.topic_filter()
        options = self.reader.byte()
        refuse_if(options & (0xC0 if self.version == 5 else 0xFC), MALFORMED)
        refuse_if(options & 3 == 3, PROTOCOL_ERROR)
        refuse_if(options >> 4 == 3, PROTOCOL_ERROR)
        no_local = bool(options & 4)
        refuse_if(no_local and topic_filter.startswith("$share/"), PROTOCOL_ERROR)
        return {
            "topic_filter": topic_filter,
            "qos": options & 3,
            "no_local": no_local,
            "retain_as_published": bool(options & 8),
            "retain_handling": options >> 4,
        }

    def topic_filter(self) -> str:
        """A topic filter, shared or not (sections 4.7 and 4.8.2)."""
        text = self.reader.text()
        within = text
        if text.startswith("$share/"):
            share_name, slash, within = text.removeprefix("$share/").partition("/")
            refuse_if(not share_name or not slash or set("+#") & set(share_name), FILTER_INVALID)
        refuse_if(not is_topic_filter(within), FILTER_INVALID)
        return text

    def unsubscribe(self) -> Fields:
        """UNSUBSCRIBE, section 3.10."""
        packet_identifier, properties = self.packet_identifier(), self.properties()
        filters: list[str] = []
        while self.reader.data:
            refuse_if(len(filters) >= FILTERS_PER_PACKET_MAXIMUM, QUOTA_EXCEEDED)
            filters.append(self.topic_filter())
        refuse_if(not filters, PROTOCOL_ERROR)
        return {
            "packet_identifier": packet_identifier,
            "topic_filters": filters,
            "properties": properties,
        }

    def answers(self) -> Fields:
        """SUBACK and UNSUBACK, sections 3.9 and 3.11."""
        packet_identifier, properties = self.packet_identifier(), self.properties()
        codes = list(self.reader.take(len(self.reader.data)))
        allowed = REASON_CODES[self.kind]
        if self.version < 5:
            allowed = {0, 1, 2, 0x80} if self.kind == "suback" else set()
        refuse_if(set(codes) - allowed, PROTOCOL_ERROR)
        refuse_if(not codes and (self.kind == "suback" or self.version == 5), PROTOCOL_ERROR)
        return {
            "packet_identifier": packet_identifier,
            "reason_codes": codes,
            "properties": properties,
        }


def is_topic_name(text: str) -> bool:
    """Section 4.7.3; a length that fits a string is all that is asked."""
    return bool(text) and not set("+#") & set(text)


def is_topic_filter(text: str) -> bool:
    """Section 4.7.1: a wildcard is a level of its own, and # the last."""
    levels = text.split("/")
    plain = all(level in {"+", "#"} or not set("+#") & set(level) for level in levels)
    return bool(text) and plain and "#" not in levels[:-1]
