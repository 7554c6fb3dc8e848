"""Counters become Prometheus text."""

from holdfast.broker.admin.metrics import format_metrics


def test_names_are_built_from_the_path_and_are_valid() -> None:
    statistics = {"log": {"bytes": 12, "full": False}, "packets.in": 3, "state": "ready"}
    assert format_metrics(statistics) == (
        "holdfast_log_bytes 12\nholdfast_log_full 0\nholdfast_packets_in 3\n"
    )
