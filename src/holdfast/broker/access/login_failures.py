"""Who has failed to log in, and what follows from it.

Owns: counts by peer address and by user name. Never: sees a password, or looks at a clock.

Invariants:
1. An address with `access.login_failures_maximum` failures is banned for `access.login_ban_s`;
   further logins from it are not looked at until then.
2. A user with as many is checked once in `access.login_delay_s` at most, from wherever. It is not
   banned: whoever can name it could lock it out.
3. At most LOGIN_FAILURES_TRACKED_MAXIMUM are counted. A count is forgotten `access.login_ban_s`
   after its last failure.
"""

from collections import OrderedDict
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final

from holdfast.broker.access.denial_reason import DenialReason
from holdfast.core.config import Config
from holdfast.core.limits import LOGIN_FAILURES_TRACKED_MAXIMUM
from holdfast.core.units import SECOND_US

IPV6_NETWORK_BITS: Final = 64
"""What one subscriber of a network is given at least, and may change the rest of at will."""

Key = tuple[str, str]


@dataclass(slots=True)
class _Count:
    failures: int = 0
    last_us: int = 0
    refused_until_us: int = 0


class LoginFailures:
    """Counts failed logins."""

    def __init__(self, config: Config) -> None:
        self._counts: OrderedDict[Key, _Count] = OrderedDict()
        self.reconfigure(config)

    def reconfigure(self, config: Config) -> None:
        """Other limits hold from now on."""
        self._maximum = config.login_failures_maximum
        self._ban_us = config.login_ban_s * SECOND_US
        self._delay_us = config.login_delay_s * SECOND_US

    def refusal(self, user_name: str, peer: str, now_us: int) -> DenialReason | None:
        """What a login is answered without being looked at; `None`: it is to be looked at."""
        if self._is_refused(("address", network_of(peer)), now_us):
            return DenialReason.BANNED
        if self._is_refused(("user", user_name), now_us):
            return DenialReason.BUSY
        return None

    def failed(self, user_name: str | None, peer: str, now_us: int) -> bool:
        """Counts a failure; `user_name` is `None` for a user that does not exist. True if the
        address is banned from now on."""
        if not self._maximum:
            return False
        if user_name is not None:
            count = self._count(("user", user_name), now_us)
            if count.failures >= self._maximum:
                count.refused_until_us = now_us + self._delay_us
        key = ("address", network_of(peer))
        count = self._count(key, now_us)
        if count.failures < self._maximum:
            return False
        count.failures = 0
        count.refused_until_us = now_us + self._ban_us
        return True

    def succeeded(self, user_name: str) -> None:
        """The user has shown the right password."""
        self._counts.pop(("user", user_name), None)

    def __len__(self) -> int:
        return len(self._counts)

    def _is_refused(self, key: Key, now_us: int) -> bool:
        count = self._counts.get(key)
        return count is not None and now_us < count.refused_until_us

    def _count(self, key: Key, now_us: int) -> _Count:
        count = self._counts.get(key)
        if count is None or now_us - count.last_us > self._ban_us:
            count = self._counts[key] = _Count()
        count.failures += 1
        count.last_us = now_us
        self._counts.move_to_end(key)
        if len(self._counts) > LOGIN_FAILURES_TRACKED_MAXIMUM:
            self._counts.popitem(last=False)
        return count


def network_of(peer: str) -> str:
    """What stands for whoever connects from `peer` (host:port): its address without the port."""
    host = peer.rpartition(":")[0].strip("[]") or peer
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    host_bits = 128 - IPV6_NETWORK_BITS
    return str(IPv6Address(int(address) >> host_bits << host_bits))
