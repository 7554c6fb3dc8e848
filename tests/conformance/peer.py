"""A client of bare packets for these tests: it sends what it is told and reads strictly.

Owns: one connection, over whatever carries it (`Channel`). Never: answers by itself.
"""

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from tests.conformance import packets
from tests.conformance.packets import Packet, Property

PROBE = "conformance/settled"


class Channel(Protocol):
    """One connection's bytes."""

    def send(self, data: bytes) -> None:
        """Sends; nothing happens where the broker has closed."""

    def receive(self) -> bytes:
        """The next bytes; none when the broker has closed. Fails when nothing ever comes."""

    def close(self) -> None:
        """Ends the connection without a word."""


class Broker(Protocol):
    """What a test needs of a broker, in virtual time or in a process of its own."""

    def open(self) -> Channel:
        """A new connection."""

    def settle(self) -> None:
        """Returns when everything that the broker owes on account of what it has acknowledged has
        been sent."""


class Peer:
    """One connection of a client."""

    def __init__(self, broker: Broker, version: int = 5) -> None:
        self.version = version
        self._broker = broker
        self._channel = broker.open()
        self._bytes = b""
        self._set_aside: deque[Packet] = deque()
        self._identifiers: Iterator[int] = itertools.count(1)

    # --- sending --------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Any bytes."""
        self._channel.send(data)

    def connect(
        self, client: str, *, items: Sequence[Property] = (), kept: bool = False, **options: Any
    ) -> Packet:
        """CONNECT; returns the CONNACK that accepts. `kept` asks for a session that is kept."""
        if kept:
            options["clean"] = False
            if self.version == 5 and "session_expiry_interval" not in dict(items):
                items = [*items, ("session_expiry_interval", 3_600)]
        self.send(packets.connect(client, version=self.version, items=items, **options))
        connack = self.expect("connack")
        assert connack.reason_code == 0, f"refused with {connack.reason_code:#x}"
        return connack

    def refused(self, data: bytes) -> int:
        """Sends a CONNECT that is refused; returns the reason code of CONNACK. Nothing follows
        [MQTT-3.2.2-7]."""
        self.send(data)
        connack = self.expect("connack")
        assert connack.reason_code != 0
        assert self.is_closed()
        return int(connack.reason_code)

    def subscribe(self, topic_filter: str, options: int = 0, items: Sequence[Property] = ()) -> int:
        """SUBSCRIBE to one filter; returns the reason code."""
        identifier = self.identifier()
        wanted = (topic_filter, options)
        self.send(packets.subscribe(identifier, wanted, version=self.version, items=items))
        # Messages may come before SUBACK (MQTT 5 section 3.8.4).
        suback = self._answer("suback", identifier)
        assert len(suback.reason_codes) == 1
        return int(suback.reason_codes[0])

    def unsubscribe(self, topic_filter: str) -> None:
        """UNSUBSCRIBE from one filter."""
        identifier = self.identifier()
        self.send(packets.unsubscribe(identifier, topic_filter, version=self.version))
        self._answer("unsuback", identifier)

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        items: Sequence[Property] = (),
    ) -> None:
        """PUBLISH, and the whole exchange that its QoS asks for."""
        identifier = self.identifier() if qos else None
        self.send(
            packets.publish(
                topic,
                payload,
                version=self.version,
                qos=qos,
                identifier=identifier,
                retain=retain,
                items=items,
            )
        )
        if qos == 1:
            self._answer("puback", identifier)
        elif qos == 2:
            assert identifier is not None
            self._answer("pubrec", identifier)
            self.acknowledge("pubrel", identifier)
            self._answer("pubcomp", identifier)

    def acknowledge(
        self, kind: str, identifier: int, reason_code: int = 0, items: Sequence[Property] = ()
    ) -> None:
        """PUBACK, PUBREC, PUBREL or PUBCOMP."""
        self.send(packets.acknowledge(kind, identifier, reason_code, items))

    def disconnect(self, reason_code: int = 0, items: Sequence[Property] = ()) -> None:
        """DISCONNECT, and the end of the connection that the broker makes of it."""
        self.send(packets.disconnect(reason_code, items))
        assert self.is_closed()

    def drop(self) -> None:
        """Ends the connection without DISCONNECT."""
        self._channel.close()
        self._broker.settle()

    def identifier(self) -> int:
        """An unused packet identifier."""
        return next(self._identifiers)

    # --- receiving ------------------------------------------------------------------------------

    def next(self) -> Packet | None:
        """The next packet; `None` when the broker has closed."""
        if self._set_aside:
            return self._set_aside.popleft()
        return self._read()

    def _read(self) -> Packet | None:
        while True:
            found = packets.read_packet(self._bytes, self.version) if self._bytes else None
            if found is not None:
                self._bytes = self._bytes[found.size_bytes :]
                return found
            data = self._channel.receive()
            if not data:
                assert not self._bytes, "the broker closed in the middle of a packet"
                return None
            self._bytes += data

    def expect(self, kind: str, **fields: Any) -> Packet:
        """The next packet, which is of this kind and has these fields."""
        found = self.next()
        assert found is not None, f"{kind} was expected, the broker closed"
        assert found.kind == kind, f"{kind} was expected, {found} came"
        assert {name: found.fields[name] for name in fields} == fields
        return found

    def message(self, topic: str | None = None, payload: bytes | None = None) -> Packet:
        """The next packet, a PUBLISH; it is acknowledged as its QoS asks."""
        found = self.expect("publish")
        if found.qos == 1:
            self.acknowledge("puback", found.packet_identifier)
        elif found.qos == 2:
            self.acknowledge("pubrec", found.packet_identifier)
            self._answer("pubrel", found.packet_identifier)
            self.acknowledge("pubcomp", found.packet_identifier)
        assert topic is None or found.topic == topic
        assert payload is None or found.payload == payload
        return found

    def _answer(self, kind: str, identifier: int | None) -> Packet:
        """Reads on to this answer; messages that come before it are set aside."""
        while (found := self._read()) is not None and found.kind == "publish":
            self._set_aside.append(found)
        assert found is not None, f"{kind} was expected, the broker closed"
        assert (found.kind, found.packet_identifier) == (kind, identifier), found
        return found

    def quiet(self) -> None:
        """Nothing has come and nothing is on its way; the connection stands."""
        self._broker.settle()
        self.send(packets.PINGREQ)
        self.expect("pingresp")

    def is_closed(self) -> bool:
        """True if the broker has sent nothing more and closes."""
        found = self.next()
        assert found is None, f"the end was expected, {found} came"
        return True

    def expelled(self, *reason_codes: int) -> Packet | None:
        """The connection ends; an MQTT 5 client is told one of these reason codes first, an older
        one nothing."""
        found = None
        if self.version == 5:
            found = self.expect("disconnect")
            assert found.reason_code in reason_codes, f"{found.reason_code:#x}"
        assert self.is_closed()
        return found

    def close(self) -> None:
        """Ends the connection, whatever state it is in."""
        self._channel.close()


def probe(broker: Broker) -> None:
    """Publishes at QoS 1 and waits for PUBACK: what was acknowledged before is durable, and what
    follows from it has been written."""
    peer = Peer(broker, 4)
    peer.connect("")
    for _ in range(3):
        peer.publish(PROBE, qos=1)
    peer.disconnect()
    peer.close()
