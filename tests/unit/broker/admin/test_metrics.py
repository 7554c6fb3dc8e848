"""Metrics have Prometheus' form, and every count with a reason shows under it."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.frames import CloseCode

from holdfast.broker.access.login_outcome import LoginOutcome
from holdfast.broker.counts import Counted, Event
from holdfast.broker.observe.metrics import METRICS, SHOWN_BY_ITSELF, format_metrics, values
from holdfast.broker.sockets.connection import DoorLimit
from holdfast.broker.state.numbers import NS
from holdfast.broker.steps import Steps
from holdfast.broker.store.commit_times import CommitTimes
from holdfast.core.loss_reason import LossReason
from holdfast.protocols.mqtt.reason_code import ReasonCode
from tests.builders.counted import snapshot
from tests.tidy.repository import under


def test_names_follow_the_conventions() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"(holdfast|process)_[a-z_]+", metric.name)
        assert not metric.name.endswith("_total"), "counters get it in the text"
        assert metric.help.endswith(".")


def test_the_text_has_type_help_and_every_metric() -> None:
    text, content_type = format_metrics(snapshot())
    assert content_type.startswith("text/plain")
    assert text.decode().count("# HELP ") == text.decode().count("# TYPE ")
    found = {family.name: family for family in text_string_to_metric_families(text.decode())}
    assert set(found) == {metric.name for metric in METRICS}
    for metric in METRICS:
        assert found[metric.name].type == metric.kind
        assert found[metric.name].documentation == metric.help


@pytest.mark.parametrize(
    ("counted", "shown"),
    [
        (Counted(Event.CONNECTIONS_REFUSED, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID),
         'connects_refused{reason="client_identifier_not_valid"}'),
        (Counted(Event.CONNECTIONS_TURNED_AWAY, DoorLimit.CONNECTIONS),
         'connections_turned_away{limit="connections_maximum"}'),
        (Counted(Event.CONNECTIONS_ENDED, 0x8D),
         'connections_ended_by_broker{reason="keep_alive_timeout"}'),
        (Counted(Event.SUBSCRIPTIONS_REFUSED, 0x8F),
         'subscriptions_refused{reason="topic_filter_invalid"}'),
        (Counted(Event.PUBLISHES_REFUSED, 0x97), 'publishes_refused{reason="quota_exceeded"}'),
        (Counted(Event.CONNECTIONS_ENDED, 0xFF), 'connections_ended_by_broker{reason="0xff"}'),
        (Counted(Event.CONNECTIONS_ENDED_BEFORE_CONNECT), "connections_ended_before_connect"),
        (Counted(Event.LOGINS, LoginOutcome.NOT_LOOKED_AT_BANNED),
         'logins{outcome="not_looked_at_banned"}'),
        (Counted(Event.TLS_PEERS_NOT_READING), 'events{event="tls_peers_not_reading"}'),
        (Counted(Event.WEBSOCKET_CLOSED, CloseCode.UNSUPPORTED_DATA),
         'events{event="websocket_closed_1003"}'),
        (Counted(Event.SESSIONS_TAKEN_OVER), "sessions_taken_over"),
    ],
)  # fmt: skip
def test_every_count_shows_under_its_reason(counted: Counted, shown: str) -> None:
    found = values(snapshot(counts={counted: 7}))
    assert {name: value for name, value in found.items() if value == 7} == {f"holdfast_{shown}": 7}


def test_every_event_is_counted_somewhere_and_only_those_of_layers_have_no_metric() -> None:
    sources = "\n".join(path.read_text() for path in under("src", ".py"))
    assert not [event for event in Event if f"Event.{event.name}" not in sources]
    without = {event for event in Event if event not in SHOWN_BY_ITSELF}
    assert all(event.startswith(("tls_", "websocket_", "proxy_", "link_")) for event in without)


def test_losses_are_counted_by_reason() -> None:
    found = values(
        snapshot(losses={LossReason.OVERFLOW: 3, LossReason.EXPIRED: 4}, loss_rows_removed=5)
    )
    assert found['holdfast_messages_lost{reason="overflow"}'] == 3
    assert found['holdfast_messages_lost{reason="expired"}'] == 4
    assert found["holdfast_loss_ledger_rows_removed"] == 5
    assert 'holdfast_messages_lost{reason="ledger_rows_removed"}' not in found


def test_what_the_log_remembers_is_told_by_what_it_is() -> None:
    found = values(snapshot(remembered={"filters": 5, "blocks": 6}))
    assert found['holdfast_log_remembered_bytes{what="filters"}'] == 5
    assert found['holdfast_log_remembered_bytes{what="blocks"}'] == 6


def test_a_commit_is_timed_from_when_somebody_waits_for_it() -> None:
    times = CommitTimes()
    times.ended(500_000)
    times.asked(1_000_000)
    times.asked(1_000_500)
    times.ended(1_001_500)
    times.asked(2_000_000)
    times.ended(99_000_000)
    assert times.sum_s == pytest.approx(0.0015 + 97)
    text, _ = format_metrics(snapshot(commit_counts=tuple(times.counts), commit_sum_s=times.sum_s))
    lines = text.decode().splitlines()
    assert 'holdfast_commit_seconds_bucket{le="0.001"} 0.0' in lines
    assert 'holdfast_commit_seconds_bucket{le="0.002"} 1.0' in lines
    assert 'holdfast_commit_seconds_bucket{le="30.0"} 1.0' in lines
    assert 'holdfast_commit_seconds_bucket{le="+Inf"} 2.0' in lines
    assert "holdfast_commit_seconds_count 2.0" in lines


def test_steps_are_told_by_their_kind_and_those_over_budget_by_their_stage() -> None:
    steps = Steps(lambda: 0, lambda: 0)
    steps.ended("turn", "scan", 400_000)
    steps.ended("turn", "scan", 30_000_000)
    steps.ended("sweep", "watch", 2_000_000)
    lengths = steps.lengths
    seen = snapshot(
        step_counts={kind: tuple(lengths[kind].counts) for kind in lengths},
        step_sums_s={kind: lengths[kind].sum_ns / NS for kind in lengths},
        step_longest_s={kind: lengths[kind].longest_ns / NS for kind in lengths},
        step_lately_s={kind: lengths[kind].lately_ns / NS for kind in lengths},
        steps_over_budget=dict(steps.over_budget),
    )
    text, _ = format_metrics(seen)
    lines = text.decode().splitlines()
    assert 'holdfast_step_seconds_bucket{le="0.001",step="turn"} 1.0' in lines
    assert 'holdfast_step_seconds_bucket{le="0.02",step="turn"} 1.0' in lines
    assert 'holdfast_step_seconds_bucket{le="0.05",step="turn"} 2.0' in lines
    assert 'holdfast_step_seconds_count{step="sweep"} 1.0' in lines
    assert 'holdfast_steps_over_budget_total{stage="scan",step="turn"} 1.0' in lines
    told = values(seen)
    assert told['holdfast_step_seconds_sum{step="turn"}'] == pytest.approx(0.0304)
    assert told['holdfast_step_longest_seconds{step="turn",since="start"}'] == 0.03
