"""Files and names that an attempt of a bridge cannot do anything with: it fails with a reason, the
next one follows, and nobody else waits."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.broker.bridge.failure import Failure
from holdfast.broker.bridge.link import Link, State
from holdfast.core.bridge import TEXT_BYTES_MAXIMUM, Tls
from holdfast.core.limits import CONNECT_TIMEOUT_S
from holdfast.testing.hardships import Hardships
from tests.simulation.remote import Bridged, assert_nobody_notices, with_remote

sleep = asyncio.sleep
LONG_S = 1_000_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "password"


def with_password(body: Any, file: Path, **more: Any) -> None:
    with_remote(body, user_name="u", password_file=str(file), **more)


def passwords(bridged: Bridged) -> list[bytes]:
    """Those that the remote was told."""
    return [fields["password"] for fields in bridged.remote.all("connect")]


async def assert_refused_until(bridged: Bridged, file: Path, sentence: str) -> None:
    """An attempt with this file fails so, and the first one after it has a password succeeds."""
    link = bridged.link
    assert (link.state, link.counts.failures) == (State.WAITING, {Failure.CREDENTIALS: 1})
    assert link.last_error == f"password_file: {file} {sentence}"
    assert bridged.remote.visits == []
    await assert_nobody_notices(bridged)
    _write_anew(file)
    await sleep(10)
    assert (link.state, passwords(bridged)) == (State.CONNECTED, [b"secret"])


def test_a_pipe_with_a_password_is_refused_and_holds_up_nobody(file: Path) -> None:
    async def body(bridged: Bridged) -> None:
        sentence = "cannot be read: it is no regular file"
        await assert_refused_until(bridged, file, sentence)

    os.mkfifo(file)
    with_password(body, file)


def test_a_password_for_which_there_is_no_room_is_refused(file: Path) -> None:
    async def body(bridged: Bridged) -> None:
        sentence = "has more than 65535 bytes, for which CONNECT has no room"
        await assert_refused_until(bridged, file, sentence)

    file.write_bytes(b"x" * (TEXT_BYTES_MAXIMUM + 1))
    with_password(body, file)


def test_a_password_file_that_is_missing_is_told_with_its_name(file: Path) -> None:
    async def body(bridged: Bridged) -> None:
        await assert_refused_until(bridged, file, "cannot be read: No such file or directory")

    with_password(body, file)


def test_the_longest_password_fits(file: Path) -> None:
    async def body(bridged: Bridged) -> None:
        assert passwords(bridged) == [b"x" * TEXT_BYTES_MAXIMUM]

    file.write_bytes(b"x" * TEXT_BYTES_MAXIMUM + b"\r\n")
    with_password(body, file)


def test_a_password_file_that_nobody_gets_to_read_ends_the_attempt(file: Path) -> None:
    async def body(bridged: Bridged) -> None:
        await sleep(CONNECT_TIMEOUT_S)
        link = bridged.link
        assert link.last_error == f"password_file: {file} was not read in time"
        assert link.counts.failures == {Failure.CREDENTIALS: 1}
        await assert_nobody_notices(bridged)

    file.write_bytes(b"secret")
    with_password(body, file, hardships=Hardships(executor_latency_s=LONG_S))


@pytest.mark.parametrize(
    ("tls", "reason"),
    [
        (Tls(server_name=".x"), "idna"),
        (Tls(server_name="x" * 64), "label too long"),
        (Tls(ca="a\0b"), "tls.ca: a\0b cannot be read: embedded null byte"),
        (Tls(ca="/dev/null"), "tls.ca: /dev/null cannot be read: it is no regular file"),
    ],
)
def test_what_tls_does_not_take_ends_the_attempt_with_its_reason(tls: Tls, reason: str) -> None:
    async def body(bridged: Bridged) -> None:
        bridges = bridged.server.stages.bridges
        # As one that was recorded before there was a rule against it.
        secure = replace(bridged.link.bridge, name="c", address="mqtts://10.0.0.2:1883", tls=tls)
        bridges.put(secure, 1)
        await sleep(1)
        link = _link(bridged, "c")
        assert (link.state, link.counts.failures) == (State.WAITING, {Failure.UNREACHABLE: 1})
        assert reason in link.last_error
        await sleep(5)
        assert link.counts.attempts > 1

    with_remote(body)


def _write_anew(file: Path) -> None:
    file.unlink(missing_ok=True)
    file.write_bytes(b"secret\r\n")


def _link(bridged: Bridged, name: str) -> Link:
    found = bridged.server.stages.bridges.find(name)
    assert found is not None
    assert found[2] is not None
    return found[2]
