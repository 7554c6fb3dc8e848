"""Configurations: the decision record's as they are, defaults, order of the sources, refusals."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import ConfigurationError
from holdfast.kernel import is_valid_topic_filter, is_valid_topic_name
from holdfast.processors.configuration import (
    Configured,
    WrongConfigurationError,
    read_configuration,
)
from holdfast.processors.documents import Document
from holdfast.processors.identity import Build, usable
from holdfast.processors.keys import HIDDEN, KEYS
from holdfast.processors.settings import ProcessorSettings
from tests.builders.configured import (
    FOLDER,
    RECORD,
    RECORD_OF_PRODUCTION,
    configuration,
    configured,
    start,
)


def one(*contents: Any, **changes: Any) -> ProcessorSettings:
    [found] = configuration(*contents, **changes).processors
    return found.settings


def problems(*contents: Any, **changes: Any) -> tuple[str, ...]:
    with pytest.raises(WrongConfigurationError) as refused:
        configuration(*contents, **changes)
    return refused.value.problems


def problem(keys: dict[str, Any], **changes: Any) -> str:
    with pytest.raises(WrongConfigurationError) as refused:
        configured(keys, **changes)
    [found] = refused.value.problems
    return found


def place(keys: dict[str, Any], name: str, **changes: Any) -> tuple[str, str]:
    """A value as it is shown, and where it came from."""
    [(shown, where)] = [
        (value.shown, value.place)
        for value in configured(keys, **changes).values
        if value.name == name
    ]
    return shown, where


@pytest.mark.accepts("S3.47", "S3.48", "S3.17", "S3.11", "S3.12")
def test_the_example_of_the_record_loads_unchanged() -> None:
    found = one(RECORD, build=Build.DEVELOPMENT)
    assert found == ProcessorSettings(
        name="ZebraRfid",
        broker_host="i5122f12.ala.us-east-1.emqxsl.com",
        broker_port=8883,
        topics=("zebra/fx/+/reads", "zebra/fx/+/events"),
        user_name="dplx-bbu-rfid",
        password="...",
        environment="local-daves-macbook",
        group="bbu-processors-local-daves-macbook",
        client_identifier="bbu-processor-local-daves-macbook-daves-macbook",
        sink=f"sqlite:///{FOLDER}/ZebraRfid.db",
    )
    assert found.topic_filters == (
        "$share/bbu-processors-local-daves-macbook/zebra/fx/+/reads",
        "$share/bbu-processors-local-daves-macbook/zebra/fx/+/events",
    )


@pytest.mark.accepts("S3.50", "S3.51", "S3.21", "S3.22")
def test_the_override_of_the_record_wins_over_the_example() -> None:
    replica = {"CONTAINER_APP_REPLICA_NAME": "bbu--7d9f-xk2"}
    found = one(RECORD, RECORD_OF_PRODUCTION, variables=replica)
    assert found.environment == "elbbuprod"
    assert found.client_identifier == "bbu-processor-elbbuprod-bbu--7d9f-xk2"
    assert found.broker_host == "i5122f12.ala.us-east-1.emqxsl.com"


@pytest.mark.accepts("S3.49")
def test_variables_win_over_files() -> None:
    variables = {
        "Mqtt__ZebraRfid__EnvironmentId": "elbbuqa",
        "Mqtt__ZebraRfid__InstanceId": "${CONTAINER_APP_REPLICA_NAME}",
        "CONTAINER_APP_REPLICA_NAME": "replica-2",
        "MQTT_ENVIRONMENT_ID": "another",
    }
    found = one(RECORD, RECORD_OF_PRODUCTION, variables=variables)
    assert (found.environment, found.client_identifier) == (
        "elbbuqa",
        "bbu-processor-elbbuqa-replica-2",
    )


@pytest.mark.accepts("S3.9", "S3.11", "S3.12")
@pytest.mark.parametrize("environment", ["azure-prod", "azure-dev"])
def test_each_topic_is_subscribed_through_the_group_of_the_environment(environment: str) -> None:
    found = one(RECORD, {"Mqtt": {"ZebraRfid": {"EnvironmentId": environment}}})
    assert found.topic_filters == (
        f"$share/bbu-processors-{environment}/zebra/fx/+/reads",
        f"$share/bbu-processors-{environment}/zebra/fx/+/events",
    )


@pytest.mark.accepts("S3.10")
@pytest.mark.parametrize("group", [None, "", "  "])
def test_without_a_group_topics_are_subscribed_plainly(group: str | None) -> None:
    found = configured({"SharedSubscriptionGroup": group, "SubscribeTopics": ["a/+", "b"]})
    assert found.settings.group is None
    assert found.settings.topic_filters == ("a/+", "b")


@pytest.mark.accepts("S3.18", "S3.63")
def test_the_example_does_not_start_in_a_release_without_an_environment() -> None:
    [said] = problems(RECORD)
    assert said.startswith("Mqtt.ZebraRfid: EnvironmentId must be configured explicitly")


DEFAULTS = {
    "broker_port": 8883,
    "topics": (),
    "group": None,
    "clean_start": False,
    "session_expiry_interval_s": 3600,
    "auto_reconnect": True,
    "reconnect_delay_s": 5,
    "user_name": None,
    "password": None,
    "client_identifier": "mqtt-processor-local-daves-macbook-daves-macbook",
    "environment": "local-daves-macbook",
    "tls": True,
    "qos": 2,
}


@pytest.mark.accepts("S3.25", "S3.27", "S3.38", "S3.39", "S3.40", "S3.41")
@pytest.mark.accepts("S3.42", "S3.43", "S3.44", "S3.45", "S3.46")
@pytest.mark.parametrize("written", [{}, dict.fromkeys(KEYS)], ids=["absent", "null"])
def test_what_is_not_set_has_the_defaults_of_the_record(written: dict[str, None]) -> None:
    content = {"Mqtt": {"ZebraRfid": {**written, "BrokerHost": "h"}}}
    found = dataclasses.asdict(one(content, build=Build.DEVELOPMENT))
    assert {name: found[name] for name in DEFAULTS} == DEFAULTS


@pytest.mark.accepts("S3.37")
@pytest.mark.parametrize("written", [{}, {"BrokerHost": None}, {"BrokerHost": " "}])
def test_without_a_host_nothing_starts(written: dict[str, Any]) -> None:
    found = problems({"Mqtt": {"ZebraRfid": {"EnvironmentId": "dev", **written}}})
    assert found == ("Mqtt.ZebraRfid.BrokerHost: it is required",)


@pytest.mark.accepts("S3.47")
def test_a_processor_that_is_not_enabled_is_left_out() -> None:
    found = configuration({"Mqtt": {"Off": {"Enabled": False, "InstanceId": "${ABSENT}"}}})
    assert found.processors == ()
    assert found.disabled == {"Off": "appsettings.json: Mqtt.Off.Enabled"}
    with pytest.raises(ConfigurationError, match=r"^Off is not enabled \(appsettings.json: Mqtt"):
        found.chosen(["Off"])
    with pytest.raises(ConfigurationError, match=r"^no processor is enabled$"):
        found.chosen([])


def test_processors_are_chosen_by_name_each_once() -> None:
    keys = {"BrokerHost": "h", "EnvironmentId": "e"}
    found = configuration({"Mqtt": {"A": keys, "B": keys}})
    assert [each.settings.name for each in found.chosen([])] == ["A", "B"]
    assert [each.settings.name for each in found.chosen(["b", "B"])] == ["B"]
    with pytest.raises(ConfigurationError, match=r"^there is no processor C; there are: A, B$"):
        found.chosen(["C"])


@pytest.mark.accepts("S3.26", "S3.23")
def test_with_a_unique_id_two_starts_are_two_clients() -> None:
    keys = {"AppendUniqueIdToClientId": True, "ClientId": "bbu-processor"}
    starts = [configured(keys, unique=unique).settings for unique in ("a1b2c3", "d4e5f6")]
    assert [each.client_identifier for each in starts] == [
        "bbu-processor-azure-prod-20241205-a1b2c3",
        "bbu-processor-azure-prod-20241205-d4e5f6",
    ]


@pytest.mark.accepts("S3.25")
def test_without_one_two_starts_are_the_same_client() -> None:
    first, second = (configured({}, unique=unique).settings for unique in ("a1b2c3", "d4e5f6"))
    assert first.client_identifier == second.client_identifier


def test_keys_and_processors_are_not_told_apart_by_case() -> None:
    content = {"mqtt": {"ZebraRfid": {"brokerHOST": "h"}}}
    variables = {"MQTT__ZEBRARFID__ENVIRONMENTID": "qa", "mqtt__zebrarfid__brokerport": "1884"}
    found = one(content, variables=variables)
    assert (found.name, found.environment, found.broker_port) == ("ZebraRfid", "qa", 1884)


def test_a_key_of_the_section_is_for_every_processor_that_has_none_of_its_own() -> None:
    section = {
        "BrokerHost": "shared.example",
        "EnvironmentId": "qa",
        "A": {},
        "B": {"BrokerHost": "own.example"},
    }
    found = configuration({"Mqtt": section}, variables={"Mqtt__BrokerPort": "1884"})
    hosts = [(each.settings.broker_host, each.settings.broker_port) for each in found.processors]
    assert hosts == [("shared.example", 1884), ("own.example", 1884)]


def test_null_takes_back_what_an_earlier_source_says() -> None:
    found = one(RECORD, {"Mqtt": {"ZebraRfid": {"EnvironmentId": "e", "Username": None}}})
    assert found.user_name is None


def test_a_list_is_replaced_as_a_whole() -> None:
    override = {"Mqtt": {"ZebraRfid": {"EnvironmentId": "e", "SubscribeTopics": ["one"]}}}
    assert one(RECORD, override).topics == ("one",)
    by_number = {f"Mqtt__ZebraRfid__SubscribeTopics__{n}": f"t/{n}" for n in range(11)}
    assert one(RECORD, override, variables=by_number).topics == tuple(f"t/{n}" for n in range(11))
    in_one = {"Mqtt__ZebraRfid__SubscribeTopics": "a/#, b"}
    assert one(RECORD, override, variables=in_one).topics == ("a/#", "b")


def test_a_list_with_a_gap_is_refused() -> None:
    said = problem({}, variables={"Mqtt__ZebraRfid__SubscribeTopics__1": "a"})
    assert said == (
        "environment variable Mqtt__ZebraRfid__SubscribeTopics__1: the items of a list are"
        " numbered from 0"
    )


@pytest.mark.accepts("S3.50")
def test_a_variable_that_is_missing_is_named() -> None:
    assert problem({"InstanceId": "${POD}"}) == (
        "appsettings.json: Mqtt.ZebraRfid.InstanceId: ${POD}: there is no such environment variable"
    )


@pytest.mark.accepts("S3.50")
def test_variables_stand_anywhere_in_a_value_and_are_not_looked_into() -> None:
    variables = {"SITE": "a", "LINE": "${SITE}", "PORT": "1884"}
    keys = {
        "SubscribeTopics": ["${SITE}/x/${LINE}", "$${SITE}"],
        "BrokerPort": "${PORT}",
    }
    found = configured(keys, variables=variables).settings
    assert found.topics == ("a/x/${SITE}", "${SITE}")
    assert found.broker_port == 1884


@given(st.text(), st.text())
def test_what_has_no_reference_stays_as_it_is(password: str, value: str) -> None:
    written = password.replace("${", "$${")
    found = configured({"Password": written or None}, variables={"NAME": value})
    assert found.settings.password == (password or None)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (
            {"ZebraRfid": {"BrokerPrt": 1}},
            'Mqtt.ZebraRfid.BrokerPrt: unknown key (did you mean "BrokerPort"?)',
        ),
        ({"ZebraRfid": {"Xyz": 1}}, "Mqtt.ZebraRfid.Xyz: unknown key"),
        ({"BrokerHots": "h"}, 'Mqtt.BrokerHots: unknown key (did you mean "BrokerHost"?)'),
        ({"BrokerHost": {}}, "Mqtt.BrokerHost: expected text, but it has keys"),
        ({"A": {"BrokerHost": "a", "brokerhost": "b"}}, "Mqtt.A.brokerhost: it is there twice"),
        ({"A": {}, "a": {}}, "Mqtt.a: it is there twice"),
        ({"A__B": {}}, "Mqtt.A__B: a processor's name has letters"),
        ({"A/B": {}}, "Mqtt.A/B: a processor's name has letters"),
    ],
)
def test_what_is_unknown_is_refused_by_its_name_and_place(section: Any, said: str) -> None:
    assert f"appsettings.json: {said}" in "\n".join(problems({"Mqtt": section}))


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        (
            "Mqtt__ZebraRfd__BrokerHost",
            'there is no processor ZebraRfd (did you mean "ZebraRfid"?)',
        ),
        ("Mqtt__ZebraRfid__BrokerHots", 'unknown key (did you mean "BrokerHost"?)'),
        ("MQTT__ENVIRONMENTIDD", 'unknown key (did you mean "EnvironmentId"?)'),
    ],
)
def test_a_variable_that_is_misspelt_is_refused(variable: str, said: str) -> None:
    assert problem({}, variables={variable: "x"}) == f"environment variable {variable}: {said}"


def test_two_variables_that_differ_in_case_only_are_refused() -> None:
    variables = {"Mqtt__ZebraRfid__InstanceId": "a", "MQTT__ZebraRfid__InstanceId": "b"}
    assert problem({}, variables=variables) == (
        "environment variable Mqtt__ZebraRfid__InstanceId: MQTT__ZebraRfid__InstanceId is the same"
    )


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("BrokerPort", 0, "expected a whole number from 1 to 65535, but 0 is below"),
        ("BrokerPort", "x", 'expected a whole number from 1 to 65535, but "x" is not'),
        ("CleanSession", "maybe", 'expected true or false, but "maybe" is neither'),
        ("CleanSession", 1, "expected true or false, but 1 is neither"),
        ("SubscribeTopics", ["a/#/b"], 'but "a/#/b" is not a topic filter'),
        ("SubscribeTopics", ["$share/g/a"], 'but "$share/g/a" is not a topic filter'),
        ("SubscribeTopics", ["\ud800"], "is not a topic filter"),
        ("SubscribeTopics", 7, "but 7 is not a list"),
        ("ReconnectDelaySeconds", -1, "expected seconds from 0 to 86400, but -1 is not"),
        ("ReconnectDelaySeconds", True, "but it is no number"),
        ("ReconnectDelaySeconds", "nan", "but it is no number"),
        ("ReconnectDelaySeconds", 10**400, "but it is no number"),
        ("QualityOfService", 0, "expected a whole number from 1 to 2"),
        ("DeadLetterTopic", "a/+", "expected a topic without wildcards, but 'a/+' is not"),
        ("DeadLetterTopic", "\ud800", "expected a topic without wildcards"),
        ("ClientId", "", "expected text, but it is empty"),
        ("BrokerHost", ["h"], "expected text, but ['h'] is not text"),
        ("BrokerHost", "h..example", "but 'h..example' is not the name of a host"),
        ("BrokerHost", "h\0", "is not the name of a host"),
        ("HealthHost", "x" * 64, "is not the name of a host"),
        ("Username", "a\0b", "expected text, but it has U+0000"),
        ("Username", "\ud800", "but it is none that a packet has room for"),
        ("Username", "x" * 65_536, "but it is none that a packet has room for"),
        ("Password", "\ud800", "expected text, but it is not"),
    ],
)
def test_a_value_that_cannot_be_right_is_refused(key: str, value: Any, said: str) -> None:
    found = problem({key: value})
    assert found.startswith(f"appsettings.json: Mqtt.ZebraRfid.{key}: ")
    assert said in found


def test_everything_that_is_wrong_is_told() -> None:
    section = {"A": {"BrokerPort": 0, "Qos": 1}, "B": {"CleanSession": 7}, "InstanceId": 5}
    found = problems({"Mqtt": section})
    assert len(found) == 6
    for name in ("A.Qos", "A.BrokerPort", "B.CleanSession", "InstanceId", "A.BrokerHost"):
        assert len([each for each in found if f"Mqtt.{name}: " in each]) == 1


@pytest.mark.parametrize(
    "content", [{"Mqt": {"A": {}}}, {}, {"Mqtt": {}}, {"Mqtt": []}, {"Mqtt:A:BrokerHost": "h"}]
)
def test_a_file_without_the_section_is_refused(content: Any) -> None:
    [said] = problems(content)
    assert said.startswith("appsettings.json: ")
    assert '"Mqtt"?' not in said


def test_other_sections_are_other_programs() -> None:
    content = json.loads(RECORD) | {"Logging": {"LogLevel": {"Default": "Information"}}}
    assert one(content, variables={"MQTT_ENVIRONMENT_ID": "e"}).name == "ZebraRfid"


def test_paths_are_relative_to_the_configuration() -> None:
    keys = {"TlsAuthority": "certs/ca.pem", "TlsKey": "/etc/key.pem", "Sink": "sqlite:///a/b.db"}
    found = configured(keys).settings
    assert found.tls_authority == f"{FOLDER}/certs/ca.pem"
    assert found.tls_key == "/etc/key.pem"
    assert found.sink == f"sqlite:///{FOLDER}/a/b.db"
    assert configured({"Sink": "sqlite:////var/x.db"}).settings.sink == "sqlite:////var/x.db"
    assert configured({"Sink": "postgresql://h/d"}).settings.sink == "postgresql://h/d"


@pytest.mark.parametrize(
    ("keys", "name", "shown", "where"),
    [
        ({}, "BrokerPort", "8883", "default"),
        ({"BrokerPort": 1}, "BrokerPort", "1", "appsettings.json: Mqtt.ZebraRfid.BrokerPort"),
        (
            {"InstanceId": "${POD}"},
            "InstanceId",
            "bbu-0",
            "appsettings.json: Mqtt.ZebraRfid.InstanceId with ${POD}",
        ),
        ({}, "Username", "gate", "environment variable Mqtt__Username"),
        ({}, "environment", "azure-prod", "appsettings.json: Mqtt.ZebraRfid.EnvironmentId"),
        ({"EnvironmentId": ""}, "environment", "from-variable", "MQTT_ENVIRONMENT_ID"),
        ({"SubscribeTopics": ["a", "b"]}, "SubscribeTopics", "a,b", None),
    ],
)
def test_each_value_says_where_it_came_from(
    keys: dict[str, Any], name: str, shown: str, where: str | None
) -> None:
    variables = {"POD": "bbu-0", "Mqtt__Username": "gate", "MQTT_ENVIRONMENT_ID": "from-variable"}
    found = place(keys, name, variables=variables)
    assert found == (shown, where or f"appsettings.json: Mqtt.ZebraRfid.{name}")


SECRET = "pa55-w0rd"


@pytest.mark.parametrize(
    "keys",
    [
        {"Password": SECRET},
        {"Sink": f"postgresql://gate:{SECRET}@db/bbu"},
        {"Sink": f"postgresql://db/bbu?user=a&password={SECRET}&x=y"},
        {"Sink": f"postgresql://gate:{SECRET}@@db/bbu"},
    ],
)
def test_no_secret_is_shown(keys: dict[str, Any]) -> None:
    found = configured(keys)
    assert SECRET not in repr(found)
    assert SECRET not in str(found.values)
    assert place(keys, next(iter(keys)))[0].count(HIDDEN) == 1


def test_a_password_of_a_wrong_kind_is_not_in_the_sentence() -> None:
    assert problem({"Password": 98765}) == (
        "appsettings.json: Mqtt.ZebraRfid.Password: expected text, but it is not"
    )


def test_a_filter_that_is_too_long_with_its_group_is_refused() -> None:
    keys = {"SharedSubscriptionGroup": "g" * 40_000, "SubscribeTopics": ["a" * 40_000]}
    assert "has more than 65535 bytes" in problem(keys)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
KEY_NAMES = st.sampled_from([*KEYS, "Mqtt"]) | st.text(max_size=8)
SECTIONS = st.dictionaries(
    KEY_NAMES, ANYTHING | st.dictionaries(KEY_NAMES, ANYTHING, max_size=4), max_size=4
)
VARIABLES = st.dictionaries(
    st.lists(KEY_NAMES | st.sampled_from(["0", "1", "ZebraRfid"]), max_size=3).map(
        lambda parts: "__".join(["Mqtt", *parts])
    ),
    st.text(max_size=8) | st.sampled_from(["${A}", "$${A}", "1"]),
    max_size=4,
)


@given(SECTIONS, SECTIONS, VARIABLES)
def test_whatever_is_written_is_taken_or_refused_with_sentences(
    base: dict[str, Any], override: dict[str, Any], variables: dict[str, str]
) -> None:
    documents = [Document("a.json", {"Mqtt": base}), Document("b.json", {"Mqtt": override})]
    told: tuple[str, ...] = ()
    processors: tuple[Configured, ...] = ()
    begun = start(variables, build=Build.DEVELOPMENT)
    try:
        processors = read_configuration(documents, begun).processors
    except WrongConfigurationError as refused:
        told = refused.problems
    assert all(told)
    assert len(set(told)) == len(told)
    for each in processors:
        assert usable(each.settings.client_identifier, "") == each.settings.client_identifier
        assert all(is_valid_topic_filter(f.encode()) for f in each.settings.topic_filters)
        assert is_valid_topic_name(each.settings.dead_letters.encode())


@pytest.mark.parametrize("depth", [10, 400, 900, 5_000])
@pytest.mark.parametrize("key", ["BrokerPort", "SubscribeTopics", "Password"])
def test_a_value_that_is_nested_deep_is_refused(depth: int, key: str) -> None:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    document = Document("a.json", {"Mqtt": {"A": {"BrokerHost": "h", key: value}}})
    with pytest.raises(WrongConfigurationError) as refused:
        read_configuration([document], start({"MQTT_ENVIRONMENT_ID": "e"}))
    [told] = refused.value.problems
    assert told.startswith(f"a.json: Mqtt.A.{key}: expected ")
    assert len(told) < 400


@pytest.mark.parametrize("key", ["BrokerPort", "QualityOfService", "DeadLetterTopic"])
def test_a_value_that_is_long_is_not_told_in_full(key: str) -> None:
    assert len(problem({key: "x#" * 100_000})) < 400
