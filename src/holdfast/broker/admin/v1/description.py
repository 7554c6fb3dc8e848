"""The broker itself: what runs and where, its settings, its numbers, its longest queues."""

import re
from collections.abc import Callable
from typing import Any, Final

from holdfast import __version__, system
from holdfast.broker.admin.http.operation import Answered, Asked, Operation, Schema, row_of
from holdfast.broker.observe import metrics
from holdfast.broker.observe.snapshot import Snapshot
from holdfast.broker.server import Server
from holdfast.core.config import SETTINGS, Effective

SECRET: Final = re.compile(r"password|secret|token|private_key")
"""Settings whose name has such a word are shown as a mask."""
MASK: Final = "********"
SETTING = row_of(value="string", origin="string", default="string", reason="string")
QUEUE = row_of(
    client_identifier="string",
    messages="integer",
    in_flight="integer",
    unchanged_s="integer",
    stuck="string",
)
LISTENER = row_of(protocol="string", address="string")
BROKER: Schema = {
    "type": "object",
    "required": ["version", "uptime_s", "process", "epoch", "durability", "listeners"],
    "properties": {
        "version": {"type": "string"},
        "uptime_s": {"type": "number"},
        "process": {"type": "integer"},
        "epoch": {"type": "string", "description": "Which log it is."},
        "durability": {"type": "string"},
        "data_dir": {"type": "string"},
        "listeners": {"type": "array", "items": LISTENER},
    },
}
Listeners = Callable[[], list[tuple[str, str]]]


class Description:
    """What can be asked about the broker."""

    def __init__(
        self,
        server: Server,
        snapshot: Callable[[], Snapshot],
        listeners: Listeners,
        settings: Callable[[], Effective],
    ) -> None:
        self._server = server
        self._snapshot = snapshot
        self._listeners = listeners
        self._settings = settings

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        settings = {"type": "object", "additionalProperties": SETTING}
        numbers = {"type": "object", "additionalProperties": {"type": "number"}}

        def get(
            path: str, name: str, summary: str, run: Callable[[Asked], Any], answer: Schema
        ) -> Operation:
            return Operation(
                method="GET",
                path=path,
                name=name,
                summary=summary,
                run=run,
                answers={200: Answered(summary, answer)},
            )

        members: Schema = {"type": "object", "required": ["settings"]}
        members["properties"] = {"settings": settings}
        counted: Schema = {"type": "object", "required": ["statistics"]}
        counted["properties"] = {"statistics": numbers}
        queues: Schema = {"type": "object", "required": ["queues"]}
        queues["properties"] = {"queues": {"type": "array", "items": QUEUE}}
        return [
            get("/v1/broker", "describeBroker", "What runs, and where.", self.broker, BROKER),
            get(
                "/v1/configuration",
                "showConfiguration",
                "Each setting's value and where it came from; secrets are masked.",
                self.configuration,
                members,
            ),
            get(
                "/v1/statistics",
                "readStatistics",
                "The numbers of /metrics by their names.",
                self.statistics,
                counted,
            ),
            get(
                "/v1/backlog/longest",
                "listLongestQueues",
                "The longest queues of connected sessions, as of the last round over all.",
                self.queues,
                queues,
            ),
        ]

    async def broker(self, _asked: Asked) -> dict[str, Any]:
        """What runs, and where."""
        config = self._server.config
        return {
            "version": __version__,
            "uptime_s": self._server.uptime_s(),
            "process": system.process_id(),
            "epoch": self._server.stages.kernel.log.epoch(),
            "durability": config.durability,
            "data_dir": str(config.data_dir.absolute()),
            "listeners": [
                {"protocol": protocol, "address": address}
                for protocol, address in self._listeners()
            ],
        }

    async def configuration(self, _asked: Asked) -> dict[str, Any]:
        """Each effective setting."""
        found = {}
        settings = self._settings()
        for name, row in SETTINGS.items():
            value = row.shown_in(settings.config)
            is_secret = SECRET.search(name) and value
            found[name] = {
                "value": MASK if is_secret else value,
                "origin": settings.origins.get(name, "default"),
                "default": str(row.default),
                "reason": row.reason,
            }
        return {"settings": found}

    async def statistics(self, _asked: Asked) -> dict[str, Any]:
        """Every number."""
        return {"statistics": metrics.values(self._snapshot())}

    async def queues(self, _asked: Asked) -> dict[str, Any]:
        """The longest queues."""
        now_us = self._server.now_us()
        queues = [
            {
                "client_identifier": behind.client_identifier,
                "messages": behind.messages,
                "in_flight": behind.in_flight,
                "unchanged_s": (now_us - behind.unchanged_since_us) // 1_000_000,
                "stuck": behind.stuck,
            }
            for behind in self._snapshot().busiest
        ]
        return {"queues": queues}
