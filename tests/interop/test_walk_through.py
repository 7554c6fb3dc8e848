"""The story of a WebSocket client that goes away and comes back, with the libraries that pages in
browsers and services use; and what has to be different for it to get nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.device import Device
from tests.interop.driver import Driver
from tests.interop.installation import ROOT
from tests.interop.libraries import LIBRARIES
from tests.process import BrokerProcess

TOPIC = "session/persistent"
SENT = [b"message %d" % number for number in range(5)]
LAST = b"the last one"
"""What was sent before it has come, or never comes."""
KEPT_S = 3_600

BROWSERS = {library.name: library for library in LIBRARIES if library.over_websocket}


class Broker(BrokerProcess):
    """A broker with WebSocket on its HTTP listener, as a first start has it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, http_port=0)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    running = Broker(tmp_path_factory.mktemp("broker"))
    running.start()
    yield running
    assert running.stop() == 0, running.log()


@pytest.fixture(scope="module", params=["mqtt_js", "paho"])
def driver(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Driver]:
    library = BROWSERS[request.param]
    log_file = tmp_path_factory.mktemp("driver") / "log"
    running = Driver(library.driver(), ROOT, log_file)
    yield running
    running.stop()


@pytest.fixture(params=[5, 4], ids=["v5", "v311"])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


class Story:
    """Subscribes, goes away while another client publishes, and comes back."""

    def __init__(self, broker: Broker, driver: Driver, version: int, name: str) -> None:
        self._broker = broker
        self._driver = driver
        self._version = version
        self._name = name

    def tell(
        self, *, clean: bool, expiry_s: int | None, subscribed: int, published: int
    ) -> tuple[bool, list[bytes]]:
        """Whether the session was present, and what came of it."""
        options: dict[str, Any] = {"clean_start": clean}
        if self._version == 5:
            options["session_expiry_interval"] = expiry_s
        before = self._come(options)
        assert not before.session_present
        before.subscribe(TOPIC, subscribed)
        before.disconnect()
        other = Device(self._broker.port, f"{self._name}-publisher", clean_start=True).connect()
        for payload in SENT:
            other.publish(TOPIC, payload, published)
        # What nobody acknowledges has been taken, too, when something later has.
        other.publish("elsewhere", b"", 1)
        back = self._come(options)
        # A client that begins anew knows that it has to subscribe again.
        if not back.session_present:
            back.subscribe(TOPIC, subscribed)
        other.publish(TOPIC, LAST, max(published, 1))
        received: list[bytes] = []
        while LAST not in received:
            received.append(back.receive().payload)
        back.disconnect()
        other.close()
        return bool(back.session_present), received[:-1]

    def _come(self, options: dict[str, Any]) -> Any:
        client = self._driver.client()
        return client.connect(
            self._broker.http_port, self._name, transport="ws", version=self._version, **options
        )


@pytest.fixture
def story(broker: Broker, driver: Driver, version: int, prefix: str) -> Story:
    return Story(broker, driver, version, f"{prefix}-browser")


@pytest.mark.accepts("S2.61", "S2.20")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_websocket_client_gets_what_came_while_it_was_away(story: Story, qos: int) -> None:
    told = story.tell(clean=False, expiry_s=KEPT_S, subscribed=qos, published=qos)
    assert told == (True, SENT)


@pytest.mark.accepts("S2.62")
@pytest.mark.parametrize(("subscribed", "published"), [(0, 1), (1, 0), (0, 0)])
def test_it_gets_none_of_it_at_qos_0(story: Story, subscribed: int, published: int) -> None:
    told = story.tell(clean=False, expiry_s=KEPT_S, subscribed=subscribed, published=published)
    assert told == (True, [])


@pytest.mark.accepts("S2.62", "S2.17")
def test_it_gets_none_of_it_with_a_clean_session(story: Story) -> None:
    told = story.tell(clean=True, expiry_s=0, subscribed=1, published=1)
    assert told == (False, [])
