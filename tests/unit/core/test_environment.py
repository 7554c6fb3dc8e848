"""Which environment a client or a group is of, by its name."""

import pytest

from holdfast.core.environment import Naming, is_environment_name, is_environment_rule

NAMES = ("azure-prod", "prod", "eu-azure-prod", "azure-dev")


@pytest.mark.parametrize(
    ("share_name", "environment"),
    [
        ("bbu-processors-azure-prod", "azure-prod"),
        ("bbu-processors-azure-dev", "azure-dev"),
        ("bbu-processors-eu-azure-prod", "eu-azure-prod"),
        ("bbu-processors-prod", "prod"),
        ("bbu-processors", ""),
        ("bbu-processors-azure-prod-2", ""),
        ("azure-prod", "prod"),
        ("bbu-processorsazure-dev", ""),
    ],
)
def test_a_group_is_of_the_environment_whose_name_its_own_ends_with(
    share_name: str, environment: str
) -> None:
    assert Naming.of(NAMES, (), ()).of_group(share_name) == environment


@pytest.mark.parametrize(
    ("client_identifier", "environment"),
    [
        ("bbu-processor-azure-prod-pod-1", "azure-prod"),
        ("bbu-processor-azure-prod", "azure-prod"),
        ("bbu-processor-azure-dev-20241205-a1b2c3", "azure-dev"),
        ("bbu-processor-azure-producer-1", ""),
        ("reader-7", ""),
    ],
)
def test_a_client_is_of_the_environment_that_stands_in_its_identifier(
    client_identifier: str, environment: str
) -> None:
    assert Naming.of(NAMES, (), ()).of_client(client_identifier) == environment


def test_rules_come_before_names_and_make_their_environments_known() -> None:
    naming = Naming.of(
        ["azure-prod"], ["probe-*=azure-qa", "*=azure-dev"], ["nightly-*-azure-prod=azure-qa"]
    )
    assert naming.names == ("azure-prod", "azure-dev", "azure-qa")
    assert naming.of_client("probe-azure-prod-1") == "azure-qa"
    assert naming.of_client("anything") == "azure-dev"
    assert naming.of_group("nightly-run-azure-prod") == "azure-qa"
    assert naming.of_group("run-azure-prod") == "azure-prod"
    assert naming.of_group("run-azure-dev") == "azure-dev"


def test_a_name_can_stand_at_the_end_of_a_share_name() -> None:
    assert all(map(is_environment_name, ("azure-prod", "local-daves-macbook", "büro.7", "a" * 64)))
    wrong = ("", " ", "a b", "a/b", "a+", "#", "a*", "a=b", "a,b", "a\n", "a\0", "a" * 65)
    assert not [name for name in wrong if is_environment_name(name)]
    assert is_environment_rule("a*=b")
    assert not [rule for rule in ("a", "=b", "a=", "a=b c") if is_environment_rule(rule)]
