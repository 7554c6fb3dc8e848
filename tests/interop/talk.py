"""What one conversation is made of: clients of the library in question, and others to talk to."""

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from tests.interop.device import Device
from tests.interop.driver import DrivenClient, Driver
from tests.interop.libraries import Library
from tests.interop.relay import Relay
from tests.process import BrokerProcess

SESSION_EXPIRY_INTERVAL_S = 600


@dataclass(frozen=True, slots=True)
class Listener:
    """Where a client finds the broker."""

    transport: str
    """As the drivers know it."""
    port: int


class Talk:
    """One scenario with one library, one protocol version, one listener."""

    def __init__(
        self,
        library: Library,
        driver: Driver,
        broker: BrokerProcess,
        *,
        version: int,
        listener: Listener,
        prefix: str,
    ) -> None:
        self.library = library
        self.broker = broker
        self.version = version
        self._listener = listener
        self._driver = driver
        self._prefix = prefix
        self._clients: list[DrivenClient] = []
        self._others: list[Device] = []

    def topic(self, name: str) -> str:
        """A topic of this conversation alone."""
        return f"{self._prefix}/{name}"

    def client(
        self,
        name: str = "client",
        *,
        persistent: bool = False,
        relay: Relay | None = None,
        **options: Any,
    ) -> DrivenClient:
        """A connected client of the library; `options` are those of the driver's command."""
        chosen: dict[str, Any] = {
            "version": self.version,
            "transport": self._listener.transport,
        }
        if persistent:
            chosen["clean_start"] = False
            if self.version == 5:
                chosen["session_expiry_interval"] = SESSION_EXPIRY_INTERVAL_S
        port = relay.port if relay else self._listener.port
        client = self._driver.client()
        self._clients.append(client)
        return client.connect(port, f"{self._prefix}{name}", **{**chosen, **options})

    def other(self, name: str = "other", *, persistent: bool = False) -> Device:
        """A connected client of another library, which speaks MQTT 5."""
        options: dict[str, Any] = {"clean_start": not persistent}
        if persistent:
            options["SessionExpiryInterval"] = SESSION_EXPIRY_INTERVAL_S
        self._others.append(Device(self.broker.port, f"{self._prefix}{name}", **options))
        return self._others[-1].connect()

    @contextmanager
    def relay(self, *, patient: bool = False) -> Iterator[Relay]:
        """A port that leads to the broker's, and records."""
        with Relay(self._listener.port, patient=patient) as relay:
            yield relay

    @property
    def shows_packets(self) -> bool:
        """True if a relay records packets as they are, without WebSocket's frames."""
        return self._listener.transport == "tcp"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        for client in self._clients:
            # What failed first is what the test tells.
            with contextlib.suppress(*([AssertionError] if failure else [])):
                if client.is_connected:
                    client.disconnect()
        for other in self._others:
            other.close()
