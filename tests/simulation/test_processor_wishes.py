"""What a processor asks a broker for, packet by packet, at a scripted server."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from random import Random

import pytest

from holdfast.client.consumer import Arrival
from holdfast.processors.session import Session
from holdfast.processors.settings import ProcessorSettings
from holdfast.testing.hardships import Hardships
from holdfast.testing.loop import VirtualLoop, simulate
from tests.simulation.remote import REMOTE_HOST, REMOTE_PORT, Remote


class Nobody:
    """Is told, and does nothing."""

    def arrived(self, arrivals: Sequence[Arrival]) -> None: ...

    def reconnected(self) -> None: ...

    def session_lost(self) -> None: ...


def asked(**changes: object) -> Remote:
    """What a scripted server was asked for by a processor with these settings."""
    told: dict[str, object] = {
        "name": "Readings",
        "environment": "qa",
        "client_identifier": "readings-qa-1",
        "group": "readings-qa",
        "topics": ("readings/+",),
        "sink": "sqlite:///unused.db",
        "broker_host": REMOTE_HOST,
        "broker_port": REMOTE_PORT,
        "tls": False,
        **changes,
    }
    remote = Remote()

    async def main(_loop: VirtualLoop) -> None:
        await remote.listen()
        session = Session(ProcessorSettings(**told), Nobody(), Random(1))  # type: ignore[arg-type]
        with suppress(TimeoutError):
            async with asyncio.timeout(2):
                await session.keep()

    simulate(main, seed=1, repeat="this test", hardships=Hardships())
    return remote


@pytest.mark.accepts("S3.29", "S3.30", "S3.31", "S3.35")
@pytest.mark.parametrize("clean_start", [False, True])
def test_it_asks_for_mqtt_5_its_session_and_qos_2(clean_start: bool) -> None:
    remote = asked(clean_start=clean_start)
    (connect,) = remote.all("connect")
    assert connect["protocol_version"] == 5
    assert connect["clean_start"] is clean_start
    assert connect["properties"]["session_expiry_interval"] == 3_600
    assert ("holdfast-environment", "qa") in connect["properties"]["user_property"]
    (subscribe,) = remote.all("subscribe")
    (wanted,) = subscribe["subscriptions"]
    assert (wanted["topic_filter"], wanted["qos"]) == ("$share/readings-qa/readings/+", 2)
    assert subscribe["properties"]["user_property"] == [("holdfast-identity", "on")]
