"""What the parts of a running broker count, at one moment.

Owns: which part knows which number. Never: walks over connections, sessions or topics: it costs the
same for one client as for a hundred thousand.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.broker.counts import Counted
from holdfast.broker.server import Server
from holdfast.broker.steps import Kind
from holdfast.core.loss_reason import LossReason

NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Numbers of one moment; totals count from the start of the broker."""

    counts: Mapping[Counted, int]
    losses: Mapping[LossReason, int]
    """Messages lost, by reason."""
    losses_of_environments: Mapping[tuple[str, LossReason], int]
    """The same of whoever is known to be of an environment."""
    deliveries: Mapping[str, int]
    egress: Mapping[str, int]
    pulsar_egress: Mapping[str, int]
    routes: Mapping[str, int]
    log: Mapping[str, int]
    remembered: Mapping[str, int]
    """Bytes of what the log remembers, by what it is."""
    accepted: Mapping[tuple[str, str, int], int]
    """Connections that were let in, by transport, protocol and its version."""
    connections: int
    sessions_attached: int
    sessions_recorded: int
    sessions_recorded_attached: int
    sessions_expired: int
    subscriptions: int
    groups: int
    shared_subscriptions: int
    groups_by_strategy: Mapping[str, int]
    waiting_for_keys: int
    publishes_received: int
    publishes_received_by_qos: tuple[int, ...]
    payload_bytes_received: int
    acknowledgements_received: int
    control_packets_received: int
    published_by_broker: int
    received_bytes: int
    sent_bytes: int
    uncommitted_bytes: int
    begin_offset: int
    end_offset: int
    durable_offset: int
    retained: int
    loss_rows: int
    loss_rows_removed: int
    """Because the ledger was full."""
    redrives: int
    staged_bytes: int
    staged_parts: int
    producers: int
    batches_given_up: int
    segments_removed: int
    records_carried: int
    turns: int
    step_counts: Mapping[str, tuple[int, ...]]
    """Of each kind of step: of each bound of `Lengths`, and of what took longer."""
    step_sums_s: Mapping[str, float]
    step_longest_s: Mapping[str, float]
    """Since the start."""
    step_lately_s: Mapping[str, float]
    """The longest of the last minute."""
    steps_over_budget: Mapping[tuple[Kind, str], int]
    """By kind and stage."""
    commit_counts: tuple[int, ...]
    """Of each bound of `CommitTimes`, and of what took longer."""
    commit_sum_s: float
    commit_last_s: float


def count(server: Server) -> Numbers:
    """The numbers of this moment."""
    stages, turn, sweep = server.stages, server.turn, server.sweep
    kernel = stages.kernel
    view = server.records.refresh()
    received_by_qos, payload_bytes_received = turn.published()
    lengths = stages.steps.lengths
    return Numbers(
        counts=server.counts.all(),
        losses=dict(stages.losses.by_reason),
        losses_of_environments=dict(stages.losses.by_environment),
        loss_rows_removed=stages.losses.rows_removed,
        deliveries=kernel.deliveries.counters(),
        egress=kernel.outboxes.counters(),
        pulsar_egress=kernel.pulsar_outboxes.counters(),
        routes=kernel.routes.counters(),
        log=kernel.log.statistics(),
        remembered=kernel.log.remembered(),
        accepted=dict(stages.connections.accepted),
        connections=len(stages.connections),
        sessions_attached=stages.sessions.count(),
        sessions_recorded=stages.sessions.recorded(),
        sessions_recorded_attached=stages.sessions.recorded_attached(),
        sessions_expired=stages.sessions.expired,
        subscriptions=len(kernel.routes),
        groups=len(stages.groups),
        shared_subscriptions=stages.groups.subscriptions(),
        groups_by_strategy=dict(stages.groups.by_strategy),
        waiting_for_keys=stages.groups.waiting_for_keys,
        publishes_received=turn.publishes,
        publishes_received_by_qos=tuple(received_by_qos),
        payload_bytes_received=payload_bytes_received,
        acknowledgements_received=turn.acknowledgements,
        control_packets_received=turn.control_packets,
        published_by_broker=stages.entrance.published,
        received_bytes=stages.connections.received_bytes,
        sent_bytes=stages.connections.sent_bytes,
        uncommitted_bytes=kernel.log.uncommitted_bytes(),
        begin_offset=kernel.log.begin_offset(),
        end_offset=kernel.log.end_offset(),
        durable_offset=kernel.log.durable_offset(),
        retained=kernel.log.retained_count(),
        redrives=len(stages.redrives),
        staged_bytes=stages.batches.parts.bytes,
        staged_parts=len(stages.batches.parts),
        producers=stages.batches.producers.count,
        batches_given_up=stages.batches.given_up,
        # Rows go in the order in which they came, so that none between has to be counted.
        loss_rows=view.last_loss() - view.first_loss() + 1 if view.first_loss() else 0,
        segments_removed=sweep.segments_removed,
        records_carried=sweep.records_carried,
        turns=turn.count,
        step_counts={kind: tuple(lengths[kind].counts) for kind in lengths},
        step_sums_s={kind: lengths[kind].sum_ns / NS for kind in lengths},
        step_longest_s={kind: lengths[kind].longest_ns / NS for kind in lengths},
        step_lately_s={kind: lengths[kind].lately_ns / NS for kind in lengths},
        steps_over_budget=dict(stages.steps.over_budget),
        commit_counts=tuple(turn.commit_times.counts),
        commit_sum_s=turn.commit_times.sum_s,
        commit_last_s=turn.commit_times.last_s,
    )
