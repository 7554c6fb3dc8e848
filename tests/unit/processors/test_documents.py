"""Files of a configuration: how their text is read, and which of them there are."""

from pathlib import Path

import pytest

from holdfast.core.errors import ConfigurationError
from holdfast.processors.configuration import read_configuration
from holdfast.processors.documents import Deployment, deployment_of, parse_document, read_documents
from tests.builders.configured import RECORD_OF_PRODUCTION, start

JSON = """// first
{ "Mqtt": { /* all
 of them */ "A": { "BrokerHost": "h//x", "EnvironmentId": "e", "SubscribeTopics": ["a/*b", "c"], },
}, }
"""
TOML = """
[Mqtt]
EnvironmentId = "e"
[Mqtt.A]
BrokerHost = "h//x"
SubscribeTopics = ["a/*b", "c"]
"""


@pytest.mark.parametrize(("place", "content"), [("a.json", JSON), ("a.toml", TOML)])
def test_json_with_comments_and_toml_say_the_same(place: str, content: str) -> None:
    document = parse_document(place, content)
    [found] = read_configuration([document], start()).processors
    assert (found.settings.broker_host, found.settings.topics) == ("h//x", ("a/*b", "c"))


@pytest.mark.parametrize(
    ("place", "content", "said"),
    [
        ("a.json", "{", "a.json is not valid JSON: "),
        ("a.json", '// one\n{"A":\n /* two\n */ x}', "line 4 column 5"),
        ("a.json", '{"A": 1, "A": 2}', "'A' is there twice"),
        ("a.json", '{"A": NaN}', "NaN is not a number of JSON"),
        ("a.json", "[" * 100_000, "a.json is nested too deep"),
        ("a.json", '{"A": ' * 100_000, "a.json is nested too deep"),
        ("a.json", "[1]", "a.json is not a configuration"),
        ("a.json", '{"A": "', "a.json is not valid JSON: "),
        ("a.json", '{"A": ' + "9" * 5_000 + "}", "a.json is not valid JSON: "),
        ("a.toml", "[Mqtt", "a.toml is not valid TOML: "),
        ("a.toml", "a = 1\na = 2", "a.toml is not valid TOML: "),
        ("a.toml", "a = " + "[" * 100_000, "a.toml is n"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(place: str, content: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_document(place, content)
    assert said in str(refused.value)


@pytest.mark.accepts("S3.51")
def test_the_file_of_a_deployment_lies_over_the_base(tmp_path: Path) -> None:
    base = tmp_path / "appsettings.json"
    base.write_text(JSON, encoding="utf-8-sig")
    (tmp_path / "appsettings.Production.json").write_text(RECORD_OF_PRODUCTION)
    production = Deployment("Production", "--deployment", is_required=True)
    assert [each.place for each in read_documents(base, None)] == [str(base)]
    assert [each.place for each in read_documents(base, production)] == [
        str(base),
        str(tmp_path / "appsettings.Production.json"),
    ]


def test_a_deployment_of_ours_needs_its_file_and_one_of_others_does_not(tmp_path: Path) -> None:
    base = tmp_path / "appsettings.toml"
    base.write_text(TOML)
    for variables in ({"DOTNET_ENVIRONMENT": "QA"}, {"ASPNETCORE_ENVIRONMENT": "QA"}):
        assert len(read_documents(base, deployment_of(None, variables))) == 1
    for option, variables in (("QA", {}), (None, {"HOLDFAST_DEPLOYMENT": "QA"})):
        with pytest.raises(ConfigurationError, match=r"appsettings\.QA\.toml is not there"):
            read_documents(base, deployment_of(option, variables))


def test_a_deployment_is_named_by_the_option_before_variables_and_ours_before_others() -> None:
    variables = {
        "HOLDFAST_DEPLOYMENT": "Ours",
        "DOTNET_ENVIRONMENT": "Dotnet",
        "ASPNETCORE_ENVIRONMENT": "Asp",
    }
    found = []
    for option in ("Option", None):
        found.append(deployment_of(option, variables))
    for name in list(variables):
        variables[name] = " "
        found.append(deployment_of(None, variables))
    assert [each and each.name for each in found] == ["Option", "Ours", "Dotnet", "Asp", None]


@pytest.mark.parametrize("name", ["../x", "a/b", "a\0", "."])
def test_a_deployment_that_is_no_part_of_a_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be a part of a file's name"):
        deployment_of(name, {})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file"),
        (b"\xff\xfe", "is not text in UTF-8"),
        (b" " * 1_048_577, "is too large to be a configuration file"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "appsettings.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=said):
        read_documents(file, None)
