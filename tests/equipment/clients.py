"""An MQTT client for tests, in virtual time or on real sockets: it keeps its own session and notes
what it sees.

Owns: one client's session (what it has in flight, which QoS 2 identifiers it has received) across
connections.
Never: reconnects by itself or waits; whoever drives it does. Decides nothing about right and wrong
beyond noting it.

Invariants:
1. A message is handed to the application once per QoS 2 exchange, however often the broker sends
   it.
2. Never more than the broker's Receive Maximum is in flight.
3. Acknowledgements leave in the order in which the messages came [MQTT-4.6.0-2].
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Any

from holdfast.kernel import decode_packets, encode_packet
from tests.equipment.client_options import ClientOptions
from tests.equipment.history import (
    Acknowledged,
    Answered,
    Broken,
    Closed,
    Connecting,
    History,
    Message,
    Opened,
    Received,
    Refused,
    Sent,
    SessionLost,
    Subscribed,
    Subscribing,
    Transmitted,
    Unsubscribed,
    Unsubscribing,
    Window,
    parse_payload,
)
from tests.equipment.leftover import Leftover

ANSWER_WITHIN_S = 30.0
"""How long a client waits for CONNACK, SUBACK or UNSUBACK before it gives the connection up."""

PACKET_IDENTIFIER_MAXIMUM = 65_535

LASTING_S = 86_400
"""A session that is kept for so long is there whenever its client comes back."""


class ConnectionFailedError(OSError):
    """The connection could not be made, was refused, or ended while an answer was awaited."""


@dataclass(slots=True)
class _Exchange:
    """A message that this client publishes and that is not done."""

    message: Message
    released: bool = False
    """PUBREC came: only PUBREL is sent from now on [MQTT-4.3.3-6]."""


class Client(asyncio.Protocol):
    """One client identifier; `connect` may be called again after each end of a connection."""

    def __init__(self, name: str, history: History, options: ClientOptions, random: Random) -> None:
        self.name = name
        self.options = options
        self.lost = asyncio.Event()
        """Set while there is no connection."""
        self.lost.set()
        self.idle = asyncio.Event()
        """Set while nothing waits to be published or acknowledged."""
        self.idle.set()
        self.received_count = 0
        self.will: Message | None = None
        """What its next connections leave behind."""
        self.will_delay_s = 0
        self._answer_after_s = options.answer_after_s
        self._answers_share = options.answers_share
        self._history = history
        self._random = random
        # Only MQTT 5 can say how much it takes at a time.
        has_window = options.protocol_version == 5
        self._receive_maximum = options.receive_maximum if has_window else PACKET_IDENTIFIER_MAXIMUM
        # The session.
        self._to_publish: deque[Message] = deque()
        self._exchanges: dict[int, _Exchange] = {}
        self._received: set[int] = set()
        self._confirmed = False
        self._next_identifier = 1
        # The connection.
        self._transport: asyncio.Transport | None = None
        self._undecoded = bytearray()
        self._writing = bytearray()
        self._writing_paused = False
        self._window = 0
        self._accepted = False
        self._unanswered: set[int] = set()
        self._answered: set[int] = set()
        """Since they were last sent for the first time, on this connection."""
        self._ignored: dict[int, str] = {}
        """What it has said nothing about, and what it would have said."""
        self._unsaid: dict[int, Message] = {}
        """Messages of this connection that no answer has left for."""
        self._widest = 0
        self._answers: deque[tuple[str, int]] = deque()
        self._answer_timer: asyncio.TimerHandle | None = None
        self._keep_alive_timer: asyncio.TimerHandle | None = None
        self._heard = False
        self._heard_s = 0.0
        self._leaving = self._normal = False
        self._ended_by_broker = False
        self._topics: dict[int, str] = {}
        self._awaited: dict[tuple[str, int], asyncio.Future[dict[str, Any]]] = {}

    # --- what whoever drives it calls -----------------------------------------------------------

    async def connect(self, host: str, port: int) -> bool:
        """Connects and resumes; returns Session Present. Raises `ConnectionFailedError`.

        Takes the session over from its own connection if there still is one."""
        loop = asyncio.get_running_loop()
        if self._transport is not None:
            self._transport.set_protocol(Leftover(self.name, self.options, self._history))
            self.connection_lost(None)
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                await loop.create_connection(lambda: self, host, port)
        except (OSError, TimeoutError) as error:
            raise ConnectionFailedError(f"{self.name}: {error}") from error
        answer = self._await_answer("connack", 0)
        self._history.add(Connecting(self.name, self.will))
        self._send("connect", self._connect_fields())
        self._flush()
        fields = await self._answer_within(answer)
        return bool(fields["session_present"])

    async def subscribe(self, topic_filter: str, qos: int) -> int:
        """Subscribes; returns the reason code."""
        identifier = self._take_identifier()
        answer = self._await_answer("suback", identifier)
        self._history.add(Subscribing(self.name, topic_filter))
        wanted = {
            "topic_filter": topic_filter,
            "qos": qos,
            "no_local": False,
            "retain_as_published": False,
            "retain_handling": 0,
        }
        fields = {"packet_identifier": identifier, "subscriptions": [wanted], "properties": {}}
        self._send("subscribe", fields)
        self._flush()
        reason_code = int((await self._answer_within(answer))["reason_codes"][0])
        if reason_code <= 2:
            self._history.add(Subscribed(self.name, topic_filter, reason_code))
        return reason_code

    async def unsubscribe(self, topic_filter: str) -> None:
        """Unsubscribes."""
        identifier = self._take_identifier()
        answer = self._await_answer("unsuback", identifier)
        self._history.add(Unsubscribing(self.name, topic_filter))
        fields = {
            "packet_identifier": identifier,
            "topic_filters": [topic_filter],
            "properties": {},
        }
        self._send("unsubscribe", fields)
        self._flush()
        await self._answer_within(answer)
        self._history.add(Unsubscribed(self.name, topic_filter))

    def publish(self, message: Message) -> None:
        """Queues a message; it is sent when the window has room, now or on a later connection."""
        self._to_publish.append(message)
        self.idle.clear()
        self._publish_queued()
        self._flush()

    def waiting(self) -> int:
        """Messages not sent yet or not acknowledged yet."""
        return len(self._to_publish) + len(self._exchanges)

    def disconnect(self) -> None:
        """Says DISCONNECT and closes."""
        if self._transport is not None:
            self._send("disconnect", {"reason_code": 0, "properties": {}})
            self._flush()
            self._transport.close()

    def leave(self, reason_code: int = 0) -> None:
        """Says DISCONNECT and waits until the broker closes; whoever drives it waits for `lost`."""
        if self._transport is not None:
            self._leaving = True
            self._normal = reason_code == 0
            self._send("disconnect", {"reason_code": reason_code, "properties": {}})
            self._flush()

    def drop(self) -> None:
        """Ends the connection without a word."""
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Stops reading, as a client does that is busy."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Reads again."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def hurry(self) -> None:
        """Answers everything, and at once, from now on."""
        self._answer_after_s = 0.0
        self._answers_share = 1.0
        ignored, self._ignored = self._ignored, {}
        for identifier, kind in ignored.items():
            self._answer(kind, identifier)
        while self._answers:
            self._send_answer()
        self._flush()

    # --- what the transport calls ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._undecoded.clear()
        self._writing.clear()
        self._writing_paused = False
        self._accepted = False
        self._unanswered.clear()
        self._answered.clear()
        self._ignored.clear()
        self._unsaid.clear()
        self._answers.clear()
        self._topics.clear()
        self._leaving = self._normal = self._ended_by_broker = False
        self.lost.clear()
        self._heard = True
        self._keep_alive()

    def data_received(self, data: bytes) -> None:
        self._heard = True
        self._heard_s = asyncio.get_running_loop().time()
        self._undecoded += data
        version = self.options.protocol_version
        packets, used = decode_packets(
            bytes(self._undecoded), protocol_version=version, role="client"
        )
        del self._undecoded[:used]
        for packet in packets:
            if self._transport is None or self._transport.is_closing():
                break
            self._take(packet.kind, packet.fields)
        self._publish_queued()
        self._flush()

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._publish_queued()
        self._flush()

    def eof_received(self) -> bool:
        self._ended_by_broker = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._accepted:
            said = self._normal and self._ended_by_broker
            self._history.add(Closed(self.name, self._heard_s, said, self._leaving))
            self._accepted = False
        for timer in (self._answer_timer, self._keep_alive_timer):
            if timer is not None:
                timer.cancel()
        self._answer_timer = self._keep_alive_timer = None
        awaited, self._awaited = self._awaited, {}
        for future in awaited.values():
            if not future.done():
                future.set_exception(ConnectionFailedError(f"{self.name}: connection lost: {exc}"))
        self.lost.set()

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
                self._received.discard(fields["packet_identifier"])
                self._answer("pubcomp", fields["packet_identifier"])
            case "pubcomp":
                self._finish(fields["packet_identifier"])
            case "suback" | "unsuback":
                self._resolve(kind, fields["packet_identifier"], fields)
            case "pingresp":
                pass
            case "disconnect":
                self._normal = False
                self.drop()
            case _:
                self._history.add(Broken(self.name, f"the broker sent {kind} {fields}"))
                self.drop()

    def _take_connack(self, fields: dict[str, Any]) -> None:
        if fields["reason_code"] != 0:
            error = ConnectionFailedError(f"{self.name}: refused with {fields['reason_code']:#x}")
            self._awaited.pop(("connack", 0)).set_exception(error)
            self.drop()
            return
        present = bool(fields["session_present"])
        if self.options.protocol_version == 3:
            # MQTT 3.1 does not tell; the other questions show whether it was there.
            present = self._confirmed and self._lasts()
        if self._confirmed and not present and self._lasts():
            self._history.add(SessionLost(self.name))
        if not present:
            self._received.clear()
        self._confirmed = True
        options = self.options
        self._history.add(
            Opened(
                self.name,
                present,
                options.clean_start,
                options.session_expiry_interval_s,
                options.packet_bytes_maximum,
                self.will,
                self.will_delay_s,
                options.protocol_version,
            )
        )
        allowed = fields.get("properties", {}).get("receive_maximum", PACKET_IDENTIFIER_MAXIMUM)
        self._window = min(allowed, self.options.in_flight_maximum)
        self._accepted = True
        for identifier, exchange in self._exchanges.items():
            if exchange.released:
                self._send_acknowledgement("pubrel", identifier)
            else:
                self._send_publish(identifier, exchange.message, dup=present)
        self._resolve("connack", 0, fields)

    def _lasts(self) -> bool:
        """True if its session outlives every run."""
        options = self.options
        if options.protocol_version < 5:
            return not options.clean_start
        return not options.clean_start and options.session_expiry_interval_s >= LASTING_S

    def _take_publish(self, fields: dict[str, Any]) -> None:
        qos, identifier = fields["qos"], fields.get("packet_identifier") or 0
        if qos:
            if identifier in self._unanswered and not fields["dup"]:
                self._history.add(Broken(self.name, f"packet identifier {identifier} used twice"))
            if not fields["dup"]:
                self._answered.discard(identifier)
            # What crosses with its answer on a live connection takes no place in the window.
            if identifier not in self._answered:
                self._unanswered.add(identifier)
            self._note_window()
        try:
            # A repeated message too may say what an alias stands for.
            self._resolve_alias(fields)
            if qos:
                self._note_transmission(fields, identifier)
            if qos < 2 or identifier not in self._received:
                self._note_message(fields, qos)
        except (KeyError, ValueError) as error:
            self._history.add(Broken(self.name, f"{type(error).__name__}: {error}"))
            return
        if qos == 2:
            self._received.add(identifier)
        if not qos:
            return
        kind = "puback" if qos == 1 else "pubrec"
        if self._answers_share < 1 and self._random.random() >= self._answers_share:
            self._ignored[identifier] = kind
        else:
            self._ignored.pop(identifier, None)
            self._answer(kind, identifier)

    def _resolve_alias(self, fields: dict[str, Any]) -> None:
        alias = fields.get("properties", {}).get("topic_alias")
        if alias is not None:
            if alias > self.options.topic_alias_maximum:
                raise ValueError(f"topic alias {alias} passes the maximum")
            fields["topic_name"] = fields["topic_name"] or self._topics[alias]
            self._topics[alias] = fields["topic_name"]

    def _note_transmission(self, fields: dict[str, Any], identifier: int) -> None:
        if fields["payload"]:
            message = parse_payload(fields["topic_name"], fields["payload"])
            self._unsaid[identifier] = message
            dup = bool(fields["dup"])
            self._history.add(Transmitted(self.name, message, identifier, dup))

    def _note_message(self, fields: dict[str, Any], qos: int) -> None:
        if not fields["payload"]:
            return  # It tells nothing but that the topic retains nothing now.
        message = parse_payload(fields["topic_name"], fields["payload"])
        self.received_count += 1
        expires_in_s = fields.get("properties", {}).get("message_expiry_interval")
        dup, retain = bool(fields["dup"]), bool(fields["retain"])
        self._history.add(Received(self.name, message, qos, dup, retain, expires_in_s))

    def _note_window(self) -> None:
        """Only a window wider than any before is worth an event."""
        if len(self._unanswered) > self._widest:
            self._widest = len(self._unanswered)
            self._history.add(Window(self.name, self._widest, self._receive_maximum))

    def _take_acknowledgement(self, kind: str, fields: dict[str, Any]) -> None:
        identifier = fields["packet_identifier"]
        exchange = self._exchanges.get(identifier)
        if exchange is None:
            self._history.add(Broken(self.name, f"{kind} of unknown identifier {identifier}"))
            return
        reason_code = fields.get("reason_code", 0)
        if reason_code >= 0x80:
            self._history.add(Refused(exchange.message, reason_code))
            self._finish(identifier)
            return
        if not exchange.released:
            self._history.add(Acknowledged(exchange.message))
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
            message = self._to_publish.popleft()
            identifier = self._take_identifier() if message.qos else 0
            if message.qos:
                self._exchanges[identifier] = _Exchange(message)
            self._history.add(Sent(message))
            self._send_publish(identifier, message, dup=False)
        if not self._exchanges and not self._to_publish:
            self.idle.set()

    def _send_publish(self, identifier: int, message: Message, *, dup: bool) -> None:
        fields = {
            "packet_identifier": identifier,
            "qos": message.qos,
            "retain": message.retain,
            "dup": dup,
            "topic_name": message.topic,
            "payload": message.payload(),
            "properties": {"message_expiry_interval": message.expiry_s} if message.expiry_s else {},
        }
        self._send("publish", fields)

    def _answer(self, kind: str, identifier: int) -> None:
        self._answers.append((kind, identifier))
        if not self._answer_after_s:
            self._send_answer()
        elif self._answer_timer is None:
            self._plan_answer()

    def _plan_answer(self) -> None:
        after_s = self._random.expovariate(1 / self._answer_after_s)
        loop = asyncio.get_running_loop()
        self._answer_timer = loop.call_later(after_s, self._answer_late)

    def _answer_late(self) -> None:
        self._answer_timer = None
        if self._answers:
            self._send_answer()
        self._flush()
        if self._answers:
            self._plan_answer()

    def _send_answer(self) -> None:
        kind, identifier = self._answers.popleft()
        if kind != "pubrec":
            self._unanswered.discard(identifier)
            self._answered.add(identifier)
        if kind != "pubcomp" and identifier in self._unsaid:
            self._history.add(Answered(self.name, self._unsaid.pop(identifier)))
        self._send_acknowledgement(kind, identifier)

    def _send_acknowledgement(self, kind: str, identifier: int) -> None:
        self._send(kind, {"packet_identifier": identifier, "reason_code": 0, "properties": {}})

    def _send(self, kind: str, fields: dict[str, Any]) -> None:
        version = self.options.protocol_version
        self._writing += encode_packet(kind, fields, protocol_version=version)

    def _flush(self) -> None:
        if self._writing and self._transport is not None and not self._transport.is_closing():
            self._transport.write(bytes(self._writing))
        self._writing.clear()

    def _connect_fields(self) -> dict[str, Any]:
        options = self.options
        properties = {
            "session_expiry_interval": options.session_expiry_interval_s,
            "receive_maximum": self._receive_maximum,
            "topic_alias_maximum": options.topic_alias_maximum,
        }
        if options.packet_bytes_maximum:
            properties["maximum_packet_size"] = options.packet_bytes_maximum
        return {
            "protocol_version": options.protocol_version,
            "client_identifier": self.name,
            "clean_start": options.clean_start,
            "keep_alive_s": options.keep_alive_s,
            "user_name": None,
            "password": None,
            "will": self._will_fields(),
            "properties": properties if options.protocol_version == 5 else {},
        }

    def _will_fields(self) -> dict[str, Any] | None:
        will = self.will
        if will is None:
            return None
        return {
            "topic_name": will.topic,
            "payload": will.payload(),
            "qos": will.qos,
            "retain": will.retain,
            "properties": {"will_delay_interval": self.will_delay_s} if self.will_delay_s else {},
        }

    def _take_identifier(self) -> int:
        """The next free one, from 1 to 65 535 and around."""
        while True:
            identifier = self._next_identifier
            self._next_identifier = identifier % PACKET_IDENTIFIER_MAXIMUM + 1
            if identifier not in self._exchanges:
                return identifier

    # --- waiting --------------------------------------------------------------------------------

    def _keep_alive(self) -> None:
        """Asks for a sign of life, and gives up a connection that gave none."""
        if not self.options.keep_alive_s:
            return
        if not self._heard:
            self.drop()
            return
        self._heard = False
        if self._accepted and not self._leaving:
            self._send("pingreq", {})
            self._flush()
        loop = asyncio.get_running_loop()
        self._keep_alive_timer = loop.call_later(self.options.keep_alive_s, self._keep_alive)

    def _await_answer(self, kind: str, identifier: int) -> asyncio.Future[dict[str, Any]]:
        if self._transport is None:
            raise ConnectionFailedError(f"{self.name}: not connected")
        future = asyncio.get_running_loop().create_future()
        self._awaited[kind, identifier] = future
        return future

    def _resolve(self, kind: str, identifier: int, fields: dict[str, Any]) -> None:
        future = self._awaited.pop((kind, identifier), None)
        if future is None:
            self._history.add(Broken(self.name, f"{kind} that nobody asked for"))
        elif not future.done():
            future.set_result(fields)

    async def _answer_within(self, answer: asyncio.Future[dict[str, Any]]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                return await answer
        except TimeoutError as error:
            self.drop()
            raise ConnectionFailedError(f"{self.name}: no answer") from error
