"""What is doubtful in settings is said, and what is usual is not doubted."""

from typing import Any

import pytest

from holdfast.processors.review import doubts
from tests.builders.configured import configured

TOPICS = {"SubscribeTopics": ["a"]}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"SubscribeTopics": []}, "SubscribeTopics is empty"),
        ({"CleanSession": True}, "CleanSession is true"),
        ({"SessionExpiryIntervalSeconds": 0}, "SessionExpiryIntervalSeconds is 0"),
        ({"BrokerPort": 1883}, "BrokerPort 1883 is usually not encrypted"),
        ({"UseTls": False, "Password": "x"}, "UseTls is false: the password goes"),
        ({"TlsKey": "a.key"}, "TlsKey is the key of no certificate"),
        ({"ReceiveMaximum": 10}, "BatchMessages 1000 is more than ReceiveMaximum 10"),
    ],
)
def test_each_doubt_has_a_sentence(keys: dict[str, Any], said: str) -> None:
    [found] = doubts(configured(TOPICS | keys).settings)
    assert found.startswith(said)


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"UseTls": False, "Password": "x", "BrokerHost": "localhost", "BrokerPort": 1883},
        {"CleanSession": True, "SessionExpiryIntervalSeconds": 0},
    ],
)
def test_what_is_usual_is_not_doubted(keys: dict[str, Any]) -> None:
    found = list(doubts(configured(TOPICS | keys).settings))
    assert len(found) == (1 if "CleanSession" in keys else 0)
