"""Judges of what bridges carry, one question each.

Owns: what is asked of the packets on a wire, and of the brokers when everything has arrived. That
nothing is lost, nothing comes twice and order is kept, the judges of any run say
(`tests.equipment.checkers`): a bridge changes nothing about it.
Never: asks a bridge what it has sent.

Each function returns a sentence for each violation it found; none is a pass.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from holdfast.broker.store.tables import parse_loss
from tests.equipment.history import Event, Ledger
from tests.simulation.sites import Site
from tests.simulation.wire import Seen, Wire

LEDGER_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class Arrived:
    """What a site's bridges still hold when everything should have arrived."""

    site: str
    in_flight: int
    shelved: int

    @classmethod
    def at(cls, site: Site) -> "Arrived":
        """As it is now."""
        links = list(site.server.stages.bridges.links())
        return cls(
            site.name,
            sum(link.queue.in_flight() for link in links),
            sum(link.queue.shelved()[0] for link in links),
        )


def check_nothing_is_stuck(arrived: Iterable[Arrived]) -> list[str]:
    """Is nothing in flight or on a shelf after calm?"""
    return [f"{each}" for each in arrived if each.in_flight or each.shelved]


def check_a_message_is_sent_once_on_a_connection(packets: Iterable[Seen]) -> list[str]:
    """Does no packet identifier come twice on one connection before it is free again, and is what
    comes again at QoS 2 on the next one marked with DUP?"""
    violations = []
    unfinished: dict[tuple[int, bool], set[int]] = {}
    sent: dict[tuple[bool, int, bytes], int] = {}
    for seen in packets:
        way = (seen.connection, seen.is_outbound)
        back = (seen.connection, not seen.is_outbound)
        match seen.kind:
            case "publish" if seen.fields["qos"]:
                identifier = seen.fields["packet_identifier"]
                taken = unfinished.setdefault(way, set())
                if identifier in taken:
                    violations.append(f"{identifier} was sent twice on connection {way}")
                taken.add(identifier)
                key = (seen.is_outbound, identifier, seen.payload)
                # Who publishes at QoS 1 may publish twice, and each is a message of its own.
                is_again = sent.setdefault(key, seen.connection) < seen.connection
                if seen.fields["qos"] == 2 and is_again and not seen.fields["dup"]:
                    violations.append(f"{key} was sent again without DUP")
            case "puback" | "pubcomp":
                unfinished.setdefault(back, set()).discard(seen.fields["packet_identifier"])
            case _:
                pass
    return violations


def left_over(site: Site) -> Iterator[Event]:
    """What the ledger of a site says that somebody lost."""
    counts: Counter[tuple[str, str]] = Counter()
    for _key, value in site.server.records.catch_up().losses(LEDGER_ROWS):
        loss = parse_loss(value)
        counts[loss.client_identifier, loss.reason] += loss.count
    for (client, reason), count in counts.items():
        yield Ledger(client, reason, count)


def judge_carriage(wires: Iterable[Wire], arrived: Iterable[Arrived]) -> None:
    """Asks every question; raises `AssertionError` with what was found."""
    found = check_nothing_is_stuck(arrived)
    for wire in wires:
        found += check_a_message_is_sent_once_on_a_connection(wire.seen)
    if found:
        raise AssertionError("\n".join(found[:20]))
