"""A broker is reached by its data directory or at an address, or it is said that there is none."""

import socket
import stat
import threading
from argparse import Namespace
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from holdfast.cli import asking
from holdfast.client.http import HttpClient
from holdfast.core.errors import BrokerAbsentError, BrokerRefusedError, ConfigurationError
from holdfast.core.layout import CONTROL_SOCKET
from tests.builders.served import served
from tests.builders.stored import Message, store


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    # Longer than an address of a socket may be.
    found = tmp_path / ("directory" * 12)
    store(found, [Message("t", b"1")])
    return found


def test_the_broker_of_a_data_directory_is_reached(directory: Path) -> None:
    with served(directory):
        broker = HttpClient.on(directory)
        assert broker.get("/health/live") == {"status": "live"}
        assert broker.get("/v1/log/offset", {"time": 0}) == {"offset": 0, "time_us": 0}


def test_a_broker_at_an_address_is_reached(directory: Path) -> None:
    with served(directory) as address:
        for url in (address, f"http://{address}", f"http://name:word@{address}/"):
            assert HttpClient.at(url).get("/health/live") == {"status": "live"}


def test_a_password_that_the_address_leaves_out_is_asked_for(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return "open: sesame"

    monkeypatch.setattr("holdfast.cli.asking.getpass", answer)
    with served(directory) as address:
        for url in (f"http://a%40b@{address}", f"http://a%40b:open%3A%20sesame@{address}"):
            broker = asking.broker_of(Namespace(broker=url))
            assert broker.get("/health/live") == {"status": "live"}
            assert user_and_password(broker) == b"a@b:open: sesame"
        broker = HttpClient.at(address, "a@b", "open: sesame")
        assert broker.get("/health/live") == {"status": "live"}
        assert user_and_password(broker) == b"a@b:open: sesame"
    assert asked == ["Password of a@b: "]


def user_and_password(broker: HttpClient) -> bytes:
    return b64decode(broker._headers["Authorization"].removeprefix("Basic "))


def test_only_the_user_of_the_broker_may_open_the_control_socket(directory: Path) -> None:
    with served(directory):
        mode = (directory / CONTROL_SOCKET).stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600


def test_a_socket_of_an_earlier_life_is_replaced_and_the_own_one_removed(directory: Path) -> None:
    with socket.socket(socket.AF_UNIX) as earlier, pytest.MonkeyPatch.context() as patch:
        # Relative, because the whole path is longer than an address.
        patch.chdir(directory)
        earlier.bind(CONTROL_SOCKET)
    with served(directory):
        assert HttpClient.on(directory).get("/health/live") == {"status": "live"}
    assert not (directory / CONTROL_SOCKET).exists()


def test_a_file_in_the_place_of_the_socket_is_left_alone(directory: Path) -> None:
    (directory / CONTROL_SOCKET).write_text("mine")
    with served(directory) as address:
        assert HttpClient.at(address).get("/health/live") == {"status": "live"}
    assert (directory / CONTROL_SOCKET).read_text() == "mine"


def test_where_no_broker_runs_that_is_said(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(BrokerAbsentError, match="no broker runs on the data directory"):
        HttpClient.on(directory).get("/health/live")
    with pytest.raises(BrokerAbsentError, match="no broker runs on the data directory"):
        HttpClient.on(tmp_path / "nothing").get("/health/live")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
    with pytest.raises(BrokerAbsentError, match=f"no broker runs at 127.0.0.1:{port}"):
        HttpClient.at(f"http://127.0.0.1:{port}").get("/health/live")


def test_a_refusal_says_what_the_broker_said(directory: Path) -> None:
    with (
        served(directory),
        pytest.raises(BrokerRefusedError, match="time must be microseconds") as told,
    ):
        HttpClient.on(directory).get("/v1/log/offset", {"time": "x"})
    assert told.value.status == 400


@pytest.mark.parametrize("url", ["http://", "ftp://127.0.0.1", "http://127.0.0.1:many"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        HttpClient.at(url)


ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@contextmanager
def answering(*answers: int) -> Iterator[tuple[str, list[bytes]]]:
    """An address where each connection ends after so many answers, and what was asked there."""
    asked: list[bytes] = []

    def serve(listening: socket.socket) -> None:
        with suppress(OSError):
            for count in answers:
                connection, _ = listening.accept()
                with connection, connection.makefile("rb") as lines:
                    for _ in range(count):
                        asked.append(lines.readline())
                        while lines.readline().strip():
                            pass
                        connection.sendall(ANSWER)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=[listening])
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}", asked
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_connection_is_kept_where_that_is_wanted() -> None:
    with answering(2) as (address, asked):
        broker = HttpClient.at(address).keep()
        assert broker.get("/a") == broker.get("/b") == {}
    assert asked == [b"GET /a HTTP/1.1\r\n", b"GET /b HTTP/1.1\r\n"]


def test_a_question_that_met_a_stale_connection_is_asked_again() -> None:
    with answering(1, 1) as (address, asked):
        broker = HttpClient.at(address).keep()
        assert broker.get("/a") == broker.get("/b") == {}
    assert asked == [b"GET /a HTTP/1.1\r\n", b"GET /b HTTP/1.1\r\n"]


def test_what_changes_something_is_not_sent_twice() -> None:
    with answering(1, 1) as (address, asked):
        broker = HttpClient.at(address).keep()
        broker.get("/a")
        with pytest.raises(BrokerAbsentError, match="does not answer"):
            broker.post("/b")
    assert asked == [b"GET /a HTTP/1.1\r\n"]
