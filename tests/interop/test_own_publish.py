"""What an administrator publishes is durable when it is answered, also at QoS 2."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.seen import Seen


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Seen]:
    running = Seen(tmp_path)
    running.start()
    yield running
    if running.is_running():
        assert running.stop() == 0, running.log()


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_answered_is_there_after_a_kill(broker: Seen, qos: int) -> None:
    for number in range(20):
        body = {"topic_name": f"own/{number}", "payload": "x", "qos": qos, "retain": True}
        assert broker.ask("POST", "/v1/publish", body)[0] == 200
        # What is answered is durable, so it can be read at once.
        where = f"/v1/retained/message?topic_name=own/{number}"
        assert broker.ask("GET", where)[0] == 200
    broker.kill()
    broker.start()
    topics = broker.get("/v1/topics", filter="own/#")["topics"]
    assert len(topics) == 20
