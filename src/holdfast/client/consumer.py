"""A client that takes many messages and says which of them it has done with, a batch at a time.

Owns: which messages of the session are open, that is handed over and not acknowledged.
Never: makes an object for what a batch has in common, or decides when a message is done with.

Invariants:
1. A message of QoS 2 is handed over once in the life of its session, as with `Client`.
2. An acknowledgement leaves on the connection on which its message came, or not at all. One that
   comes again is answered at once if it was acknowledged meanwhile.
3. The messages of one read are handed over in one call, and the acknowledgements of one call leave
   in one write.
"""

# ruff: noqa: D102 (some methods are asyncio's own)

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from holdfast.client.mqtt import Client, ClientOptions
from holdfast.kernel import decode_runs, encode_acknowledgements

DONE = None
"""In place of a message of QoS 2 that was acknowledged and whose PUBREL has not come."""


class Arrival(NamedTuple):
    """A PUBLISH from the broker. It is told from others by being this one, not by what it says."""

    topic_name: str
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    packet_identifier: int
    properties: dict[str, Any]


class Consumer(Client):
    """One client identifier; whoever uses it makes a class of it, with `arrived`."""

    def __init__(self, client_identifier: str, options: ClientOptions) -> None:
        super().__init__(client_identifier, options)
        self._open: dict[int, Arrival | None] = {}
        """By packet identifier, what is not acknowledged, or DONE."""
        self._elsewhere: set[int] = set()
        """Of those, what came on an earlier connection and not on this one."""

    # --- what whoever drives it calls -----------------------------------------------------------

    def acknowledge_all(self, arrivals: Iterable[Arrival]) -> None:
        """They have been processed: PUBACK and PUBREC leave in this order, in one write."""
        held, elsewhere = self._open, self._elsewhere
        done: list[int] = []
        qos = 0
        for arrival in arrivals:
            identifier = arrival[5]
            if held.get(identifier) is not arrival:
                continue
            if arrival[2] != qos:
                self._answer(qos, done)
                qos, done = arrival[2], []
            if qos == 2:
                held[identifier] = DONE
            else:
                del held[identifier]
            if identifier not in elsewhere:
                done.append(identifier)
        self._answer(qos, done)
        if not self._is_reading:
            self._flush()

    def open_count(self) -> int:
        """Messages that were handed over and are not acknowledged."""
        return sum(arrival is not DONE for arrival in self._open.values())

    # --- what whoever makes a class of it is told -----------------------------------------------

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Messages came, of each QoS; those of QoS 1 and 2 are to be acknowledged some day."""

    # --- what the transport calls ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # At QoS 1 they come again, and are others then.
        self._open = {
            identifier: arrival
            for identifier, arrival in self._open.items()
            if arrival is DONE or arrival[2] == 2
        }
        self._elsewhere = set(self._open)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._heard = True
        self._undecoded += data
        version = self.options.protocol_version
        runs, used = decode_runs(bytes(self._undecoded), protocol_version=version)
        del self._undecoded[:used]
        self._is_reading = True
        try:
            for kind, items in runs:
                if self._transport is None or self._transport.is_closing():
                    break
                self._take_run(kind, items)
        finally:
            self._is_reading = False
        self._publish_queued()
        self._flush()

    def _take_run(self, kind: str, items: Any) -> None:
        if kind == "publish":
            self._take_arrivals(items)
        elif kind == "pubrel":
            for identifier in items:
                self._open.pop(identifier, None)
                self._elsewhere.discard(identifier)
            self._write("pubcomp", items)
        else:
            self._take(kind, items)

    def _take_arrivals(self, items: list[Any]) -> None:
        held, elsewhere = self._open, self._elsewhere
        new: list[Arrival] = []
        again: list[int] = []
        for arrival in map(Arrival._make, items):
            identifier = arrival[5]
            if not identifier:
                new.append(arrival)
            elif arrival[2] == 2 and identifier in held:
                elsewhere.discard(identifier)
                if held[identifier] is DONE:
                    again.append(identifier)
            else:
                held[identifier] = arrival
                new.append(arrival)
        self._answer(2, again)
        if new:
            self.arrived(new)

    def _forget_held(self) -> None:
        self._open.clear()
        self._elsewhere.clear()

    def _answer(self, qos: int, identifiers: list[int]) -> None:
        if identifiers:
            self._write("puback" if qos == 1 else "pubrec", identifiers)

    def _write(self, kind: Any, identifiers: list[int]) -> None:
        version = self.options.protocol_version
        self._writing += encode_acknowledgements(kind, identifiers, protocol_version=version)
