"""What connected clients may do: told to the kernel when they come, and again when it changes.

Owns: that nobody stays connected, keeps a subscription or a Will that is not allowed any more.
Never: decides what is allowed (access does), or sees a message (the kernel does).

Invariants:
1. The kernel has a connection's grants before it decodes anything after CONNECT.
2. A change is in force for all whom it concerns before the change is answered, except where it
   concerns more than RENEWED_AT_ONCE: then within the next turns of the loop, so that nobody else
   waits for it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from holdfast.broker.access.access import Access, Identity
from holdfast.broker.counts import Event
from holdfast.broker.delivery.redrives import Redrives
from holdfast.broker.ground import Ground
from holdfast.broker.mqtt.attached import Attached
from holdfast.broker.mqtt.closing import Closing
from holdfast.broker.mqtt.sessions import Sessions
from holdfast.broker.mqtt.subscriptions import Subscriptions
from holdfast.broker.sockets.connection import Connections
from holdfast.core.config import Config
from holdfast.kernel import Inbox
from holdfast.protocols.mqtt.reason_code import ReasonCode
from holdfast.protocols.mqtt.subscribe import plan_unsubscribe

log = logging.getLogger(__name__)

RENEWED_AT_ONCE: Final = 1_000
"""Connections whose grants are made anew without a pause: some ten milliseconds."""


class Permissions:
    """Keeps connected clients to what they may do."""

    def __init__(
        self,
        ground: Ground,
        access: Access,
        connections: Connections,
        closing: Closing,
        sessions: Sessions,
        redrives: Redrives,
    ) -> None:
        kernel = ground.kernel
        self._access = access
        self._connections = connections
        self._closing = closing
        self._sessions = sessions
        self._redrives = redrives
        self._subscriptions = Subscriptions(kernel)
        self._inbox: Inbox = kernel.inbox
        self._end_offset = kernel.log.end_offset
        self._now_us = ground.world.now_us
        self._schedule = ground.schedule
        self._counts = ground.counts
        self._waiting: deque[Attached] = deque()
        self._set_rates(ground.config)
        access.watchers.append(self.renew)

    def reconfigure(self, config: Config) -> None:
        """Other rates hold from now on."""
        self._set_rates(config)
        self.renew(None)

    def admit(self, attached: Attached, now_us: int) -> None:
        """The session has just been attached: what it may do holds from its first packet on."""
        self._limit(attached)
        if self._access.restricts:
            self._grant(attached)
            self._end_subscriptions(attached, now_us)

    def admit_redrive(self, attached: Attached) -> None:
        """A re-drive for the attached session has begun: it gets no more of that than it may."""
        if self._access.restricts and attached.queue is not None:
            self._grant(attached)

    def renew(self, user_name: str | None) -> None:
        """Something about a user has changed, or about everybody."""
        for attached in self._sessions.all_attached():
            if user_name is None or attached.identity.user_name == user_name:
                self._waiting.append(attached)
        self._renew_some()

    def may_subscribe(self, attached: Attached) -> Callable[[str], bool]:
        """What says of each filter whether the client may subscribe to that now."""
        return self._access.may_subscribe(attached.identity, attached.session.client_identifier)

    def _set_rates(self, config: Config) -> None:
        self._messages_per_second = config.client_messages_per_second
        self._bytes_per_second = config.client_bytes_per_second
        self._inbox.limit_all(
            messages_per_second=config.broker_messages_per_second,
            bytes_per_second=config.broker_bytes_per_second,
        )

    def _renew_some(self) -> None:
        now_us = self._now_us()
        for _ in range(min(RENEWED_AT_ONCE, len(self._waiting))):
            attached = self._waiting.popleft()
            # It may have ended meanwhile, or is not attached yet and will be told then.
            if self._sessions.of(attached.connection) is attached:
                self._renew_one(attached, now_us)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._renew_some)
        self._schedule.soon()

    def _renew_one(self, attached: Attached, now_us: int) -> None:
        client_identifier = attached.session.client_identifier
        identity = self._access.renewed(attached.identity, client_identifier)
        if identity is None:
            self._expel(attached, now_us)
            return
        attached.identity = identity
        will = attached.session.will
        if will is not None and not self._access.may_publish(
            identity, client_identifier, will.topic_name
        ):
            self._sessions.drop_will(attached, now_us)
        if attached.queue is not None:
            self._limit(attached)
            self._grant(attached)
            self._end_subscriptions(attached, now_us)

    def _expel(self, attached: Attached, now_us: int) -> None:
        fields = {
            "client": attached.session.client_identifier,
            "user": attached.identity.user_name or "",
        }
        log.info("client may not stay connected", extra={"fields": fields})
        self._counts.add(Event.CONNECTIONS_NO_LONGER_ALLOWED)
        # It has no say any more, and so neither has its Will.
        self._sessions.drop_will(attached, now_us)
        connection = self._connections.get(attached.connection)
        assert connection is not None, "an attached session has a connection"
        self._closing.expel(connection, ReasonCode.NOT_AUTHORIZED, now_us)

    def _grant(self, attached: Attached) -> None:
        assert attached.queue is not None, "a queue is attached before it is granted anything"
        identity, client_identifier = attached.identity, attached.session.client_identifier
        receive = self._access.receive_grant(identity, client_identifier)
        self._subscriptions.grant(
            attached.queue,
            attached.connection,
            self._access.publish_grant(identity, client_identifier),
            receive,
        )
        self._redrives.grant(attached.session.party, receive)

    def _limit(self, attached: Attached) -> None:
        identity: Identity = attached.identity
        messages = identity.messages_per_second
        size_bytes = identity.bytes_per_second
        self._inbox.limit(
            attached.connection,
            messages_per_second=self._messages_per_second if messages is None else messages,
            bytes_per_second=self._bytes_per_second if size_bytes is None else size_bytes,
        )

    def _end_subscriptions(self, attached: Attached, now_us: int) -> None:
        """Those in force that are not allowed any more hold for nothing from now on."""
        is_allowed = self.may_subscribe(attached)
        denied = [
            topic_filter
            for topic_filter in (*attached.held.own, *attached.held.shared)
            if not is_allowed(topic_filter)
        ]
        if not denied:
            return
        assert attached.queue is not None, "a queue is attached before it is granted anything"
        self._counts.add(Event.SUBSCRIPTIONS_NO_LONGER_ALLOWED, times=len(denied))
        outcome = plan_unsubscribe(denied, attached.held, offset=self._end_offset())
        self._subscriptions.remove(attached.queue, outcome.removed)
        self._sessions.resubscribe(attached, outcome.held, now_us)
        self._sessions.record(attached, now_us)
