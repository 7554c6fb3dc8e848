"""Dead letters at a real broker: kept, looked at, and sent back to where they came from."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.client.mqtt import Client, ClientOptions, Publication
from holdfast.processors import run
from holdfast.processors.message import Message
from holdfast.processors.processor import RejectedError
from holdfast.processors.table import Row
from tests.builders.readings import Readings, reading
from tests.interop.processors.databases import SqliteDatabase
from tests.interop.processors.test_running import played, publish, told, until, values
from tests.interop.users import Users
from tests.process import HOST, BrokerProcess

ENVIRONMENT = "local-daves-macbook"
Ask = Callable[..., str]
REASON = "nobody knows the sensor"


class Strict(Readings):
    """Rejects what a later version takes."""

    def parse(self, message: Message) -> list[Row]:
        raise RejectedError(REASON)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    (tmp_path / "broker").mkdir()
    started = BrokerProcess(tmp_path / "broker")
    started.start()
    yield started
    started.stop()


@pytest.fixture
def asked(broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Runs `holdfast processors dead-letters` and returns what it printed."""
    file = tmp_path / "appsettings.json"
    one = {
        "Processor": "tests.builders.readings:Readings",
        "BrokerHost": HOST,
        "BrokerPort": broker.port,
        "UseTls": False,
        "SubscribeTopics": ["readings/+"],
        "EnvironmentId": ENVIRONMENT,
        "Sink": f"sqlite:///{tmp_path / 'unused.db'}",
    }
    file.write_text(json.dumps({"Mqtt": {"Readings": one}}))

    def ask(action: str, *more: str, code: int = 0) -> str:
        capsys.readouterr()
        whole = ["processors", "dead-letters", action, str(file), "Readings", *more]
        assert main(whole) == code
        told = capsys.readouterr()
        return told.out + told.err

    return ask


def test_a_dead_letter_waits_until_the_processor_may_have_it_kept(
    broker: BrokerProcess, tmp_path: Path, asked: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    users = Users(broker)
    users.run("deny", "everyone", "subscribe", "dead-letters/#")
    users.run("allow", "everyone", "all", "#")

    async def reject() -> None:
        async with run(Strict(), told(broker.port, SqliteDatabase(tmp_path))) as running:
            await until(lambda: running.waits_for() is None)
            await publish(broker.port, 0, 1)
            # Published, it would be nobody's, and its message would be done with.
            await until(lambda: "dead letters wait" in caplog.text)
            assert running.counted("dead_letters") == 0
            users.run("rules", "everyone", "--remove", "1")
            await until(lambda: running.counted("dead_letters") == 1)

    played(reject())
    assert asked("list").endswith("1 dead letters\n")


def test_dead_letters_are_listed_and_driven_back(
    broker: BrokerProcess, tmp_path: Path, asked: Ask
) -> None:
    database = SqliteDatabase(tmp_path)
    settings = told(broker.port, database)

    async def reject() -> None:
        async with run(Strict(), settings) as running:
            await until(lambda: running.waits_for() is None)
            client = Client("reader", ClientOptions(clean_start=True))
            await client.connect(HOST, broker.port)
            own = {"user_property": [("site", "north")]}
            for number in (1, 2, 3):
                client.publish(Publication(f"readings/{number}", reading(number), 2, False, own))
            await client.idle.wait()
            client.disconnect()
            await until(lambda: running.counted("dead_letters") == 3)

    async def take() -> None:
        async with run(Readings(), settings):
            await until(lambda: values(database) == [1, 3])

    played(reject())
    for _ in range(2):
        found = json.loads(asked("list", "--json"))
        assert [each["topic"] for each in found] == ["readings/1", "readings/2", "readings/3"]
    assert {each["reason"] for each in found} == {REASON}
    assert asked("list").endswith("3 dead letters\n")
    shown = asked("show", "2")
    assert '{"value": 2}' in shown
    assert "['site', 'north']" in shown
    assert "no dead letter 9" in asked("show", "9", code=2)
    assert "their numbers, or --all" in asked("drive", code=2)
    assert asked("drive", "1", "3").count("is back in readings/") == 2
    assert [each["topic"] for each in json.loads(asked("list", "--json"))] == ["readings/2"]
    played(take())
    asked("drive", "--all")
    assert asked("list") == "0 dead letters\n"
