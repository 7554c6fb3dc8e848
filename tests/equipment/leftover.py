"""What is left of a connection whose session its own client has taken over from elsewhere.

Owns: nothing but the wait for its end. Never: answers; whoever held it has gone on.
"""

import asyncio
from typing import Protocol

from holdfast.kernel import decode_packets
from tests.equipment.history import Displaced, History


class _Options(Protocol):
    @property
    def protocol_version(self) -> int: ...


class Leftover(asyncio.Protocol):
    """Takes the place of the client on its former connection, and notes how the broker ends it."""

    def __init__(self, name: str, options: _Options, history: History) -> None:
        self._name = name
        self._version = options.protocol_version
        self._history = history
        self._last_words: int | None = None

    def data_received(self, data: bytes) -> None:
        # It begins in the middle of a packet, so only the last words can be told: DISCONNECT with a
        # reason code is its type, its length and that code, with or without properties.
        for words in (data[-3:], data[-4:]):
            if self._version == 5 and words[:1] == b"\xe0":
                packets, _ = decode_packets(words, protocol_version=5, role="client")
                if packets and packets[0].kind == "disconnect":
                    self._last_words = packets[0].fields["reason_code"]

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._history.add(Displaced(self._name, self._last_words))
