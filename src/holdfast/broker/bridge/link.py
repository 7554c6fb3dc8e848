"""A bridge at work: its connection with the remote broker, from the first attempt to the last.

Owns: when it connects, what it says there, whether messages go, and what is known of it.
Never: sees a message; those pass the stages like anybody's.

Invariants:
1. There is at most one connection or attempt, and a time when the next one begins unless the bridge
   is stopped.
2. What waited on the shelf when the remote accepted the connection is written before anything that
   is read from the log (S1.58); what comes to the shelf from then on keeps nothing back.
3. A connection on which nothing moves although something could, is ended: health is acknowledged
   progress, and not that a socket is open.

Flow: bridges -> here -> dialer -> Connection -> here -> queue.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any

from holdfast.broker.bridge import terms
from holdfast.broker.bridge.asking import Questions
from holdfast.broker.bridge.backoff import Backoff, draw_share
from holdfast.broker.bridge.circulation import EMPTIED_S, WINDOW_S, Circulation
from holdfast.broker.bridge.course import Course
from holdfast.broker.bridge.events import EVENTS_KEPT, LinkCounts, LinkEvent
from holdfast.broker.bridge.failure import Failure
from holdfast.broker.bridge.movement import Movement, Seen
from holdfast.broker.bridge.queue import BridgeQueue
from holdfast.broker.bridge.suspicion import OF_NO_MESSAGE, Parting, Suspicion
from holdfast.broker.sockets.connection import Connection, Connections, Opener, Phase
from holdfast.broker.sockets.taken import Taken, taken
from holdfast.broker.stages import KernelStages
from holdfast.broker.world import World
from holdfast.core.bridge import Bridge
from holdfast.core.config import Config
from holdfast.core.units import SECOND_US
from holdfast.kernel import Packet, encode_packet, key_slot
from holdfast.protocols.mqtt.reason_code import ReasonCode, reason_name
from holdfast.protocols.mqtt.remote import (
    Granted,
    Refused,
    Wish,
    connect,
    disconnect,
    read_connack,
    reason_told,
)

log = logging.getLogger(__name__)


class State(StrEnum):
    """How far a bridge is."""

    STOPPED = "stopped"
    WAITING = "waiting"
    """Until the next attempt."""
    REFUSED = "refused"
    """The same, since the remote has said no."""
    STALLED = "stalled"
    """The same, since the remote acknowledged nothing any more."""
    LOOPING = "looping"
    """What it sends comes back to it: it makes no attempt until it is started again."""
    CONNECTING = "connecting"
    DRAINING = "draining"
    CONNECTED = "connected"


Dial = Callable[[Bridge, Opener], Awaitable[None]]
"""Opens a connection to a remote for a link, or raises `OSError` with a sentence."""


class Link:
    """One bridge that runs."""

    def __init__(
        self,
        bridge: Bridge,
        password: Callable[[], Awaitable[bytes | None]],
        kernel: KernelStages,
        world: World,
        config: Callable[[], Config],
        connections: Connections,
        queue: BridgeQueue,
        dial: Dial,
        drains: Callable[["Link"], None],
    ) -> None:
        """`password` reads it, and raises `OSError`; `drains` asks to be called in each turn."""
        self.bridge = bridge
        self.queue = queue
        self.state = State.STOPPED
        self.counts = LinkCounts()
        self.events: deque[LinkEvent] = deque(maxlen=EVENTS_KEPT)
        self.last_error = ""
        self._failure: Failure | None = None
        """What kind of error `last_error` tells of, if it ends the connection."""
        self._said_code = ReasonCode.SUCCESS.value
        """The reason code of the remote's DISCONNECT, if it has sent one."""
        self.next_attempt_at_us: int | None = None
        self.connected_at_us: int | None = None
        self.ended_at_us: int | None = None
        """When the last connection ended that the remote had accepted."""
        self.granted: Granted | None = None
        self.circulation = None if bridge.counts_hops else Circulation()
        """Whether what it sends comes back, where no count of hops says so."""
        self.is_held = False
        """Its connection is there, and nothing is sent, to see whether anything comes then."""
        self._read_password = password
        self._config = config
        self._kernel = kernel
        self._world = world
        self._connections = connections
        self._dial = dial
        self._drains = drains
        self._inbound = terms.inbound(bridge)
        self._identifier = queue.known_as(bridge)
        """As what it connects: its own, or what the remote has given it in place of that."""
        self._backoff = Backoff()
        self._course: Course
        """Of its last connection that the remote accepted."""
        self._suspicion = Suspicion()
        self._timer: asyncio.TimerHandle | None = None
        self._attempt: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._password: bytes | None = None
        """As it was read for this attempt."""
        self._wish: Wish | None = None
        self._pinged_at_us = 0
        self._movement: Movement
        """On that."""
        self._is_removed = False
        self._questions: Questions | None = None
        """Of the connection, once the remote has accepted it."""
        self._settled = list[dict[str, Any]]()

    # --- from above -----------------------------------------------------------------------------

    def start(self) -> None:
        """Attaches the queue, and connects as soon as it can."""
        self.queue.begin(terms.outbound(self.bridge), self.bridge)
        self._connect_now()

    def stop(self, now_us: int) -> None:
        """Ends the connection and attempts; the queue rests where it is."""
        self.abandon()
        if self.state is State.STOPPED:
            return
        self.state = State.STOPPED
        self._note(now_us, "stopped", "")
        connection = self._connection
        if connection is not None:
            words = self._last_words(connection, ReasonCode.SUCCESS)
            self.ended(connection, "stopped", now_us)
            self._connections.close(connection, words)
        self.queue.end(now_us)

    def forget(self) -> None:
        """The remote is to keep nothing for this bridge once it has stopped. One that is away at
        that moment, or speaks MQTT 3.1.1, cannot be told."""
        self._is_removed = True

    def abandon(self) -> None:
        """Begins nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._attempt is not None:
            self._attempt.cancel()

    def turn(self) -> bool:
        """Called in each turn while it drains: lets messages go once what waited on the shelf has
        left it. False once that is done."""
        if self.state is not State.DRAINING:
            return False
        if self._is_asking() or not self.queue.is_ready():
            return True
        if self._course.is_alone:
            return self._tries_one(self._world.now_us())
        if not self._course.has_drained():
            return True
        self.state = State.CONNECTED
        self._give(True)
        return False

    def sweep(self, now_us: int) -> bool:
        """Keeps the connection alive, and returns false if nothing moves on it any more."""
        connection, granted = self._connection, self.granted
        if connection is None or granted is None:
            return True
        # The next sweep, a second later, would be too late [MQTT-3.1.2-20].
        is_due = now_us + SECOND_US - self._pinged_at_us > granted.keep_alive_s * SECOND_US
        if granted.keep_alive_s and is_due:
            self._pinged_at_us = now_us
            self._write(connection, "pingreq", {})
        self._movement.saw(self._seen(connection), now_us)
        return now_us - self._movement.at_us < self._config().bridges_stall_timeout_s * SECOND_US

    def is_heard(self, now_us: int) -> bool:
        """True if the remote is not to be taken for dead although nothing comes from it: it took
        bytes lately, and a PINGREQ is still behind others."""
        granted = self.granted
        if granted is None:
            return False
        return now_us - self._movement.taken_at_us <= 1.5 * granted.keep_alive_s * SECOND_US

    def stalled(self, now_us: int) -> None:
        """Nothing moved: whoever calls ends the connection."""
        self.counts.stalls += 1
        self.state = State.STALLED
        self._blame(Failure.STALLED, "the remote acknowledged nothing any more")
        self._note(now_us, "stalled", self.last_error)

    def hold(self, now_us: int) -> None:
        """Nothing is sent until `go_on`, or on the next connection."""
        self.is_held = True
        self._give(False)
        self.queue.hold(True)
        held_s = EMPTIED_S + WINDOW_S
        self._note(now_us, "held", f"for {held_s} s, to see whether what is sent comes back")

    def go_on(self) -> None:
        """What was held is sent."""
        self.is_held = False
        self.queue.hold(False)
        self._give(True)

    def looped(self, detail: str, now_us: int) -> None:
        """What it sends comes back: the connection ends, and the queue waits where it is."""
        self.state = State.LOOPING
        self.counts.failures[Failure.LOOP] += 1
        told = f"what it sends comes back to it: {detail}"
        self._note(now_us, "looping", told)
        self._end(Failure.LOOP, told, now_us)

    def inbound(self) -> tuple[int, int]:
        """Messages from the remote that were taken over since `start`, and those that were not."""
        taken, lost = self.counts.inbound, self.counts.inbound_lost
        if self._connection is None:
            return taken, lost
        inbox, handle = self._kernel.inbox, self._connection.handle
        return taken + inbox.taken(handle), lost + inbox.lost(handle)

    @property
    def handle(self) -> int:
        """Of its connection; 0 while there is none."""
        return 0 if self._connection is None else self._connection.handle

    # --- from its connection --------------------------------------------------------------------

    def began(self, connection: Connection) -> None:
        """Its socket is open; TLS and WebSocket shake hands, if it has them."""
        if self.state is State.CONNECTING:
            self._connection = connection
        else:
            connection.transport.abort()

    def broken(self, connection: Connection, reason: str) -> None:
        """TLS or WebSocket will end it."""
        if connection is self._connection and not self.last_error:
            self._blame(Failure.HANDSHAKE, reason)

    def opened(self, connection: Connection) -> None:
        """It can be written to: CONNECT goes out."""
        if connection is not self._connection:
            return
        version = connection.protocol_version = self.bridge.mqtt_version
        config = self._config()
        self._wish = Wish(
            client_identifier=self._identifier,
            protocol_version=version,
            clean_start=self.bridge.clean_start or self.queue.is_new_to_remote(),
            keep_alive_s=self.bridge.keep_alive_s,
            session_expiry_s=self.bridge.session_expiry_s,
            receive_maximum=config.receive_maximum,
            maximum_packet_size_bytes=config.maximum_packet_size_bytes,
            topic_alias_maximum=config.topic_alias_maximum,
            user_name=self.bridge.user_name,
            password=self._password,
        )
        self._kernel.inbox.expect(
            connection.handle,
            protocol_version=version,
            maximum_packet_size_bytes=config.maximum_packet_size_bytes,
            rewriting=self._inbound,
        )
        self._write(connection, "connect", connect(self._wish))

    def take(self, connection: Connection, packet: Packet, now_us: int) -> int | None:
        """A control packet of the remote; returns the reason code of what is wrong with it."""
        fields = packet.fields
        match packet.kind:
            case "connack" if self.granted is None:
                return self._answered(connection, fields, now_us)
            case "suback" | "unsuback" if self._questions is not None and self._questions.is_answer(
                packet.kind, fields
            ):
                if not self._told(connection, self._questions, fields["reason_codes"], now_us):
                    return ReasonCode.PROTOCOL_ERROR
            case "pingresp":
                pass
            case "disconnect":
                told = f"the remote ended it: {reason_told(fields)}"
                self._blame(Failure.DISCONNECTED, told)
                self._said_code = fields["reason_code"]
                connection.transport.abort()
                return None
            case "fault":
                told = f"the remote broke the protocol: {fields['reason']}"
                is_too_large = fields["reason_code"] == ReasonCode.PACKET_TOO_LARGE
                if is_too_large and self.granted is not None:
                    told = terms.too_large_here(self._config().maximum_packet_size_bytes)
                self._blame(Failure.PROTOCOL, told)
                return int(fields["reason_code"])
            case _:
                told = f"the remote sent {packet.kind}, which nobody asked for"
                self._blame(Failure.PROTOCOL, told)
                return ReasonCode.PROTOCOL_ERROR
        self._kernel.inbox.release(connection.handle)
        return None

    def not_taken(self, count: int) -> None:
        """So many messages that came have found no room here: the remote keeps them."""
        self.counts.inbound -= count
        self._blame(Failure.NO_ROOM, "the disk here is full, or far behind")

    def last_words(self, connection: Connection, reason_code: int) -> bytes:
        """What the remote is told when this side ends the connection."""
        if not self.last_error:
            is_early = connection.phase is not Phase.ACCEPTED
            awaited = "answer CONNECT" if self._wish is not None else "shake hands"
            late = f"the remote did not {awaited} in time"
            is_silent = is_early or reason_code == ReasonCode.KEEP_ALIVE_TIMEOUT
            failure = Failure.SILENT if is_silent else Failure.PROTOCOL
            self._blame(failure, late if is_early else reason_name(reason_code))
        return self._last_words(connection, reason_code)

    def ended(self, connection: Connection, reason: str, now_us: int) -> None:
        """The connection is about to be closed, or has broken."""
        # One that ends in a layer below, before it could be written to, is an attempt that failed.
        is_attempt = self._connection is None and self.state is State.CONNECTING
        if connection is not self._connection and not is_attempt:
            return
        self._connection, self.granted, self.is_held = None, None, False
        if self.queue.is_connected:
            if self._is_success(connection, now_us):
                self._backoff.succeeded()
            self.counts.inbound += self._kernel.inbox.taken(connection.handle)
            self.counts.inbound_lost += self._kernel.inbox.lost(connection.handle)
            parting = self._course.parting(now_us, by_remote=self._is_by_remote())
            self.queue.lost(now_us)
            self._suspect(parting, self.last_error or reason, now_us)
            self.ended_at_us = now_us
        self._questions = None
        if self.state in (State.STOPPED, State.LOOPING):
            self.connected_at_us = None
        else:
            failure = self._failure or Failure.CLOSED
            self._failed(failure, self.last_error or reason, now_us)

    # --- attempts -------------------------------------------------------------------------------

    def _connect_now(self) -> None:
        self._timer = None
        self.next_attempt_at_us = None
        self.state = State.CONNECTING
        self.last_error, self._failure = "", None
        self._said_code = ReasonCode.SUCCESS.value
        self._wish = None
        self.counts.attempts += 1
        self._attempt = asyncio.get_running_loop().create_task(
            self._dialled(), name=f"bridge {self.bridge.name}"
        )

    async def _dialled(self) -> None:
        failure = Failure.CREDENTIALS
        try:
            self._password = await self._read_password()
            failure = Failure.UNREACHABLE
            await self._dial(self.bridge, self)
        except (OSError, TimeoutError, ValueError) as error:
            # A `ValueError` is what a library says of a name that no rule of the settings refuses.
            if self.state is State.CONNECTING and self._connection is None:
                reason = getattr(error, "strerror", None) or str(error) or "no answer in time"
                self._failed(failure, reason, self._world.now_us())

    def _end(self, failure: Failure, reason: str, now_us: int) -> None:
        """The connection ends from this side, and there is nothing to reproach the remote with."""
        connection = self._connection
        assert connection is not None, "there is one"
        self._blame(failure, reason)
        words = self._last_words(connection, ReasonCode.SUCCESS)
        self.ended(connection, reason, now_us)
        self._connections.close(connection, words)

    def _blame(self, failure: Failure, reason: str) -> None:
        self._failure, self.last_error = failure, reason

    def _failed(self, failure: Failure, reason: str, now_us: int, *, lasts: bool = False) -> None:
        was_connected = self.connected_at_us is not None
        self.connected_at_us = None
        self.last_error = reason
        self.counts.failures[failure] += 1
        share = draw_share(self._world.entropy)
        wait_s = self._backoff.refused(share) if lasts else self._backoff.next_wait_s(share)
        if self.state is not State.STALLED:
            self.state = State.REFUSED if failure is Failure.REFUSED else State.WAITING
        self.next_attempt_at_us = now_us + int(wait_s * SECOND_US)
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._connect_now)
        self._note(now_us, "lost" if was_connected else "failed", reason)

    def _is_success(self, connection: Connection, now_us: int) -> bool:
        """Whether a connection that the remote had accepted has got somewhere, or was lost without
        anybody's fault, so that the next wait is the first one again."""
        if self._course.has_lasted(now_us) or self._course.is_answered():
            return True
        # What came ahead of a broken packet has not been answered, and comes again with it; and so
        # does what found no room here.
        if self._failure in (Failure.PROTOCOL, Failure.NO_ROOM):
            return False
        if self._kernel.inbox.taken(connection.handle):
            return True
        # What the remote was asked and has not answered may be why it left without a word.
        is_asked = self.queue.in_flight() > 0 or self._is_asking()
        return self._failure is not Failure.DISCONNECTED and not is_asked

    # --- one message alone ----------------------------------------------------------------------

    def _tries_one(self, now_us: int) -> bool:
        """One message goes once the connection has stood for a while. When that is answered the
        connection ends, so that all go on the next one; false then."""
        if not self._course.has_tried(now_us):
            self._give(self._course.may_send_one(now_us))
            return True
        self._suspicion.dispel()
        self._end(Failure.ALONE, "one message had it to itself, and the rest goes on", now_us)
        return False

    def _is_by_remote(self) -> bool:
        """Whether the remote ends the connection for what it was sent, as far as it says why."""
        if self._failure is Failure.DISCONNECTED:
            return self._said_code not in OF_NO_MESSAGE
        return self._failure is None and self.state in (State.DRAINING, State.CONNECTED)

    def _suspect(self, parting: Parting, reason: str, now_us: int) -> None:
        """What the end of a connection says of the messages that were sent on it."""
        suspicion = self._suspicion
        was_raised, offset = suspicion.is_raised, suspicion.ended(parting)
        if offset is not None:
            self.queue.refuse(offset)
            detail = f"offset {offset}: the remote ends each connection at it: {reason}"
            self._note(now_us, "message refused", detail, offset)
            # The rest may be as good as ever. A second one in a row says that it may not.
            if suspicion.refused == 1:
                self._backoff.succeeded()
        elif suspicion.is_raised and not was_raised:
            detail = "each time that some were sent the remote answered nothing and ended it"
            self._note(now_us, "one message at a time", detail)

    # --- what CONNACK says ----------------------------------------------------------------------

    def _answered(self, connection: Connection, fields: dict[str, Any], now_us: int) -> int | None:
        assert self._wish is not None, "CONNECT went out before"
        answer = read_connack(fields, self._wish)
        if isinstance(answer, Refused):
            self.counts.refusals += 1
            if answer.reason_code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID:
                self._identifier = self.bridge.identifier
            self._connection = None
            reason = f"the remote refused: {answer.reason}"
            self._failed(Failure.REFUSED, reason, now_us, lasts=answer.lasts)
            connection.transport.abort()
            return None
        self._accepted(connection, answer, now_us)
        return None

    def _accepted(self, connection: Connection, granted: Granted, now_us: int) -> None:
        bridge, version = self.bridge, self.bridge.mqtt_version
        self.granted, self.connected_at_us = granted, now_us
        is_alone = self._suspicion.is_raised
        self._course = Course(self.queue, now_us, is_alone=is_alone)
        # Under that name the remote keeps the session.
        self._identifier = granted.client_identifier or self._identifier
        self.counts.connections += 1
        assert self._wish is not None, "CONNECT went out before"
        is_expected = self.queue.is_known_to_remote() and not self._wish.clean_start
        self.counts.sessions_forgotten += is_expected and not granted.session_present
        self._connections.enter(connection, Phase.ACCEPTED)
        who = (connection.handle, granted, self._identifier)
        released = self.queue.connected(*who, now_us, is_alone=is_alone)
        config = self._config()
        self._kernel.inbox.accept(
            connection.handle,
            party=self.queue.record.party,
            protocol_version=version,
            keep_alive_s=granted.keep_alive_s,
            receive_maximum=config.receive_maximum,
            maximum_packet_size_bytes=config.maximum_packet_size_bytes,
            topic_alias_maximum=config.topic_alias_maximum if version == 5 else 0,
            unreleased=released,
            key_slot=key_slot(bridge.identifier.encode()),
        )
        self._kernel.inbox.release(connection.handle)
        self._pinged_at_us, self._movement = now_us, Movement(now_us)
        known = self.queue.record.asked if granted.session_present else ()
        questions = self._questions = Questions(bridge, granted, known, self._settled)
        self.queue.asks((*questions.gone, *questions.wanted), now_us)
        self._ask(connection, questions, now_us)
        self._note(now_us, "connected", connection.peer)
        for detail in terms.otherwise(self._wish, granted):
            self._note(now_us, "granted otherwise", detail)
        for topic_filter, code in questions.left_out:
            self._refused(topic_filter, code, now_us)
        self.state = State.DRAINING
        self._give(False)
        if self.turn():
            self._drains(self)

    def _seen(self, connection: Connection) -> Seen:
        queue, bytes_sent = self.queue, taken(connection.transport)
        # What waits on the shelf goes ahead of all, unless there is one message alone.
        is_shelf_first = self.state is State.DRAINING and not self._course.is_alone
        left = bytes_sent.left + queue.unsent_bytes() + is_shelf_first * queue.shelved()[1]
        is_waiting = self._is_asking() or (queue.is_ready() and queue.in_flight() > 0)
        answers = (queue.mark(), queue.acknowledged())
        return Seen(answers, is_waiting, Taken(bytes_sent.taken, left))

    def _is_asking(self) -> bool:
        return self._questions is not None and self._questions.identifier > 0

    def _ask(self, connection: Connection, questions: Questions, now_us: int) -> None:
        """The next question goes out, if there is one. No message does before the last answer is
        here, so that the packet identifier stays its own [MQTT-2.2.1-2]."""
        asked = questions.next(self.queue.free_identifier)
        if asked is None:
            self.queue.asks(questions.wanted, now_us)
        else:
            self._write(connection, *asked)

    def _told(
        self, connection: Connection, questions: Questions, reason_codes: list[int], now_us: int
    ) -> bool:
        """What was asked last has been answered; false if that is no answer."""
        try:
            otherwise = questions.answered(reason_codes)
        except ValueError as error:
            self._blame(Failure.PROTOCOL, f"the remote broke the protocol: {error}")
            return False
        for topic_filter, code in otherwise:
            self._refused(topic_filter, code, now_us)
        self._movement.answered(now_us)
        self._ask(connection, questions, now_us)
        return True

    def _refused(self, topic_filter: str, code: int, now_us: int) -> None:
        if code < ReasonCode.UNSPECIFIED_ERROR:
            self._note(now_us, "granted otherwise", f"{topic_filter}: no more than QoS {code}")
            return
        self.counts.subscriptions_refused += 1
        self._note(now_us, "subscription refused", f"{topic_filter}: {reason_name(code)}")

    def _give(self, is_giving: bool) -> None:
        assert self._connection is not None, "it is connected"
        self._connection.gives = is_giving
        self.queue.give(is_giving)
        if is_giving:
            self._movement.given()

    def _last_words(self, connection: Connection, reason_code: int) -> bytes:
        version = self.bridge.mqtt_version
        is_fault = reason_code >= ReasonCode.UNSPECIFIED_ERROR
        # Before MQTT 5 DISCONNECT has no reason: it says that all is well.
        if connection.phase is not Phase.ACCEPTED or (is_fault and version < 5):
            return b""
        fields = disconnect(reason_code, version, forgets=self._is_removed)
        return encode_packet("disconnect", fields, protocol_version=version)

    def _write(self, connection: Connection, kind: str, fields: dict[str, Any]) -> None:
        version = self.bridge.mqtt_version
        data = encode_packet(kind, fields, protocol_version=version)
        self._connections.write([(connection.handle, data)])

    def _note(self, now_us: int, kind: str, detail: str, offset: int | None = None) -> None:
        self.events.append(LinkEvent(now_us, kind, detail, offset))
        fields = {"bridge": self.bridge.name, "remote": self.bridge.address}
        level = logging.INFO if kind in ("connected", "stopped") else logging.WARNING
        log.log(level, "bridge %s", kind, extra={"fields": fields | {"detail": detail}})
