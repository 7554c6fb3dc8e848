"""What the benchmark's table shows follows from the measurements, and from nothing else."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from bench.macro import table
from bench.macro.measurement import Measurement
from bench.macro.results import Result, Spread
from bench.macro.rows import ROWS, Target

FIGURES = {
    "broker_processor_us": 1.0,
    "resident_mib_peak": 10.0,
    "generator_share": 0.3,
    "fdatasync_us": 100.0,
    "lost": 0.0,
    "duplicated": 0.0,
    "stalls": 0.0,
}


def measurements(row: str, broker: str, rates: Iterable[float]) -> list[Measurement]:
    return [
        Measurement(row, broker, repetition, FIGURES | {"messages_per_second": rate})
        for repetition, rate in enumerate(rates, 1)
    ]


def result(*groups: list[Measurement]) -> Result:
    return Result(
        date="2026-01-02T03:04",
        commit="abc+",
        machine={},
        brokers={"holdfast": "holdfast 1", "mosquitto": "mosquitto 2"},
        options={},
        measurements=[measurement for group in groups for measurement in group],
    )


def test_a_ratio_is_taken_within_one_repetition() -> None:
    # Over all, both have the same median; in each repetition Holdfast is twice as fast.
    measured = result(
        measurements("fan-in", "holdfast", [200, 400, 800]),
        measurements("fan-in", "mosquitto", [100, 200, 400]),
    )
    assert measured.ratio("fan-in", "messages_per_second") == Spread(2, 2, 2)


def test_a_repetition_that_failed_has_no_ratio() -> None:
    measured = result(
        measurements("fan-in", "holdfast", [200, 300]),
        [Measurement("fan-in", "mosquitto", 1, {}, "it ended")],
        measurements("fan-in", "mosquitto", [50, 100])[1:],
    )
    assert measured.ratio("fan-in", "messages_per_second") == Spread(3, 3, 3)
    assert "fan-in, mosquitto, repetition 1: it ended" in table.remarks(measured)


@pytest.mark.parametrize(("with_absent", "met"), [(90, "yes (0.90)"), (89, "no (0.89)")])
def test_a_step_may_compare_with_another_row(with_absent: float, met: str) -> None:
    measured = result(
        measurements("absent-0", "holdfast", [100]),
        measurements("absent-1000", "holdfast", [with_absent]),
        measurements("absent-1000", "mosquitto", [1]),
    )
    (line,) = (cells for cells in table.cells(measured) if "beside 1000" in cells[0])
    assert line[table.headings(measured).index("met")] == met


def test_a_step_is_met_from_its_bound_on() -> None:
    assert [Target(at_least=3).is_met(ratio) for ratio in (2.99, 3, 3.01)] == [False, True, True]
    assert [Target(at_most=3).is_met(ratio) for ratio in (2.99, 3, 3.01)] == [True, True, False]


@pytest.mark.parametrize(("rate", "met"), [(15_000, "yes (15.00)"), (14_900, "no (14.90)")])
def test_a_step_may_be_about_the_figure_itself(rate: float, met: str) -> None:
    figures = FIGURES | {"connections_per_second": rate}
    measured = result([Measurement("connect", "holdfast", 1, figures)])
    (line,) = (cells for cells in table.cells(measured) if cells[0] == "new connections")
    assert line[table.headings(measured).index("met")] == met


@pytest.mark.parametrize(("p50_us", "met"), [(250.0, "yes (1.00)"), (275.0, "no (1.10)")])
def test_a_latency_may_be_a_forwarders_a_sync_and_a_little_more(p50_us: float, met: str) -> None:
    # 60 of the forwarder, 1.3 times 100 of the sync, and 60.
    measured = result(
        [Measurement("latency-1000", "holdfast", 1, FIGURES | {"latency_p50_us": p50_us})],
        [Measurement("latency-1000", "forwarder", 1, FIGURES | {"latency_p50_us": 60.0})],
    )
    (line,) = (cells for cells in table.cells(measured) if cells[0].endswith(", p50"))
    assert line[table.headings(measured).index("met")] == met


@pytest.mark.parametrize(("p50_us", "met"), [(240.0, "yes (1.00)"), (264.0, "no (1.10)")])
def test_a_receipt_is_compared_with_a_forwarders_answer_to_mqtt(p50_us: float, met: str) -> None:
    # 40 of the forwarder in the row of MQTT, and twice 100 of the sync.
    measured = result(
        [Measurement("pulsar-send", "holdfast", 1, FIGURES | {"latency_p50_us": p50_us})],
        [Measurement("mqtt-send", "forwarder", 1, FIGURES | {"latency_p50_us": 40.0})],
    )
    (line,) = (cells for cells in table.cells(measured) if cells[0].endswith("SEND_RECEIPT, p50"))
    assert line[table.headings(measured).index("met")] == met


def test_a_step_may_compare_with_the_fastest_broker() -> None:
    measured = result(
        measurements("fan-in", "holdfast", [130_000]),
        measurements("fan-in", "mosquitto", [10_000]),
        measurements("fan-in", "flashmq", [100_000]),
    )
    (line,) = table.cells(measured)
    assert line[table.headings(measured).index("met")] == "yes (13.00); yes (1.30)"


def test_the_other_peers_have_a_table_of_their_own() -> None:
    measured = result(
        measurements("fan-in", "holdfast", [200_000]),
        measurements("fan-in", "mosquitto", [100_000]),
        measurements("fan-in", "nats", [400_000]),
    )
    measured.brokers["nats"] = "nats 3"
    assert "nats" not in table.headings(measured)
    (line,) = table.other_cells(measured)
    assert line[2:] == ["200", "400", "0.50 (0.50..0.50)"]


def test_a_wide_range_is_marked() -> None:
    quiet = result(measurements("fan-in", "holdfast", [95_000, 100_000, 105_000]))
    noisy = result(measurements("fan-in", "holdfast", [80_000, 100_000, 105_000]))
    assert [next(table.cells(measured))[2] for measured in (quiet, noisy)] == ["100", "100~"]


def test_what_was_lost_is_said() -> None:
    (measurement,) = measurements("fan-in", "holdfast", [100])
    lossy = replace(measurement, figures=measurement.figures | {"lost": 7.0})
    assert "fan-in, holdfast: lost 7" in table.remarks(result([lossy]))


def test_a_result_reads_back_as_it_was_written(tmp_path: Path) -> None:
    measured = result(measurements("fan-in", "holdfast", [100]))
    measured.write(tmp_path / measured.file_name)
    assert Result.read(tmp_path / "2026-01-02T0304-abc.json") == measured


def test_each_row_has_its_own_name_and_each_step_a_row() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    others = {target.of_row for row in ROWS for line in row.lines for target in line.targets}
    assert others - {None} <= set(names)


def test_a_broker_that_only_the_rows_measured_again_have_is_shown() -> None:
    whole = result(measurements("fan-in", "holdfast", [100]))
    row = "official-java-singly"
    groups = (
        measurements(row, broker, [rate]) for broker, rate in (("holdfast", 8), ("pulsar", 2))
    )
    again = replace(result(*groups), brokers={"holdfast": "holdfast 1", "pulsar": "pulsar 4"})
    shown = whole.with_rows_of(again)
    assert "pulsar" in table.other_headings(shown)
    assert shown.ratio(row, "messages_per_second", "pulsar") == Spread(4, 4, 4)
    assert shown.options["again"] == {row: "abc+"}
