"""The command line as a person meets it: output, one sentence for each mistake, exit codes."""

import json
from pathlib import Path

import pytest

from holdfast import __version__, system
from holdfast.cli import COMMANDS, main, parser
from holdfast.core.config import SETTINGS
from holdfast.core.sections import TABLES
from tests.builders.stored import Message, forget_slowly, store


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable of the machine has a say, and files go to a directory of their own."""
    monkeypatch.setattr(system, "environment", dict)
    monkeypatch.chdir(tmp_path)


LISTS = (
    ["bridge", "messages", "head"],
    ["cursor", "list"],
    ["group", "list"],
    ["log", "records"],
    ["losses"],
    ["pipeline", "sql", "select 1"],
    ["queue", "list"],
    ["queue", "read", "tbmq.msg.all"],
    ["retained", "list"],
    ["session", "list"],
)
"""What prints rows, at most so many."""


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit code and the sentence."""
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = int(stop.code or 0)
    return code, capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "argument"),
    [
        (["bridge", "show", ""], "BRIDGE"),
        (["bridge", "remove", ""], "BRIDGE"),
        (["cursor", "show", ""], "CURSOR"),
        (["cursor", "fork", "c", ""], "NAME"),
        (["environment", "show", ""], "ENVIRONMENT"),
        (["group", "show", ""], "GROUP"),
        (["queue", "show", ""], "QUEUE"),
        (["retained", "remove", ""], "TOPIC"),
        (["session", "show", ""], "CLIENT"),
    ],
)
def test_an_empty_name_is_nothings(
    command: list[str], argument: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, sentence = refused(capsys, *command)
    assert (code, sentence.partition(": error: ")[2]) == (2, f"argument {argument}: it is empty")


def test_a_reason_of_no_loss_is_refused_with_those_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, sentence = refused(capsys, "losses", "--reason", "zzz")
    assert code == 2
    assert "--reason: invalid choice: 'zzz' (choose from 'overflow', 'ttl', " in sentence


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"holdfast {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_loaded_alone_and_is_what_it_is_among_all(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for each in (parser(command), parser()):
        with pytest.raises(SystemExit) as stop:
            each.parse_args([command, "--help"])
        assert stop.value.code == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert f"\n    {command}" in parser().format_help()


def test_a_command_that_is_none_is_refused_with_those_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, sentence = refused(capsys, "sevre")
    assert code == 2
    assert all(f"'{command}'" in sentence for command in COMMANDS)


@pytest.mark.accepts("S2.55")
def test_config_show_tells_each_value_and_where_it_came_from(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "site.toml"
    file.write_text("log.retention_age_s = '2d'\n")
    assert main(["config", "show", "--json", "--config", str(file), "--mqtt-port", "off"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["log.retention_age_s"] == {"value": "2d", "origin": str(file)}
    assert shown["mqtt.port"] == {"value": "off", "origin": "--mqtt-port"}
    assert shown["log.durability"] == {"value": "fsync", "origin": "default"}


def test_config_show_prints_a_line_for_each_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show"]) == 0
    lines = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    assert lines["log.segment_bytes"] == ["64MiB", "default"]
    assert lines["log.store_all"] == ["(none)", "default"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["serve", "--mqtt-prt", "1"], "unrecognized arguments: --mqtt-prt"),
        (["serve", "--mqtt-port", "x"], "--mqtt-port: mqtt.port: expected a port"),
        (["serve", "--log-durability", "maybe"], "expected one of fsync, os, memory"),
        (["serve", "--config", "absent.toml"], "absent.toml cannot be read: No such file"),
        (["serve", "--config", "."], ". cannot be read: Is a directory"),
        (["serve", "--listen-host", "0.0.0.0"], "can be reached from other machines"),
        (
            ["log", "records", "--data-dir", ".", "--filter", "a/#/b"],
            '"a/#/b" is not a topic filter',
        ),
        (["log"], "the following arguments are required"),
        *(
            ([*command, "--limit", "-1"], "argument --limit: '-1' is not a whole number from 0 on")
            for command in LISTS
        ),
    ],
)
def test_what_cannot_be_right_ends_with_one_sentence_and_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    code, said = refused(capsys, *arguments)
    assert code == 2
    assert sentence in said


def test_config_check_looks_at_the_files_that_a_start_would_need(
    capsys: pytest.CaptureFixture[str],
) -> None:
    listener = ("--mqtt-tls-port", "0", "--tls-certificate", "none.pem")
    code, sentence = refused(capsys, "config", "check", *listener)
    assert code == 2
    assert "tls.certificate: none.pem cannot be read: No such file" in sentence


@pytest.mark.parametrize("bound", ["--from", "--to", "--limit"])
def test_an_offset_below_nothing_is_refused(capsys: pytest.CaptureFixture[str], bound: str) -> None:
    code, sentence = refused(capsys, "log", "records", bound, "-5")
    assert code == 2
    assert f"argument {bound}: '-5' is not a whole number from 0 on" in sentence


def test_a_log_that_is_not_there_is_the_worlds_fault(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = refused(capsys, "log", "ranges", "--data-dir", "nowhere")
    assert code == 1
    assert said == "holdfast: there is no log in nowhere; --data-dir names another directory"


def test_a_file_without_records_has_no_times(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store(tmp_path / "data", [Message("t", bytes(60_000)) for _ in range(100)])
    forget_slowly(tmp_path / "data")
    assert main(("log", "segments", "--data-dir", "data")) == 0
    first, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("carry-")
    assert first.split("  ")[-3:] == ["0 records", "96", "-"]
    assert main(("log", "segments", "--data-dir", "data", "--json")) == 0
    empty, *_ = json.loads(capsys.readouterr().out)
    assert empty["first_time_us"] is empty["last_time_us"] is None


def test_a_topic_does_not_command_the_terminal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store(tmp_path / "data", [Message("a\x1b[2J\nb", b"1")])
    assert main(["log", "topics", "--data-dir", "data"]) == 0
    assert capsys.readouterr().out.split() == ["1", "a\\x1b[2J\\nb"]


def test_a_configuration_that_is_not_text_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    code, said = refused(capsys, "config", "show", "--config", "binary.toml")
    assert (code, said) == (2, "holdfast: binary.toml is not text in UTF-8")


def test_a_mark_in_front_that_says_utf_8_belongs_to_no_setting(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "marked.toml").write_bytes(b"\xef\xbb\xbf[mqtt]\r\nport = 1888\r\n")
    assert main(["config", "show", "--config", "marked.toml"]) == 0
    assert "1888" in capsys.readouterr().out


def test_help_names_every_setting_by_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    said = capsys.readouterr().out
    assert "--config" in said
    for table, about in TABLES.items():
        _, _, group = said.partition(f"\n[{table}]:\n  {about}\n")
        group = group.partition("\n[")[0]
        for row in SETTINGS.values():
            assert (f" {row.option} " in group) == (row.table == table)


def test_help_of_a_user_names_the_settings_that_its_rates_stand_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["user", "set", "--help"])
    words = " ".join(capsys.readouterr().out.split())
    named = [name for name in SETTINGS if name.startswith("limits.client_")]
    assert len(named) == 2
    assert all(f"instead of the setting {name}" in words for name in named)


@pytest.mark.parametrize("action", ["add", "check"])
@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("since = 1979-05-27T07:32:00Z", "since is 1979-05-27 07:32:00+00:00"),
        ("at = 07:32:00", "at is 07:32:00"),
        ("keep_alive_s = inf", "keep_alive_s is inf"),
        (
            "[[local_subscriptions]]\nfilters = ['a', 1979-05-27]",
            "local_subscriptions 1.filters 2 is 1979-05-27",
        ),
    ],
)
def test_what_no_setting_of_a_bridge_can_be_is_refused_before_the_broker_is_asked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, action: str, written: str, sentence: str
) -> None:
    file = tmp_path / "head.toml"
    file.write_text(f"address = 'remote'\n{written}\n")
    code, said = refused(capsys, "bridge", action, "head", "--file", str(file))
    assert code == 2
    assert said.startswith(f"holdfast: {file}: {sentence}, which no setting of a bridge can be")
