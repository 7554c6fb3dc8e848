"""What becomes of packs that are not acknowledged in time: they are sent again or given up.

Owns: how often each pack has been asked about, and the strategies. Never: knows which messages a
pack has; the kernel does, and says which packs are overdue.

Invariants:
1. Rounds count for one pack of one connection: the next pack, and the next connection, begin at
   zero (S0.37).
2. What is given up is in the loss ledger before the progress that passes over it.
3. An MQTT 5 client is sent nothing twice on one connection [MQTT-4.4.0-1], unless the operator
   wants it so; the rounds count all the same.

Flow: pack timer -> packs overdue -> send again, or give up and the next pack.
"""

import logging
from dataclasses import dataclass

from holdfast.broker.delivery.losses import Losses
from holdfast.broker.mqtt.attached import Attached
from holdfast.broker.mqtt.sessions import Sessions
from holdfast.broker.stages import KernelStages
from holdfast.core.config import Config
from holdfast.core.loss_reason import LossReason
from holdfast.core.units import SECOND_US

log = logging.getLogger(__name__)

LOOKS_IN_A_TIMEOUT = 20
"""However many packs there are, they are looked at no more often than so many times in the time
that each has: none is a twentieth of it late."""


@dataclass(slots=True)
class _Rounds:
    """How often a pack was overdue."""

    attached: Attached
    first_offset: int
    count: int = 0


class Packs:
    """Asks what is overdue, and decides."""

    def __init__(
        self, config: Config, kernel: KernelStages, sessions: Sessions, losses: Losses
    ) -> None:
        self._deliveries = kernel.deliveries
        self._sessions = sessions
        self._losses = losses
        self._rounds: dict[tuple[int, int], _Rounds] = {}
        """By connection and group. None outlives its connection by more than a second."""
        self.reconfigure(config)

    def reconfigure(self, config: Config) -> None:
        """Decides by these settings from now on."""
        self._timeout_us = config.application_pack_timeout_s * SECOND_US
        self._strategy = config.application_strategy
        self._retries = config.application_retries
        self._resends_always = config.resend_on_live_connection

    def rounds(self, connection: int, group: int = 0) -> int:
        """How often the present pack was overdue."""
        known = self._rounds.get((connection, group))
        pack = self._deliveries.pack(connection, group)
        if known is None or pack is None or pack["first_offset"] != known.first_offset:
            return 0
        return known.count

    def wait_us(self, now_us: int) -> int:
        """How long from now no pack has to be decided about; a second at most."""
        due_us = self._deliveries.packs_due_us(now_us, self._timeout_us)
        if due_us is None:
            # What is sent from now on has a second at least.
            return SECOND_US
        shortest_us = min(self._timeout_us // LOOKS_IN_A_TIMEOUT, SECOND_US)
        return min(max(due_us - now_us, shortest_us), SECOND_US)

    def decide(self, now_us: int) -> bool:
        """Decides about every pack whose time is over; false if there is none."""
        self._forget_the_gone()
        overdue = self._deliveries.packs_overdue(now_us, self._timeout_us)
        for connection, group, first_offset, _pending in overdue:
            attached = self._sessions.of(connection)
            if attached is None:
                continue
            rounds = self._rounds_of(attached, group, first_offset)
            reason = self._reason_to_give_up(rounds.count)
            if reason is None:
                rounds.count += 1
                resend = self._resends_always or attached.session.protocol_version < 5
                self._deliveries.retry_pack(connection, group, resend, now_us)
            else:
                self._give_up(attached, group, reason, now_us)
        return bool(overdue)

    def _reason_to_give_up(self, rounds: int) -> LossReason | None:
        if self._strategy == "SKIP_ALL":
            return LossReason.SKIPPED
        return LossReason.RETRIES_USED_UP if 0 < self._retries <= rounds else None

    def _give_up(self, attached: Attached, group: int, reason: LossReason, now_us: int) -> None:
        """The pack is committed; what was not acknowledged of it is lost."""
        session = attached.session
        # What a client of MQTT 5 has not acknowledged still counts against its Receive Maximum.
        keep = session.protocol_version >= 5
        ranges = self._deliveries.give_up_pack(attached.connection, group, keep)
        party = group or session.party
        lost = [(party, reason, first, end, end - first) for first, end in ranges]
        self._losses.note(lost, self._sessions.name_of, now_us)
        fields = {
            "client_identifier": session.client_identifier,
            "group": self._sessions.name_of(group) if group else None,
            "reason": reason,
            "messages": sum(end - first for first, end in ranges),
        }
        log.warning("pack given up", extra={"fields": fields})

    def _rounds_of(self, attached: Attached, group: int, first_offset: int) -> _Rounds:
        key = attached.connection, group
        known = self._rounds.get(key)
        if known is None or known.attached is not attached or known.first_offset != first_offset:
            known = self._rounds[key] = _Rounds(attached, first_offset)
        return known

    def _forget_the_gone(self) -> None:
        gone = [
            key
            for key, known in self._rounds.items()
            if self._sessions.of(known.attached.connection) is not known.attached
        ]
        for key in gone:
            del self._rounds[key]
