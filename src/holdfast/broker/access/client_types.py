"""What a client without a credential is: a DEVICE, or an APPLICATION by a rule.

Owns: the rules on client identifiers and user names. Never: asked about a client that has a
credential, which says it itself.

Flow: access -> here, when nobody is let in by name.
"""

from collections.abc import Sequence

from holdfast.broker.access.credential import matches_parts
from holdfast.core.client_type import ClientType
from holdfast.core.config import Config


class ClientTypes:
    """The rules of one configuration."""

    def __init__(self, config: Config) -> None:
        self._client_identifiers = _split(config.application_client_identifiers)
        self._user_names = _split(config.application_user_names)

    def of(self, client_identifier: str, user_name: str | None) -> ClientType:
        """What the client is; its user name is what it says, and nothing proves it."""
        if _any_matches(self._client_identifiers, client_identifier):
            return "APPLICATION"
        if user_name is not None and _any_matches(self._user_names, user_name):
            return "APPLICATION"
        return "DEVICE"


def _split(patterns: Sequence[str]) -> list[list[str]]:
    return [pattern.split("*") for pattern in patterns]


def _any_matches(patterns: list[list[str]], text: str) -> bool:
    # Most have none, and each client asks twice.
    return bool(patterns) and any(matches_parts(parts, text) for parts in patterns)
