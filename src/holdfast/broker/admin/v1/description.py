"""The broker itself: what runs and where, its settings, its numbers, its longest queues."""

import re
from collections.abc import Callable
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from holdfast import __version__, system
from holdfast.broker.admin.http.operation import Answered, Asked, Operation
from holdfast.broker.observe import metrics
from holdfast.broker.observe.snapshot import Snapshot
from holdfast.broker.state.broker import Broker
from holdfast.core.config import SETTINGS, Effective

SECRET: Final = re.compile(r"password|secret|token|private_key")
"""Settings whose name has such a word are shown as a mask."""
MASK: Final = "********"
Listeners = Callable[[], list[tuple[str, str]]]


class Listener(Struct, kw_only=True):
    """Where something listens."""

    protocol: str
    address: str


class Running(Struct, kw_only=True):
    """What runs, and where."""

    version: str
    uptime_s: float
    process: int
    epoch: Annotated[str, Meta(description="Which log it is.")]
    durability: str
    data_dir: str
    listeners: list[Listener]


class Setting(Struct, kw_only=True):
    """One setting as it is in force."""

    value: str
    origin: str
    default: str
    reason: str


class Configuration(Struct, kw_only=True):
    """Every setting, by its name."""

    settings: dict[str, Setting]


class Statistics(Struct, kw_only=True):
    """Every number, by its name."""

    statistics: dict[str, float]


class LongQueue(Struct, kw_only=True):
    """A queue of a connected session."""

    client_identifier: str
    environment: str | None
    messages: int
    in_flight: int
    unchanged_s: int
    stuck: str


class LongQueues(Struct, kw_only=True):
    """The longest queues, the longest first."""

    queues: list[LongQueue]


class Description:
    """What can be asked about the broker."""

    def __init__(
        self,
        broker: Broker,
        snapshot: Callable[[], Snapshot],
        listeners: Listeners,
        settings: Callable[[], Effective],
    ) -> None:
        self._broker = broker
        self._snapshot = snapshot
        self._listeners = listeners
        self._settings = settings

    def operations(self) -> list[Operation]:
        """What can be asked for."""

        def get(
            path: str, name: str, summary: str, run: Callable[[Asked], Any], answer: type[Struct]
        ) -> Operation:
            return Operation(
                method="GET",
                path=path,
                name=name,
                summary=summary,
                run=run,
                answers={200: Answered(summary, answer)},
            )

        return [
            get("/v1/broker", "describeBroker", "What runs, and where.", self.broker, Running),
            get(
                "/v1/configuration",
                "showConfiguration",
                "Each setting's value and where it came from; secrets are masked.",
                self.configuration,
                Configuration,
            ),
            get(
                "/v1/statistics",
                "readStatistics",
                "The numbers of /metrics by their names.",
                self.statistics,
                Statistics,
            ),
            get(
                "/v1/backlog/longest",
                "listLongestQueues",
                "The longest queues of connected sessions, as of the last round over all.",
                self.queues,
                LongQueues,
            ),
        ]

    async def broker(self, _asked: Asked) -> Running:
        """What runs, and where."""
        config = self._broker.config()
        return Running(
            version=__version__,
            uptime_s=self._broker.uptime_s(),
            process=system.process_id(),
            epoch=self._broker.log.epoch(),
            durability=config.durability,
            data_dir=str(config.data_dir.absolute()),
            listeners=[
                Listener(protocol=protocol, address=address)
                for protocol, address in self._listeners()
            ],
        )

    async def configuration(self, _asked: Asked) -> Configuration:
        """Each effective setting."""
        found = {}
        settings = self._settings()
        for name, row in SETTINGS.items():
            value = row.shown_in(settings.config)
            is_secret = SECRET.search(name) and value
            found[name] = Setting(
                value=MASK if is_secret else value,
                origin=settings.origins.get(name, "default"),
                default=str(row.default),
                reason=row.reason,
            )
        return Configuration(settings=found)

    async def statistics(self, _asked: Asked) -> Statistics:
        """Every number."""
        return Statistics(statistics=metrics.values(self._snapshot()))

    async def queues(self, _asked: Asked) -> LongQueues:
        """The longest queues."""
        now_us = self._broker.now_us()
        queues = [
            LongQueue(
                client_identifier=behind.client_identifier,
                environment=self._broker.environments.of_owner(behind.client_identifier),
                messages=behind.messages,
                in_flight=behind.in_flight,
                unchanged_s=(now_us - behind.unchanged_since_us) // 1_000_000,
                stuck=behind.stuck or "",
            )
            for behind in self._snapshot().busiest
        ]
        return LongQueues(queues=queues)
