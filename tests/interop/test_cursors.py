"""Cursors as readers and administrators have them over HTTP and with `holdfast cursor`."""

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.reading.criteria import Criteria
from holdfast.reading.log import Question, RecordsGoneError
from holdfast.reading.remote import RemoteLog
from tests.interop.seen import Seen
from tests.interop.test_admin import eventually
from tests.interop.wire import Wire
from tests.process import HOST

HOLDFAST = Path(sys.executable).with_name("holdfast")
SELECTION = ["zebra/fx/+/reads"]
ASKED = Criteria(filters=tuple(SELECTION))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    running = Seen(tmp_path_factory.mktemp("cursors"))
    running.start()
    publish(running, 6)
    yield running
    assert running.stop() == 0, running.log()


def publish(
    broker: Seen, count: int, topic: str = "zebra/fx/7/reads", payload: bytes = b"{}"
) -> None:
    with Wire(broker.port) as wire:
        wire.connect("publisher", clean_start=True, session_expiry_interval=0)
        for number in range(1, count + 1):
            wire.publish(topic, payload, qos=1, identifier=number)
            wire.receive("puback")


def make(broker: Seen, name: str, place: Any = "earliest", **more: Any) -> dict[str, Any]:
    body = {"selection": SELECTION, "place": place}
    status, found = broker.ask("PUT", f"/v1/cursors/{name}", body, **more)
    assert status == 200, found
    return found


def post(broker: Seen, name: str, action: str, **body: Any) -> tuple[int, dict[str, Any]]:
    return broker.ask("POST", f"/v1/cursors/{name}/{action}", body)


def command(broker: Seen, *arguments: str) -> subprocess.CompletedProcess[str]:
    where = ["--data-dir", str(broker.data_directory)]
    return subprocess.run(
        [HOLDFAST, "cursor", *arguments, *where], capture_output=True, text=True, check=False
    )


def authorized(user: str) -> dict[str, str]:
    word = base64.b64encode(f"{user}:a long password".encode()).decode()
    return {"Authorization": f"Basic {word}"}


def test_a_cursor_is_made_held_released_and_seen(broker: Seen) -> None:
    made = make(broker, "bronze")
    assert (made["place"], made["selection"], made["holder"]) == (0, SELECTION, "")
    assert made["epoch"] == broker.get("/v1/log")["epoch"]
    status, held = post(broker, "bronze", "hold", holder="q1", held_as="query 1 on host a")
    assert (status, held["held_as"]) == (200, "query 1 on host a")
    assert 100 < held["hold_ends_in_s"] <= 120
    status, refused = post(broker, "bronze", "hold", holder="q2")
    assert (status, refused["error"]) == (409, "held")
    assert "held by query 1 on host a (q1)" in refused["detail"]
    status, released = post(broker, "bronze", "release", holder="q1", offset=4)
    assert (status, released["place"]) == (200, 4)
    shown = broker.get("/v1/cursors/bronze")
    assert (shown["waiting"], shown["exact"]) == (2, True)
    assert shown["oldest_at_us"] > 0
    assert shown["first_loss_in_s"] <= 30 * 86_400
    assert [row["name"] for row in broker.get("/v1/cursors")["cursors"]] == ["bronze"]
    queue = broker.get("/v1/queues/bronze")
    assert (queue["kind"], queue["messages"], queue["consumers"]) == ("cursor", 2, 1)
    assert queue["readers"][0]["committed_offset"] == 4
    assert broker.ask("DELETE", "/v1/cursors/bronze")[0] == 200
    assert broker.ask("GET", "/v1/cursors/bronze")[1]["error"] == "no_such_cursor"


@pytest.mark.parametrize(
    ("name", "body", "sentence"),
    [
        ("tbmq.msg.all", {"selection": ["t"]}, "a cursor cannot be called 'tbmq.msg.all'"),
        ("-x", {"selection": ["t"]}, "a letter or digit first"),
        ("x" * 101, {"selection": ["t"]}, "1 to 100 letters"),
        ("x", {"selection": []}, "selection"),
        ("x", {"selection": ["a/#/b"]}, "which selects nothing of the log"),
        ("x", {"selection": ["$share/g/t"]}, "which selects nothing of the log"),
        ("x", {"selection": ["t"], "place": "begin"}, "place"),
        ("x", {"selection": ["t"], "place": 10**6}, "beyond the log's end"),
    ],
)
def test_what_no_cursor_can_be_is_refused(
    broker: Seen, name: str, body: dict[str, Any], sentence: str
) -> None:
    status, refused = broker.ask("PUT", f"/v1/cursors/{name}", body)
    assert status in (400, 409)
    assert sentence in refused["detail"]
    assert broker.get("/v1/cursors")["cursors"] == []


def test_what_a_cursor_keeps_is_read_from_before_the_log_begins(tmp_path: Path) -> None:
    broker = Seen(tmp_path, segment_bytes=2 << 20, retention_bytes=4 << 20)
    broker.start()
    publish(broker, 3)
    make(broker, "bronze")
    publish(broker, 100, topic="other", payload=bytes(100_000))
    log = RemoteLog(f"{HOST}:{broker.http_port}")
    eventually(lambda: log.extent().begin > 3, "segments removed")
    end = log.extent().end
    with pytest.raises(RecordsGoneError):
        log.read(Question(ASKED, 0, end))
    with pytest.raises(RecordsGoneError):
        log.read(Question(Criteria(filters=("other",)), 0, end))
    kept = RemoteLog(f"{HOST}:{broker.http_port}", cursor="bronze")
    assert kept.read(Question(ASKED, 0, end)).batch.column("offset").to_pylist() == [0, 1, 2]
    assert kept.reach(ASKED, 0, end, rows=2).end == 2
    assert kept.split(ASKED, 0, end, 1) == [(0, end)]
    post(broker, "bronze", "release", holder="q", offset=2)
    with pytest.raises(RecordsGoneError):
        kept.read(Question(ASKED, 0, end))
    assert kept.read(Question(ASKED, 2, end)).batch.num_rows == 1
    assert broker.stop() == 0, broker.log()


def test_readers_have_cursors_and_administrators_have_everybody_s(tmp_path: Path) -> None:
    broker = Seen(tmp_path)
    broker.start()
    for name, roles in (
        ("ada", {"administrator": True}),
        ("spark", {"reader": True}),
        ("flink", {"reader": True}),
        ("gate", {}),
    ):
        given = authorized("ada") if name != "ada" else {}
        user = {"name": name, "password": "a long password", **roles}
        assert broker.ask("POST", "/v1/users", user, **given)[0] in (200, 201)
    assert make(broker, "bronze", **authorized("spark"))["made_by"] == "spark"

    def asks(user: str, method: str, action: str, **body: Any) -> int:
        given = None if method == "DELETE" else body
        return broker.ask(method, f"/v1/cursors/bronze{action}", given, **authorized(user))[0]

    assert asks("gate", "POST", "/hold", holder="q") == 401
    assert asks("flink", "POST", "/hold", holder="q") == 200
    assert asks("flink", "POST", "/release", holder="q", offset=0, let_go=True) == 200
    assert asks("spark", "POST", "/move", place="earliest") == 401
    assert asks("ada", "POST", "/move", place="earliest") == 200
    assert asks("flink", "POST", "/fork", name="silver") == 200
    assert asks("flink", "DELETE", "") == 403
    assert asks("spark", "DELETE", "") == 200
    status, _ = broker.ask("DELETE", "/v1/cursors/silver", **authorized("ada"))
    assert status == 200
    assert broker.stop() == 0, broker.log()


def test_the_command_lists_shows_forks_moves_and_removes(broker: Seen) -> None:
    make(broker, "bronze", 2)
    assert command(broker, "fork", "bronze", "audit").returncode == 0
    assert command(broker, "move", "audit", "latest").returncode == 0
    rows = [json.loads(line) for line in command(broker, "list", "--json").stdout.splitlines()]
    assert [(row["name"], row["place"], row["waiting"]) for row in rows] == [
        ("audit", 6, 0),
        ("bronze", 2, 4),
    ]
    assert "bronze" in command(broker, "list").stdout
    assert SELECTION[0] in command(broker, "show", "bronze").stdout
    post(broker, "bronze", "hold", holder="q1", held_as="query 1")
    held = command(broker, "move", "bronze", "5")
    assert (held.returncode, "held by query 1" in held.stderr) == (1, True)
    wrong = command(broker, "move", "bronze", "soon")
    assert (wrong.returncode, "earliest, latest or an offset" in wrong.stderr) == (2, True)
    for name in ("bronze", "audit"):
        assert command(broker, "remove", name).returncode == 0
    assert command(broker, "remove", "bronze").returncode == 1


def test_metrics_and_top_show_each_cursor(broker: Seen) -> None:
    make(broker, "seen", 1)
    key = 'holdfast_cursor_lag_messages{cursor="seen"}'
    eventually(lambda: broker.number(key) == 5, "five messages behind")
    assert broker.number('holdfast_cursor_first_loss_seconds{cursor="seen"}') > 0
    assert broker.number('holdfast_cursor_oldest_seconds{cursor="seen"}') >= 0
    assert broker.number("holdfast_first_loss_seconds") > 0
    top = subprocess.run(
        [HOLDFAST, "top", "--once", "--data-dir", str(broker.data_directory)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "cursors" in top.stdout
    assert "seen" in top.stdout
    broker.ask("DELETE", "/v1/cursors/seen")


def test_what_a_cursor_has_lost_is_not_driven_again(tmp_path: Path) -> None:
    broker = Seen(
        tmp_path, segment_bytes=2 << 20, retention_bytes=4 << 20, cursor_unreleased_age_s=1
    )
    broker.start()
    publish(broker, 3)
    make(broker, "bronze")
    publish(broker, 100, topic="other", payload=bytes(100_000))
    eventually(lambda: bool(broker.get("/v1/losses")["losses"]), "a loss")
    (row,) = broker.get("/v1/losses")["losses"]
    lost = (row["client_identifier"], row["reason"], row["first_offset"], row["count"])
    assert lost == ("bronze", "retention", 0, 3)
    status, refused = broker.ask("POST", f"/v1/losses/{row['number']}/redrive", {})
    assert (status, refused["error"]) == (409, "gone")
    assert "the cursor 'bronze' lost it" in refused["detail"]
    assert broker.stop() == 0, broker.log()
