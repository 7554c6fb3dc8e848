"""The HTTP interface as a client sees it: status, form and bounds of every answer."""

import http.client
import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pytest

from holdfast import system
from holdfast.broker.admin.http.arrow_stream import WHOLE_BYTES, encode_stream
from holdfast.core.layout import LOG_DIRECTORY
from holdfast.reading.directory import LogDirectory
from holdfast.reading.log import COLUMNS_UNASKED
from tests.builders.served import served
from tests.builders.stored import START_US, STEP_US, Message, forget, store


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("log") / "data"
    store(found, [Message(f"t/{number % 2}", b"%d" % number) for number in range(20)])
    return found


@pytest.fixture(scope="module")
def address(directory: Path) -> Iterator[str]:
    with served(directory, durable_offset=18) as found:
        yield found


def get(address: str, path: str, **query: Any) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request("GET", f"{path}?{urlencode(query, doseq=True)}" if query else path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def document(address: str, path: str, **query: Any) -> dict[str, Any]:
    status, body = get(address, path, **query)
    assert status == 200, body
    found: dict[str, Any] = json.loads(body)
    return found


def records(address: str, **query: Any) -> tuple[pa.RecordBatch, dict[str, int]]:
    status, body = get(address, "/v1/log/records", **query)
    assert status == 200, body
    stream = pa.ipc.open_stream(body)
    told = stream.schema.metadata
    assert told.pop(b"epoch").decode() == document(address, "/v1/log")["epoch"]
    return stream.read_next_batch(), {name.decode(): int(value) for name, value in told.items()}


def test_health(address: str) -> None:
    assert document(address, "/health/live") == {"status": "live"}
    host, port = address.split(":")
    connection = http.client.HTTPConnection(host, int(port))
    connection.request("HEAD", "/health/live")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    connection.close()
    assert document(address, "/health/ready") == {"status": "ready"}


def test_the_log_says_which_it_is_and_where_it_ends(address: str, directory: Path) -> None:
    found = document(address, "/v1/log")
    assert found["epoch"] == LogDirectory(str(directory / LOG_DIRECTORY)).extent().epoch
    [shard] = found["shards"]
    assert (shard["shard"], shard["begin"], shard["end"]) == (0, 0, 18)


def test_records_come_as_arrow_with_where_to_go_on(address: str) -> None:
    batch, told = records(address, filter="t/1", **{"from": 3, "to": 15}, max_rows=4)
    assert tuple(batch.schema.names) == COLUMNS_UNASKED
    assert batch["offset"].to_pylist() == [3, 5, 7, 9]
    assert (told["begin"], told["end"]) == (3, 15)
    rest, told = records(address, filter="t/1", **{"from": told["next_offset"], "to": 15})
    assert rest["offset"].to_pylist() == [11, 13]
    assert told["next_offset"] == 15


def test_nothing_that_is_not_durable(address: str) -> None:
    batch, told = records(address)
    assert batch["offset"].to_pylist() == list(range(18))
    assert told == {"begin": 0, "end": 18, "next_offset": 18, "missing": 0}
    batch, told = records(address, **{"from": 18})
    assert (batch.num_rows, told["next_offset"]) == (0, 18)


def test_columns_and_several_filters(address: str) -> None:
    batch, _ = records(address, filter=["t/0", "t/1"], columns="offset,value", max_rows=2)
    assert batch.to_pylist() == [{"offset": 0, "value": b"0"}, {"offset": 1, "value": b"1"}]


def test_offset_of_a_time(address: str) -> None:
    assert document(address, "/v1/log/offset", time=START_US)["offset"] == 0
    assert document(address, "/v1/log/offset", time=START_US + 5 * STEP_US)["offset"] == 5
    assert document(address, "/v1/log/offset", time=START_US + 5 * STEP_US + 1)["offset"] == 6
    assert document(address, "/v1/log/offset", time="2099-01-01")["offset"] == 18


def test_a_plan_covers_its_range(address: str) -> None:
    parts = document(address, "/v1/log/plan", parts=3, **{"from": 2, "to": 17})["parts"]
    assert 1 <= len(parts) <= 3
    edges = [2, *(part["to"] for part in parts)]
    assert [part["from"] for part in parts] == edges[:-1]
    assert edges[-1] == 17


def test_the_end_after_rows(address: str) -> None:
    assert document(address, "/v1/log/end", filter="t/1", rows=3)["end"] == 6
    assert document(address, "/v1/log/end", filter="t/1", rows=1000)["end"] == 18


def post(address: str, path: str, body: dict[str, Any], **more_headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        headers = {"Content-Type": "application/json", **more_headers}
        connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def read_by_body(address: str, **body: Any) -> list[int]:
    status, content = post(address, "/v1/log/records", {"columns": ["offset"], **body})
    assert status == 200, content
    found: list[int] = pa.ipc.open_stream(content).read_next_batch()["offset"].to_pylist()
    return found


def test_a_body_has_room_for_ten_thousand_topics(address: str) -> None:
    topics = [f"some/long/name/of/a/topic/{number}" for number in range(10_000)]
    assert read_by_body(address, filter=[*topics, "t/1"]) == list(range(1, 18, 2))
    assert read_by_body(address, topics=[*topics, "t/0"]) == list(range(0, 18, 2))


def test_a_body_says_what_a_message_has_to_meet(address: str) -> None:
    assert read_by_body(address, pattern="t/[1-9]") == list(range(1, 18, 2))
    assert read_by_body(address, pattern="t") == []
    assert read_by_body(address, prefix="t/0", **{"from": 3, "to": 9}) == [4, 6, 8]
    assert read_by_body(address, qos=[2]) == []
    assert read_by_body(address, retain=True) == []
    assert read_by_body(address, keys=["aw=="]) == []
    spans = [{"filter": "t/0", "until": 5}, {"filter": "#", "from": 15, "until": 17}]
    assert read_by_body(address, spans=spans) == [0, 2, 4, 15, 16]


def test_one_request_tells_the_extent_and_how_far_a_range_reaches(
    address: str, directory: Path
) -> None:
    found = document(address, "/v1/log/end", filter="t/1", rows=3)
    assert START_US < found.pop("now_us") <= system.now_us()
    assert found == {
        "end": 6,
        "rows": 3,
        "epoch": LogDirectory(str(directory / LOG_DIRECTORY)).extent().epoch,
        "log_begin": 0,
        "log_end": 18,
        "next_at_us": START_US + 6 * STEP_US,
        "behind": 6,
        "behind_exact": True,
        "before_at_us": None,
        "last_at_us": START_US + 5 * STEP_US,
        "taken": 0,
    }
    rest = document(address, "/v1/log/end", **{"from": 6})
    assert rest["next_at_us"] is None
    assert (rest["before_at_us"], rest["last_at_us"]) == (
        found["last_at_us"],
        START_US + 17 * STEP_US,
    )


def test_parts_can_be_bounded_by_rows(address: str) -> None:
    status, body = post(address, "/v1/log/plan", {"rows": 4, "filter": ["t/1"]})
    assert status == 200, body
    parts = [(part["from"], part["to"]) for part in json.loads(body)["parts"]]
    assert parts == [(0, 8), (8, 16), (16, 18)]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"filter": ["a/#/b"]}, "filter 'a/#/b' is not"),
        ({"pattern": "a("}, "pattern: "),
        ({"keys": ["?"]}, "keys: "),
        ({"keys": ["é"]}, "keys: "),
        ({"columns": ["colour"]}, "columns: no column 'colour'"),
        ({"from": 5, "to": 4}, "from (5) is greater than to (4)"),
        ({"qos": [3]}, "qos[0] must"),
        ({"limit": 1}, "unknown member 'limit'"),
    ],
)
def test_a_wrong_member_of_a_body_is_refused_by_name(
    address: str, body: dict[str, Any], words: str
) -> None:
    status, content = post(address, "/v1/log/records", body)
    answer = json.loads(content)
    assert (status, answer["error"]) == (400, "bad_request")
    assert words in answer["detail"]


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/v1/log/records", {"from": "x"}),
        ("/v1/log/records", {"from": 5, "to": 4}),
        ("/v1/log/records", {"max_rows": 0}),
        ("/v1/log/records", {"max_rows": 10**9}),
        ("/v1/log/records", {"max_bytes": 10**12}),
        ("/v1/log/records", {"filter": "a/#/b"}),
        ("/v1/log/records", {"columns": "colour"}),
        ("/v1/log/records", {"limit": 5}),
        ("/v1/log/plan", {"parts": 0}),
        ("/v1/log/end", {"rows": 0}),
        ("/v1/log/offset", {"time": "soon"}),
        ("/v1/log", {"x": 1}),
    ],
)
def test_a_wrong_parameter_is_refused_by_name(
    address: str, path: str, query: dict[str, Any]
) -> None:
    status, body = get(address, path, **query)
    answer = json.loads(body)
    assert (status, answer["error"]) == (400, "bad_request")
    assert (*query, "rows")[0] in answer["detail"]


NO_REQUEST = "what came is no request of HTTP"
TOO_LONG = "the first line of the request, or a header, is too long"


@pytest.mark.parametrize(
    ("headers", "detail"),
    [
        ("Authorization: Basic c2VjcmV0\x01", NO_REQUEST),
        ("c2VjcmV0", NO_REQUEST),
        ("X-Long: c2VjcmV0" + "x" * 10_000, TOO_LONG),
        ("Transfer-Encoding: chunked", NO_REQUEST),
    ],
)
def test_what_is_not_http_is_refused_as_json_and_nobody_is_told_its_bytes(
    address: str, headers: str, detail: str, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = address.split(":")
    caplog.set_level(logging.INFO)
    with socket.create_connection((host, int(port)), timeout=10) as peer:
        peer.sendall(f"GET / HTTP/1.1\r\nHost: x\r\n{headers}\r\n\r\nc2VjcmV0\r\n".encode())
        answer = http.client.HTTPResponse(peer)
        answer.begin()
        assert answer.status == 400
        assert json.load(answer) == {"error": "bad_request", "detail": detail}
    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == ("INFO", "a request is not HTTP")
    assert record.exc_info is None
    assert "c2VjcmV0" not in str(vars(record))


def test_a_body_that_is_not_compressed_as_it_says_is_refused(address: str) -> None:
    status, content = post(address, "/v1/log/records", {}, **{"Content-Encoding": "gzip"})
    answer = json.loads(content)
    assert (status, answer["error"]) == (400, "bad_request")
    assert "not encoded" in answer["detail"]


def test_what_is_not_there(address: str) -> None:
    status, body = get(address, "/v1/nothing")
    assert (status, json.loads(body)) == (
        404,
        {"error": "not_found", "detail": "GET /v1/nothing: see /v1/openapi.json for what there is"},
    )


def test_no_log_is_an_error_of_the_server(tmp_path: Path) -> None:
    with served(tmp_path / "nothing") as address:
        status, body = get(address, "/v1/log")
        assert (status, json.loads(body)["error"]) == (500, "unreadable")


def test_what_retention_has_taken_is_gone(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    store(directory, [Message("t", b"x" * 40_000) for _ in range(400)])
    forget(directory)
    with served(directory) as address:
        begin = document(address, "/v1/log")["shards"][0]["begin"]
        assert begin > 0
        status, body = get(address, "/v1/log/records", **{"from": 0})
        answer = json.loads(body)
        assert (status, answer["error"]) == (410, "gone")
        assert (answer["from"], answer["available_from"]) == (0, begin)
        batch, _ = records(address, max_rows=1)
        assert batch["offset"].to_pylist() == [begin]


def test_large_columns_are_sent_from_where_they_lie() -> None:
    values = pa.array([b"x" * WHOLE_BYTES, b"y"], pa.binary())
    batch = pa.RecordBatch.from_arrays([pa.array(["a", "b"]), values], names=["topic", "value"])
    pieces = encode_stream(batch)
    addresses = [pa.py_buffer(piece).address for piece in pieces]
    assert values.buffers()[2].address in addresses
    assert len(pieces) == 3
    assert pa.ipc.open_stream(b"".join(pieces)).read_all().to_batches() == [batch]
