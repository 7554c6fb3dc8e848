"""Do the counts agree? Every acknowledged message at each subscriber and in the table; QoS 2
exactly once."""

from collections.abc import Mapping
from dataclasses import dataclass

from fleet import Ledger


@dataclass(frozen=True)
class Arrived:
    """How the messages of the fleet came out at one end."""

    where: str
    messages: int
    lost: int
    duplicated: int
    """Of QoS 2, where each must come exactly once."""
    repeated: int
    """Of QoS 1, which promises at least once: sent again since an acknowledgement was on its way
    when the broker was killed."""


def compare(where: str, ledger: Ledger, found: Mapping[bytes, int]) -> Arrived:
    """Payload by payload. What is there although nobody sent it is counted as duplicated."""
    lost = duplicated = repeated = 0
    for payload, wanted in ledger.acknowledged.items():
        difference = found.get(payload, 0) - wanted
        lost += max(0, -difference)
        if difference > 0 and ledger.qos[payload] == 1:
            repeated += difference
        elif difference > 0:
            duplicated += difference
    duplicated += sum(number for payload, number in found.items() if payload not in ledger.sent)
    return Arrived(where, sum(found.values()), lost, duplicated, repeated)
