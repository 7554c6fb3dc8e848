"""Options of the data source: what they mean, and what is said when they are wrong."""

import pickle

import pytest

from holdfast.pipeline.source.options import OptionError, parse_options

PLAIN = {"broker": "127.0.0.1:8080", "subscribe": "zebra/fx/+/reads"}


def test_defaults() -> None:
    options = parse_options(PLAIN)
    assert options.broker == "127.0.0.1:8080"
    assert options.criteria.filters == ("zebra/fx/+/reads",)
    assert options.starting_offset is None
    assert options.fail_on_data_loss
    assert options.columns[0] == "topic"
    assert options.columns[-1] == "properties"


def test_credentials_go_together_and_are_not_shown() -> None:
    given = {**PLAIN, "broker": "https://broker.example:8443", "user": "spark", "password": " x y"}
    options = parse_options(given)
    assert (options.broker, options.user) == ("https://broker.example:8443", "spark")
    assert options.password == " x y"
    assert "x y" not in repr(options)
    for left_out in ("user", "password"):
        alone = {name: given[name] for name in given if name != left_out}
        with pytest.raises(OptionError, match="goes with 'broker'"):
            parse_options(alone)
    with pytest.raises(OptionError, match="goes with 'broker'"):
        parse_options({"dataDir": "/d", "subscribe": "a", "user": "u", "password": "p"})


def test_a_cursor_has_a_name_and_a_broker() -> None:
    assert parse_options({**PLAIN, "cursor": "bronze.v2"}).cursor == "bronze.v2"
    with pytest.raises(OptionError, match="kept by a running broker"):
        parse_options({"dataDir": "/d", "subscribe": "a", "cursor": "bronze"})
    for wrong in ("", "a/b", "tbmq.msg.all", "-x"):
        with pytest.raises(OptionError, match="its name has 1 to 100 letters"):
            parse_options({**PLAIN, "cursor": wrong})


def test_names_in_any_case_and_several_filters() -> None:
    options = parse_options(
        {"DATADIR": "/data", "Subscribe": "a/b , c/#", "failondataloss": "FALSE"}
    )
    assert options.data_dir == "/data"
    assert options.criteria.filters == ("a/b", "c/#")
    assert not options.fail_on_data_loss


@pytest.mark.parametrize(
    ("text", "boundary"),
    [("earliest", "earliest"), ("latest", "latest"), ("17", 17), ('{"0": 17}', 17)],
)
def test_offsets(text: str, boundary: object) -> None:
    options = parse_options({**PLAIN, "startingOffsets": text, "endingOffsets": text})
    assert options.starting_offset == options.ending_offset == boundary


@pytest.mark.parametrize(
    ("text", "time_us"),
    [("1700000000123", 1_700_000_000_123_000), ("2023-11-14T22:13:20Z", 1_700_000_000_000_000)],
)
def test_timestamps(text: str, time_us: int) -> None:
    assert parse_options({**PLAIN, "startingTimestamp": text}).starting_time_us == time_us


def test_columns() -> None:
    assert parse_options({**PLAIN, "columns": "offset, value"}).columns == ("offset", "value")
    assert "properties" not in parse_options({**PLAIN, "includeHeaders": "false"}).columns


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("subscibe", "a"),
        ("path", "/x"),
        ("broker", "localhost"),
        ("broker", "localhost:0"),
        ("broker", "localhost:99999"),
        ("subscribe", ""),
        ("subscribe", "a/#/b"),
        ("subscribe", "a,,b"),
        ("startingOffsets", "soon"),
        ("startingOffsets", "-1"),
        ("startingOffsets", "true"),
        ("startingOffsets", '{"1": 5}'),
        ("startingOffsets", '{"0": 5, "1": 6}'),
        ("endingOffsets", "1.5"),
        ("startingTimestamp", "yesterday"),
        ("maxOffsetsPerTrigger", "0"),
        ("maxOffsetsPerTrigger", "many"),
        ("minPartitions", "-1"),
        ("failOnDataLoss", "maybe"),
        ("columns", "offset,colour"),
        ("columns", "offset,offset"),
        ("includeHeaders", "2"),
    ],
)
def test_a_wrong_option_is_named(option: str, value: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_options({**PLAIN, option: value})
    assert f"'{option}'" in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        {"subscribe": "a"},
        {"broker": "h:1", "dataDir": "/d", "subscribe": "a"},
        {"broker": "h:1"},
        {**PLAIN, "startingOffsets": "5", "startingTimestamp": "5"},
        {**PLAIN, "endingOffsets": "5", "endingTimestamp": "5"},
        {**PLAIN, "columns": "properties", "includeHeaders": "false"},
    ],
)
def test_contradictions_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(OptionError):
        parse_options(given)


def test_options_travel_to_executors() -> None:
    options = parse_options(PLAIN)
    assert pickle.loads(pickle.dumps(options)) == options
