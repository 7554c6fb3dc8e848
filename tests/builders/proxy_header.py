"""Headers of the PROXY protocol, version 2, as a proxy makes them."""

from ipaddress import ip_address

from holdfast.broker.sockets.proxy_protocol import SIGNATURE


def header(
    source: tuple[str, int] | None = ("192.0.2.7", 4_711), *, command: int = 1, values: bytes = b""
) -> bytes:
    """A header that says that `source` has connected; None leaves the family unspecified."""
    family, addresses = 0, b""
    if source is not None:
        address = ip_address(source[0])
        family = 0x11 if address.version == 4 else 0x21
        destination = ip_address("198.51.100.1" if address.version == 4 else "2001:db8::1")
        ports = source[1].to_bytes(2, "big") + (1_883).to_bytes(2, "big")
        addresses = address.packed + destination.packed + ports
    body = addresses + values
    return SIGNATURE + bytes([0x20 | command, family]) + len(body).to_bytes(2, "big") + body


def value(kind: int, content: bytes) -> bytes:
    """Type, length, value."""
    return bytes([kind]) + len(content).to_bytes(2, "big") + content


def certificate(name: bytes, *, client: int = 0x03, verify: int = 0) -> bytes:
    """What a proxy says of TLS between the client and itself."""
    inner = value(0x21, b"TLSv1.3") + value(0x22, name)
    return value(0x20, bytes([client]) + verify.to_bytes(4, "big") + inner)
