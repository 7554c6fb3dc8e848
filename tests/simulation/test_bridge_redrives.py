"""Losses of a bridge that are driven again."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.simulation.remote import Bridged, with_remote
from tests.simulation.test_link_changes import Keeper
from tests.simulation.whole import CONFIG

sleep = asyncio.sleep
KEPT = replace(CONFIG, bridges_storage="FILE_NATIVE")
QUOTA_EXCEEDED = 0x97


async def lose(bridged: Bridged, *topics: str) -> int:
    """The remote refuses a message to each; returns the number of the row that tells of them."""
    bridged.remote.refusal = QUOTA_EXCEEDED
    publisher = await bridged.connect("publisher", clean=True)
    for identifier, topic in enumerate(topics, 1):
        publisher.send(
            "publish",
            packet_identifier=identifier,
            qos=2,
            retain=False,
            dup=False,
            topic_name=topic,
            payload=b"1",
        )
    await sleep(2)
    bridged.remote.refusal = 0
    ((key, _),) = bridged.server.records.catch_up().losses(1)
    return int.from_bytes(key)


TWO_OF_DIFFERENT_TERMS: list[dict[str, Any]] = [
    {"filters": ["up/#"], "max_qos": 1},
    {"filters": ["up/x"], "max_qos": 2, "preserve_retain": True, "destination": "other/{#}"},
    {"filters": ["#"], "persist": False},
]


@pytest.mark.accepts("S1.69")
def test_what_two_subscriptions_match_is_driven_again_once_at_the_higher_qos() -> None:
    async def body(bridged: Bridged) -> None:
        row = await lose(bridged, *(f"up/{letter}" for letter in "xyyxxy"))
        sent = [(fields["topic_name"], fields["qos"]) for fields in remote.all("publish")]
        assert Counter(sent) == {("up/x", 2): 3, ("up/y", 1): 3}
        assert (await bridged.server.commands.redrive(row)).messages == len(sent)
        await sleep(2)
        again = [(fields["topic_name"], fields["qos"]) for fields in remote.all("publish")]
        assert Counter(again[len(sent) :]) == Counter(sent)

    remote = Keeper()
    with_remote(body, remote, KEPT, local_subscriptions=TWO_OF_DIFFERENT_TERMS)
