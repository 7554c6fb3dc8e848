"""What is said of those beside a long chore follows from samples, and from nothing else."""

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from bench.beside import prober, result
from bench.beside.__main__ import LINES
from bench.beside.figures import Bound, Moment, Spread, quantile
from bench.beside.result import HEADINGS, Played, Result
from bench.beside.served import maker
from bench.beside.stage import copy_log
from bench.beside.wire import (
    PUBACK,
    PUBACK_BYTES,
    PUBLISH,
    encode_connect,
    encode_publish,
    encode_subscribe,
    packets,
    suback_bytes,
)
from holdfast.kernel import encode_packet

MS = 1_000_000
NOTHING = Spread(0, 0.0, 0.0, 0.0, 0.0)


def moment(p999: float, maximum: float) -> Moment:
    puback = Spread(1_000, 1.0, 2.0, p999, maximum)
    return Moment("somebody comes back", 5.0, puback, NOTHING, 0.1, 3.0, {"until CONNACK": 40.0})


def played(*moments: Moment) -> Played:
    return Played(
        line="b",
        title="many topics",
        scale=1,
        broker="holdfast",
        disk_alone_ms=7.0,
        moments=list(moments),
        bounds=[Bound("until CONNACK", at_most=50)],
        ended=[],
    )


@pytest.mark.parametrize(
    ("share", "value"), [(0.0, 1), (0.5, 50), (0.99, 99), (0.999, 100), (1.0, 100)]
)
def test_a_quantile_is_the_least_that_the_share_does_not_pass(share: float, value: int) -> None:
    assert quantile(range(1, 101), share) == value


def test_nothing_has_no_quantile() -> None:
    assert quantile([], 0.5) == 0.0


def test_a_moment_is_made_of_what_began_in_it() -> None:
    samples = [(10, 1 * MS), (20, 2 * MS), (30, 9 * MS), (40, 50 * MS)]
    assert Spread.of(samples, 20, 40) == Spread(2, 2.0, 9.0, 9.0, 9.0)


@pytest.mark.parametrize(
    ("p999", "maximum", "met"),
    [(20.0, 57.0, True), (20.1, 57.0, False), (20.0, 57.1, False)],
)
def test_the_disk_alone_is_added_to_the_longest_and_to_nothing_else(
    p999: float, maximum: float, *, met: bool
) -> None:
    assert moment(p999, maximum).is_met(disk_alone_ms=7.0) is met


def test_what_the_machine_stood_still_is_shown_and_changes_no_step(tmp_path: Path) -> None:
    stood = replace(moment(21.0, 60.0), standstill=Spread(5_000, 0.1, 9.0, 12.0, 14.0))
    file = tmp_path / "result.json"
    found = Result("2026-01-01T00:00", "c", {}, 0.0, {}, [played(stood, moment(1.0, 2.0))])
    found.write(file)
    read = Result.read(file)
    assert read == found
    _, first, second = read.played[0].rows()
    column = HEADINGS.index("machine stood still, p999")
    assert (first[column : column + 2], second[column : column + 2]) == (["12.0", "14.0"], ["", ""])
    assert first[column + 2].endswith("no")


def test_of_a_short_moment_only_the_longest_is_judged() -> None:
    short = replace(moment(0.0, 0.0), puback=Spread(999, 1.0, 2.0, 40.0, 57.0))
    assert short.is_met(disk_alone_ms=7.0)
    assert not short.is_met(disk_alone_ms=6.9)
    assert not replace(short, puback=replace(short.puback, count=1_000)).is_met(disk_alone_ms=7.0)


def test_a_bound_holds_up_to_itself() -> None:
    assert [Bound("x", at_most=50).is_met(value) for value in (49.0, 50.0, 50.1)] == [1, 1, 0]
    assert [Bound("x", at_least=0.9).is_met(value) for value in (0.89, 0.9, 1.0)] == [0, 1, 1]


def test_the_table_says_whether_each_step_is_reached() -> None:
    head, good, bad = played(moment(19.0, 50.0), moment(19.0, 60.0)).rows()
    assert head[:2] == ["b", "many topics"]
    step = HEADINGS.index("step")
    assert (good[step], bad[step]) == ("at most 20, 57: yes", "at most 20, 57: no")
    assert good[-1] == "until CONNACK: 40.0 (at most 50: yes)"


def test_a_line_that_failed_says_why() -> None:
    (row,) = replace(played(), error="GoneError: it closed").rows()
    assert row[-1] == "failed: GoneError: it closed"


def test_a_line_without_a_prober_shows_its_figures_only() -> None:
    _, row = replace(played(moment(99.0, 99.0)), is_probed=False).rows()
    assert row[-1] == "until CONNACK: 40.0 (at most 50: yes)"
    assert not any(row[2:-1])


def test_a_result_reads_back_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result, "DIRECTORY", tmp_path)
    assert result.newest() is None
    measured = Result("2026-01-02T03:04", "abc+", {}, 0.5, {}, [played(moment(1.0, 2.0))])
    measured.write(tmp_path / measured.file_name)
    assert result.newest() == measured


def test_each_line_has_its_own_name_and_one_log_one_way_to_make_it() -> None:
    names = [line.name for line in LINES]
    assert len(set(names)) == len(names)
    assert all(bool(line.log) == bool(line.fill) for line in LINES)


def test_the_packets_are_those_of_the_kernel() -> None:
    fields = {
        "protocol_version": 4,
        "client_identifier": "device-7",
        "clean_start": False,
        "keep_alive_s": 0,
        "properties": {},
    }
    assert encode_connect("device-7") == encode_packet("connect", fields, protocol_version=4)
    asked = [{"topic_filter": f"a/+/{n}", "qos": 1} for n in range(100)]
    subscribe = {"packet_identifier": 1, "subscriptions": asked, "properties": {}}
    filters = [f"a/+/{n}" for n in range(100)]
    assert encode_subscribe(filters) == encode_packet("subscribe", subscribe, protocol_version=4)
    answer = {"packet_identifier": 1, "reason_codes": [1] * 200, "properties": {}}
    assert suback_bytes(200) == len(encode_packet("suback", answer, protocol_version=4))


def test_packets_are_taken_off_as_they_become_whole() -> None:
    whole = encode_publish("a/b", 7, bytes(200)) + bytes([PUBACK << 4, 2, 0, 7])
    data, kinds = bytearray(), []
    for byte in whole:
        data.append(byte)
        kinds += [kind for kind, _ in packets(data)]
    assert kinds == [PUBLISH, PUBACK]
    assert not data


def test_a_copy_shares_the_sealed_segments_and_nothing_that_is_written_to(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "log").mkdir(parents=True)
    for name in ("segment-0000000001.log", "segment-0000000002.log", "checkpoint-0000000001"):
        (source / "log" / name).write_text(name)
    (source / "view.sqlite").write_text("view")
    copy_log(source, target)
    shared = [
        str(path.relative_to(target))
        for path in target.rglob("*")
        if path.is_file() and path.stat().st_nlink == 2
    ]
    assert shared == ["log/segment-0000000001.log"]
    assert (target / "log" / "segment-0000000002.log").read_text() == "segment-0000000002.log"
    assert (target / "view.sqlite").read_text() == "view"


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch) -> tuple[prober.Line, list[socket.socket]]:
    brokers = []

    def opened(_port: int) -> socket.socket:
        ours, theirs = socket.socketpair()
        theirs.send(bytes(PUBACK_BYTES))
        brokers.append(theirs)
        return ours

    monkeypatch.setattr(prober, "opened", opened)
    return prober.Line("puback", 1, PUBACK_BYTES), brokers


def test_answers_are_told_apart_by_their_size(
    probed: tuple[prober.Line, list[socket.socket]],
) -> None:
    line, (broker,) = probed
    for now_ns in (1, 2, 3):
        line.ask(now_ns)
    broker.send(bytes(PUBACK_BYTES + 2))
    line.read()
    assert [sent_ns for sent_ns, _ in line.samples] == [1]
    broker.send(bytes(PUBACK_BYTES - 2))
    line.read()
    assert [sent_ns for sent_ns, _ in line.samples] == [1, 2]


def test_what_a_broker_never_answers_counts_until_it_ends_the_connection(
    probed: tuple[prober.Line, list[socket.socket]],
) -> None:
    line, brokers = probed
    line.ask(1)
    line.ask(2)
    brokers[0].close()
    line.read()
    assert [sent_ns for sent_ns, _ in line.samples] == [1, 2]
    assert line.broken == 1
    assert len(brokers) == 2


def test_a_line_that_is_measured_again_takes_the_place_of_the_older_one_and_says_so() -> None:
    older = replace(played(moment(1.0, 2.0)), line="a")
    first = Result("2026-01-02T03:04", "abc", {}, 0.5, {}, [older, replace(older, line="b")])
    newer = replace(older, disk_alone_ms=9.0)
    both = first.with_lines_of(Result("2026-01-03T03:04", "def", {}, 0.5, {}, [newer]))
    assert both.played == [newer, replace(older, line="b")]
    assert both.again == {"a": "def"}
    assert (both.date, both.commit) == (first.date, first.commit)


def test_a_log_is_made_anew_where_records_have_another_form(tmp_path: Path) -> None:
    program = tmp_path / ".venv" / "bin" / "holdfast"
    form = tmp_path / "src" / "holdfast" / "broker" / "store" / "tables.py"
    form.parent.mkdir(parents=True)
    form.write_text("a form")
    before = maker(program)
    assert maker(program) == before
    assert maker(program.with_name("another")) != before
    form.write_text("another form")
    assert maker(program) != before
