"""Environments as they are seen from outside: whose a client, a group or a loss is."""

from holdfast.broker.environments import Environments
from holdfast.broker.mqtt.session import Session, environment_of
from holdfast.broker.mqtt.sessions import Sessions
from holdfast.core.share_name import is_shared


class EnvironmentsState:
    """Tells whose something is; `None` where nothing tells it."""

    def __init__(self, environments: Environments, sessions: Sessions) -> None:
        self._environments = environments
        self._sessions = sessions

    def names(self) -> tuple[str, ...]:
        """All that are known."""
        return self._environments.names

    def of_session(self, session: Session) -> str | None:
        """Of a client's session."""
        return environment_of(self._environments, session) or None

    def of_group(self, group: str) -> str | None:
        """Of a group, by its whole name."""
        return self._environments.of_group(group) or None

    def of_owner(self, owner: str) -> str | None:
        """Of whoever has a queue: a client by its identifier, or a group by its whole name."""
        if is_shared(owner):
            return self.of_group(owner)
        attached = self._sessions.attached(owner)
        session = self._sessions.on_record(owner) if attached is None else attached.session
        if session is None:
            return self._environments.of_client(owner, "") or None
        return self.of_session(session)
