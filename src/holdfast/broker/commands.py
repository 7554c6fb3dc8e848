"""What can be done to a running broker from outside: end a connection or a session, publish, have a
loss delivered again, change users.

Owns: the order of the steps of each. Never: knows who asks, or how an answer looks.

Invariants:
1. A command that is answered is durable, if there is anything that could be lost of it.
2. What cannot be done raises a `CommandRefusedError` with its reason, and has changed nothing.

Flow: admin, observe -> here -> closing, sessions, the entrance, redrives.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from holdfast.broker.delivery.entrance import NotTaken, Publication
from holdfast.broker.delivery.redrives import REDRIVES_MAXIMUM, Target
from holdfast.broker.mqtt.attached import Attached
from holdfast.broker.mqtt.session import Session
from holdfast.broker.store.tables import Loss
from holdfast.broker.turn import Stages
from holdfast.core.loss_reason import LossReason
from holdfast.protocols.mqtt.reason_code import ReasonCode

log = logging.getLogger(__name__)


class Refusal(Enum):
    """Why a command is not carried out."""

    NO_SUCH_SESSION = "no_such_session"
    NOT_CONNECTED = "not_connected"
    NO_SUCH_LOSS = "no_such_loss"
    REDRIVEN = "redriven"
    NEVER_STORED = "never_stored"
    EXPIRED = "expired"
    MANY_CLIENTS = "many_clients"
    TOO_MANY = "too_many"
    SESSION_ENDED = "session_ended"
    GONE = "gone"
    NOT_SUBSCRIBED = "not_subscribed"
    SUBSCRIPTION = "subscription"
    NOT_PUBLISHED = "refused"
    NO_SUCH_CURSOR = "no_such_cursor"
    NAME_TAKEN = "name_taken"
    OTHER_SELECTION = "other_selection"
    HELD = "held"
    NOT_YOURS = "not_yours"
    BEYOND_END = "beyond_end"
    NO_SUCH_BRIDGE = "no_such_bridge"
    WRONG_BRIDGE = "wrong_bridge"
    IN_FILE = "in_file"
    NO_SUCH_GROUP = "no_such_group"
    WRONG_NAME = "wrong_name"
    BEYOND_QUOTA = "beyond_quota"


class CommandRefusedError(Exception):
    """A command is not carried out: why, and a sentence for whoever asked."""

    def __init__(self, refusal: Refusal, sentence: str) -> None:
        super().__init__(sentence)
        self.refusal = refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message that an administrator publishes."""

    topic_name: str
    payload: bytes
    qos: int
    retain: bool
    properties: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """A loss that is delivered once more."""

    client_identifier: str
    """Who gets it."""
    messages: int
    gone: list[tuple[int, int]]
    """Ranges of offsets that the log has no more."""


class Commands:
    """Carries them out."""

    def __init__(
        self, stages: Stages, now_us: Callable[[], int], ask_turn: Callable[[], None]
    ) -> None:
        self._stages = stages
        self._now_us = now_us
        self._ask_turn = ask_turn

    def disconnect(self, client_identifier: str) -> None:
        """Ends the client's connection; what a persistent session has stays."""
        self._find(client_identifier)
        attached = self._stages.sessions.attached(client_identifier)
        if attached is None:
            sentence = f"the session of {client_identifier!r} is at rest, not connected"
            raise CommandRefusedError(Refusal.NOT_CONNECTED, sentence)
        self._expel(attached)

    async def end_session(self, client_identifier: str) -> None:
        """Ends the connection, and removes the session; it is gone for good on return."""
        self._find(client_identifier)
        stages = self._stages
        attached = stages.sessions.attached(client_identifier)
        if attached is not None:
            self._expel(attached)
        recorded = stages.sessions.on_record(client_identifier)
        if recorded is not None:
            left = await stages.chores.outcome(stages.sessions.left(recorded))
            if stages.sessions.on_record(client_identifier) == recorded:
                stages.sessions.end(recorded, self._now_us(), left)
            await stages.promises.wait_durable(stages.kernel.log.end_position())
        log.info("session removed", extra={"fields": {"client_identifier": client_identifier}})

    async def publish(self, message: Message) -> None:
        """Publishes, and returns when the message is durable, at QoS 0 when it is on its way."""
        answered: asyncio.Future[NotTaken | None] = asyncio.get_running_loop().create_future()

        def take(not_taken: NotTaken | None) -> None:
            if not answered.done():
                answered.set_result(not_taken)

        publication = Publication(
            topic_name=message.topic_name,
            payload=message.payload,
            qos=message.qos,
            retain=message.retain,
            properties=message.properties,
            answered=take,
        )
        self._stages.entrance.publish(publication)
        self._ask_turn()
        not_taken = await answered
        if not_taken is not None:
            sentence = f"refused: {not_taken.value}; it goes on when retention has made room"
            raise CommandRefusedError(Refusal.NOT_PUBLISHED, sentence)

    def show_system_values(self, values: dict[str, bytes]) -> None:
        """`$SYS` has these values from now on, and no others."""
        stages = self._stages
        for topic, value in stages.system_topics.change(values).items():
            # Nobody asks for most of them most of the time.
            if stages.kernel.routes.match(topic.encode()):
                stages.entrance.publish(Publication(topic, value, 0, retain=False))

    async def redrive(self, number: int) -> Redriven:
        """Has the loss of this row of the ledger delivered again, as new messages, to who lost it;
        it is durable on return."""
        stages = self._stages
        loss = stages.losses.find(number)
        if loss is None:
            sentence = f"the loss ledger has no row '{number}'"
            raise CommandRefusedError(Refusal.NO_SUCH_LOSS, sentence)
        messages = None
        while messages is None:
            looking = stages.redrives.look(loss.spans, self._target(number, loss))
            found = await stages.chores.outcome(looking)
            # Somebody else may have asked for the same, or who lost it may have come or gone.
            loss, now_us = stages.losses.find(number) or loss, self._now_us()
            messages = stages.redrives.begin(number, found, self._target(number, loss), now_us)
        if not messages:
            raise self._nothing(number, loss, found.gone)
        stages.losses.redriven(number, loss, now_us)
        attached = stages.sessions.attached(loss.client_identifier)
        if attached is not None:
            stages.permissions.admit_redrive(attached)
        stages.bridges.grant_redrives(loss.party)
        await stages.promises.wait_durable(stages.kernel.log.end_position())
        name = stages.name_of(loss.party)
        fields = {"client_identifier": name, "row": number, "messages": messages}
        log.info("loss driven again", extra={"fields": fields})
        return Redriven(client_identifier=name, messages=messages, gone=found.gone)

    def _expel(self, attached: Attached) -> None:
        connection = self._stages.connections.get(attached.connection)
        assert connection is not None, "who is attached has a connection"
        closing = self._stages.closing
        closing.expel(connection, ReasonCode.ADMINISTRATIVE_ACTION, self._now_us())
        self._ask_turn()

    def _find(self, client_identifier: str) -> Session:
        sessions = self._stages.sessions
        attached = sessions.attached(client_identifier)
        session = sessions.on_record(client_identifier) if attached is None else attached.session
        if session is None:
            sentence = f"no session has the client identifier {client_identifier!r}"
            raise CommandRefusedError(Refusal.NO_SUCH_SESSION, sentence)
        return session

    def _target(self, number: int, loss: Loss) -> Target:
        """Who gets it, if it may be driven again."""
        if loss.redriven_at_us is not None:
            sentence = f"row {number} was driven again already"
            raise CommandRefusedError(Refusal.REDRIVEN, sentence)
        if not loss.end_offset:
            sentence = f"what row {number} tells of was of QoS 0 and never stored"
            raise CommandRefusedError(Refusal.NEVER_STORED, sentence)
        if loss.reason is LossReason.EXPIRED:
            sentence = f"the messages of row {number} have expired, so nobody is sent them any more"
            raise CommandRefusedError(Refusal.EXPIRED, sentence)
        if not loss.party:
            sentence = f"row {number} sums up the losses of many clients and does not say whose"
            raise CommandRefusedError(Refusal.MANY_CLIENTS, sentence)
        stages = self._stages
        if len(stages.redrives) >= REDRIVES_MAXIMUM:
            sentence = f"{REDRIVES_MAXIMUM} losses are being driven again; wait until some are done"
            raise CommandRefusedError(Refusal.TOO_MANY, sentence)
        client = loss.client_identifier
        if stages.pulsar.subscriptions.name_of(loss.party):
            sentence = (
                f"the subscription {client!r} lost it, whose consumers take from its own queue"
                " alone; what the log still has of it can be read by its offsets"
            )
            raise CommandRefusedError(Refusal.SUBSCRIPTION, sentence)
        cursor = stages.cursors.find(client)
        if cursor is not None and cursor.party == loss.party:
            sentence = f"the cursor {client!r} lost it, and the log has it no more"
            raise CommandRefusedError(Refusal.GONE, sentence)
        target = (
            stages.groups.target(loss.party)
            or stages.bridges.target(loss.party)
            or stages.sessions.target(client)
        )
        if target is None or target.party != loss.party:
            sentence = f"the session that lost it has ended; {client!r} would get it in another one"
            if target is None:
                sentence = f"neither a session nor a group {client!r} is there any more"
            raise CommandRefusedError(Refusal.SESSION_ENDED, sentence)
        return target

    def _nothing(self, number: int, loss: Loss, gone: list[tuple[int, int]]) -> CommandRefusedError:
        begin_offset = self._stages.kernel.log.begin_offset()
        if loss.end_offset <= begin_offset:
            sentence = (
                f"the log begins at offset {begin_offset}: all of row {number} is gone from it"
            )
            return CommandRefusedError(Refusal.GONE, sentence)
        rest = " of what the log still has of it" if gone else ""
        sentence = f"no subscription of {loss.client_identifier!r} matches any message{rest}"
        return CommandRefusedError(Refusal.NOT_SUBSCRIBED, sentence)
