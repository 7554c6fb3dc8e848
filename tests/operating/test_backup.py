"""A copy taken beside a broker under load, and a broker started on it elsewhere."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.interop.device import Device, payloads
from tests.operating.conftest import MakeBroker

BEFORE = 300
SEGMENT = "2MiB"


def holdfast(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("holdfast")), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


class Pressure:
    """A publisher that does not stop while a backup is taken: segments fill, are sealed and go."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent = 0

    def __enter__(self) -> "Pressure":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        publisher = Device(self._port, "pressure", clean_start=True).connect()
        while not self._over.is_set():
            publisher.publish_all("load", [bytes(20_000)] * 50)
            self.sent += 50
        publisher.close()


def test_a_copy_taken_under_load_has_all_that_was_acknowledged_before(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker = make_broker(
        segment_bytes=SEGMENT, retention_bytes="20MiB", queue_messages_maximum=65_535
    )
    away = Device(broker.port, "away", SessionExpiryInterval=3_600).connect()
    away.subscribe("reads/+", 2)
    away.disconnect()
    publisher = Device(broker.port, "publisher", clean_start=True).connect()
    sent = [b"%d" % number for number in range(BEFORE)]
    publisher.publish_all("reads/7", sent, 2)
    publisher.publish("state/7", b"on", retain=True)
    publisher.close()

    copies = [tmp_path / f"copy-{number}" for number in range(3)]
    with Pressure(broker.port) as pressure:
        for copy in copies:
            began = pressure.sent
            while pressure.sent == began:
                pass
            done = holdfast("backup", copy, "--data-dir", broker.data_directory)
            assert done.returncode == 0, done.stderr + broker.log()
    assert pressure.sent > 150
    assert broker.stop() == 0

    for copy in copies:
        restored = tmp_path / f"restored-from-{copy.name}"
        done = holdfast("restore", copy, "--data-dir", restored)
        assert done.returncode == 0, done.stderr
        elsewhere = make_broker(data_directory=restored, queue_messages_maximum=65_535)
        assert "log damaged" not in elsewhere.log()
        back = Device(elsewhere.port, "away", SessionExpiryInterval=3_600).connect()
        assert back.session_present
        assert payloads(back.all_received()) == sent
        back.subscribe("state/+", 1)
        assert payloads([back.receive()]) == [b"on"]
        back.publish("reads/8", b"goes on")
        assert payloads([back.receive()]) == [b"goes on"]
        back.close()
        assert elsewhere.stop() == 0


def test_a_copy_is_a_data_directory_of_the_same_log(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker = make_broker()
    publisher = Device(broker.port, "publisher", clean_start=True).connect()
    publisher.publish_all("t", [b"1", b"2", b"3"])
    copy = tmp_path / "copy"
    done = holdfast("backup", copy, "--data-dir", broker.data_directory)
    assert done.returncode == 0
    assert "messages from offset 0 up to 3" in done.stdout
    assert copy.stat().st_mode & 0o777 == 0o700
    publisher.publish("t", b"later")
    publisher.close()
    ranges = [
        json.loads(holdfast("log", "ranges", "--json", "--data-dir", directory).stdout)
        for directory in (broker.data_directory, copy)
    ]
    assert ranges[0]["epoch"] == ranges[1]["epoch"]
    assert [each["end_offset"] for each in ranges] == [4, 3]


def test_nothing_is_overwritten(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    done = holdfast("backup", tmp_path / "taken", "--data-dir", broker.data_directory)
    assert done.returncode == 1
    assert "name an empty directory" in done.stderr
    done = holdfast("restore", broker.data_directory, "--data-dir", tmp_path / "taken")
    assert done.returncode == 1
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["file"]


def test_a_copy_that_would_lie_in_its_original_or_nowhere_is_refused(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    directory = make_broker().data_directory
    done = holdfast("backup", directory / "sub" / "copy", "--data-dir", directory)
    assert done.returncode == 1
    assert f"lies in {directory}: what takes that would take the copy too" in done.stderr
    assert not (directory / "sub").exists()
    (tmp_path / "file").write_text("")
    done = holdfast("backup", tmp_path / "file" / "copy", "--data-dir", directory)
    assert done.returncode == 1
    assert f"{tmp_path / 'file' / 'copy'} cannot be made: Not a directory" in done.stderr


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_what_is_no_log_is_refused(command: str, tmp_path: Path) -> None:
    nothing, target = tmp_path / "nothing", tmp_path / "target"
    nothing.mkdir()
    named = {
        "backup": (target, "--data-dir", nothing),
        "restore": (nothing, "--data-dir", target),
    }
    done = holdfast(command, *named[command])
    assert done.returncode == 1
    assert f"there is no log in {nothing}" in done.stderr
    assert not target.exists()


def test_a_damaged_log_is_not_taken_for_a_backup(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker(segment_bytes=SEGMENT)
    publisher = Device(broker.port, "publisher", clean_start=True).connect()
    for _ in range(3):
        publisher.publish_all("t", [bytes(100_000)] * 10)
    publisher.close()
    broker.stop()
    first = min((broker.data_directory / "log").glob("segment-*.log"))
    with first.open("r+b") as file:
        file.seek(500_000)
        file.write(b"\xff" * 8)
    done = holdfast("backup", tmp_path / "copy", "--data-dir", broker.data_directory)
    assert done.returncode == 1
    assert "is damaged" in done.stderr
    assert not (tmp_path / "copy").exists()
