"""Credentials and rules of a data directory on which no broker runs.

Owns: the log for as long as that takes, under the directory's lock, as a broker would. So the first
user can be set up before the first start, and what is written are the same control records.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from holdfast.broker.access.access import Access
from holdfast.broker.access.passwords import hash_password
from holdfast.broker.access.users import Users
from holdfast.broker.counts import Counts
from holdfast.broker.data_directory import held
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.view import View
from holdfast.broker.world import RealWorld
from holdfast.core.config import Config


@contextmanager
def users_at_rest(config: Config) -> Iterator["UsersAtRest"]:
    """The users of the data directory; what was changed is durable when the block has ended.

    Raises `DirectoryHeldError` if somebody else holds it, and what `Log.open` raises.
    """
    with held(config.data_dir):
        world = RealWorld()
        log, found = world.open_log(config)
        try:
            records = ControlRecords(log, View(world.view_path(config)))
            records.recover(found["control_number"])
            access = Access(config, world, records, Counts())
            yield UsersAtRest(Users(access, world.now_us), world)
            log.commit()
            records.refresh()
            records.close()
        finally:
            log.close()


class UsersAtRest:
    """As `Users`, and a new password is hashed here and now."""

    def __init__(self, users: Users, world: RealWorld) -> None:
        self._users = users
        self._entropy = world.entropy
        self.page = users.page
        self.find = users.find
        self.rules = users.rules
        self.rules_page = users.rules_page
        self.remove = users.remove
        self.add_rule = users.add_rule
        self.remove_rule = users.remove_rule

    def add(self, fields: Mapping[str, Any], password: str | None) -> None:
        """Adds a user."""
        self._users.add(fields, self._hash(password))

    def change(self, name: str, fields: Mapping[str, Any], password: str | None) -> None:
        """Changes what the fields say."""
        self._users.change(name, fields, self._hash(password))

    def _hash(self, password: str | None) -> str | None:
        return None if password is None else hash_password(password.encode(), self._entropy)
