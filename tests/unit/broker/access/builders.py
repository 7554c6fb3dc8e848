"""Access without a broker: a log in memory, a clock by hand, and workers that wait to be told."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast.broker.access import passwords
from holdfast.broker.access.access import Access, Denial, Identity, Login
from holdfast.broker.access.users import Users
from holdfast.broker.counts import Counts
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.view import View
from holdfast.core.config import Config
from tests.unit.broker.test_control_records import FakeLog

CONFIG = Config(login_failures_maximum=3, login_ban_s=60, login_delay_s=1)
PEER = "10.1.2.3:5000"


class HandWorkers:
    """Does its work when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self.done = 0
        self.stopped = False

    def run(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.waiting.append((work, done))

    def stop(self) -> None:
        self.stopped = True

    def work(self) -> None:
        """Everything, and what follows from it."""
        while self.waiting:
            work, done = self.waiting.pop(0)
            self.done += 1
            done(work())


class HandWorld:
    """A world without a log and a disk."""

    def __init__(self) -> None:
        self.at_us = 0
        self.made = HandWorkers()
        self._given = 0

    def now_us(self) -> int:
        return self.at_us

    def ticks_ns(self) -> int:
        return self.at_us * 1_000

    def entropy(self, count: int) -> bytes:
        self._given += 1
        return self._given.to_bytes(2, "big") * (count // 2)

    def workers(self, _count: int) -> HandWorkers:
        return self.made


class DurableLog(FakeLog):
    """Whatever is appended is durable."""

    def append_control(self, table: int, key: bytes, value: bytes, now_us: int) -> int:
        position = super().append_control(table, key, value, now_us)
        self.durable = position
        return position


class Doorway:
    """Access, and what a test asks of it."""

    def __init__(self, **settings: Any) -> None:
        self.world = HandWorld()
        self.counts = Counts()
        self.log = DurableLog()
        self.config = replace(CONFIG, **settings)
        self.access = self.open()

    def open(self) -> Access:
        """As after a restart: from the log alone."""
        records = ControlRecords(self.log, View(":memory:"))
        records.recover(self.log.next_control_number())
        self.access = Access(self.config, self.world, records, self.counts)
        self.users = Users(self.access, self.world.now_us)
        return self.access

    def add(self, name: str, password: str | None = None, **fields: Any) -> None:
        """A user; proved by its password if it has one."""
        hashed = None
        if password is not None:
            hashed = passwords.hash_password(password.encode(), self.world.entropy)
        self.users.add({"name": name, **fields}, hashed)

    def begin(
        self, user_name: str | None = None, password: str | None = None, **fields: Any
    ) -> list[Identity | Denial]:
        """A login; the decision is in the list when there is one."""
        login = Login(
            **{
                "client_identifier": "reader-7",
                "user_name": user_name,
                "password": None if password is None else password.encode(),
                "peer": PEER,
                **fields,
            }
        )
        decided: list[Identity | Denial] = []
        at_once = self.access.authenticate(login, decided.append)
        if at_once is not None:
            decided.append(at_once)
        return decided

    def log_in(
        self, user_name: str | None = None, password: str | None = None, **fields: Any
    ) -> Identity | Denial:
        """A login, decided."""
        decided = self.begin(user_name, password, **fields)
        self.world.made.work()
        [decision] = decided
        return decision
