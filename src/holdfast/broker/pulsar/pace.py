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

    since_us: int
    until_us: int


class Pace:
    """Holds them."""

    def __init__(self, kernel: KernelStages, clients: Clients) -> None:
        self._inbox = kernel.pulsar_inbox
        self._clients = clients
        self._held: dict[Client, _Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, client: Client, until_us: int, now_us: int) -> None:
        """The kernel holds it, and it goes on then: with the next sweep, which gives it what it
        could have sent up to that moment."""
        self._held[client] = _Held(now_us, until_us)

    def sweep(self, now_us: int) -> None:
        """Those whose time has come go on; those who have gone are nobody's any more."""
        for client, held in list(self._held.items()):
            if held.until_us <= now_us or not self._is_there(client):
                self.go_on(client, now_us)

    def go_on(self, client: Client, now_us: int) -> None:
        """It goes on now, if it was held: what it sent is paid for, or its limit is another."""
        held = self._held.pop(client, None)
        if held is not None and self._is_there(client):
            self._inbox.unread(client.handle, held.since_us, now_us)
            self._inbox.release(client.handle)

    def _is_there(self, client: Client) -> bool:
        # The handle may be another's by now.
        return self._clients.of(client.handle) is client
