"""Do the counts agree? Every acknowledged message at each subscriber and in the table; QoS 2
exactly once."""

from collections import Counter
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


def compare(where: str, ledger: Ledger, found: Counter[bytes]) -> Arrived:
    """Payload by payload. What is there although nobody sent it is counted as duplicated."""
    lost = duplicated = repeated = 0
    for payload, wanted in ledger.acknowledged.items():
        difference = found[payload] - wanted
        lost += max(0, -difference)
        if difference > 0 and ledger.qos[payload] == 1:
            repeated += difference
        elif difference > 0:
            duplicated += difference
    duplicated += sum(number for payload, number in found.items() if payload not in ledger.sent)
    return Arrived(where, found.total(), lost, duplicated, repeated)
