"""An MQTT client: one session over any number of connections, on whatever event loop runs it.

Owns: what its session has in flight in both directions, and one connection at a time.
Never: connects again by itself, or waits for anything but answers; whoever drives it does.

Invariants:
1. A message of QoS 2 is handed over once, however often the broker sends it and whatever becomes of
   connections.
2. A message is acknowledged when it has been processed: PUBACK and PUBREC leave when `acknowledge`
   is called, in the order of its calls. [MQTT-4.6.0-2] asks for the order of the messages.
3. Never more than the broker's Receive Maximum is in flight.

Whoever uses it makes a class of it, and of what it is told (`received`, `acknowledged` and the
like) what it needs.
"""

# ruff: noqa: D102 (some methods are asyncio's own)

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Any, cast

from holdfast.kernel import decode_packets, encode_packet
from holdfast.protocols.mqtt.handshake import PACKET_SIZE_BYTES_MAXIMUM
from holdfast.protocols.mqtt.reason_code import ReasonCode
from holdfast.protocols.mqtt.remote import Granted, Refused, Wish, connect, read_connack

ANSWER_WITHIN_S = 30.0
"""How long it waits for CONNACK, SUBACK or UNSUBACK before it gives the connection up."""

PACKET_IDENTIFIER_MAXIMUM = 65_535
FAILED = 0x80
"""Reason codes from here on are refusals."""


class ConnectionFailedError(OSError):
    """The connection could not be made, was refused, or ended while an answer was awaited."""

    def __init__(self, what: str, refused: Refused | None = None) -> None:
        super().__init__(what)
        self.refused = refused
        """What the broker's CONNACK said, if that was it."""


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How a client behaves."""

    protocol_version: int = 5
    """3 is MQTT 3.1, 4 is 3.1.1."""
    clean_start: bool = False
    session_expiry_interval_s: int = 86_400
    keep_alive_s: int = 30
    receive_maximum: int = 20
    in_flight_maximum: int = 20
    """What it has in flight itself, within the broker's Receive Maximum."""
    topic_alias_maximum: int = 0
    packet_bytes_maximum: int = 0
    """Its Maximum Packet Size; 0: it has none."""
    user_name: str | None = None
    password: bytes | None = field(default=None, repr=False)
    tls: SSLContext | None = None
    """None: its connections are plain TCP."""
    user_properties: tuple[tuple[str, str], ...] = ()
    """Of CONNECT."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A message to publish."""

    topic_name: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A PUBLISH from the broker."""

    topic_name: str
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    packet_identifier: int
    """0 at QoS 0."""
    properties: Mapping[str, Any]
    connection: int
    """The number of the connection that it came on."""


@dataclass(slots=True)
class _Exchange:
    """A message that this client publishes and that is not done."""

    publication: Publication
    released: bool = False
    """PUBREC came: only PUBREL is sent from now on [MQTT-4.3.3-6]."""


@dataclass(slots=True)
class _Held:
    """A message of QoS 2 that was handed over, up to its PUBREL."""

    delivery: Delivery
    connection: int
    """The one that it last came on."""
    acknowledged: bool = False


class Client(asyncio.Protocol):
    """One client identifier; `connect` may be called again after each end of a connection."""

    def __init__(self, client_identifier: str, options: ClientOptions) -> None:
        self.name = client_identifier
        self.options: ClientOptions = options
        self.lost = asyncio.Event()
        """Set while there is no connection."""
        self.lost.set()
        self.idle = asyncio.Event()
        """Set while nothing waits to be published or acknowledged."""
        self.idle.set()
        # Only MQTT 5 can say how much it takes at a time.
        has_window = options.protocol_version == 5
        self._receive_maximum = options.receive_maximum if has_window else PACKET_IDENTIFIER_MAXIMUM
        self.granted: Granted | None = None
        """What the broker allows on this connection; None while it has not accepted it."""
        # The session.
        self._to_publish: deque[Publication] = deque()
        self._exchanges: dict[int, _Exchange] = {}
        self._held: dict[int, _Held] = {}
        self._confirmed = False
        self._next_identifier = 1
        # The connection.
        self._connection = 0
        self._transport: asyncio.Transport | None = None
        self._undecoded = bytearray()
        self._writing = bytearray()
        self._writing_paused = False
        self._is_reading = False
        self._window = 0
        self._accepted = False
        self._will: Publication | None = None
        self._keep_alive_timer: asyncio.TimerHandle | None = None
        self._heard = False
        self._reading_paused = False
        self._topics: dict[int, str] = {}
        self._awaited: dict[tuple[str, int], asyncio.Future[dict[str, Any]]] = {}

    # --- what whoever drives it calls -----------------------------------------------------------

    async def connect(self, host: str, port: int, will: Publication | None = None) -> bool:
        """Connects and resumes; returns Session Present. Raises `ConnectionFailedError`, as all of
        these do.

        Takes the session over from its own connection if there still is one."""
        loop = asyncio.get_running_loop()
        if self._transport is not None:
            self._leave_behind(self._transport)
            self.connection_lost(None)
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                await loop.create_connection(lambda: self, host, port, ssl=self.options.tls)
        except (OSError, TimeoutError) as error:
            raise ConnectionFailedError(f"{self.name}: {error}") from error
        self._will = will
        answer = self._await_answer("connack", 0)
        self._send_connect()
        self._flush()
        fields = await self._answer_within(answer)
        return bool(fields["session_present"])

    async def subscribe(self, topic_filter: str, qos: int) -> int:
        """Subscribes; returns the reason code."""
        (reason_code,) = await self.subscribe_all((topic_filter,), qos)
        return reason_code

    async def subscribe_all(
        self, topic_filters: Sequence[str], qos: int, properties: Mapping[str, Any] | None = None
    ) -> list[int]:
        """Subscribes to all of them in one packet; returns a reason code for each."""
        identifier = self._take_identifier()
        answer = self._await_answer("suback", identifier)
        fields = {
            "packet_identifier": identifier,
            "subscriptions": [{"topic_filter": each, "qos": qos} for each in topic_filters],
            "properties": dict(properties or {}),
        }
        self._send("subscribe", fields)
        self._flush()
        return list((await self._answer_within(answer))["reason_codes"])

    async def unsubscribe(self, topic_filter: str) -> None:
        """Unsubscribes."""
        identifier = self._take_identifier()
        answer = self._await_answer("unsuback", identifier)
        fields = {"packet_identifier": identifier, "topic_filters": [topic_filter]}
        self._send("unsubscribe", fields)
        self._flush()
        await self._answer_within(answer)

    def publish(self, *publications: Publication) -> None:
        """Queues messages; as many as the window has room for are sent in one piece, the others
        when it has room, now or on a later connection."""
        self._to_publish.extend(publications)
        if self._to_publish:
            self.idle.clear()
        self._publish_queued()
        self._flush()

    def acknowledge(self, *deliveries: Delivery) -> None:
        """They have been processed: the broker need not send them again.

        One whose connection has ended is sent again nevertheless: at QoS 1 to be processed once
        more, at QoS 2 to be answered without that."""
        for delivery in deliveries:
            identifier = delivery.packet_identifier
            held = self._held.get(identifier)
            if delivery.qos == 1 and delivery.connection == self._connection:
                self._send_acknowledgement("puback", identifier)
            elif delivery.qos == 2 and held is not None and held.delivery is delivery:
                held.acknowledged = True
                if held.connection == self._connection:
                    self._send_acknowledgement("pubrec", identifier)
        if not self._is_reading:
            self._flush()

    def waiting(self) -> int:
        """Messages not sent yet or not acknowledged yet."""
        return len(self._to_publish) + len(self._exchanges)

    def disconnect(self, *, ends_session: bool = False) -> None:
        """Says DISCONNECT and closes; with `ends_session`, of MQTT 5, no session is kept either."""
        if self._transport is not None:
            properties = {"session_expiry_interval": 0} if ends_session else {}
            self._send("disconnect", {"reason_code": 0, "properties": properties})
            self._flush()
            self._transport.close()

    def drop(self) -> None:
        """Ends the connection without a word."""
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Stops reading, as a client does that is busy. Meanwhile it cannot hear whether the broker
        lives."""
        self._reading_paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Reads again."""
        self._reading_paused = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # --- what whoever makes a class of it is told -----------------------------------------------

    def received(self, delivery: Delivery) -> None:
        """A message came. It is acknowledged at once where this is not said otherwise."""
        self.acknowledge(delivery)

    def sent(self, publication: Publication) -> None:
        """A message leaves for the first time."""

    def acknowledged(self, publication: Publication) -> None:
        """The broker has taken responsibility for a message of QoS 1 or 2."""

    def refused(self, publication: Publication, reason_code: int) -> None:
        """The broker does not take a message."""

    def opened(self, session_present: bool, properties: Mapping[str, Any]) -> None:
        """CONNACK came, and nothing has been sent since. MQTT 3.1 does not tell whether the session
        was there: it is taken to be if it was to be kept."""

    def dismissed(self, reason_code: int) -> None:
        """The broker said DISCONNECT; the connection ends now."""

    def broken(self, what: str) -> None:
        """The broker did what no specification allows. The connection ends where this is not said
        otherwise."""
        self.drop()

    # --- what the transport calls ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._connection += 1
        self._undecoded.clear()
        self._writing.clear()
        self._writing_paused = False
        self._accepted = False
        self._topics.clear()
        self.lost.clear()
        self._heard = True
        self._begin_keep_alive(self.options.keep_alive_s)
        if self._reading_paused:
            self._transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self._heard = True
        self._undecoded += data
        version = self.options.protocol_version
        packets, used = decode_packets(
            bytes(self._undecoded), protocol_version=version, role="client"
        )
        del self._undecoded[:used]
        self._is_reading = True
        try:
            for packet in packets:
                if self._transport is None or self._transport.is_closing():
                    break
                self._take(packet.kind, packet.fields)
        finally:
            self._is_reading = False
        self._publish_queued()
        self._flush()

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._publish_queued()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._accepted = False
        self.granted = None
        self._begin_keep_alive(0)
        awaited, self._awaited = self._awaited, {}
        for future in awaited.values():
            if not future.done():
                future.set_exception(ConnectionFailedError(f"{self.name}: connection lost: {exc}"))
        self.lost.set()

    def _leave_behind(self, transport: asyncio.Transport) -> None:
        """Nobody looks at a connection any more from which the session was taken over."""
        transport.set_protocol(asyncio.Protocol())
        transport.abort()

    # --- packets --------------------------------------------------------------------------------

    def _take(self, kind: str, fields: dict[str, Any]) -> None:
        match kind:
            case "connack":
                self._take_connack(fields)
            case "publish":
                self._take_publish(fields)
            case "puback" | "pubrec":
                self._take_acknowledgement(kind, fields)
            case "pubrel":
                self._take_release(fields["packet_identifier"])
            case "pubcomp":
                self._finish(fields["packet_identifier"])
            case "suback" | "unsuback":
                self._resolve(kind, fields["packet_identifier"], fields)
            case "pingresp":
                pass
            case "disconnect":
                self.dismissed(fields["reason_code"])
                self.drop()
            case _:
                self.broken(f"the broker sent {kind} {fields}")
                self.drop()

    def _take_connack(self, fields: dict[str, Any]) -> None:
        answer = read_connack(fields, self._wish())
        if isinstance(answer, Refused):
            what = f"{self.name}: the broker refused: {answer.reason}"
            self._awaited.pop(("connack", 0)).set_exception(ConnectionFailedError(what, answer))
            self.drop()
            return
        self.granted = answer
        present = answer.session_present
        if self.options.protocol_version == 3:
            present = self._confirmed and not self.options.clean_start
        if not present:
            self._forget_held()
        self.opened(present, fields["properties"])
        self._confirmed = True
        self._window = min(answer.receive_maximum, self.options.in_flight_maximum)
        self._begin_keep_alive(answer.keep_alive_s)
        self._accepted = True
        for identifier, exchange in list(self._exchanges.items()):
            if exchange.released:
                self._send_acknowledgement("pubrel", identifier)
            else:
                self._send_publish(identifier, exchange.publication, dup=present)
        self._resolve("connack", 0, fields)

    def _forget_held(self) -> None:
        """The session is another one: what was handed over in it can be acknowledged no more."""
        self._held.clear()

    def _take_publish(self, fields: dict[str, Any]) -> None:
        try:
            # A repeated message too may say what an alias stands for.
            topic_name = self._resolve_alias(fields)
        except (KeyError, ValueError) as error:
            self.broken(f"{type(error).__name__}: {error}")
            return
        self._deliver(
            Delivery(
                topic_name,
                fields["payload"],
                fields["qos"],
                bool(fields["retain"]),
                bool(fields["dup"]),
                fields.get("packet_identifier") or 0,
                fields.get("properties", {}),
                self._connection,
            )
        )

    def _resolve_alias(self, fields: dict[str, Any]) -> str:
        alias = fields.get("properties", {}).get("topic_alias")
        topic_name: str = fields["topic_name"]
        if alias is not None:
            if alias > self.options.topic_alias_maximum:
                raise ValueError(f"topic alias {alias} passes the maximum")
            topic_name = topic_name or self._topics[alias]
            self._topics[alias] = topic_name
        return topic_name

    def _deliver(self, delivery: Delivery) -> None:
        held = self._held.get(delivery.packet_identifier) if delivery.qos == 2 else None
        if held is None:
            if delivery.qos == 2:
                self._held[delivery.packet_identifier] = _Held(delivery, self._connection)
            self.received(delivery)
            return
        held.connection = self._connection
        if held.acknowledged:
            self._send_acknowledgement("pubrec", delivery.packet_identifier)

    def _take_release(self, identifier: int) -> None:
        self._held.pop(identifier, None)
        self._send_acknowledgement("pubcomp", identifier)

    def _take_acknowledgement(self, kind: str, fields: dict[str, Any]) -> None:
        identifier = fields["packet_identifier"]
        exchange = self._exchanges.get(identifier)
        if exchange is None:
            self.broken(f"{kind} of unknown identifier {identifier}")
            return
        reason_code = fields.get("reason_code", 0)
        if reason_code >= FAILED:
            self.refused(exchange.publication, reason_code)
            self._finish(identifier)
            return
        if not exchange.released:
            self.acknowledged(exchange.publication)
        if kind == "puback":
            self._finish(identifier)
        else:
            exchange.released = True
            self._send_acknowledgement("pubrel", identifier)

    def _finish(self, identifier: int) -> None:
        self._exchanges.pop(identifier, None)
        if not self._exchanges and not self._to_publish:
            self.idle.set()

    # --- sending --------------------------------------------------------------------------------

    def _publish_queued(self) -> None:
        """Sends as many as the window and the socket take."""
        if not self._accepted or self._transport is None:
            return
        while self._to_publish and len(self._exchanges) < self._window and not self._writing_paused:
            publication = self._to_publish.popleft()
            identifier = self._take_identifier() if publication.qos else 0
            if publication.qos:
                self._exchanges[identifier] = _Exchange(publication)
            self.sent(publication)
            self._send_publish(identifier, publication, dup=False)
        if not self._exchanges and not self._to_publish:
            self.idle.set()

    def _send_publish(self, identifier: int, publication: Publication, *, dup: bool) -> None:
        """What is larger than the broker takes would end the connection: it is refused here."""
        fields = _message(publication) | {"packet_identifier": identifier, "dup": dup}
        before = len(self._writing)
        self._send("publish", fields)
        assert self.granted is not None, "nothing is published before CONNACK"
        if len(self._writing) - before > self.granted.maximum_packet_size_bytes:
            del self._writing[before:]
            self._exchanges.pop(identifier, None)
            self.refused(publication, ReasonCode.PACKET_TOO_LARGE)

    def _send_acknowledgement(self, kind: str, identifier: int) -> None:
        self._send(kind, {"packet_identifier": identifier, "reason_code": 0, "properties": {}})

    def _send(self, kind: str, fields: dict[str, Any]) -> None:
        version = self.options.protocol_version
        self._writing += encode_packet(kind, fields, protocol_version=version)

    def _flush(self) -> None:
        if self._writing and self._transport is not None and not self._transport.is_closing():
            self._transport.write(bytes(self._writing))
        self._writing.clear()

    def _send_connect(self) -> None:
        fields = connect(self._wish())
        fields["protocol_version"] = self.options.protocol_version
        fields["will"] = self._will_fields()
        self._send("connect", fields)

    def _wish(self) -> Wish:
        options = self.options
        return Wish(
            client_identifier=self.name,
            protocol_version=options.protocol_version,
            clean_start=options.clean_start,
            keep_alive_s=options.keep_alive_s,
            session_expiry_s=options.session_expiry_interval_s,
            receive_maximum=self._receive_maximum,
            maximum_packet_size_bytes=options.packet_bytes_maximum or PACKET_SIZE_BYTES_MAXIMUM,
            topic_alias_maximum=options.topic_alias_maximum,
            user_name=options.user_name,
            password=options.password,
            user_properties=options.user_properties,
        )

    def _will_fields(self) -> dict[str, Any] | None:
        return None if self._will is None else _message(self._will)

    def _take_identifier(self) -> int:
        """The next free one, from 1 to 65 535 and around."""
        while True:
            identifier = self._next_identifier
            self._next_identifier = identifier % PACKET_IDENTIFIER_MAXIMUM + 1
            if identifier not in self._exchanges:
                return identifier

    # --- waiting --------------------------------------------------------------------------------

    def _begin_keep_alive(self, interval_s: int) -> None:
        if self._keep_alive_timer is not None:
            self._keep_alive_timer.cancel()
            self._keep_alive_timer = None
        if interval_s:
            loop = asyncio.get_running_loop()
            self._keep_alive_timer = loop.call_later(interval_s, self._keep_alive, interval_s)

    def _keep_alive(self, interval_s: int) -> None:
        """Asks for a sign of life, and gives up a connection that gave none."""
        self._keep_alive_timer = None
        if not self._heard and not self._reading_paused:
            self.drop()
            return
        self._heard = False
        if self._accepted:
            self._ping()
        self._begin_keep_alive(interval_s)

    def _ping(self) -> None:
        self._send("pingreq", {})
        self._flush()

    def _await_answer(self, kind: str, identifier: int) -> asyncio.Future[dict[str, Any]]:
        if self._transport is None:
            raise ConnectionFailedError(f"{self.name}: not connected")
        future = asyncio.get_running_loop().create_future()
        self._awaited[kind, identifier] = future
        return future

    def _resolve(self, kind: str, identifier: int, fields: dict[str, Any]) -> None:
        future = self._awaited.pop((kind, identifier), None)
        if future is None:
            self.broken(f"{kind} that nobody asked for")
        elif not future.done():
            future.set_result(fields)

    async def _answer_within(self, answer: asyncio.Future[dict[str, Any]]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                return await answer
        except TimeoutError as error:
            self.drop()
            raise ConnectionFailedError(f"{self.name}: no answer") from error


def _message(publication: Publication) -> dict[str, Any]:
    return {
        "topic_name": publication.topic_name,
        "payload": publication.payload,
        "qos": publication.qos,
        "retain": publication.retain,
        "properties": dict(publication.properties),
    }
