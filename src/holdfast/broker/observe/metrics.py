"""Every metric: its name, what it means, and where its number comes from; in Prometheus' form.

Owns: names, units, labels. Never: counts anything itself.

Invariants:
1. Every refusal and every drop is a counter with its reason as a label. What has no
   metric of its own shows in `holdfast_events_total`, so that nothing is hidden.
2. No label has a value that a client chooses, the names of cursors apart, of which there are at
   most CURSORS_MAXIMUM, those of bridges, BRIDGES_MAXIMUM, those of environments,
   ENVIRONMENTS_MAXIMUM, and of groups GROUPS_SHOWN_MAXIMUM and of durable subscriptions
   SUBSCRIPTIONS_SHOWN_MAXIMUM: the number of time series is bounded.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from prometheus_client import exposition
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector, CollectorRegistry

from holdfast import __version__
from holdfast.broker.bridge.failure import Failure
from holdfast.broker.bridge.link import State
from holdfast.broker.counts import Counted, Event, Reason
from holdfast.broker.delivery.selection import KINDS
from holdfast.broker.observe.bridges import BridgeStanding
from holdfast.broker.observe.environment_metrics import ENVIRONMENT_METRICS
from holdfast.broker.observe.metric import Labelled, Metric
from holdfast.broker.observe.snapshot import Snapshot
from holdfast.broker.observe.subscription_metrics import SUBSCRIPTION_METRICS
from holdfast.broker.observe.watch import Stuck
from holdfast.broker.steps import BOUNDS_S as STEP_BOUNDS_S
from holdfast.broker.store.commit_times import BOUNDS_S
from holdfast.core.limits import STEP_BUDGET_MS
from holdfast.protocols.mqtt.reason_code import reason_name


@dataclass(frozen=True, slots=True)
class _Count:
    """Reads how often an event was, whatever the reason."""

    event: Event

    def __call__(self, seen: Snapshot) -> float:
        return seen.counts.get(Counted(self.event), 0)


@dataclass(frozen=True, slots=True)
class _ByReason:
    """Reads how often an event was for each reason."""

    event: Event

    def __call__(self, seen: Snapshot) -> Labelled:
        for counted, count in seen.counts.items():
            if counted.event is self.event and counted.reason is not None:
                yield (_reason(counted.reason),), count


def _reason(reason: Reason) -> str:
    """The names that limits and outcomes have, and that MQTT gives to its reason codes."""
    return reason_name(reason) if isinstance(reason, int) else str(reason.value)


def _others(seen: Snapshot) -> Labelled:
    for counted, count in seen.counts.items():
        if counted.event not in SHOWN_BY_ITSELF:
            reason = counted.reason
            code = reason.value if isinstance(reason, Enum) else reason
            yield (counted.event if code is None else f"{counted.event}_{code}",), count


def _lost(seen: Snapshot) -> Labelled:
    for reason, count in seen.losses.items():
        yield (reason,), count


def _ages(seen: Snapshot) -> Labelled:
    for queues, age_s in (("attached", seen.queues_age_s), ("at_rest", seen.at_rest_age_s)):
        if age_s is not None:
            yield (queues,), age_s


def _first_loss(seen: Snapshot) -> Labelled:
    if seen.first_loss_in_s is not None:
        yield (), seen.first_loss_in_s


def _cursor_lags(seen: Snapshot) -> Labelled:
    return [((row.seen.name,), row.ahead.messages) for row in seen.cursors]


def _cursor_ages(seen: Snapshot) -> Labelled:
    for row in seen.cursors:
        oldest_at_us = row.ahead.oldest_at_us
        yield (row.seen.name,), 0 if oldest_at_us is None else (seen.now_us - oldest_at_us) / 1e6


def _cursor_losses(seen: Snapshot) -> Labelled:
    for row in seen.cursors:
        if row.ahead.first_loss_in_s is not None:
            yield (row.seen.name,), row.ahead.first_loss_in_s


def _of_bridges(read: Callable[[BridgeStanding], float | None]) -> Callable[[Snapshot], Labelled]:
    def labelled(seen: Snapshot) -> Labelled:
        for row in seen.bridges:
            value = read(row)
            if value is not None:
                yield (row.seen.bridge.name,), value

    return labelled


def _bridge_states(seen: Snapshot) -> Labelled:
    for row in seen.bridges:
        for state in State:
            yield (row.seen.bridge.name, state.value), int(row.seen.state is state)


def _bridge_ages(seen: Snapshot) -> Labelled:
    for row in seen.bridges:
        oldest_at_us = row.ahead.oldest_at_us
        age_s = 0.0 if oldest_at_us is None else (seen.now_us - oldest_at_us) / 1e6
        yield (row.seen.bridge.name,), age_s


def _bridge_losses(seen: Snapshot) -> Labelled:
    for row in seen.bridges:
        name = row.seen.bridge.name
        for reason, count in row.seen.lost.items():
            yield (name, "out", reason), count
        yield (name, "in", "not_taken_over"), row.seen.received_and_lost


def _accepted(seen: Snapshot) -> Labelled:
    for (transport, protocol, version), count in seen.accepted.items():
        name = PROTOCOL_VERSIONS.get(version, str(version))
        yield (transport, name if protocol == "mqtt" else f"{protocol} {version}"), count


def _sessions(seen: Snapshot) -> Labelled:
    yield ("connected",), seen.sessions_attached
    yield ("at_rest",), seen.sessions_recorded - seen.sessions_recorded_attached


def _received(seen: Snapshot) -> Labelled:
    yield ("publish",), seen.publishes_received
    yield ("acknowledgement",), seen.acknowledgements_received
    yield ("ping",), seen.egress["pings_answered"]
    yield ("control",), seen.control_packets_received


def _sent(seen: Snapshot) -> Labelled:
    yield ("publish",), seen.egress["publishes_sent"]
    yield ("acknowledgement",), seen.egress["acknowledgements_sent"]
    yield ("ping",), seen.egress["pings_answered"]


PULSAR_FRAMES: Final = {
    "entry": "entries_sent",
    "receipt": "receipts_sent",
    "refusal": "refusals_sent",
    "acknowledgement": "replies_sent",
    "ping": "pings_answered",
}
"""Kinds of frames, by what the encoder calls them."""


def _pulsar_frames(seen: Snapshot) -> Labelled:
    for kind, counter in PULSAR_FRAMES.items():
        yield (kind,), seen.pulsar_egress[counter]


def _commit_times(seen: Snapshot) -> Labelled:
    return _cumulated((), BOUNDS_S, seen.commit_counts)


def _step_times(seen: Snapshot) -> Labelled:
    for kind, counts in seen.step_counts.items():
        yield from _cumulated((kind,), STEP_BOUNDS_S, counts)


def _longest_steps(seen: Snapshot) -> Labelled:
    for kind in seen.step_longest_s:
        yield (kind, "minute"), seen.step_lately_s[kind]
        yield (kind, "start"), seen.step_longest_s[kind]


def _cumulated(
    labels: tuple[str, ...], bounds_s: Iterable[float], counts: Iterable[int]
) -> Labelled:
    total = 0
    for bound, count in zip((*map(str, bounds_s), "+Inf"), counts, strict=True):
        total += count
        yield (*labels, bound), total


PROTOCOL_VERSIONS: Final = {3: "3.1", 4: "3.1.1", 5: "5.0"}

METRICS: Final = (
    Metric("holdfast_build_info", "gauge", "Always 1; the label says which version runs.",
           lambda _: [((__version__,), 1)], ("version",)),
    Metric("holdfast_uptime_seconds", "gauge", "Seconds since the broker was assembled.",
           lambda seen: seen.uptime_s),
    Metric("holdfast_durability_info", "gauge",
           "Always 1; the label says what an acknowledged message has survived.",
           lambda seen: [((seen.durability,), 1)], ("durability",)),

    Metric("holdfast_connections", "gauge", "Connections open now, those without a session too.",
           lambda seen: seen.connections),
    Metric("holdfast_connections_accepted", "gauge",
           "Connections that were let in, by transport and version of MQTT or Pulsar's protocol.",
           _accepted, ("transport", "protocol_version")),
    Metric("holdfast_connections_opened", "counter", "Connections that a listener has taken.",
           _Count(Event.CONNECTIONS_OPENED)),
    Metric("holdfast_connects_accepted", "counter", "CONNECTs that were accepted.",
           _Count(Event.CONNECTIONS_ACCEPTED)),
    Metric("holdfast_connects_refused", "counter",
           "CONNECTs that were refused, by the reason that CONNACK gives.",
           _ByReason(Event.CONNECTIONS_REFUSED), ("reason",)),
    Metric("holdfast_connections_turned_away", "counter",
           "Connections closed before anything was read, by the limit that was reached.",
           _ByReason(Event.CONNECTIONS_TURNED_AWAY), ("limit",)),
    Metric("holdfast_connections_ended_by_broker", "counter",
           "Connections that the broker has ended, by the reason that DISCONNECT gives.",
           _ByReason(Event.CONNECTIONS_ENDED), ("reason",)),
    Metric("holdfast_connections_ended_before_connect", "counter",
           "Connections that ended, by whomever, before a CONNECT was accepted or refused.",
           _Count(Event.CONNECTIONS_ENDED_BEFORE_CONNECT)),
    Metric("holdfast_sessions_refused", "counter",
           "CONNECTs refused because as many sessions are kept as may be.",
           _Count(Event.SESSIONS_REFUSED)),
    Metric("holdfast_logins", "counter",
           "Logins by what became of them: remembered ones cost no hashing; those not looked at"
           " come from a banned address, for a delayed user, or are too many at once.",
           _ByReason(Event.LOGINS), ("outcome",)),
    Metric("holdfast_addresses_banned", "counter",
           "Times that an address was banned for its failed logins.",
           _Count(Event.ADDRESSES_BANNED)),
    Metric("holdfast_proxy_headers_taken", "counter",
           "Connections whose address a proxy told in a header of the PROXY protocol.",
           _Count(Event.PROXY_HEADERS_TAKEN)),
    Metric("holdfast_connections_no_longer_allowed", "counter",
           "Clients disconnected because their credential was removed, disabled or changed.",
           _Count(Event.CONNECTIONS_NO_LONGER_ALLOWED)),
    Metric("holdfast_subscriptions_no_longer_allowed", "counter",
           "Subscriptions ended because the rules no longer allow them.",
           _Count(Event.SUBSCRIPTIONS_NO_LONGER_ALLOWED)),
    Metric("holdfast_sessions_taken_over", "counter",
           "Connections ended because their session passed to another one.",
           _Count(Event.SESSIONS_TAKEN_OVER)),

    Metric("holdfast_pulsar_frames_sent", "counter",
           "Frames to Pulsar clients, by kind; answers to other commands are not counted.",
           _pulsar_frames, ("kind",)),
    Metric("holdfast_pulsar_messages_sent", "counter",
           "Messages to Pulsar consumers, those in batches among them.",
           lambda seen: seen.pulsar_egress["messages_sent"]),
    Metric("holdfast_pulsar_requests_refused", "counter",
           "Requests of Pulsar clients that were answered with an error, by the reason.",
           _ByReason(Event.PULSAR_REQUESTS_REFUSED), ("reason",)),
    Metric("holdfast_pulsar_connections_ended_by_broker", "counter",
           "Connections of Pulsar clients that the broker has ended, by the reason.",
           _ByReason(Event.PULSAR_CONNECTIONS_ENDED), ("reason",)),

    Metric("holdfast_sessions", "gauge",
           "Sessions that are connected, and persistent sessions at rest.", _sessions, ("state",)),
    Metric("holdfast_sessions_expired", "counter",
           "Sessions that were removed because their expiry had passed.",
           lambda seen: seen.sessions_expired),
    Metric("holdfast_applications_not_persistent", "counter",
           "Times that an APPLICATION client connected with a session that is not kept: it loses"
           " what is published while it is away.", _Count(Event.APPLICATIONS_NOT_PERSISTENT)),
    Metric("holdfast_applications_without_queue", "counter",
           "Times that an APPLICATION client connected whose identifier can name no queue: it is"
           " queued for as for a DEVICE client.", _Count(Event.APPLICATIONS_WITHOUT_QUEUE)),
    Metric("holdfast_subscriptions", "gauge", "Subscriptions of connected sessions.",
           lambda seen: seen.subscriptions),
    Metric("holdfast_shared_groups", "gauge", "Groups of shared subscriptions.",
           lambda seen: seen.groups),
    Metric("holdfast_shared_subscriptions", "gauge",
           "Shared subscriptions: each session counts once in each of its groups.",
           lambda seen: seen.shared_subscriptions),
    Metric("holdfast_shared_groups_by_strategy", "gauge",
           "Groups by how they share; strategies by user property count as one.",
           lambda seen: [((kind,), seen.groups_by_strategy.get(kind, 0)) for kind in KINDS],
           ("strategy",)),
    Metric("holdfast_shared_waiting_for_keys", "gauge",
           "Messages at hand of groups that share by key, which wait for their key's member or for"
           " their key to move, while others go past them.", lambda seen: seen.waiting_for_keys),
    Metric("holdfast_subscriptions_refused", "counter",
           "Topic filters that were refused, by the reason that SUBACK gives.",
           _ByReason(Event.SUBSCRIPTIONS_REFUSED), ("reason",)),

    Metric("holdfast_groups_without_environment", "counter",
           "Subscriptions to groups whose names tell no environment, while some are known: they"
           " can be shared by several, which then take one another's messages.",
           _Count(Event.GROUPS_WITHOUT_ENVIRONMENT)),

    Metric("holdfast_packets_received", "counter", "Packets from clients, by kind.",
           _received, ("kind",)),
    Metric("holdfast_packets_sent", "counter",
           "Packets to clients, by kind; answers to control packets are not counted.",
           _sent, ("kind",)),
    Metric("holdfast_publishes_received", "counter", "PUBLISH packets from clients, by their QoS.",
           lambda seen: [((str(qos),), count)
                         for qos, count in enumerate(seen.publishes_received_by_qos)], ("qos",)),
    Metric("holdfast_payload_received_bytes", "counter",
           "Payloads of the PUBLISH packets from clients.",
           lambda seen: seen.payload_bytes_received),
    Metric("holdfast_payload_sent_bytes", "counter",
           "Payloads of the PUBLISH packets to clients.",
           lambda seen: seen.egress["payload_bytes_sent"]),
    Metric("holdfast_received_bytes", "counter", "Bytes read from clients.",
           lambda seen: seen.received_bytes),
    Metric("holdfast_sent_bytes", "counter", "Bytes written to clients.",
           lambda seen: seen.sent_bytes),
    Metric("holdfast_publishes_refused", "counter",
           "Times that messages of a client were refused, once a client and turn, by reason.",
           _ByReason(Event.PUBLISHES_REFUSED), ("reason",)),
    Metric("holdfast_messages_refused", "counter",
           "Messages of any QoS that the log had no room for, or could not take as fast.",
           lambda seen: seen.deliveries["refused"]),
    Metric("holdfast_publishes_denied", "counter",
           "Messages to topics that their publisher may not publish to, `$SYS` among them.",
           lambda seen: seen.routes["publishes_denied"]),
    Metric("holdfast_topics_withheld", "counter",
           "Topics kept from a queue that subscribes to them but may not receive them; each counts"
           " when it is looked up.", lambda seen: seen.routes["topics_withheld"]),
    Metric("holdfast_own_publishes", "counter",
           "Messages that the broker has published: Wills, $SYS, administrators'.",
           lambda seen: seen.published_by_broker),
    Metric("holdfast_own_publishes_refused", "counter",
           "Messages of the broker's own that the log refused; a Will among them is tried again.",
           _Count(Event.OWN_PUBLISHES_REFUSED)),
    Metric("holdfast_wills_published", "counter", "Wills that came due and were published.",
           _Count(Event.WILLS_PUBLISHED)),
    Metric("holdfast_wills_lost", "counter",
           "Wills that a full disk refused and memory could not keep; the next start finds them.",
           _Count(Event.WILLS_LOST)),

    Metric("holdfast_deliveries", "counter", "Messages of QoS 1 and 2 given to subscribers.",
           lambda seen: seen.deliveries["deliveries"]),
    Metric("holdfast_redeliveries", "counter",
           "Messages of QoS 1 and 2 given again, after a subscriber had gone.",
           lambda seen: seen.deliveries["redeliveries"]),
    Metric("holdfast_deliveries_completed", "counter",
           "Messages of QoS 1 and 2 that subscribers have acknowledged.",
           lambda seen: seen.deliveries["completed"]),
    Metric("holdfast_publishes_answered", "counter",
           "Messages of QoS 1 and 2 that publishers were answered, durable or refused.",
           lambda seen: seen.deliveries["answered"]),
    Metric("holdfast_messages_lost", "counter",
           "Messages that will not be delivered to someone, by reason; the ledger has the ranges.",
           _lost, ("reason",)),
    Metric("holdfast_loss_ledger_rows", "gauge", "Rows of the loss ledger.",
           lambda seen: seen.loss_rows),
    Metric("holdfast_redrives", "gauge", "Losses that are being delivered again.",
           lambda seen: seen.redrives),
    Metric("holdfast_loss_ledger_rows_removed", "counter",
           "Rows that left the ledger because it was full.",
           lambda seen: seen.loss_rows_removed),

    Metric("holdfast_staged_bytes", "gauge",
           "Bytes of what writers have staged and the log does not have whole.",
           lambda seen: seen.staged_bytes),
    Metric("holdfast_staged_parts", "gauge", "Parts that these bytes lie in.",
           lambda seen: seen.staged_parts),
    Metric("holdfast_producers", "gauge", "Producers whose last number is remembered.",
           lambda seen: seen.producers),
    Metric("holdfast_batches_given_up", "counter",
           "Batches that are not in the log whole, since staged rows could not be read any more.",
           lambda seen: seen.batches_given_up),

    Metric("holdfast_queues_behind", "gauge",
           "Queues of connected sessions, groups and durable subscriptions with messages that are"
           " not acknowledged.",
           lambda seen: seen.queues_behind),
    Metric("holdfast_backlog_messages", "gauge",
           "Messages that these queues have waiting or in flight; as of the last round over all of"
           " them.", lambda seen: seen.backlog_messages),
    Metric("holdfast_in_flight_messages", "gauge",
           "Messages sent to connected clients and not acknowledged, as of the last round.",
           lambda seen: seen.in_flight_messages),
    Metric("holdfast_backlog_at_rest_messages", "gauge",
           "Messages that wait for sessions at rest, as of the last round over all of them.",
           lambda seen: seen.waiting_at_rest_messages),
    Metric("holdfast_first_loss_seconds", "gauge",
           "When the first message that waits for a session at rest, a cursor or a bridge will be"
           " lost, at the rate of the last minute; absent while none is in sight.", _first_loss),
    Metric("holdfast_cursor_lag_messages", "gauge",
           "Messages that a cursor has not released, as of the last round over all of them.",
           _cursor_lags, ("cursor",)),
    Metric("holdfast_cursor_oldest_seconds", "gauge",
           "How old the oldest message is that a cursor has not released; 0: it has released all.",
           _cursor_ages, ("cursor",)),
    Metric("holdfast_cursor_first_loss_seconds", "gauge",
           "When a cursor will be beyond its quota, at the rate of the last minute; absent while"
           " that is not in sight.", _cursor_losses, ("cursor",)),
    Metric("holdfast_cursors_held", "gauge", "Cursors that a reader holds.",
           lambda seen: sum(bool(row.seen.holder) for row in seen.cursors)),
    Metric("holdfast_bridge_state", "gauge",
           "1 for the state that a bridge is in, 0 for the others.",
           _bridge_states, ("bridge", "state")),
    Metric("holdfast_bridge_waiting_messages", "gauge",
           "Messages of QoS 1 and 2 that a bridge's remote has not acknowledged, at QoS 2 by"
           " PUBCOMP (Tier 1), as of the last round over all bridges, as all of these.",
           _of_bridges(lambda row: row.ahead.messages), ("bridge",)),
    Metric("holdfast_bridge_oldest_seconds", "gauge",
           "How old the oldest of them is; 0: there is none.", _bridge_ages, ("bridge",)),
    Metric("holdfast_bridge_drained_seconds", "gauge",
           "When nothing waits any more, at the rate of the last minute; absent while that is not"
           " in sight.", _of_bridges(lambda row: row.drained_in_s), ("bridge",)),
    Metric("holdfast_bridge_first_loss_seconds", "gauge",
           "When a bridge will be beyond its quota, at the rate of the last minute; absent while"
           " that is not in sight.",
           _of_bridges(lambda row: row.ahead.first_loss_in_s), ("bridge",)),
    Metric("holdfast_bridge_buffered_messages", "gauge",
           "Messages that a bridge has in memory and has not sent (Tier 2): of QoS 0, and the"
           " positions of others.",
           _of_bridges(lambda row: row.seen.shelf[0] + row.polled), ("bridge",)),
    Metric("holdfast_bridge_buffered_bytes", "gauge",
           "Memory that those of QoS 0 among them take.",
           _of_bridges(lambda row: row.seen.shelf[1]), ("bridge",)),
    Metric("holdfast_bridge_in_flight_messages", "gauge",
           "Messages that a bridge has sent and that its remote has not acknowledged.",
           _of_bridges(lambda row: row.in_flight), ("bridge",)),
    Metric("holdfast_bridge_messages", "counter",
           "Messages that a bridge has carried since it was started: sent to the remote (out) or"
           " taken over from it (in).",
           lambda seen: [
               ((row.seen.bridge.name, direction), count)
               for row in seen.bridges
               for direction, count in (("out", row.seen.sent), ("in", row.seen.received))
           ], ("bridge", "direction")),
    Metric("holdfast_bridge_repeated_messages", "counter",
           "Those of them that were sent again, after a connection was lost.",
           _of_bridges(lambda row: row.seen.repeated), ("bridge",)),
    Metric("holdfast_bridge_acknowledged_messages", "counter",
           "Messages of QoS 1 and 2 that a bridge's remote has acknowledged.",
           _of_bridges(lambda row: row.seen.acknowledged), ("bridge",)),
    Metric("holdfast_bridge_dropped_messages", "counter",
           "Messages that a bridge has not carried, by direction and reason.",
           _bridge_losses, ("bridge", "direction", "reason")),
    Metric("holdfast_bridge_attempts", "counter", "Connections that a bridge has tried to open.",
           _of_bridges(lambda row: row.seen.counts.attempts), ("bridge",)),
    Metric("holdfast_bridge_connections", "counter",
           "Connections that the remote has accepted; all but the first are reconnects.",
           _of_bridges(lambda row: row.seen.counts.connections), ("bridge",)),
    Metric("holdfast_bridge_failures", "counter",
           "Attempts that have failed, and connections that were lost, by reason.",
           lambda seen: [
               ((row.seen.bridge.name, failure.value), row.seen.counts.failures[failure])
               for row in seen.bridges
               for failure in Failure
           ], ("bridge", "reason")),

    *ENVIRONMENT_METRICS,
    *SUBSCRIPTION_METRICS,

    Metric("holdfast_backlog_age_seconds", "gauge",
           "How old the backlogs are that are told: of attached queues, and of sessions at rest;"
           " absent before the first round over all of them.", _ages, ("queues",)),
    Metric("holdfast_queues_stuck", "gauge",
           "Queues with a backlog whose client takes bytes and was sent nothing for 30 s.",
           lambda seen: [((reason,), seen.stuck.get(reason, 0)) for reason in Stuck],
           ("reason",)),

    Metric("holdfast_log_bytes", "gauge", "The size of the log.", lambda seen: seen.log["bytes"]),
    Metric("holdfast_log_segments", "gauge", "Files of the log.",
           lambda seen: seen.log["segments"]),
    Metric("holdfast_log_topics", "gauge", "Topics that the log knows.",
           lambda seen: seen.log["topics"]),
    Metric("holdfast_log_records_appended", "counter", "Records appended to the log.",
           lambda seen: seen.log["records_appended"]),
    Metric("holdfast_log_begin_offset", "gauge", "The first offset of the log.",
           lambda seen: seen.begin_offset),
    Metric("holdfast_log_end_offset", "gauge", "The offset that the next message gets.",
           lambda seen: seen.end_offset),
    Metric("holdfast_log_durable_offset", "gauge", "Everything below it is durable.",
           lambda seen: seen.durable_offset),
    Metric("holdfast_log_uncommitted_bytes", "gauge", "Bytes that wait for the disk.",
           lambda seen: seen.uncommitted_bytes),
    Metric("holdfast_log_cache_hits", "counter", "Blocks of the log found in memory.",
           lambda seen: seen.log["cache_hits"]),
    Metric("holdfast_log_cache_misses", "counter", "Blocks of the log read from the disk.",
           lambda seen: seen.log["cache_misses"]),
    Metric("holdfast_log_remembered_bytes", "gauge",
           "Memory of what is remembered of the log to save work. Each part has its maximum.",
           lambda seen: [((what,), size) for what, size in seen.remembered.items()], ("what",)),
    Metric("holdfast_log_segments_removed", "counter", "Segments that retention has removed.",
           lambda seen: seen.segments_removed),
    Metric("holdfast_log_records_carried", "counter",
           "Records that retention has copied because they are still needed.",
           lambda seen: seen.records_carried),
    Metric("holdfast_commits", "counter", "Groups written to the disk and synced.",
           lambda seen: seen.log["commits"]),
    Metric("holdfast_committed_bytes", "counter", "Bytes written to the disk and synced.",
           lambda seen: seen.log["committed_bytes"]),
    Metric("holdfast_commit_seconds", "histogram",
           "From the moment somebody waits for the disk to the end of the commit on its way.",
           _commit_times, ("le",), lambda seen: [((), seen.commit_sum_s)]),
    Metric("holdfast_retained_messages", "gauge", "Retained messages.",
           lambda seen: seen.retained),
    Metric("holdfast_disk_free_bytes", "gauge", "Free space on the disk of the data directory.",
           lambda seen: seen.disk_free_bytes),

    Metric("holdfast_turns", "counter", "Turns of the loop: batches of whatever had come.",
           lambda seen: seen.turns),
    Metric("holdfast_step_seconds", "histogram",
           "How long the loop did one thing while everybody else waited: a turn, a piece of a chore"
           " within a turn, a sweep, or a step of an answer to HTTP.",
           _step_times, ("step", "le"),
           lambda seen: [((kind,), sum_s) for kind, sum_s in seen.step_sums_s.items()]),
    Metric("holdfast_step_longest_seconds", "gauge",
           "The longest step of the last minute, and since the start.",
           _longest_steps, ("step", "since")),
    Metric("holdfast_steps_over_budget", "counter",
           f"Steps that took longer than {STEP_BUDGET_MS} ms, by what took most of it.",
           lambda seen: seen.steps_over_budget.items(), ("step", "stage")),
    Metric("holdfast_events", "counter", "Whatever else is counted, by its name.",
           _others, ("event",)),
    Metric("process_resident_memory_bytes", "gauge", "Memory that the broker holds.",
           lambda seen: seen.resident_bytes),
    Metric("process_cpu_seconds", "counter", "Processor time that the broker has used.",
           lambda seen: seen.cpu_s),
    Metric("process_max_fds", "gauge", "Files and sockets that the broker may have open.",
           lambda seen: seen.open_files_maximum),
)  # fmt: skip
"""The registry, in the order in which `/metrics` has it."""
SHOWN_BY_ITSELF: Final = frozenset(
    metric.read.event for metric in METRICS if isinstance(metric.read, _Count | _ByReason)
)
"""Events that have a metric of their own."""


def format_metrics(seen: Snapshot, accept: str = "") -> tuple[bytes, str]:
    """The text and its content type, in the form that a scraper's `Accept` asks for."""
    encoder, content_type = exposition.choose_encoder(accept)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(seen))
    return encoder(registry), content_type


def values(seen: Snapshot) -> dict[str, float]:
    """Every number by its name, labels in braces; for programs that want no text to parse."""
    found: dict[str, float] = {}
    for metric in METRICS:
        for labels, value in _labelled(metric, seen):
            found[metric.name + _shown(metric.labels, labels)] = value
        for labels, value in () if metric.sums is None else metric.sums(seen):
            found[f"{metric.name}_sum{_shown(metric.labels[:-1], labels)}"] = value
    return found


def _shown(names: Iterable[str], labels: Iterable[str]) -> str:
    told = ",".join(f'{name}="{word}"' for name, word in zip(names, labels, strict=True))
    return f"{{{told}}}" if told else ""


class _Collector(Collector):
    def __init__(self, seen: Snapshot) -> None:
        self._seen = seen

    def collect(self) -> Iterable[Family]:
        """Every metric with its numbers."""
        return [_family(metric, self._seen) for metric in METRICS]


def _labelled(metric: Metric, seen: Snapshot) -> Labelled:
    read = metric.read(seen)
    return [((), read)] if isinstance(read, int | float) else read


def _family(metric: Metric, seen: Snapshot) -> Family:
    if metric.sums is not None:
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels[:-1])
        buckets: dict[tuple[str, ...], list[tuple[str, float]]] = {}
        for labels, value in _labelled(metric, seen):
            buckets.setdefault(labels[:-1], []).append((labels[-1], value))
        for labels, sum_value in metric.sums(seen):
            histogram.add_metric(labels, buckets=buckets[labels], sum_value=sum_value)
        return histogram
    of_kind: Mapping[str, type[CounterMetricFamily | GaugeMetricFamily]] = {
        "counter": CounterMetricFamily,
        "gauge": GaugeMetricFamily,
    }
    family = of_kind[metric.kind](metric.name, metric.help, labels=metric.labels)
    for labels, value in _labelled(metric, seen):
        family.add_metric(labels, value)
    return family
