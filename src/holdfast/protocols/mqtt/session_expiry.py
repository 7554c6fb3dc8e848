"""How long a session is kept [MQTT 5 section 3.1.2.11.2].

Owns: the rules of session typing (acceptance S2.23 to S2.30, S2.41 to S2.44). Never: knows a
session.
"""

from dataclasses import dataclass
from typing import Final

SESSION_EXPIRY_NEVER: Final = 0xFFFFFFFF
"""The Session Expiry Interval that means "never" [MQTT 5 section 3.1.2.11.2]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPolicy:
    """What the operator has decided about how long sessions are kept."""

    expiry_maximum_s: int
    ttl_s: int
    """For sessions that the protocol would keep for ever; 0 or less keeps them."""
    strict_expiry: bool
    """True: Clean Start 0 with expiry 0 ends with its connection in MQTT 5, as the standard
    says."""


def plan_expiry_s(
    policy: SessionPolicy, *, protocol_version: int, clean_start: bool, requested_s: int | None
) -> int | None:
    """How long a new connection's session is kept; `requested_s` is `None` where CONNECT says
    nothing."""
    kept_without_limit = policy.ttl_s if policy.ttl_s > 0 else None
    if protocol_version < 5:
        return 0 if clean_start else kept_without_limit
    if requested_s:
        # "Never" is a number like any other here: one week of cap makes it one week.
        return min(requested_s, policy.expiry_maximum_s)
    if clean_start or policy.strict_expiry:
        return 0
    return kept_without_limit
