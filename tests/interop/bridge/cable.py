"""Two networks of their own, and a cable between them that can be pulled out.

Owns: the networks and the cable, until the test ends. Never: touches the machine's own network.

A socket that is closed says so. A cable that is out says nothing: what is sent into it is gone, and
both ends take their connections for open.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.interop.installation import iproute

NEAR, FAR = "near", "far"
ADDRESSES = {NEAR: "10.0.0.1", FAR: "10.0.0.2"}
"""In networks that nothing else is in."""


class Cable:
    """A cable with a network at each end."""

    def __init__(self, ip: Path) -> None:
        self._ip = str(ip)

    def prefix(self, end: str) -> list[str]:
        """What stands before a command that is to run at an end."""
        return [self._ip, "netns", "exec", _network(end)]

    def pull(self) -> None:
        """It is out at the far end: the near one sees nothing but silence."""
        self._set(FAR, "down")

    def plug(self) -> None:
        """It is in again."""
        self._set(FAR, "up")

    def _set(self, end: str, state: str) -> None:
        assert _said(self._ip, "-n", _network(end), "link", "set", end, state) == ""


@contextmanager
def cable() -> Iterator[Cable]:
    """Lays a cable. Skips the test where this machine lets nobody do so."""
    ip = iproute()
    with ExitStack() as stack:
        for end in (NEAR, FAR):
            if refused := _said(str(ip), "netns", "add", _network(end)):
                # It takes rights over networks, which a container or a user may not have.
                pytest.skip(f"no network of its own can be made here: {refused}")
            stack.callback(_said, str(ip), "netns", "delete", _network(end))
        ends = (NEAR, "netns", _network(NEAR), "type", "veth")
        peer = ("peer", "name", FAR, "netns", _network(FAR))
        if refused := _said(str(ip), "link", "add", *ends, *peer):
            pytest.skip(f"no cable can be laid between two networks here: {refused}")
        for end, address in ADDRESSES.items():
            inside = (str(ip), "-n", _network(end))
            for told in (
                ("address", "add", f"{address}/24", "dev", end),
                ("link", "set", end, "up"),
                ("link", "set", "lo", "up"),
            ):
                assert _said(*inside, *told) == ""
        yield Cable(ip)


def _network(end: str) -> str:
    """Tests may run in several processes."""
    return f"holdfast-{os.getpid()}-{end}"


def _said(*command: str) -> str:
    """What a command says if it fails; nothing if it does what it is told."""
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return (ended.stderr.strip() or f"it ended with {ended.returncode}") if ended.returncode else ""
