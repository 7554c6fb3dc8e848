"""What groups have handed to a session at QoS 2 and it has not received: as it is on record.

Never: decides what becomes of it when the session ends.
"""

from dataclasses import dataclass

from holdfast.kernel import Log, describe_state


@dataclass(frozen=True, slots=True)
class Handed:
    """One message."""

    group: int
    """The party of the queue that handed it over: a group's, or that of a re-drive."""
    offset: int


def handed_to(log: Log, party: int) -> list[Handed]:
    """All of a session, attached or at rest; a session that ends with its connection has none."""
    state = log.delivery_state(party)
    return [
        Handed(flight["group"], flight["offset"])
        for flight in (describe_state(state)["in_flight"] if state else ())
        if "group" in flight and flight["phase"] == "published"
    ]
