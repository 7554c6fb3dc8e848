"""An MQTT client for tests, in virtual time or on real sockets: it notes what it sees.

Owns: what is noted, and the habits of a client that is slow, forgetful or takes its own session
over. The session itself is `holdfast.client.mqtt`'s.
Never: reconnects by itself or waits; whoever drives it does. Decides nothing about right and wrong
beyond noting it.

Invariants:
1. A message is noted as received once per QoS 2 exchange, however often the broker sends it.
2. Acknowledgements leave in the order in which the messages came [MQTT-4.6.0-2], but for those that
   a forgetful client leaves out.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from holdfast.client import mqtt
from holdfast.client.mqtt import ConnectionFailedError, Delivery, Publication
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

__all__ = ["LASTING_S", "Client", "ClientOptions", "ConnectionFailedError"]

LASTING_S = 86_400
"""A session that is kept for so long is there whenever its client comes back."""


@dataclass(frozen=True, slots=True)
class _Noted(Publication):
    """A message on its way, as its publisher knows it."""

    message: Message | None = None


def _noted(message: Message, properties: Mapping[str, Any]) -> _Noted:
    return _Noted(
        message.topic, message.payload(), message.qos, message.retain, properties, message
    )


def _message_of(publication: Publication) -> Message:
    assert isinstance(publication, _Noted)
    assert publication.message is not None
    return publication.message


class Client(mqtt.Client):
    """One client identifier; `connect` may be called again after each end of a connection."""

    def __init__(self, name: str, history: History, options: ClientOptions, random: Random) -> None:
        super().__init__(name, options)
        self.received_count = 0
        self.will: Message | None = None
        """What its next connections leave behind."""
        self.will_delay_s = 0
        self._answer_after_s = options.answer_after_s
        self._answers_share = options.answers_share
        self._history = history
        self._random = random
        self._received: set[int] = set()
        """Packet identifiers of QoS 2 up to their PUBREL, of the session."""
        # The connection.
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
        self._heard_s = 0.0
        self._leaving = self._normal = False
        self._ended_by_broker = False

    # --- what whoever drives it calls -----------------------------------------------------------

    async def connect(self, host: str, port: int, will: Publication | None = None) -> bool:
        """As its own client does, with the Will that it leaves behind."""
        if self.will is not None:
            delay = {"will_delay_interval": self.will_delay_s} if self.will_delay_s else {}
            will = _noted(self.will, delay)
        return await super().connect(host, port, will)

    async def subscribe(self, topic_filter: str, qos: int) -> int:
        """Subscribes; returns the reason code."""
        if not self.lost.is_set():
            self._history.add(Subscribing(self.name, topic_filter))
        reason_code = await super().subscribe(topic_filter, qos)
        if reason_code <= 2:
            self._history.add(Subscribed(self.name, topic_filter, reason_code))
        return reason_code

    async def unsubscribe(self, topic_filter: str) -> None:
        """Unsubscribes."""
        if not self.lost.is_set():
            self._history.add(Unsubscribing(self.name, topic_filter))
        await super().unsubscribe(topic_filter)
        self._history.add(Unsubscribed(self.name, topic_filter))

    def publish(self, *publications: Publication | Message) -> None:
        """Queues messages that it will recognize."""
        for message in publications:
            assert isinstance(message, Message)
            expiry_s = message.expiry_s
            super().publish(
                _noted(message, {"message_expiry_interval": expiry_s} if expiry_s else {})
            )

    def leave(self, reason_code: int = 0) -> None:
        """Says DISCONNECT and waits until the broker closes; whoever drives it waits for `lost`."""
        if self._transport is not None:
            self._leaving = True
            self._normal = reason_code == 0
            self._send("disconnect", {"reason_code": reason_code, "properties": {}})
            self._flush()

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

    # --- what it notes --------------------------------------------------------------------------

    def sent(self, publication: Publication) -> None:
        self._history.add(Sent(_message_of(publication)))

    def acknowledged(self, publication: Publication) -> None:
        self._history.add(Acknowledged(_message_of(publication)))

    def refused(self, publication: Publication, reason_code: int) -> None:
        self._history.add(Refused(_message_of(publication), reason_code))

    def opened(self, session_present: bool, properties: Mapping[str, Any]) -> None:
        del properties
        if self._confirmed and not session_present and self._lasts():
            self._history.add(SessionLost(self.name))
        if not session_present:
            self._received.clear()
        options = self.options
        self._history.add(
            Opened(
                self.name,
                session_present,
                options.clean_start,
                options.session_expiry_interval_s,
                options.packet_bytes_maximum,
                self.will,
                self.will_delay_s,
                options.protocol_version,
            )
        )

    def broken(self, what: str) -> None:
        """Goes on: there may be more to see."""
        self._history.add(Broken(self.name, what))

    def _lasts(self) -> bool:
        """True if its session outlives every run."""
        options = self.options
        if options.protocol_version < 5:
            return not options.clean_start
        return not options.clean_start and options.session_expiry_interval_s >= LASTING_S

    # --- what the transport calls ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._unanswered.clear()
        self._answered.clear()
        self._ignored.clear()
        self._unsaid.clear()
        self._answers.clear()
        self._leaving = self._normal = self._ended_by_broker = False
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._heard_s = asyncio.get_running_loop().time()
        super().data_received(data)

    def eof_received(self) -> bool:
        self._ended_by_broker = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._accepted:
            said = self._normal and self._ended_by_broker
            self._history.add(Closed(self.name, self._heard_s, said, self._leaving))
        if self._answer_timer is not None:
            self._answer_timer.cancel()
        self._answer_timer = None
        super().connection_lost(exc)

    def _leave_behind(self, transport: asyncio.Transport) -> None:
        transport.set_protocol(Leftover(self.name, self.options, self._history))

    # --- packets --------------------------------------------------------------------------------

    def _send_connect(self) -> None:
        self._history.add(Connecting(self.name, self.will))
        super()._send_connect()

    def _ping(self) -> None:
        if not self._leaving:
            super()._ping()

    def _take(self, kind: str, fields: dict[str, Any]) -> None:
        if kind == "disconnect":
            self._normal = False
        super()._take(kind, fields)

    def _take_publish(self, fields: dict[str, Any]) -> None:
        identifier = fields.get("packet_identifier") or 0
        if fields["qos"]:
            if identifier in self._unanswered and not fields["dup"]:
                self.broken(f"packet identifier {identifier} used twice")
            if not fields["dup"]:
                self._answered.discard(identifier)
            # What crosses with its answer on a live connection takes no place in the window.
            if identifier not in self._answered:
                self._unanswered.add(identifier)
            self._note_window()
        super()._take_publish(fields)

    def _deliver(self, delivery: Delivery) -> None:
        qos, identifier = delivery.qos, delivery.packet_identifier
        try:
            if qos:
                self._note_transmission(delivery)
            if qos < 2 or identifier not in self._received:
                self._note_message(delivery)
        except ValueError as error:
            self.broken(f"{type(error).__name__}: {error}")
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

    def _take_release(self, identifier: int) -> None:
        self._received.discard(identifier)
        self._answer("pubcomp", identifier)

    def _note_transmission(self, delivery: Delivery) -> None:
        if delivery.payload:
            message = parse_payload(delivery.topic_name, delivery.payload)
            identifier = delivery.packet_identifier
            self._unsaid[identifier] = message
            self._history.add(Transmitted(self.name, message, identifier, delivery.dup))

    def _note_message(self, delivery: Delivery) -> None:
        if not delivery.payload:
            return  # It tells nothing but that the topic retains nothing now.
        message = parse_payload(delivery.topic_name, delivery.payload)
        self.received_count += 1
        expires_in_s = delivery.properties.get("message_expiry_interval")
        dup, retain = delivery.dup, delivery.retain
        self._history.add(Received(self.name, message, delivery.qos, dup, retain, expires_in_s))

    def _note_window(self) -> None:
        """Only a window wider than any before is worth an event."""
        if len(self._unanswered) > self._widest:
            self._widest = len(self._unanswered)
            self._history.add(Window(self.name, self._widest, self._receive_maximum))

    # --- answers --------------------------------------------------------------------------------

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
