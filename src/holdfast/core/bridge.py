"""A bridge as it is configured: which remote broker, and which messages go there or come from it.

Owns: the value, what may be written, and what contradicts itself. Never: connects to anything, or
reads a file.

Invariant: a `Bridge` that `parse_bridge` returns can be carried out: its filters, destinations and
addresses are valid.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final, Literal
from urllib.parse import SplitResult, urlsplit

from msgspec import Meta, Struct, ValidationError, convert, field, to_builtins

from holdfast.core.errors import ConfigurationError

Transport = Literal["tcp", "tls", "ws", "wss"]
Storage = Literal["IN_MEMORY", "FILE_NATIVE"]

SCHEMES: Final[Mapping[str, tuple[Transport, int]]] = {
    "mqtt": ("tcp", 1883),
    "tcp": ("tcp", 1883),
    "mqtts": ("tls", 8883),
    "ssl": ("tls", 8883),
    "tls": ("tls", 8883),
    "ws": ("ws", 80),
    "wss": ("wss", 443),
}
"""What an address may begin with, the transport that it names, and the usual port."""
HOP_PROPERTY: Final = "hmq-bridge-hop-count"
"""The user property in which HiveMQ Edge counts hops, so that both understand each other."""
SAME_TOPIC: Final = "{#}"
HIDDEN: Final = "********"
"""In place of a password, wherever a bridge is shown."""
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
TEXT_BYTES_MAXIMUM: Final = 65_535
"""Bytes of each text and of the password: packets of MQTT have two bytes for a length."""
HOST_NAME_BYTES_MAXIMUM: Final = 253
"""Of a name in DNS (RFC 1035, section 2.3.4, without what frames it there)."""
_REFERENCE: Final = re.compile(r"\{(#|[1-9][0-9]{0,2})\}")

Seconds = Annotated[int, Meta(ge=0, le=4_294_967_295)]
Qos = Annotated[int, Meta(ge=0, le=2)]
Filters = Annotated[tuple[str, ...], Meta(min_length=1, max_length=100)]
Excludes = Annotated[tuple[str, ...], Meta(max_length=100)]


class UserProperty(Struct, frozen=True, forbid_unknown_fields=True):
    """A user property that is added to each message."""

    key: str
    value: str


class BridgeSubscription(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages of some topics that are carried in one direction. Of several that match a topic the
    first decides, also that it is excluded."""

    filters: Filters
    excludes: Excludes = ()
    destination: str = SAME_TOPIC
    """The topic at the other end: `{#}` is the whole topic, `{1}` its first level."""
    max_qos: Qos = 2
    """What comes with more is carried with this."""
    preserve_retain: bool = False
    """Messages keep the RETAIN flag that they were published with."""
    user_properties: Annotated[tuple[UserProperty, ...], Meta(max_length=32)] = ()


class LocalSubscription(BridgeSubscription, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages that go from here to the remote broker."""

    persist: bool = True
    """False: all are carried at QoS 0, and nothing of them is kept on disk (S1.16)."""


class Tls(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the remote broker is verified, and how this one shows who it is."""

    ca: str | None = None
    """A file with the authorities that may vouch for the remote; none: those of the system."""
    certificate: str | None = None
    """This broker's own certificate, and its key."""
    key: str | None = None
    server_name: str | None = None
    """The name that the remote's certificate has; none: the host of the address."""


class Bridge(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A connection to a remote broker, and what it carries."""

    name: str
    address: str
    """`mqtt://host:1883`, `mqtts://...`, `ws://host/path`, `wss://...`, or `host:port`."""
    client_identifier: str | None = None
    """None: `holdfast-` and the bridge's name."""
    user_name: str | None = None
    password: str | None = None
    password_file: str | None = None
    """A file with the password, in place of the password itself."""
    protocol_version: Literal["5", "3.1.1"] = "5"
    keep_alive_s: Annotated[int, Meta(ge=1, le=65_535)] = 60
    session_expiry_s: Seconds = 3600
    clean_start: bool = False
    tls: Tls = field(default_factory=Tls)
    local_subscriptions: tuple[LocalSubscription, ...] = ()
    remote_subscriptions: tuple[BridgeSubscription, ...] = ()
    loop_prevention: bool = True
    hop_limit: Annotated[int, Meta(ge=1, le=100)] = 1
    """A message that has been carried so often by bridges is carried no further."""
    hop_property: str = HOP_PROPERTY
    queue_limit: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    """How many messages wait while the remote is away; 0: as many as the log keeps."""
    enabled: bool = True
    """False: it is there and does nothing."""

    @property
    def identifier(self) -> str:
        """The client identifier that it connects with."""
        return self.client_identifier or f"holdfast-{self.name}"

    @property
    def mqtt_version(self) -> int:
        """As CONNECT has it."""
        return 5 if self.protocol_version == "5" else 4

    @property
    def counts_hops(self) -> bool:
        """What it carries tells how often it has been: before MQTT 5 nothing can."""
        return self.loop_prevention and self.mqtt_version == 5

    @property
    def place(self) -> "Place":
        """Where the remote is."""
        return parse_address(self.address)

    def __repr__(self) -> str:
        """Without what nobody should read in a log."""
        return f"Bridge({self.name!r}, {self.address!r})"


class Place(Struct, frozen=True):
    """Where a remote broker is, and how it is reached."""

    transport: Transport
    host: str
    port: int
    path: str
    """Of a WebSocket, with its query."""


def parse_address(address: str) -> Place:
    """Where an address leads to. Raises `ValueError` with a sentence, which repeats nothing of it
    that may be a password."""
    parts, port = _split(address if "://" in address else f"mqtt://{address}")
    if parts.username is not None or parts.password is not None:
        raise ValueError("the address has a user in it; that is user_name and password_file")
    scheme = parts.scheme
    if scheme not in SCHEMES:
        raise ValueError(f"the address begins with {scheme}://; it can be {', '.join(SCHEMES)}")
    transport, usual_port = SCHEMES[scheme]
    if not parts.hostname:
        raise ValueError("the address names no host")
    if any(character.isspace() or not character.isprintable() for character in address):
        raise ValueError("the address has a space or a control character in it")
    if port == 0:
        raise ValueError(
            f"the address has port 0, on which nobody can listen; leave it out for {usual_port}"
        )
    path = parts.path or "/mqtt"
    place = f"{path}?{parts.query}" if parts.query else path
    return Place(transport, parts.hostname, usual_port if port is None else port, place)


def _split(address: str) -> tuple[SplitResult, int | None]:
    """The parts of an address, and its port if it names one."""
    try:
        parts = urlsplit(address)
        return parts, parts.port
    except ValueError as error:
        # Its own words repeat what it could not read, and before an @ that is a password.
        raise ValueError(
            "the address cannot be read: it is host:port or scheme://host:port, with an address of"
            " IPv6 in brackets and a port from 1 to 65535"
        ) from error


Reference = int | bytes
"""A part of a destination: bytes, or the number of a level; 0 is the whole topic."""


def parts_of(destination: str) -> list[Reference]:
    """What a destination is made of. Raises `ValueError` with a sentence."""
    parts: list[Reference] = []
    at = 0
    for found in _REFERENCE.finditer(destination):
        if found.start() > at:
            parts.append(destination[at : found.start()].encode())
        parts.append(0 if found[1] == "#" else int(found[1]))
        at = found.end()
    if at < len(destination):
        parts.append(destination[at:].encode())
    literals = b"".join(part for part in parts if isinstance(part, bytes)).decode()
    if not parts or any(character in literals for character in "+#{}\0"):
        raise ValueError(
            f'the destination "{destination}" is no topic: it is text with {{#}} for the whole'
            " topic and {1}, {2} for its levels, without wildcards"
        )
    if destination.startswith("$"):
        raise ValueError(
            f'the destination "{destination}" begins with $: that is the broker\'s own'
        )
    return parts


def parse_bridge(written: object, is_filter: Callable[[str], bool], where: str) -> Bridge:
    """The bridge that was meant; `where` it was written begins each complaint, and `is_filter` says
    what a topic filter is. Raises `ConfigurationError`."""
    try:
        bridge = convert(written, Bridge)
        _check(bridge, is_filter)
    except (ValidationError, ValueError) as error:
        raise ConfigurationError(f"{where}: {error}") from error
    return bridge


def _check(bridge: Bridge, is_filter: Callable[[str], bool]) -> None:
    for where, text in _texts(to_builtins(bridge), ""):
        _check_text(where, text)
    if not NAME.fullmatch(bridge.name):
        raise ValueError(
            f'the name "{bridge.name}" has other characters than letters, digits, "-", "_" and ".",'
            " or more than 64"
        )
    parse_address(bridge.address)
    if bridge.password is not None and bridge.password_file is not None:
        raise ValueError("password and password_file are both there; one of them is meant")
    has_password = bridge.password is not None or bridge.password_file is not None
    if has_password and bridge.user_name is None and bridge.mqtt_version < 5:
        raise ValueError("MQTT 3.1.1 knows no password without user_name")
    if (bridge.tls.certificate is None) is not (bridge.tls.key is None):
        raise ValueError("tls.certificate and tls.key belong together; one of them is missing")
    if bridge.tls.server_name and not _is_host_name(bridge.tls.server_name):
        raise ValueError(
            "tls.server_name is no name of a host: one of its parts is empty or longer"
            f" than 63 characters, or all of it longer than {HOST_NAME_BYTES_MAXIMUM}"
        )
    for kind, subscriptions in (
        ("local_subscriptions", bridge.local_subscriptions),
        ("remote_subscriptions", bridge.remote_subscriptions),
    ):
        for number, item in enumerate(subscriptions, 1):
            parts_of(item.destination)
            for text in (*item.filters, *item.excludes):
                if not is_filter(text) or text.startswith("$share/"):
                    raise ValueError(f'{kind} {number}: "{text}" is no topic filter')
    if not bridge.local_subscriptions and not bridge.remote_subscriptions:
        raise ValueError("it has neither local_subscriptions nor remote_subscriptions")


def _texts(value: object, where: str) -> Iterator[tuple[str, str]]:
    """Every text within a value, with where it is: `local_subscriptions 1.filters 2`."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, f"{where}.{name}" if where else name)
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value, 1):
            yield from _texts(inner, f"{where} {number}")


def _check_text(where: str, text: str) -> None:
    # None is repeated: it may be a password, or very long.
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{where} has half of a surrogate pair in it, which UTF-8 does not know"
        ) from error
    if size > TEXT_BYTES_MAXIMUM:
        raise ValueError(f"{where} has {size} bytes; it can have {TEXT_BYTES_MAXIMUM}")
    if "\0" in text:
        raise ValueError(f"{where} has the character U+0000 in it, which MQTT does not allow")


def _is_host_name(text: str) -> bool:
    try:
        return 0 < len(text.encode("idna")) <= HOST_NAME_BYTES_MAXIMUM
    except UnicodeError:
        return False


def public_fields(bridge: Bridge) -> dict[str, Any]:
    """The bridge as it may be shown: whether there is a password, and not which."""
    fields = {name: getattr(bridge, name) for name in bridge.__struct_fields__}
    fields["password"] = None if bridge.password is None else HIDDEN
    return fields
