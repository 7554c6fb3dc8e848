"""WebSocket from the client's side, with every freedom to be wrong."""

import struct

BINARY, TEXT, CONTINUATION, CLOSE, PING, PONG = 2, 1, 0, 8, 9, 10
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
"""The answer to this key, from RFC 6455 section 1.3."""


def request(
    path: str = "/mqtt", host: str = "localhost", subprotocol: str | None = "mqtt", **headers: str
) -> bytes:
    """The request of a handshake; a header of `headers` has - for _."""
    given = {
        "Host": host,
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": KEY,
        "Sec-WebSocket-Version": "13",
    }
    if subprotocol is not None:
        given["Sec-WebSocket-Protocol"] = subprotocol
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def frame(
    payload: bytes, opcode: int = BINARY, *, final: bool = True, mask: bytes | None = b"\1\2\3\4"
) -> bytes:
    """One frame; `mask` None leaves it unmasked, which a client must not."""
    masked = 0x80 if mask is not None else 0
    head = bytes([(0x80 if final else 0) | opcode])
    length = len(payload)
    if length < 126:
        head += bytes([masked | length])
    elif length < 65_536:
        head += struct.pack("!BH", masked | 126, length)
    else:
        head += struct.pack("!BQ", masked | 127, length)
    if mask is None:
        return head + payload
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


def parse(data: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """Whole frames of a server as opcode and payload, and the rest."""
    frames = []
    while len(data) >= 2:
        length, at = data[1] & 0x7F, 2
        if length == 126:
            length, at = int.from_bytes(data[2:4], "big"), 4
        elif length == 127:
            length, at = int.from_bytes(data[2:10], "big"), 10
        assert not data[1] & 0x80, "a server's frame is not masked"
        if len(data) < at + length:
            break
        frames.append((data[0] & 0x0F, data[at : at + length]))
        data = data[at + length :]
    return frames, data
