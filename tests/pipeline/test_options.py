"""Options of the data source: what they mean, and what is said when they are wrong."""

import pickle
from pathlib import Path

import pytest

from holdfast.pipeline.data_source import HoldfastSource
from holdfast.pipeline.source.forms import OptionError
from holdfast.pipeline.source.options import parse_options
from holdfast.pipeline.source.table import TableReader, parse_table_options
from holdfast.pipeline.writer.options import parse_writer_options

PLAIN = {"broker": "127.0.0.1:8080", "subscribe": "zebra/fx/+/reads"}


def test_defaults() -> None:
    options = parse_options(PLAIN)
    assert options.broker == "127.0.0.1:8080"
    assert options.criteria.filters == ("zebra/fx/+/reads",)
    assert options.starting_offset is None
    assert options.fail_on_data_loss
    assert not options.pushdown
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


def test_a_password_comes_from_a_file_which_alone_a_plan_names(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(" x y\n")
    where = {"broker": "broker.example:8443", "user": "spark", "passwordFile": str(file)}
    table = parse_table_options({**where, "table": "sessions"})
    assert table is not None
    for options in (parse_options({**PLAIN, **where}), parse_writer_options(where), table):
        assert options.password == " x y"
    twice = {**where, "password": "x"}
    absent = {**where, "passwordFile": str(tmp_path / "absent")}
    for wrong, sentence in ((twice, "cannot be combined"), (absent, "No such file")):
        with pytest.raises(OptionError, match=f"'passwordFile' .*{sentence}"):
            parse_options({**PLAIN, **wrong})
        with pytest.raises(OptionError, match=f"'passwordFile' .*{sentence}"):
            parse_writer_options(wrong)
        with pytest.raises(OptionError, match=f"'passwordFile' .*{sentence}"):
            parse_table_options({**wrong, "table": "sessions"})
    with pytest.raises(OptionError, match="'passwordFile' goes with 'broker' and 'user'"):
        parse_options({**PLAIN, "passwordFile": str(file)})


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
    [
        ("earliest", "earliest"),
        ("-2", "earliest"),
        ('{"0": -2}', "earliest"),
        ("latest", "latest"),
        ("-1", "latest"),
        ('{"0": -1}', "latest"),
        ("17", 17),
        ('{"0": 17}', 17),
    ],
)
def test_offsets(text: str, boundary: object) -> None:
    assert parse_options({**PLAIN, "startingOffsets": text}).starting_offset == boundary
    if boundary == "earliest":
        with pytest.raises(OptionError, match="nothing is before it"):
            parse_options({**PLAIN, "endingOffsets": text})
    else:
        assert parse_options({**PLAIN, "endingOffsets": text}).ending_offset == boundary


@pytest.mark.parametrize(
    ("text", "time_us"),
    [("1700000000123", 1_700_000_000_123_000), ("2023-11-14T22:13:20Z", 1_700_000_000_000_000)],
)
def test_timestamps(text: str, time_us: int) -> None:
    assert parse_options({**PLAIN, "startingTimestamp": text}).starting_time_us == time_us
    assert parse_options({**PLAIN, "endingTimestamp": text}).ending_time_us == time_us


def test_timestamps_of_the_shard() -> None:
    options = parse_options(
        {
            **PLAIN,
            "startingOffsetsByTimestamp": '{"0": 5}',
            "endingOffsetsByTimestamp": '{"0": 7}',
            "startingOffsetsByTimestampStrategy": "error",
        }
    )
    assert (options.starting_time_us, options.ending_time_us) == (5_000, 7_000)
    assert options.starting_strategy == "error"


def test_what_a_micro_batch_takes() -> None:
    options = parse_options(
        {
            **PLAIN,
            "maxOffsetsPerTrigger": "10",
            "maxBytesPerTrigger": "2m",
            "minOffsetsPerTrigger": "5",
            "maxTriggerDelay": "30s",
            "maxRecordsPerPartition": "7",
        }
    )
    assert (options.offsets_per_trigger, options.bytes_per_trigger) == (10, 2 << 20)
    assert (options.offsets_to_wait_for, options.trigger_delay_s) == (5, 30.0)
    assert options.records_per_partition == 7


def test_how_long_a_broker_is_waited_for() -> None:
    assert parse_options(PLAIN).timeout_s is None
    assert parse_options({**PLAIN, "brokerTimeout": "5m"}).timeout_s == 300.0
    assert parse_options({**PLAIN, "brokerTimeout": "forever"}).timeout_s == float("inf")


def test_ten_thousand_topics_and_a_pattern() -> None:
    names = [f"plant/{number}/reads" for number in range(10_000)]
    assert parse_options({**PLAIN, "subscribe": ",".join(names)}).criteria.filters == tuple(names)
    by_pattern = parse_options({"broker": "h:1", "subscribePattern": "plant/[0-9]+/reads"})
    assert by_pattern.criteria.pattern == "plant/[0-9]+/reads"


@pytest.mark.parametrize("address", ["admin:open-sesame@h:1", "https://x:open-sesame@h:1", "a@h"])
def test_an_address_with_credentials_is_refused_and_not_repeated(address: str) -> None:
    for refused in (
        lambda: parse_options({**PLAIN, "broker": address}),
        lambda: HoldfastSource({"broker": address, "table": "queues"}).schema(),
        lambda: parse_writer_options({"broker": address}),
    ):
        with pytest.raises(OptionError, match=r"'broker' cannot have '@'.*'user' and") as error:
            refused()
        assert address not in str(error.value)
        assert "sesame" not in str(error.value)


@pytest.mark.parametrize(
    ("option", "value", "instead"),
    [
        ("assign", '{"t":[0]}', "'subscribe'"),
        ("kafka.bootstrap.servers", "h:9092", "'broker'"),
        ("kafka.group.id", "g", "'cursor'"),
        ("groupIdPrefix", "g", "'cursor'"),
        ("kafka.security.protocol", "SSL", "https://"),
        ("kafka.fetch.min.bytes", "1", "leave it out"),
        ("fetchOffset.numRetries", "3", "'brokerTimeout'"),
        ("subscribe", "$share/group/a/+", "subscribe to 'a/\\+'"),
        ("subscribe", "tbmq.msg.all", "'queue'"),
        ("startingOffsets", '{"topic": {"0": 5}}', '"0": number'),
    ],
)
def test_what_cannot_be_here_is_refused_with_what_to_use(
    option: str, value: str, instead: str
) -> None:
    with pytest.raises(OptionError, match=instead):
        parse_options({**PLAIN, option: value})


def of_table(given: dict[str, str], **more: str) -> dict[str, str]:
    """What Spark hands over for the OPTIONS of a table that is made."""
    options = {f"option.{name.lower()}": value for name, value in given.items()}
    return {**given, **options, "owner": "me", "provider": "holdfast", **more}


def test_properties_of_a_table_are_no_options() -> None:
    given = of_table(PLAIN, path="/x", comment="reads", team="a", broker="of:1")
    assert parse_options(given) == parse_options(PLAIN)
    with pytest.raises(OptionError, match="'team' is unknown"):
        parse_options(of_table({**PLAIN, "team": "a"}))


def test_a_table_about_the_broker_is_made_by_sql_too() -> None:
    schema = HoldfastSource(of_table({"dataDir": "/d", "table": "topics"})).schema()
    assert schema.names == ["topic", "messages"]
    # Spark has no options for a query of a table, only its schema.
    assert isinstance(HoldfastSource({}).reader(schema), TableReader)
    with pytest.raises(OptionError, match="a table is of one moment"):
        HoldfastSource({}).streamReader(schema).initialOffset()


def test_options_of_one_use_are_refused_by_the_other() -> None:
    options = parse_options({**PLAIN, "endingOffsets": "5"})
    options.refuse_unless("batch", "this is a batch")
    with pytest.raises(OptionError, match="endingOffsets' is for batches; this is a stream"):
        options.refuse_unless("stream", "this is a stream")


def test_columns() -> None:
    assert parse_options({**PLAIN, "columns": "offset, value"}).columns == ("offset", "value")
    assert parse_options({**PLAIN, "includeHeaders": "true"}).columns[-1] == "headers"
    assert "headers" not in parse_options(PLAIN).columns


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
        ("startingOffsets", "-3"),
        ("startingOffsets", "true"),
        ("startingOffsets", '{"1": 5}'),
        ("startingOffsets", '{"0": 5, "1": 6}'),
        ("endingOffsets", "1.5"),
        ("startingTimestamp", "yesterday"),
        ("maxOffsetsPerTrigger", "0"),
        ("maxOffsetsPerTrigger", "many"),
        ("minPartitions", "-1"),
        ("failOnDataLoss", "maybe"),
        ("failOnSelectionChange", "maybe"),
        ("columns", "offset,colour"),
        ("columns", "offset,offset"),
        ("includeHeaders", "2"),
        ("subscribePattern", "a("),
        ("brokerTimeout", "soon"),
        ("maxBytesPerTrigger", "0"),
        ("minPartitions", "4097"),
        ("maxTriggerDelay", "1s"),
        ("startingOffsetsByTimestamp", "soon"),
        ("startingOffsetsByTimestampStrategy", "earliest"),
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
        {**PLAIN, "columns": "headers", "includeHeaders": "false"},
        {**PLAIN, "subscribePattern": "a"},
        {**PLAIN, "startingOffsetsByTimestamp": '{"0": 5}', "startingTimestamp": "5"},
        {**PLAIN, "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
        {"dataDir": "/d", "queue": "tbmq.msg.all"},
    ],
)
def test_contradictions_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(OptionError):
        parse_options(given)


def test_options_travel_to_executors() -> None:
    options = parse_options(PLAIN)
    assert pickle.loads(pickle.dumps(options)) == options


def test_words_for_offsets_are_taken_in_any_case() -> None:
    options = parse_options({**PLAIN, "startingOffsets": "LATEST", "endingOffsets": "Latest"})
    assert (options.starting_offset, options.ending_offset) == ("latest", "latest")
