"""What systemd is told, on a socket of our own."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.broker.supervisor import Supervisor

PROCESS = 7


@pytest.fixture
def notified(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(10)
        yield receiver


def supervisor(receiver: socket.socket, **environment: str) -> Supervisor:
    return Supervisor({"NOTIFY_SOCKET": receiver.getsockname(), **environment}, PROCESS)


def test_it_is_told_when_we_serve_reload_and_stop(notified: socket.socket) -> None:
    told = supervisor(notified)
    told.ready()
    told.reloading(42)
    told.stopping()
    assert [notified.recv(100) for _ in range(3)] == [
        b"READY=1",
        b"RELOADING=1\nMONOTONIC_USEC=42",
        b"STOPPING=1",
    ]


def test_an_abstract_name_is_understood() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0holdfast-test-notify")
        Supervisor({"NOTIFY_SOCKET": "@holdfast-test-notify"}, PROCESS).ready()
        assert receiver.recv(100) == b"READY=1"


@pytest.mark.parametrize("process", ["", str(PROCESS)])
def test_signs_of_life_come_in_time(notified: socket.socket, process: str) -> None:
    async def live() -> None:
        told = supervisor(notified, WATCHDOG_USEC="30000", WATCHDOG_PID=process)
        told.ready()
        loop = asyncio.get_running_loop()
        for _ in range(3):
            await loop.run_in_executor(None, notified.recv, 100)
        told.close()

    asyncio.run(live())


def test_a_watchdog_of_another_process_is_not_ours(notified: socket.socket) -> None:
    told = supervisor(notified, WATCHDOG_USEC="30000", WATCHDOG_PID=str(PROCESS + 1))
    told.ready()
    told.stopping()
    assert [notified.recv(100) for _ in range(2)] == [b"READY=1", b"STOPPING=1"]


def test_nobody_is_told_where_nobody_listens(tmp_path: Path) -> None:
    Supervisor({}, PROCESS).ready()
    Supervisor({"NOTIFY_SOCKET": str(tmp_path / "absent")}, PROCESS).ready()
