"""The environments that this broker knows: from the settings, and from what clients say.

Owns: which names are known, and who used a group first whose name tells none. Never: counts what
anybody is delivered.

Invariants:
1. At most ENVIRONMENTS_MAXIMUM names are known, so that they can be labels of metrics. What nobody
   may be called is as if nothing had been said; who is not let in makes nothing known.
2. A client's environment is what it says itself, else what its identifier tells. A group's is what
   its share name tells, else that of the first client that used it.

Flow: admission, control packets -> here -> state, for whoever looks on.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast.core.config import Config
from holdfast.core.environment import Naming, is_environment_name
from holdfast.core.limits import ENVIRONMENTS_MAXIMUM, SHARED_GROUPS_MAXIMUM
from holdfast.core.share_name import is_shared, parse_shared

log = logging.getLogger(__name__)

REMEMBERED_MAXIMUM: Final = 2 * SHARED_GROUPS_MAXIMUM
"""Groups whose first user is remembered; one that has ended leaves last of all."""


class Environments:
    """All environments of the broker."""

    def __init__(self, config: Config) -> None:
        self._told: dict[str, None] = {}
        """Names that clients have said."""
        self._first_users: dict[str, str] = {}
        self._of_groups: dict[str, str] = {}
        """What share names tell, as far as it has been asked."""
        self.reconfigure(config)

    def reconfigure(self, config: Config) -> None:
        """Clients and groups are told apart by these rules from now on."""
        self._naming = Naming.of(
            config.environments_names, config.environments_clients, config.environments_groups
        )
        for name in self._told:
            self._naming = self._naming.knowing(name)
        self._of_groups.clear()
        self._user_property = config.environments_user_property
        self._demand = config.environments_groups_without_environment

    @property
    def names(self) -> tuple[str, ...]:
        """All that are known."""
        return tuple(sorted(self._naming.names))

    @property
    def warns(self) -> bool:
        """True if a subscription to a group without an environment is told in the log."""
        return self._demand == "warn" and bool(self._naming.names)

    def said(self, properties: Mapping[str, Any]) -> str:
        """What a CONNECT says of its environment; empty if nothing, or what can be no name."""
        for key, value in properties.get("user_property", ()):
            if key == self._user_property and is_environment_name(value):
                return str(value)
        return ""

    def learn(self, name: str) -> None:
        """A client that was let in has said it."""
        if not name or name in self._naming.names:
            return
        if len(self._naming.names) >= ENVIRONMENTS_MAXIMUM:
            fields = {"environment": name, "known": len(self._naming.names)}
            log.warning("environment beyond those that are known", extra={"fields": fields})
            return
        self._told[name] = None
        self._naming = self._naming.knowing(name)
        self._of_groups.clear()
        log.info("environment known", extra={"fields": {"environment": name}})

    def use(self, groups: Iterable[str], environment: str) -> None:
        """A client of this environment uses these groups."""
        for group in groups if environment else ():
            self._first_users.setdefault(group, environment)
            if len(self._first_users) > REMEMBERED_MAXIMUM:
                del self._first_users[next(iter(self._first_users))]

    def of_client(self, client_identifier: str, said: str) -> str:
        """The environment of a client that said this when it connected; empty if none is known."""
        return said or self._naming.of_client(client_identifier)

    def of_group(self, group: str) -> str:
        """The environment of a group by its whole name, `$share/...`; empty if none is known."""
        return self._of_share_name(group) or self._first_users.get(group, "")

    def of_owner(self, owner: str) -> str:
        """The environment of whoever has a queue, by what its name alone tells: a client's
        identifier, or the whole name of a group; empty if that is nothing."""
        if is_shared(owner):
            return self.of_group(owner)
        return self._naming.of_client(owner) if self._naming.is_in_use else ""

    def is_refused(self, group: str) -> bool:
        """True if nobody may subscribe to this group, since its name tells no environment."""
        return self._demand == "refuse" and not self._of_share_name(group)

    def is_mixed(self, group: str) -> bool:
        """True if its name tells no environment."""
        return not self._of_share_name(group)

    def _of_share_name(self, group: str) -> str:
        known = self._of_groups.get(group)
        if known is None:
            parts = parse_shared(group)
            known = "" if parts is None else self._naming.of_group(parts.share_name)
            if len(self._of_groups) >= REMEMBERED_MAXIMUM:
                self._of_groups.clear()
            self._of_groups[group] = known
        return known
