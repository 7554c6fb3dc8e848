"""Parameters of the read interface: taken within their bounds, refused with their name."""

import pytest
from aiohttp import web
from multidict import MultiDict

from holdfast.broker.admin.http import query


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", "1e3", "0x10", "²", "9" * 20, "11"])
def test_a_number_out_of_form_or_bounds_is_refused(text: str) -> None:
    with pytest.raises(web.HTTPBadRequest) as refused:
        query.number({"rows": text}, "rows", None, 1, 10)
    assert "rows" in str(refused.value.text)


def test_a_number_that_is_not_given_has_its_default() -> None:
    assert query.number({}, "rows", 3, 1, 10) == 3
    assert query.number({"rows": "10"}, "rows", 3, 1, 10) == 10
    with pytest.raises(web.HTTPBadRequest):
        query.number({}, "rows", None, 1, 10)


def test_an_offset_may_be_left_out_and_is_a_number_otherwise() -> None:
    assert query.offset("from")(MultiDict()) is None
    assert query.offset("from")(MultiDict({"from": "7"})) == 7
    assert query.count("rows")(MultiDict()) is None
    with pytest.raises(web.HTTPBadRequest):
        query.count("rows")(MultiDict({"rows": "0"}))


@pytest.mark.parametrize(
    ("text", "time_us"),
    [
        ("0", 0),
        ("1700000000000000", 1_700_000_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000_000),
        ("2023-11-14T23:13:20.5+01:00", 1_700_000_000_500_000),
        ("2023-11-14 22:13:20", 1_700_000_000_000_000),
    ],
)
def test_time_is_microseconds_or_iso(text: str, time_us: int) -> None:
    assert query.time_us({"time": text}) == time_us


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "2023-13-01"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(web.HTTPBadRequest, match="Bad Request") as refused:
        query.time_us({"time": text})
    assert "time" in str(refused.value.text)


def test_filters_are_checked() -> None:
    given = MultiDict([("filter", "a/+"), ("filter", "b/#")])
    assert query.filters(given) == ["a/+", "b/#"]
    for wrong in ("", "a/#/b", "a+"):
        with pytest.raises(web.HTTPBadRequest):
            query.filters(MultiDict([("filter", wrong)]))
    with pytest.raises(web.HTTPBadRequest, match="Bad Request"):
        query.filters(MultiDict([("filter", "a")] * (query.FILTERS_MAXIMUM + 1)))


def test_columns_must_be_known() -> None:
    assert query.columns(MultiDict({"columns": "topic,offset"})) == ["topic", "offset"]
    assert query.columns(MultiDict()) is None
    with pytest.raises(web.HTTPBadRequest):
        query.columns(MultiDict({"columns": "topic,colour"}))
