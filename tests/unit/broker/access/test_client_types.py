"""What type a client is: by its credential, by a rule, else a DEVICE."""

from dataclasses import replace

import pytest

from holdfast.broker.access.access import Denial, Identity
from holdfast.broker.access.client_types import ClientTypes
from holdfast.broker.access.credential import parse_credential
from holdfast.core.client_type import ClientType
from holdfast.core.config import Config, load
from holdfast.core.errors import BrokerRefusedError, ConfigurationError
from tests.unit.broker.access.builders import CONFIG, Doorway

RULES = replace(
    CONFIG, application_client_identifiers=("spark-*", "*-sink-*"), application_user_names=("etl",)
)


def type_of(decision: Identity | Denial) -> ClientType:
    assert isinstance(decision, Identity)
    return decision.client_type


@pytest.mark.parametrize(
    ("client_identifier", "user_name", "expected"),
    [
        ("spark-1", None, "APPLICATION"),
        ("spark-", None, "APPLICATION"),
        ("spark", None, "DEVICE"),
        ("a-sink-b", None, "APPLICATION"),
        ("sink", None, "DEVICE"),
        ("reader-7", "etl", "APPLICATION"),
        ("reader-7", "etl2", "DEVICE"),
        ("reader-7", None, "DEVICE"),
    ],
)
def test_a_rule_decides_where_there_is_no_credential(
    client_identifier: str, user_name: str | None, expected: str
) -> None:
    assert ClientTypes(RULES).of(client_identifier, user_name) == expected


def test_without_a_rule_everybody_is_a_device() -> None:
    assert ClientTypes(Config()).of("spark-1", "etl") == "DEVICE"


def test_a_credential_decides_before_any_rule() -> None:
    door = Doorway(anonymous=True, application_client_identifiers=("*",))
    door.add("gate", "open sesame")
    door.add("etl", "let me in", client_type="APPLICATION")
    assert type_of(door.log_in("gate", "open sesame")) == "DEVICE"
    assert type_of(door.log_in("etl", "let me in")) == "APPLICATION"
    assert type_of(door.log_in()) == "APPLICATION"


def test_another_type_holds_from_the_next_login_on() -> None:
    door = Doorway()
    door.add("etl", "let me in")
    before = door.log_in("etl", "let me in")
    assert isinstance(before, Identity)
    door.users.change("etl", {"client_type": "APPLICATION"}, None)
    # Nobody is disconnected for it: the credential's proof is what it was.
    assert door.access.renewed(before, "reader-7") is not None
    assert type_of(door.log_in("etl", "let me in")) == "APPLICATION"


def test_rules_are_taken_over_by_a_reload() -> None:
    door = Doorway()
    assert type_of(door.log_in("etl")) == "DEVICE"
    door.access.reconfigure(replace(door.config, application_user_names=("e*l",)))
    assert type_of(door.log_in("etl")) == "APPLICATION"


@pytest.mark.parametrize("client_type", ["application", "", None, 1])
def test_no_other_type_is_taken(client_type: object) -> None:
    with pytest.raises(BrokerRefusedError, match="DEVICE or APPLICATION is"):
        Doorway().add("etl", "let me in", client_type=client_type)


def test_a_credential_of_an_older_version_is_a_device() -> None:
    credential = parse_credential(b'{"name":"gate","proof":"password","password_hash":"x"}')
    assert credential.client_type == "DEVICE"


def test_a_rule_that_matches_nothing_is_refused_at_start() -> None:
    text = 'application.user_names = [""]'
    with pytest.raises(ConfigurationError, match=r"application\.user_names"):
        load(file=("holdfast.toml", text), disk_bytes=lambda _: 2**40)
