"""Which web pages may open a WebSocket."""

import pytest
from websockets.datastructures import Headers

from holdfast.broker.sockets.origins import is_welcome


def welcome(
    *origins: str,
    allowed: tuple[str, ...] = (),
    host: str = "broker.test:8083",
    is_local: bool = False,
) -> bool:
    headers = Headers([("Host", host), *(("Origin", origin) for origin in origins)])
    return is_welcome(headers, allowed, is_local=is_local)


def test_who_is_no_page_may_connect_whatever_is_configured() -> None:
    assert welcome()
    assert welcome(allowed=("https://page.test",))


@pytest.mark.parametrize(
    ("origin", "is_good"),
    [
        ("http://broker.test", True),
        ("https://broker.test:3000", True),
        ("https://BROKER.test", True),
        ("https://page.test", False),
        ("https://broker.test.page.test", False),
        ("https://broker.test@page.test", False),
        ("null", False),
        ("", False),
        ("https://[", False),
    ],
)
def test_without_a_list_only_pages_of_the_same_host_may_connect(origin: str, is_good: bool) -> None:
    assert welcome(origin) == is_good


def test_a_host_that_is_none_is_not_matched_by_a_page_that_is_none() -> None:
    assert not welcome("null", host="")
    assert not welcome("file://", host="")


def test_with_a_list_only_pages_of_the_list_may_connect() -> None:
    assert welcome("https://page.test", allowed=("https://page.test",))
    assert not welcome("https://page.test:444", allowed=("https://page.test",))
    assert not welcome("http://broker.test", allowed=("https://page.test",))
    assert welcome("https://anything.test", allowed=("*",))


def test_two_origins_are_none() -> None:
    assert not welcome("https://broker.test", "https://broker.test")


@pytest.mark.parametrize(
    ("origin", "host", "is_good"),
    [
        ("http://localhost:3000", "localhost:8083", True),
        ("http://127.0.0.1", "127.0.0.1:8083", True),
        ("http://[::1]", "[::1]:8083", True),
        ("http://page.test", "page.test:8083", False),
    ],
)
def test_on_loopback_a_page_whose_host_only_leads_here_may_not_connect(
    origin: str, host: str, is_good: bool
) -> None:
    assert welcome(origin, host=host, is_local=True) == is_good
    assert welcome(origin, host=host)
