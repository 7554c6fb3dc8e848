"""The limit of open files: what it allows, and what is said of it."""

from dataclasses import replace

from holdfast.broker.open_files import connections_possible, warning
from holdfast.core.config import Config

CONFIG = Config(retention_bytes=640 * 2**20, segment_bytes=64 * 2**20)


def test_a_limit_that_is_high_enough_is_not_mentioned() -> None:
    assert warning(CONFIG, 1_048_576) is None
    assert connections_possible(CONFIG, 1_048_576) == CONFIG.connections_maximum


def test_a_low_limit_is_said_with_what_it_allows_and_what_to_do() -> None:
    words = warning(CONFIG, 1_024)
    assert words is not None
    possible = connections_possible(CONFIG, 1_024)
    assert 512 < possible < 1_024
    assert f"1024 open files allows {possible} connections, not 100000" in words
    assert "LimitNOFILE=" in words


def test_the_number_that_it_names_is_enough() -> None:
    words = warning(CONFIG, 1_024)
    assert words is not None
    named = int(words.split("raise it to ")[1].split(":")[0])
    assert warning(CONFIG, named) is None
    assert warning(CONFIG, named - 1) is not None


def test_many_segments_leave_clients_their_half() -> None:
    small = replace(CONFIG, retention_bytes=2**40)
    assert connections_possible(small, 20_000) == 10_000
