"""What a running broker counts, and what is known of all its queues, at one moment.

Never: counts anything itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from holdfast import system
from holdfast.broker.observe.bridges import BridgesSeen, BridgeStanding
from holdfast.broker.observe.cursors import CursorQueue, CursorsSeen
from holdfast.broker.observe.environments import (
    EnvironmentsSeen,
    EnvironmentStanding,
    GroupStanding,
)
from holdfast.broker.observe.forecast import Forecast
from holdfast.broker.observe.subscriptions import SubscriptionsSeen, SubscriptionStanding
from holdfast.broker.observe.watch import Behind, Stuck, Watch
from holdfast.broker.state.broker import Broker
from holdfast.broker.state.numbers import Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(Numbers):
    """Numbers of one moment."""

    uptime_s: float
    durability: str
    disk_free_bytes: int
    resident_bytes: int
    cpu_s: float
    open_files_maximum: int
    queues_behind: int
    backlog_messages: int
    in_flight_messages: int
    waiting_at_rest_messages: int
    first_loss_in_s: int | None
    at_rest_age_s: float | None
    """How old these two are; `None` before the first round over all sessions at rest has ended."""
    queues_age_s: float | None
    """The same of what is told of attached queues."""
    stuck: Mapping[Stuck, int]
    """Queues that are stuck, by reason."""
    busiest: tuple[Behind, ...]
    cursors: tuple[CursorQueue, ...]
    """All of them, as of the last round."""
    bridges: tuple[BridgeStanding, ...]
    """The same."""
    durable_subscriptions: int
    waiting_for_subscriptions_messages: int
    """Of all of them, as of the last round."""
    oldest_subscriptions: tuple[SubscriptionStanding, ...]
    """As of the last round, as many as are shown one by one."""
    environments: tuple[EnvironmentStanding, ...]
    """The same."""
    oldest_groups: tuple[GroupStanding, ...]
    """The same, as many as are shown one by one."""
    thefts_found: int
    """Groups that other environments than their own were found to take from, since the start."""
    taken_by_others: Mapping[tuple[str, str], int]
    """Messages of such groups: whose the group is, and who took them."""
    now_us: int
    """The time of this moment."""


def take(
    broker: Broker,
    watch: Watch,
    forecast: Forecast,
    cursors: CursorsSeen,
    bridges: BridgesSeen,
    subscriptions: SubscriptionsSeen,
    environments: EnvironmentsSeen,
) -> Snapshot:
    """The numbers of this moment."""
    counted, config, now_us = broker.numbers(), broker.config(), broker.now_us()
    return Snapshot(
        **{field.name: getattr(counted, field.name) for field in fields(Numbers)},
        uptime_s=broker.uptime_s(),
        durability=config.durability,
        disk_free_bytes=system.disk_free_bytes(config.data_dir),
        resident_bytes=system.resident_bytes(),
        cpu_s=system.cpu_s(),
        open_files_maximum=system.open_files_limit(),
        queues_behind=watch.queues_behind,
        backlog_messages=watch.backlog_messages,
        in_flight_messages=watch.in_flight_messages,
        waiting_at_rest_messages=forecast.waiting_messages,
        first_loss_in_s=_first_loss_in_s(forecast, cursors, bridges),
        at_rest_age_s=_age_s(forecast.round_ended_at_us, now_us),
        queues_age_s=_age_s(watch.round_ended_at_us, now_us),
        stuck=dict(watch.stuck),
        busiest=watch.busiest,
        cursors=cursors.found,
        bridges=bridges.found,
        durable_subscriptions=subscriptions.count,
        waiting_for_subscriptions_messages=subscriptions.waiting_messages,
        oldest_subscriptions=subscriptions.oldest,
        environments=environments.all(),
        oldest_groups=environments.groups(),
        thefts_found=environments.thefts.found,
        taken_by_others=dict(environments.thefts.taken),
        now_us=now_us,
    )


def _first_loss_in_s(forecast: Forecast, cursors: CursorsSeen, bridges: BridgesSeen) -> int | None:
    """Of sessions at rest, cursors and bridges, whichever is first."""
    ahead = [row.ahead for row in cursors.found] + [row.ahead for row in bridges.found]
    in_s = [forecast.first_loss_in_s, *(each.first_loss_in_s for each in ahead)]
    return min((each for each in in_s if each is not None), default=None)


def _age_s(at_us: int | None, now_us: int) -> float | None:
    return None if at_us is None else (now_us - at_us) / 1_000_000
