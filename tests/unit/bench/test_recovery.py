"""The log that recovery is measured on is what it is said to be, and so are the figures."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bench.recovery import __main__ as measuring
from bench.recovery import result, stored
from bench.recovery.result import Recovered
from holdfast.broker.data_directory import held
from holdfast.core.config import Config
from holdfast.core.layout import LOG_DIRECTORY
from holdfast.kernel import Log, LogReader, topic_matches
from tests.process import BrokerProcess

WANTED_BYTES = 12_000_000
CHECKPOINT_BYTES = 3_000_000


def figures(accepted_s: list[float]) -> Recovered:
    return Recovered(
        date="2026-01-02T03:04",
        commit="abc",
        machine={},
        gigabytes=10.0,
        messages=1,
        sessions=1_000,
        load_average=0.5,
        accepted_s=accepted_s,
        delivered_s=[2.0, 4.0, 3.0],
        processor_s=[0.5, 0.5, 0.5],
        read_s=[0.1, 0.3, 0.2],
    )


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, int]:
    directory = tmp_path_factory.mktemp("data")
    config = Config(data_dir=directory, segment_bytes=4 << 20, checkpoint_bytes=CHECKPOINT_BYTES)
    with held(directory):
        (directory / LOG_DIRECTORY).mkdir()
    said: list[str] = []
    return config, stored.fill(directory, config, WANTED_BYTES, said.append)


def test_the_log_is_as_long_as_was_asked_for(filled: tuple[Config, int]) -> None:
    config, messages = filled
    reader = LogReader.open(str(config.data_dir / LOG_DIRECTORY))
    reader.refresh(None)
    stored_bytes = sum(segment["bytes"] for segment in reader.segments() if segment["sealed"])
    assert messages * stored.PAYLOAD_BYTES < WANTED_BYTES * 1.2
    assert messages * (stored.PAYLOAD_BYTES + 100) > WANTED_BYTES
    assert stored_bytes > WANTED_BYTES / 2


def test_it_is_recovered_from_a_checkpoint_and_the_longest_tail(
    filled: tuple[Config, int],
) -> None:
    config, messages = filled
    with held(config.data_dir):
        log, found = Log.open(
            str(config.data_dir / LOG_DIRECTORY),
            segment_bytes=config.segment_bytes,
            cache_bytes=config.cache_bytes,
            reserve_bytes=config.reserve_bytes,
            durability="os",
            seed=1,
            now_us=2**51,
        )
        tail_bytes = log.bytes_since_checkpoint()
        log.close()
    assert found["from_checkpoint"]
    assert not found["damaged"]
    assert found["end_offset"] == messages
    assert tail_bytes > CHECKPOINT_BYTES


def test_each_session_subscribes_to_one_message_in_a_hundred() -> None:
    topics = {f"fleet/{number % 100}/reads/{number // 100}" for number in range(1_000)}
    for session in (0, 7, 999):
        wanted = stored.topic_filter(session).encode()
        assert sum(topic_matches(wanted, topic.encode()) for topic in topics) == 10


def test_the_table_shows_median_and_range() -> None:
    lines = figures([1.0, 9.0, 2.0]).text().splitlines()
    assert "| until it accepts a connection | 2.00 | 1.00 | 9.00 |" in lines
    assert "| until a session has its first message | 3.00 | 2.00 | 4.00 |" in lines


def test_the_newest_run_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result, "DIRECTORY", tmp_path)
    assert result.newest() is None
    for name, seconds in (("2026-01-02T0304-abc", 1.0), ("2026-02-02T0304-abc", 7.0)):
        (tmp_path / f"{name}.json").write_text(json.dumps(vars(figures([seconds]))))
    assert result.newest() == figures([7.0])


def test_what_the_broker_says_of_its_recoveries_is_read(tmp_path: Path) -> None:
    log_file = tmp_path / "broker.log"
    log_file.write_text(
        'level=info message="log recovered" segments=1 seconds=0.250\n'
        'level=info message="serving" seconds=9\n'
        'level=info message="log recovered" segments=2 seconds=1.500\n'
    )
    broker: Any = SimpleNamespace(log_file=log_file)
    assert measuring._logged_seconds(cast(BrokerProcess, broker)) == [0.25, 1.5]
