"""The values of `$SYS/broker/...`, in Mosquitto's names, so that its dashboards show this broker.

Owns: which topics there are, the load averages, and when they change. Never: counts; a snapshot
does. What Mosquitto has and nothing here counts (its memory pool's maximum) is left out rather than
guessed.

Flow: sweep -> snapshot -> here -> commands, which show them to subscribers.
"""

import math
from collections.abc import Callable
from typing import Final

from holdfast import __version__
from holdfast.broker.counts import Counted, Event
from holdfast.broker.observe.snapshot import Snapshot
from holdfast.core.units import SECOND_US

MINUTES: Final = (1, 5, 15)
"""The spans of a load average."""
OUT_OF_TIME: Final = 0.5
"""The sweep comes every second, more or less; half a second early is on time."""


class LoadAverages:
    """How much of something happens in a minute, averaged over some minutes: an exponentially
    weighted average, as Mosquitto's."""

    def __init__(self) -> None:
        self._totals: dict[str, float] = {}
        self._averages: dict[tuple[str, int], float] = {}

    def take(self, totals: dict[str, float], elapsed_s: float) -> dict[str, float]:
        """The averages by topic ending, after totals have grown so far in so many seconds."""
        for name, total in totals.items():
            a_minute = (total - self._totals.get(name, 0)) * 60 / elapsed_s
            for minutes in MINUTES:
                weight = math.exp(-elapsed_s / (minutes * 60))
                before = self._averages.get((name, minutes), 0.0)
                self._averages[name, minutes] = a_minute + weight * (before - a_minute)
        self._totals = totals
        return {
            f"load/{name}/{minutes}min": value for (name, minutes), value in self._averages.items()
        }


class SystemValues:
    """Brings `$SYS` up to date every so many seconds."""

    def __init__(
        self,
        show: Callable[[dict[str, bytes]], None],
        snapshot: Callable[[], Snapshot],
        interval_s: int,
    ) -> None:
        """`show` has these values shown from now on, and no others."""
        self._show = show
        self._snapshot = snapshot
        self.interval_s = interval_s
        """0: there are none."""
        self._loads = LoadAverages()
        self._last_us: int | None = None
        self._clients_maximum = 0

    def tick(self, now_us: int) -> None:
        """Once a second."""
        if not self.interval_s:
            if self._last_us is not None:
                self._show({})
                self._last_us = None
            return
        last_us = self._last_us
        if last_us is None:
            elapsed_s = float(self.interval_s)
        else:
            elapsed_s = (now_us - last_us) / SECOND_US
            if elapsed_s < self.interval_s - OUT_OF_TIME:
                return
        self._last_us = now_us
        self._show(self._values(self._snapshot(), elapsed_s))

    def _values(self, seen: Snapshot, elapsed_s: float) -> dict[str, bytes]:
        self._clients_maximum = max(self._clients_maximum, seen.sessions_attached)
        values = _gauges(seen, self._clients_maximum) | _totals(seen)
        loads = self._loads.take(_load_totals(seen), elapsed_s)
        values |= {name: f"{value:.2f}" for name, value in loads.items()}
        values |= _connections(seen)
        return {f"$SYS/broker/{name}": str(value).encode() for name, value in values.items()}


def _connections(seen: Snapshot) -> dict[str, object]:
    """As Mosquitto says of its bridges whether each is connected."""
    return {
        f"connection/{row.seen.bridge.name}/state": int(row.seen.connected_at_us is not None)
        for row in seen.bridges
    }


def _gauges(seen: Snapshot, clients_maximum: int) -> dict[str, object]:
    at_rest = seen.sessions_recorded - seen.sessions_recorded_attached
    messages = seen.durable_offset - seen.begin_offset
    first_loss = seen.first_loss_in_s
    return {
        "version": f"holdfast version {__version__}",
        "uptime": f"{int(seen.uptime_s)} seconds",
        "durability": seen.durability,
        "clients/connected": seen.sessions_attached,
        "clients/active": seen.sessions_attached,
        "clients/disconnected": at_rest,
        "clients/inactive": at_rest,
        "clients/total": seen.sessions_attached + at_rest,
        "clients/maximum": clients_maximum,
        "clients/expired": seen.sessions_expired,
        "subscriptions/count": seen.subscriptions,
        "shared_subscriptions/count": seen.shared_subscriptions,
        "retained messages/count": seen.retained,
        "messages/stored": messages,
        "store/messages/count": messages,
        "store/messages/bytes": seen.log["bytes"],
        "heap/current": seen.resident_bytes,
        "queues/backlog": seen.backlog_messages + seen.waiting_at_rest_messages,
        "queues/first loss": "none in sight" if first_loss is None else f"{first_loss} seconds",
    }


def _totals(seen: Snapshot) -> dict[str, object]:
    return {
        "messages/received": _packets_received(seen),
        "messages/sent": _packets_sent(seen),
        "publish/messages/received": seen.publishes_received,
        "publish/messages/sent": seen.egress["publishes_sent"],
        "publish/messages/dropped": sum(seen.losses.values()),
        "publish/bytes/received": seen.payload_bytes_received,
        "publish/bytes/sent": seen.egress["payload_bytes_sent"],
        "bytes/received": seen.received_bytes,
        "bytes/sent": seen.sent_bytes,
    }


def _load_totals(seen: Snapshot) -> dict[str, float]:
    return {
        "messages/received": _packets_received(seen),
        "messages/sent": _packets_sent(seen),
        "publish/received": seen.publishes_received,
        "publish/sent": seen.egress["publishes_sent"],
        "publish/dropped": sum(seen.losses.values()),
        "bytes/received": seen.received_bytes,
        "bytes/sent": seen.sent_bytes,
        "sockets": seen.counts.get(Counted(Event.CONNECTIONS_OPENED), 0),
        "connections": seen.counts.get(Counted(Event.CONNECTIONS_ACCEPTED), 0),
    }


def _packets_received(seen: Snapshot) -> int:
    return (
        seen.publishes_received
        + seen.acknowledgements_received
        + seen.control_packets_received
        + seen.egress["pings_answered"]
    )


def _packets_sent(seen: Snapshot) -> int:
    egress = seen.egress
    return egress["publishes_sent"] + egress["acknowledgements_sent"] + egress["pings_answered"]
