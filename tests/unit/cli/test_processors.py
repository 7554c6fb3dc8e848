"""`holdfast processors` as a person meets it: what is effective, what is wrong, a first one."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import system
from holdfast.cli import main
from tests.builders.configured import RECORD, RECORD_OF_PRODUCTION

SOURCE = """
from holdfast.processors.processor import Processor
from holdfast.processors.sink import Sink
from holdfast.processors.table import Column, ColumnType, Table


class Reads(Processor):
    table = Table("reads", (Column("a", ColumnType.TEXT),))

    def parse(self, message):
        return []


class Broken(Reads):
    def __init__(self):
        raise ValueError("no luck")


class Homeless(Reads):
    table = "reads"


class Strict(Sink):
    # Knows how to close only what it has opened.
    def open(self, table):
        self.database = {}

    def commit(self, table, rows):
        raise NotImplementedError

    def close(self):
        self.database.clear()


class Demanding(Strict):
    def __init__(self, address):
        self.address = address


NUMBER = 7
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The variables of this machine, which has a name; files go to a directory of their own."""
    variables: dict[str, str] = {}
    monkeypatch.setattr(system, "environment", lambda: variables)
    monkeypatch.setattr(system, "machine_name", lambda: "Daves-MacBook")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return variables


def write(processor: str | None = None, **keys: object) -> None:
    """A configuration with one processor."""
    own = {"Processor": processor} if processor else {}
    section = {"Mqtt": {"Mine": {"BrokerHost": "h", "EnvironmentId": "e", **own, **keys}}}
    Path("appsettings.json").write_text(json.dumps(section))


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit code and standard error."""
    code = main(["processors", *arguments])
    return code, capsys.readouterr().err


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, str]:
    """The values of the record's processor."""
    assert main(["processors", "check", "appsettings.json", "--json", *arguments]) == 0
    values = json.loads(capsys.readouterr().out)["processors"]["ZebraRfid"]["values"]
    return {name: value["value"] for name, value in values.items()}


@pytest.mark.accepts("S3.48", "S3.62")
@pytest.mark.parametrize("said_by", ["option", "variable"])
def test_the_example_of_the_record_needs_nothing_more_on_a_laptop(
    capsys: pytest.CaptureFixture[str], environment: dict[str, str], said_by: str
) -> None:
    Path("appsettings.json").write_text(RECORD)
    if said_by == "variable":
        environment["HOLDFAST_BUILD"] = "development"
    found = shown(capsys, *(["--dev"] if said_by == "option" else []))
    assert found["environment"] == "local-daves-macbook"
    assert found["client identifier"] == "bbu-processor-local-daves-macbook-daves-macbook"
    assert found["Password"] == "********"


@pytest.mark.accepts("S3.63")
def test_it_is_refused_where_nobody_says_that_this_is_development(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("appsettings.json").write_text(RECORD)
    for action in ("check", "run"):
        code, sentence = said(capsys, action, "appsettings.json")
        assert code == 2
        assert "EnvironmentId must be configured explicitly in a release" in sentence


@pytest.mark.accepts("S3.16")
def test_the_variable_names_the_environment(
    capsys: pytest.CaptureFixture[str], environment: dict[str, str]
) -> None:
    Path("appsettings.json").write_text(RECORD)
    environment["MQTT_ENVIRONMENT_ID"] = "azure-dev"
    assert shown(capsys)["environment"] == "azure-dev"
    assert shown(capsys, "--dev")["environment"] == "azure-dev"


@pytest.mark.accepts("S3.51")
@pytest.mark.parametrize("named_by", ["--deployment", "HOLDFAST_DEPLOYMENT", "DOTNET_ENVIRONMENT"])
def test_the_file_of_a_deployment_wins(
    capsys: pytest.CaptureFixture[str], environment: dict[str, str], named_by: str
) -> None:
    Path("appsettings.json").write_text(RECORD)
    Path("appsettings.Production.json").write_text(RECORD_OF_PRODUCTION)
    environment["CONTAINER_APP_REPLICA_NAME"] = "replica-1"
    options = ["--deployment", "Production"] if named_by.startswith("-") else []
    if not options:
        environment[named_by] = "Production"
    found = shown(capsys, *options)
    assert (found["environment"], found["InstanceId"]) == ("elbbuprod", "replica-1")


@pytest.mark.accepts("S3.26")
def test_with_a_unique_id_two_starts_are_two_clients(capsys: pytest.CaptureFixture[str]) -> None:
    Path("appsettings.json").write_text(
        RECORD.replace('"AppendUniqueIdToClientId": false', '"AppendUniqueIdToClientId": true')
    )
    assert len({shown(capsys, "--dev")["client identifier"] for _ in range(3)}) == 3


def test_check_prints_a_line_for_each_value_with_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("appsettings.json").write_text(RECORD)
    assert main(["processors", "check", "appsettings.json", "--dev"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["ZebraRfid"]
    assert ["BrokerPort", "8883", "appsettings.json:", "Mqtt.ZebraRfid.BrokerPort"] in lines
    assert ["ReceiveMaximum", "2000", "default"] in lines


def test_check_tells_what_is_not_enabled_and_what_is_doubtful(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("appsettings.json").write_text(RECORD.replace('"Enabled": true', '"Enabled": false'))
    assert main(["processors", "check", "appsettings.json"]) == 0
    assert capsys.readouterr().out == (
        "ZebraRfid is not enabled (appsettings.json: Mqtt.ZebraRfid.Enabled)\n"
    )
    Path("appsettings.json").write_text(
        RECORD.replace('"CleanSession": false', '"CleanSession": true')
    )
    assert main(["processors", "check", "appsettings.json", "--dev"]) == 0
    assert "  warning: CleanSession is true" in capsys.readouterr().out


def test_check_tells_everything_that_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    write(BrokerPrt=1, CleanSession="maybe")
    code, sentences = said(capsys, "check", "appsettings.json")
    assert code == 2
    assert sentences.splitlines() == [
        'holdfast: appsettings.json: Mqtt.Mine.BrokerPrt: unknown key (did you mean "BrokerPort"?)',
        "holdfast: appsettings.json: Mqtt.Mine.CleanSession: expected true or false, but"
        ' "maybe" is neither',
    ]


def test_run_tells_the_first_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    write(BrokerPrt=1, CleanSession="maybe")
    code, sentence = said(capsys, "run", "appsettings.json")
    assert code == 2
    assert sentence.endswith('(did you mean "BrokerPort"?) (and 1 more)\n')


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        (None, "Mqtt.Mine.Processor: it is required, for none is built in by that name"),
        ("reads", "expected \"module:Class\", but it is 'reads'"),
        ("a b:C", "expected \"module:Class\", but it is 'a b:C'"),
        ("absent:Reads", "Processor: there is no module absent, neither installed nor beside"),
        ("wanting:Reads", "wanting, which imports it, there is no module absent_too"),
        ("crooked:Reads", "crooked cannot be imported: "),
        ("failing:Reads", "failing cannot be imported: ZeroDivisionError: division by zero ("),
        ("reads_here:Read", 'reads_here has no Read (did you mean "Reads"?)'),
        ("reads_here:NUMBER", "reads_here:NUMBER is not a class of Processor"),
        ("reads_here:Table", "reads_here:Table is not a class of Processor"),
        ("reads_here:Homeless", "reads_here:Homeless has no table of the class Table"),
        ("reads_here:Broken", "reads_here:Broken cannot be made: ValueError: no luck ("),
    ],
)
def test_a_class_that_cannot_be_had_is_told(
    capsys: pytest.CaptureFixture[str], reference: str | None, sentence: str
) -> None:
    Path("reads_here.py").write_text(SOURCE)
    Path("wanting.py").write_text("import absent_too\n")
    Path("crooked.py").write_text("def\n")
    Path("failing.py").write_text("1 / 0\n")
    write(reference)
    for action in ("check", "run"):
        code, found = said(capsys, action, "appsettings.json")
        assert code == 2
        assert sentence in found


def test_a_class_beside_the_configuration_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    Path("reads_here.py").write_text(SOURCE)
    write("reads_here:Reads")
    assert said(capsys, "check", "appsettings.json") == (0, "")


def test_two_processors_of_one_client_identifier_do_not_run_together(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("reads_here.py").write_text(SOURCE)
    own = {"Processor": "reads_here:Reads", "SubscribeTopics": ["a"]}
    section = {"BrokerHost": "h", "EnvironmentId": "e", "InstanceId": "1", "A": own, "B": own}
    Path("appsettings.json").write_text(json.dumps({"Mqtt": section}))
    code, sentences = said(capsys, "run", "appsettings.json")
    assert code == 2
    assert "Mqtt.A: its client identifier mqtt-processor-e-1 is that of B too" in sentences
    # Each may run in a process of its own, on another machine.
    assert main(["processors", "check", "appsettings.json"]) == 0
    warning = "  warning: its client identifier mqtt-processor-e-1 is that of"
    printed = capsys.readouterr().out
    assert f"{warning} A too" in printed
    assert f"{warning} B too" in printed


def test_a_sink_of_ones_own_is_made_and_not_opened(capsys: pytest.CaptureFixture[str]) -> None:
    Path("reads_here.py").write_text(SOURCE)
    write("reads_here:Reads", Sink="reads_here:Strict")
    assert said(capsys, "check", "appsettings.json") == (0, "")
    write("reads_here:Reads", Sink="reads_here:Demanding")
    code, sentence = said(capsys, "check", "appsettings.json")
    assert code == 2
    assert "Mqtt.Mine.Sink: reads_here:Demanding cannot be made: TypeError: " in sentence


def test_a_sink_that_does_not_exist_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    Path("reads_here.py").write_text(SOURCE)
    write("reads_here:Reads", Sink="oracle://scott:tiger@h/d")
    code, sentence = said(capsys, "check", "appsettings.json")
    assert code == 2
    assert sentence.startswith("holdfast: Mqtt.Mine.Sink: ")
    assert "sqlite:///FILE or postgresql:" in sentence
    assert "tiger" not in sentence


@pytest.mark.parametrize("action", ["check", "run"])
def test_files_that_are_not_there_are_told(capsys: pytest.CaptureFixture[str], action: str) -> None:
    Path("reads_here.py").write_text(SOURCE)
    Path("a.pem").touch()
    write("reads_here:Reads", TlsAuthority="b.pem", TlsCertificate="a.pem", TlsKey="c.pem")
    code, sentence = said(capsys, action, "appsettings.json")
    assert code == 2
    assert "Mqtt.Mine.TlsAuthority: b.pem cannot be read: No such file" in sentence
    assert ("Mqtt.Mine.TlsKey: c.pem cannot be read" in sentence) == (action == "check")
    assert "a.pem" not in sentence


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("a-b", "'a-b' is no name of a class"),
        ("7up", "'7up' is no name of a class"),
        ("Json", "json is a word or a module of Python"),
        ("Class", "class is a word or a module of Python"),
        ("Holdfast", "holdfast is a word or a module of Python"),
    ],
)
def test_a_first_processor_has_a_name_that_python_can_import(
    capsys: pytest.CaptureFixture[str], name: str, sentence: str
) -> None:
    code, found = said(capsys, "new", name)
    assert code == 2
    assert sentence in found
    assert not list(Path().iterdir())


@pytest.mark.parametrize("there", ["shelf_temperatures.py", "appsettings.json"])
def test_a_first_processor_overwrites_nothing(
    capsys: pytest.CaptureFixture[str], there: str
) -> None:
    Path("first").mkdir()
    Path("first", there).write_text("mine")
    code, sentence = said(capsys, "new", "ShelfTemperatures", "--directory", "first")
    assert code == 2
    assert f"first/{there} is there already; it was left as it is" in sentence
    assert [path.name for path in Path("first").iterdir()] == [there]
    assert Path("first", there).read_text() == "mine"


def test_a_first_processor_can_be_checked_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["processors", "new", "ShelfTemperatures", "--directory", "first"]) == 0
    assert "holdfast processors run first/appsettings.json --dev" in capsys.readouterr().out
    assert main(["processors", "check", "first/appsettings.json", "--dev"]) == 0
    shown = capsys.readouterr().out
    assert "$share/shelf_temperatures-local-daves-macbook/shelf_temperatures/+" in shown
