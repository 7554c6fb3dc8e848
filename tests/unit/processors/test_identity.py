"""Environments, groups and client identifiers, by the vectors of the decision record."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import ConfigurationError
from holdfast.core.share_name import parse_shared
from holdfast.kernel import is_valid_topic_filter
from holdfast.processors.identity import (
    Build,
    EnvironmentName,
    NamedBy,
    build_of,
    environment_name,
    ephemeral_client_identifier,
    group_name,
    instance_name,
    persistent_client_identifier,
)

MACHINE = "Daves-MacBook"
BLANKS = st.text(" \t\n\r\u00a0", max_size=4)
NAMES = st.text(
    st.characters(categories=("L", "N", "P", "S"), exclude_characters="/+#\0"),
    min_size=1,
    max_size=20,
)
UNUSABLE = [
    "a/b",
    "a+",
    "#",
    "/",
    "a\0b",
    "a\nb",
    "\x7f",
    "\ud800",
    "\ufffe",
    " a",
    "a ",
    "x" * 70_000,
]


@pytest.mark.accepts("S3.8")
@pytest.mark.parametrize(
    ("environment", "group"),
    [
        ("azure-prod", "bbu-processors-azure-prod"),
        ("azure-dev", "bbu-processors-azure-dev"),
        ("local-daves-macbook", "bbu-processors-local-daves-macbook"),
    ],
)
def test_a_group_has_its_environment_behind_it(environment: str, group: str) -> None:
    assert group_name("bbu-processors", environment) == group


@pytest.mark.accepts("S3.10")
@pytest.mark.parametrize("configured", [None, "", " ", "\t \n"])
def test_no_group_gets_no_suffix(configured: str | None) -> None:
    assert group_name(configured, "azure-prod") is None


@pytest.mark.accepts("S3.15")
@given(NAMES, st.none() | st.text(), st.sampled_from(Build))
def test_a_configured_environment_wins_over_everything(
    configured: str, variable: str | None, build: Build
) -> None:
    found = environment_name(configured, variable, MACHINE, build)
    assert found == EnvironmentName(configured, NamedBy.CONFIGURATION)


@pytest.mark.accepts("S3.16", "S3.19")
@given(st.none() | BLANKS, NAMES, st.sampled_from(Build))
def test_the_variable_is_next_where_nothing_or_blanks_are_configured(
    configured: str | None, variable: str, build: Build
) -> None:
    found = environment_name(configured, variable, MACHINE, build)
    assert found == EnvironmentName(variable, NamedBy.VARIABLE)


@pytest.mark.accepts("S3.17", "S3.19", "S3.20", "S3.62")
@given(st.none() | BLANKS, st.none() | BLANKS)
def test_a_development_build_is_named_for_its_machine(
    configured: str | None, variable: str | None
) -> None:
    found = environment_name(configured, variable, MACHINE, Build.DEVELOPMENT)
    assert found == EnvironmentName("local-daves-macbook", NamedBy.MACHINE)


@pytest.mark.accepts("S3.18", "S3.19", "S3.63")
@given(st.none() | BLANKS, st.none() | BLANKS)
def test_a_release_without_an_environment_does_not_begin(
    configured: str | None, variable: str | None
) -> None:
    with pytest.raises(ConfigurationError, match="must be configured explicitly in a release"):
        environment_name(configured, variable, MACHINE, Build.RELEASE)


@pytest.mark.accepts("S3.21")
@pytest.mark.parametrize("short_name", ["elbbudev", "elbbuqa", "elbbuprod"])
def test_the_short_name_of_a_project_is_the_environment_in_the_cloud(short_name: str) -> None:
    found = environment_name(short_name, None, "aca-7f9c", Build.RELEASE)
    assert group_name("bbu-processors", found.name) == f"bbu-processors-{short_name}"


@pytest.mark.accepts("S3.63")
@pytest.mark.parametrize("variable", [None, "", "  ", "release"])
def test_whoever_says_nothing_has_a_release(variable: str | None) -> None:
    assert build_of(variable) is Build.RELEASE


def test_a_build_that_does_not_exist_is_refused() -> None:
    assert build_of("development") is Build.DEVELOPMENT
    with pytest.raises(ConfigurationError, match='HOLDFAST_BUILD: "debug" is neither'):
        build_of("debug")


@pytest.mark.accepts("S3.22")
def test_a_persistent_client_identifier() -> None:
    found = persistent_client_identifier("bbu-processor", "azure-prod", "pod-1")
    assert found == "bbu-processor-azure-prod-pod-1"


@pytest.mark.accepts("S3.23")
def test_an_ephemeral_client_identifier() -> None:
    found = ephemeral_client_identifier("bbu-processor", "azure-prod", "20241205", "a1b2c3")
    assert found == "bbu-processor-azure-prod-20241205-a1b2c3"


@pytest.mark.accepts("S3.27")
@pytest.mark.parametrize(
    ("configured", "instance"),
    [(None, "daves-macbook"), (" ", "daves-macbook"), ("bbu-0", "bbu-0"), ("Pod-1", "Pod-1")],
)
def test_an_instance_is_named_for_its_machine_or_its_pod(
    configured: str | None, instance: str
) -> None:
    assert instance_name(configured, MACHINE) == instance


@pytest.mark.accepts("S3.14")
@pytest.mark.parametrize("name", UNUSABLE)
def test_a_name_that_cannot_stand_everywhere_is_refused_by_what_it_is(name: str) -> None:
    refusals = {
        "EnvironmentId": lambda: environment_name(name, None, MACHINE, Build.RELEASE),
        "MQTT_ENVIRONMENT_ID": lambda: environment_name(None, name, MACHINE, Build.RELEASE),
        "the name of the machine": lambda: environment_name(None, None, name, Build.DEVELOPMENT),
        "SharedSubscriptionGroup": lambda: group_name(name, "azure-prod"),
        "InstanceId": lambda: instance_name(name, MACHINE),
        "ClientId": lambda: persistent_client_identifier(name, "azure-prod", "pod-1"),
    }
    for what, ask in refusals.items():
        with pytest.raises(ConfigurationError) as refused:
            ask()
        sentence = str(refused.value)
        assert sentence.startswith(f"{what}: ")
        assert sentence.isascii()
        assert len(sentence) < 200


def test_names_that_are_too_long_together_are_refused() -> None:
    half = "x" * 40_000
    with pytest.raises(ConfigurationError, match=r"the group: .* more than 65535 bytes"):
        group_name(half, half)
    with pytest.raises(ConfigurationError, match=r"the client identifier: .* more than 65535"):
        persistent_client_identifier("bbu", half, half)


@pytest.mark.parametrize("machine", ["", " "])
def test_a_machine_without_a_name_names_nothing(machine: str) -> None:
    with pytest.raises(ConfigurationError, match=r"the name of the machine: .* is empty"):
        environment_name(None, None, machine, Build.DEVELOPMENT)
    with pytest.raises(ConfigurationError, match=r"the name of the machine: .* is empty"):
        instance_name(None, machine)


@pytest.mark.accepts("S3.9", "S3.14")
@given(st.text(max_size=30), st.text(max_size=30))
def test_what_is_not_refused_is_a_share_name(group: str, environment: str) -> None:
    try:
        named = environment_name(environment, None, MACHINE, Build.DEVELOPMENT).name
        found = group_name(group, named)
    except ConfigurationError:
        return
    if found is not None:
        topic_filter = f"$share/{found}/zebra/fx/+/reads"
        parsed = parse_shared(topic_filter)
        assert parsed is not None
        assert (parsed.share_name, parsed.topic_filter) == (found, "zebra/fx/+/reads")
        assert is_valid_topic_filter(topic_filter.encode())
        assert found.endswith(f"-{named}")


@given(NAMES, NAMES, NAMES)
def test_environments_share_no_group(group: str, one: str, other: str) -> None:
    assert (group_name(group, one) == group_name(group, other)) == (one == other)
