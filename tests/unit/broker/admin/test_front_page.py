"""The page at `/`: what it says, to whom, and that it needs nothing from elsewhere."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import __version__
from holdfast.broker.admin.front_page import page
from holdfast.core.loss_reason import LossReason
from tests.builders.counted import snapshot
from tests.builders.web_page import WebPage

NOW_US = 1_800_000_000_000_000
NO_FIGURES = page(None, NOW_US, is_ready=True)


def rows(**numbers: object) -> dict[str, str]:
    return WebPage(page(snapshot(**numbers), NOW_US, is_ready=True)).rows


@pytest.mark.parametrize(("is_ready", "word"), [(True, "Ready"), (False, "Not ready")])
def test_it_says_whether_clients_are_served_and_as_of_when(is_ready: bool, word: str) -> None:
    found = WebPage(page(None, NOW_US, is_ready=is_ready)).words
    assert found[0] == f"Holdfast: {word.lower()}"
    assert word in found
    assert any("as of 2027-01-15 08:00:00 UTC" in each for each in found)


def test_figures_are_told_in_units_that_people_read() -> None:
    log = dict.fromkeys(snapshot().log, 0) | {"bytes": 12_345_678_901}
    found = rows(
        log=log,
        uptime_s=3 * 86_400 + 4 * 3_600 + 59,
        sessions_attached=12_345,
        sessions_recorded=20,
        sessions_recorded_attached=13,
        losses={LossReason.OVERFLOW: 3, LossReason.EXPIRED: 4},
        loss_rows_removed=100,
        disk_free_bytes=999,
    )
    assert found["Running for"] == "3 d 4 h"
    assert found["Clients connected"] == "12 345"
    assert found["Sessions at rest"] == "7"
    assert found["Messages lost to someone"] == "7"
    assert found["Log"] == "12.3 GB"
    assert found["Disk free"] == "999 bytes"


@pytest.mark.parametrize(
    ("age_s", "first_loss_in_s", "told"),
    [
        (None, None, "not known yet"),
        (7.5, None, "none in sight"),
        (7.5, 0, "the first in 0 s"),
        (7.5, 5_430, "the first in 1 h 30 min"),
    ],
)
def test_losses_ahead_are_told_once_they_are_known(
    age_s: float | None, first_loss_in_s: int | None, told: str
) -> None:
    seen = snapshot(at_rest_age_s=age_s, first_loss_in_s=first_loss_in_s)
    found = WebPage(page(seen, NOW_US, is_ready=True))
    assert found.rows["Losses ahead"] == told
    assert ("as of 7 s ago" in " ".join(found.words)) == (age_s is not None)


def test_who_may_not_see_figures_sees_no_version_either() -> None:
    assert not WebPage(NO_FIGURES).rows
    assert __version__ not in NO_FIGURES
    assert __version__ in page(snapshot(), NOW_US, is_ready=True)


@given(st.text(max_size=40))
def test_whatever_gets_into_the_page_stays_text(durability: str) -> None:
    marked = f"<b onload='x'>&{durability}"
    found = WebPage(page(snapshot(durability=marked), NOW_US, is_ready=True))
    assert "b" not in {name for name, _ in found.elements}
    assert not {key for _, given in found.elements for key in given if key.startswith("on")}


@pytest.mark.parametrize("content", [NO_FIGURES, page(snapshot(), NOW_US, is_ready=True)])
def test_it_needs_no_script_and_nothing_from_elsewhere(content: str) -> None:
    found = WebPage(content)
    assert not {name for name, _ in found.elements} & {"script", "img", "iframe", "form", "base"}
    for name, attributes in found.elements:
        if name == "link":
            assert attributes["href"] == "data:,"
    assert all(re.fullmatch(r"/[a-z0-9/.]+", each) for each in found.links)
    assert "url(" not in content
    assert "@import" not in content
    assert "prefers-color-scheme:dark" in content
    assert 'name="viewport"' in content
