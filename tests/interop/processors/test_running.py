"""Processors beside real brokers, ours and Mosquitto: sessions, groups, TLS, and rows in SQLite."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from holdfast.client.http import HttpClient
from holdfast.client.mqtt import Client, ClientOptions, Publication
from holdfast.processors import run, run_all
from holdfast.processors.session import BrokerLostError, SessionTakenOverError
from holdfast.processors.settings import ProcessorSettings
from tests.builders.certificates import Authority
from tests.builders.readings import Readings, reading
from tests.interop.bridge.test_mosquitto import MakeMosquitto, make_mosquitto
from tests.interop.processors.databases import SqliteDatabase
from tests.interop.test_tls import TlsBroker
from tests.process import HOST, BrokerProcess

WITHIN_S = 60.0
COUNT = 500
IS_THERE_EVERY_S = 0.02

__all__ = ["make_mosquitto"]


def told(port: int, database: SqliteDatabase, instance: str = "pod-1", **changes: Any) -> Any:
    """What the processor of one instance is told."""
    chosen: dict[str, Any] = {
        "name": "Readings",
        "environment": "local-daves-macbook",
        "client_identifier": f"bbu-processor-local-daves-macbook-{instance}",
        "topics": ("readings/+",),
        "tls": False,
        "sink": database.url,
        "reconnect_delay_s": 0.1,
        **changes,
    }
    return ProcessorSettings(broker_host=HOST, broker_port=port, **chosen)


async def until(is_so: Callable[[], bool]) -> None:
    """Waits for what another process or thread does."""
    async with asyncio.timeout(WITHIN_S):
        while not is_so():
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), IS_THERE_EVERY_S)


async def publish(port: int, first: int, count: int, qos: int = 2) -> None:
    """Readings with the numbers from `first` on."""
    client = Client(f"reader-{first}", ClientOptions(clean_start=True))
    await client.connect(HOST, port)
    numbers = range(first, first + count)
    client.publish(*(Publication(f"readings/{n % 7}", reading(n), qos) for n in numbers))
    await client.idle.wait()
    client.disconnect()
    await client.lost.wait()


def values(database: SqliteDatabase) -> list[int]:
    with suppress(Exception):
        return sorted(value for (value,) in database.run("SELECT value FROM readings"))
    return []


@pytest.fixture
def database(tmp_path: Path) -> SqliteDatabase:
    return SqliteDatabase(tmp_path)


@pytest.fixture(params=["holdfast", "mosquitto"])
def port(
    request: pytest.FixtureRequest, tmp_path: Path, make_mosquitto: MakeMosquitto
) -> Iterator[int]:
    """Where a broker takes connections: any will do (S3.61)."""
    if request.param == "mosquitto":
        yield make_mosquitto("max_queued_messages 0").port
        return
    (tmp_path / "broker").mkdir()
    broker = BrokerProcess(tmp_path / "broker")
    broker.start()
    yield broker.port
    broker.stop()


def played(story: Awaitable[None]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(WITHIN_S):
            await story

    asyncio.run(whole())


@pytest.mark.accepts("S3.4", "S3.24", "S3.32", "S3.33", "S3.61")
def test_what_came_while_it_was_away_is_there_when_it_is_back(
    port: int, database: SqliteDatabase
) -> None:
    async def story() -> None:
        settings = told(port, database)
        async with run(Readings(), settings) as running:
            await until(lambda: running.waits_for() is None)
            await publish(port, 0, COUNT)
            await until(lambda: len(values(database)) == COUNT)
        await publish(port, COUNT, COUNT)
        assert values(database) == list(range(COUNT))
        async with run(Readings(), settings):
            await until(lambda: len(values(database)) == 2 * COUNT)
        assert values(database) == list(range(2 * COUNT))

    played(story())


@pytest.mark.accepts("S3.1", "S3.2", "S3.3", "S3.5")
def test_instances_of_one_environment_share_and_each_environment_has_all(
    port: int, tmp_path: Path
) -> None:
    async def story() -> None:
        pairs = []
        databases = {name: SqliteDatabase(tmp_path / name) for name in ("prod", "dev")}
        for environment, instance in (("prod", "1"), ("prod", "2"), ("dev", "1")):
            (tmp_path / environment).mkdir(exist_ok=True)
            settings = told(
                port,
                databases[environment],
                name=f"{environment}-{instance}",
                environment=environment,
                client_identifier=f"p-{environment}-{instance}",
                group=f"bbu-processors-{environment}",
            )
            pairs.append((Readings(), settings))
        async with run_all(pairs) as processes:
            await until(lambda: all(each.waits_for() is None for each in processes.each))
            await publish(port, 0, COUNT)
            await until(lambda: all(len(values(each)) == COUNT for each in databases.values()))
            received = [each.counted("received") for each in processes.each]
        assert all(values(each) == list(range(COUNT)) for each in databases.values())
        assert received[2] == COUNT
        assert received[0] + received[1] == COUNT
        assert min(received) > COUNT / 10

    played(story())


@pytest.mark.accepts("S3.28")
def test_of_two_with_one_identifier_the_loser_says_so_and_ends(
    own_broker: BrokerProcess, database: SqliteDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    async def both() -> None:
        settings = told(own_broker.port, database)
        async with run(Readings(), settings) as first:
            await until(lambda: first.waits_for() is None)
            async with run(Readings(), settings) as second:
                await until(lambda: second.waits_for() is None)
                await asyncio.Event().wait()

    with pytest.raises(SessionTakenOverError, match="bbu-processor-local-daves-macbook-pod-1"):
        played(both())
    assert "is used twice" in caplog.text
    assert caplog.text.count("is used twice") == 1


def test_where_the_broker_does_not_say_so_the_clash_is_suspected(
    make_mosquitto: MakeMosquitto, database: SqliteDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        settings = told(make_mosquitto().port, database)
        async with run(Readings(), settings), run(Readings(), settings):
            await until(lambda: "perhaps another client has the ClientId" in caplog.text)

    played(story())


@pytest.mark.accepts("S3.29", "S3.30", "S3.52", "S3.53", "S3.54")
def test_it_says_what_it_connects_and_subscribes_to_in_the_words_of_the_record(
    port: int, database: SqliteDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def story() -> None:
        group = "bbu-processors-local-daves-macbook"
        settings = told(port, database, "daves-macbook", group=group, topics=("zebra/fx/+/reads",))
        async with run(Readings(), settings) as running:
            await until(lambda: running.waits_for() is None)

    played(story())
    said = [record.getMessage() for record in caplog.records]
    assert (
        f"Connecting to MQTT broker: {HOST}:{port} (Environment: local-daves-macbook, ClientId: "
        "bbu-processor-local-daves-macbook-daves-macbook, CleanStart: False, SessionExpiry: 3600s)"
    ) in said
    assert (
        "Subscribing to topic: $share/bbu-processors-local-daves-macbook/zebra/fx/+/reads "
        "(shared group: bbu-processors-local-daves-macbook)"
    ) in said


def test_without_reconnecting_the_end_of_a_connection_ends_it(
    own_broker: BrokerProcess, database: SqliteDatabase
) -> None:
    async def story() -> None:
        settings = told(own_broker.port, database, auto_reconnect=False)
        async with run(Readings(), settings) as running:
            await until(lambda: running.waits_for() is None)
            own_broker.kill()
            await asyncio.Event().wait()

    with pytest.raises(BrokerLostError):
        played(story())


def test_it_speaks_tls_and_trusts_only_whom_it_is_told_to(
    tmp_path: Path, database: SqliteDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path / "certificates")
    broker = TlsBroker(tmp_path, authority)
    broker.start()

    async def story() -> None:
        told_to = {"tls": True, "tls_authority": str(authority.file)}
        settings = told(broker.tls_port, database, **told_to)
        async with run(Readings(), settings) as running:
            await until(lambda: running.waits_for() is None)
            await publish(broker.port, 0, 10)
            await until(lambda: len(values(database)) == 10)
        async with run(Readings(), told(broker.tls_port, database, tls=True)) as running:
            await until(lambda: "certificate verify failed" in caplog.text.lower())
            assert running.waits_for() == "the broker is not connected"

    try:
        played(story())
    finally:
        broker.kill()


def test_health_and_metrics_say_how_it_is(
    own_broker: BrokerProcess, database: SqliteDatabase
) -> None:
    async def story() -> None:
        settings = told(own_broker.port, database, health_port=0)
        pairs = [(Readings(), settings)]
        async with run_all(pairs) as processes, aiohttp.ClientSession() as http:
            (port,) = processes.health_ports
            address = f"http://{HOST}:{port}"

            async def ask(path: str) -> tuple[int, str]:
                async with http.get(address + path) as answer:
                    return answer.status, await answer.text()

            await until(lambda: processes.each[0].waits_for() is None)
            await publish(own_broker.port, 0, 10)
            await until(lambda: len(values(database)) == 10)
            assert (await ask("/health/live"))[0] == 200
            assert (await ask("/health/ready"))[0] == 200
            _, text = await ask("/metrics")
            labels = '{environment="local-daves-macbook",processor="Readings"}'
            assert f"holdfast_processor_messages_received_total{labels} 10.0" in text
            assert f"holdfast_processor_rows_written_total{labels} 10.0" in text
            own_broker.kill()
            await until(lambda: processes.each[0].waits_for() is not None)
            status, text = await ask("/health/ready")
            assert status == 503
            assert "the broker is not connected" in text
            assert (await ask("/health/live"))[0] == 200

    played(story())


def test_a_broker_that_knows_environments_is_told_which_one_it_is(
    tmp_path: Path, database: SqliteDatabase
) -> None:
    (tmp_path / "broker").mkdir()
    broker = BrokerProcess(tmp_path / "broker", http_port=0)
    broker.start()

    async def story() -> None:
        settings = told(broker.port, database, environment="Somewhere", client_identifier="any")
        async with run(Readings(), settings) as running:
            await until(lambda: running.waits_for() is None)
            client = HttpClient.at(broker.http_address)
            session = await asyncio.to_thread(client.get, "/v1/sessions/any")
            assert session["environment"] == "Somewhere"

    played(story())
    broker.stop()


def test_a_rejection_is_logged_with_its_reason_and_never_with_the_payload(
    port: int, database: SqliteDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        settings = told(port, database, maximum_attempts=1)
        async with run(Readings(), settings) as running:
            await until(lambda: running.waits_for() is None)
            client = Client("sender", ClientOptions(clean_start=True))
            await client.connect(HOST, port)
            for payload in (b"secret words", b'{"secret": 1}'):
                client.publish(Publication("readings/1", payload, 2))
            await client.idle.wait()
            client.disconnect()
            await until(lambda: len(rejections()) == 2)

    def rejections() -> list[str]:
        found = [each for each in caplog.records if each.message == "a message is rejected"]
        return [each.__dict__["fields"]["reason"] for each in found]

    with caplog.at_level(logging.WARNING):
        played(story())
    assert rejections() == ["the payload is no JSON", "KeyError"]
