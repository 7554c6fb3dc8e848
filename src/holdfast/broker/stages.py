"""The kernel's stages, as one value that is handed to whoever needs some of them."""

from dataclasses import dataclass

from holdfast.kernel import (
    Deliveries,
    Inbox,
    Log,
    Outboxes,
    PulsarInbox,
    PulsarOutboxes,
    Routes,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelStages:
    """One of each; a turn calls them in this order."""

    read_buffer: bytearray
    """What all sockets read into, and the inboxes copy from."""
    inbox: Inbox
    pulsar_inbox: PulsarInbox
    routes: Routes
    log: Log
    deliveries: Deliveries
    outboxes: Outboxes
    pulsar_outboxes: PulsarOutboxes
