"""MQTT 3.1.1 in bytes, and a client that blocks: for whoever needs many of either, quickly."""

import socket
from collections.abc import Iterable, Iterator

HOST = "127.0.0.1"
PINGREQ = b"\xc0\x00"
DISCONNECT = b"\xe0\x00"
CONNACK, PUBLISH, PUBACK, SUBACK, PINGRESP = 2, 3, 4, 9, 13
CONNACK_BYTES = PUBACK_BYTES = 4
PINGRESP_BYTES = 2
IDENTIFIER_MAXIMUM = 65_535
ANSWER_WITHIN_S = 60.0
READ_BYTES = 1 << 18


class GoneError(ConnectionError):
    """The broker ended the connection, or said no."""


def encode_connect(client_identifier: str, *, clean: bool = False) -> bytes:
    """CONNECT without Will, user or keep-alive."""
    head = b"\x00\x04MQTT\x04" + (b"\x02" if clean else b"\x00") + b"\x00\x00"
    return _packet(0x10, head + _string(client_identifier))


def encode_subscribe(topic_filters: Iterable[str], qos: int = 1) -> bytes:
    """SUBSCRIBE with all filters in one packet."""
    asked = b"".join(_string(topic_filter) + bytes([qos]) for topic_filter in topic_filters)
    return _packet(0x82, b"\x00\x01" + asked)


def encode_publish(
    topic_name: str, identifier: int, payload: bytes, *, retain: bool = False
) -> bytes:
    """PUBLISH at QoS 1."""
    body = _string(topic_name) + identifier.to_bytes(2) + payload
    return _packet(0x33 if retain else 0x32, body)


def encode_puback(identifier: bytes) -> bytes:
    """PUBACK for the two bytes of an identifier."""
    return b"\x40\x02" + identifier


def suback_bytes(filters: int) -> int:
    """The size of the answer to a SUBSCRIBE of so many filters."""
    return len(_packet(0x90, bytes(2 + filters)))


def _packet(first: int, body: bytes) -> bytes:
    size, length = len(body), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return bytes([first]) + bytes(length) + body


def _string(text: str) -> bytes:
    encoded = text.encode()
    return len(encoded).to_bytes(2) + encoded


def opened(port: int, within_s: float = ANSWER_WITHIN_S) -> socket.socket:
    """A connected socket that writes at once and waits for no answer for ever."""
    connection = socket.create_connection((HOST, port), within_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def packets(data: bytearray) -> Iterator[tuple[int, bytes]]:
    """The whole packets at the front, each as its type and body; takes them off."""
    at = 0
    try:
        while at + 2 <= len(data):
            size, shift, body = 0, 0, at + 1
            while True:
                byte = data[body]
                body += 1
                size |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
            if body + size > len(data):
                return
            yield data[at] >> 4, bytes(data[body : body + size])
            at = body + size
    except IndexError:
        return  # The length itself is not whole yet.
    finally:
        del data[:at]


class Peer:
    """One client on a socket. Answers each message that comes to it, and counts them."""

    def __init__(self, port: int, client_identifier: str, *, clean: bool = False) -> None:
        """Connects; the broker's answer has come when this returns."""
        self.received = 0
        self._socket = opened(port)
        self._data = bytearray()
        self._socket.sendall(encode_connect(client_identifier, clean=clean))
        self.wait_for(CONNACK)

    def subscribe(self, topic_filters: Iterable[str]) -> None:
        """Subscribes to all of them in one packet; the answer has come when this returns."""
        self._socket.sendall(encode_subscribe(topic_filters))
        self.wait_for(SUBACK)

    def ping(self) -> None:
        """Asks for a sign of life; it has come when this returns."""
        self._socket.sendall(PINGREQ)
        self.wait_for(PINGRESP)

    def wait_for(self, wanted: int) -> None:
        """Takes what comes until a packet of this type has come."""
        while wanted not in self._take():
            pass

    def take(self, messages: int) -> None:
        """Takes what comes until it has had so many messages."""
        while self.received < messages:
            self._take()

    def leave(self) -> None:
        """Says DISCONNECT; the broker has closed the connection when this returns."""
        self._socket.sendall(DISCONNECT)
        while self._socket.recv(READ_BYTES):
            pass
        self._socket.close()

    def drop(self) -> None:
        """Ends the connection without a word."""
        self._socket.close()

    def _take(self) -> set[int]:
        """Reads once, answers the messages in it; the types of the packets that came."""
        read = self._socket.recv(READ_BYTES)
        if not read:
            raise GoneError("the broker closed the connection")
        self._data += read
        came, answers = set(), bytearray()
        for kind, body in packets(self._data):
            came.add(kind)
            if kind == PUBLISH:
                self.received += 1
                at = 2 + int.from_bytes(body[:2])
                answers += encode_puback(body[at : at + 2])
            elif kind == CONNACK and body[1]:
                raise GoneError(f"refused with {body[1]}")
        if answers:
            self._socket.sendall(answers)
        return came
