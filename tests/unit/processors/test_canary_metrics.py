"""What is told of the canary's rounds as metrics."""

from prometheus_client.parser import text_string_to_metric_families

from holdfast.client.canary import Outcome
from holdfast.processors.canary import CanaryMetrics


def told(metrics: CanaryMetrics) -> dict[str, float]:
    families = text_string_to_metric_families(metrics.text().decode())
    samples = [sample for family in families for sample in family.samples]
    return {sample.name.removeprefix("holdfast_canary_"): sample.value for sample in samples}


def test_nothing_is_told_of_a_last_round_before_there_was_one() -> None:
    metrics = CanaryMetrics("prod")
    before = told(metrics)
    assert (before["rounds_total"], before["lost_messages_total"]) == (0, 0)
    of_the_last = {"catch_up_seconds", "last_round_timestamp_seconds", "red"}
    assert not of_the_last & before.keys()
    metrics.note(Outcome(reads=50, catch_up_s=0.25), 1_764_000_000.0)
    after = told(metrics)
    assert [after[name] for name in sorted(of_the_last)] == [0.25, 1_764_000_000.0, 0]
