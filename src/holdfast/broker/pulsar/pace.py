"""Clients that have sent more than they may in a second, until what they sent is paid for.

Owns: who is held, and until when. Never: counts what a client sends (the kernel does).

The protocol has no word for a limit, and a client that is cut off sends the same again. So a client
that is too fast is read no further for a while, as if the network were slow: what it had sent is
taken whole, be it a batch with more messages than a second allows.
"""

from dataclasses import dataclass

from holdfast.broker.pulsar.clients import Client, Clients
from holdfast.broker.stages import KernelStages


@dataclass(frozen=True, slots=True)
class _Held:
    """Nothing more of a client is decoded."""

    client: Client
    since_us: int
    until_us: int


class Pace:
    """Holds them."""

    def __init__(self, kernel: KernelStages, clients: Clients) -> None:
        self._inbox = kernel.pulsar_inbox
        self._clients = clients
        self._held: list[_Held] = []

    def hold(self, client: Client, until_us: int, now_us: int) -> None:
        """The kernel holds it, and it goes on then: with the next sweep, which gives it what it
        could have sent up to that moment."""
        self._held.append(_Held(client, now_us, until_us))

    def __len__(self) -> int:
        return len(self._held)

    def sweep(self, now_us: int) -> None:
        """Those whose time has come go on; those who have gone are nobody's any more."""
        there = [held for held in self._held if self._is_there(held)]
        self._held = [held for held in there if held.until_us > now_us]
        for held in there:
            if held.until_us <= now_us:
                self._release(held, now_us)

    def begin_anew(self, client: Client, now_us: int) -> None:
        """It has another limit, of which it has used nothing."""
        for held in [held for held in self._held if held.client is client]:
            self._held.remove(held)
            self._release(held, now_us)

    def _is_there(self, held: _Held) -> bool:
        # The handle may be another's by now.
        return self._clients.of(held.client.handle) is held.client

    def _release(self, held: _Held, now_us: int) -> None:
        if self._is_there(held):
            self._inbox.unread(held.client.handle, held.since_us, now_us)
            self._inbox.release(held.client.handle)
