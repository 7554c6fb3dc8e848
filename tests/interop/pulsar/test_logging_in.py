"""Who may connect, produce and consume: the users and rules that there are."""

import pytest

from tests.interop.pulsar.conftest import MakeClient
from tests.interop.users import Users
from tests.process import BrokerProcess

SHORT = {"operation_timeout_s": 3}


@pytest.fixture
def users(own_broker: BrokerProcess) -> Users:
    users = Users(own_broker)
    users.add("ann", "right", "--allow", "plant/#")
    return users


def test_a_user_with_a_password_may_do_what_the_rules_allow(
    users: Users, own_client: MakeClient
) -> None:
    pulsar = own_client(user=("ann", "right"))
    consumer = pulsar.consumer("plant%2Fa", "mine")
    pulsar.producer("plant%2Fa").send(b"x")
    assert consumer.take(1) == [b"x"]


def test_nobody_else_gets_in(users: Users, own_client: MakeClient) -> None:
    with pytest.raises(AssertionError, match=r"Authentication|Timeout|ConnectError"):
        own_client(user=("ann", "wrong"), **SHORT).producer("plant%2Fa")


def test_what_no_rule_allows_is_neither_produced_nor_consumed(
    users: Users, own_client: MakeClient
) -> None:
    pulsar = own_client(user=("ann", "right"))
    with pytest.raises(AssertionError, match="AuthorizationError"):
        pulsar.producer("office%2Fa")
    with pytest.raises(AssertionError, match="AuthorizationError"):
        pulsar.consumer("office%2Fa", "mine")
