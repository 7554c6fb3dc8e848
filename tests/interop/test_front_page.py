"""The page at `/` of a running broker: a browser gets it, a program does not, and figures are for
those who may ask for them."""

import base64
import contextlib
import http.client
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import pytest

from tests.builders.web_page import WebPage
from tests.interop.seen import Seen
from tests.interop.wire import Wire
from tests.process import HOST

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    running = Seen(tmp_path_factory.mktemp("broker"))
    running.start()
    yield running
    assert running.stop() == 0, running.log()


def opened(broker: Seen, path: str = "/", **headers: str) -> tuple[int, Message, str]:
    """What a browser gets: status, headers, text."""
    connection = http.client.HTTPConnection(HOST, broker.http_port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"Accept": BROWSER} | headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()


def test_a_browser_sees_what_runs_and_whether_it_is_well(broker: Seen) -> None:
    with Wire(broker.port) as wire:
        wire.connect("somebody")
        status, headers, text = opened(broker)
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-store"
    found = WebPage(text)
    assert "Ready" in found.words
    assert found.rows["Clients connected"] == "1"


def test_every_place_that_the_page_names_is_there(broker: Seen) -> None:
    links = WebPage(opened(broker)[2]).links
    paths = broker.get("/v1/openapi.json")["paths"]
    assert {"/metrics", "/v1/openapi.json", "/health/ready", "/v1/sessions"} <= set(links)
    for link in links:
        assert "get" in paths[link]
        assert opened(broker, link)[0] == 200


@pytest.mark.parametrize(
    "accept",
    ["application/json", "application/json, text/plain, */*", "*/*", "", "text/html;q=0, */*"],
)
def test_a_program_is_told_that_nothing_is_there(broker: Seen, accept: str) -> None:
    status, found = broker.ask("GET", "/", Accept=accept)
    assert (status, found["error"]) == (404, "not_found")
    assert "/v1/openapi.json" in found["detail"]


def test_the_document_has_the_page(broker: Seen) -> None:
    described = broker.get("/v1/openapi.json")["paths"]["/"]["get"]
    assert list(described["responses"]["200"]["content"]) == ["text/html"]
    assert "404" in described["responses"]
    assert "security" not in described


def test_another_name_for_this_host_sees_no_figures(broker: Seen) -> None:
    status, _, text = opened(broker, Host="evil.example:80")
    assert (status, WebPage(text).rows) == (200, {})


def test_with_credentials_set_up_an_administrator_alone_sees_figures(tmp_path: Path) -> None:
    broker = Seen(tmp_path, login_delay_s=0)
    broker.start()

    def rows(user: str) -> dict[str, str]:
        word = base64.b64encode(user.encode()).decode()
        status, _, text = opened(broker, **({"Authorization": f"Basic {word}"} if user else {}))
        assert status == 200
        return WebPage(text).rows

    ada = {"name": "ada", "password": "open sesame", "administrator": True}
    assert broker.ask("POST", "/v1/users", ada)[0] == 201
    assert not rows("")
    assert not rows("ada:guessed")
    assert rows("ada:open sesame")["Clients connected"] == "0"
    assert broker.stop() == 0
