"""The kernel's stages, as one value that is handed to whoever needs some of them."""

from dataclasses import dataclass

from holdfast.kernel import Deliveries, Inbox, Log, Outboxes, Routes


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelStages:
    """One of each; a turn calls them in this order."""

    read_buffer: bytearray
    """What all sockets read into, and `inbox.feed` copies from."""
    inbox: Inbox
    routes: Routes
    log: Log
    deliveries: Deliveries
    outboxes: Outboxes
