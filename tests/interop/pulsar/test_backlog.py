"""What an operator sees of a subscription that nobody consumes."""

import subprocess
import sys
from pathlib import Path

from tests.interop.pulsar.conftest import MakeClient
from tests.interop.seen import Seen
from tests.interop.test_admin import eventually

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
WITHIN_S = 60


def test_what_waits_is_in_the_metrics_and_in_top(own_broker: Seen, own_client: MakeClient) -> None:
    pulsar = own_client()
    pulsar.consumer("orders", 'a "b"').close()
    producer = pulsar.producer("orders")
    for number in range(7):
        producer.send(str(number).encode())
    all_of_them = "holdfast_durable_subscriptions_backlog_messages"
    eventually(lambda: own_broker.number(all_of_them) == 7, "a round")
    numbers = own_broker.get("/v1/statistics")["statistics"]
    labels = '{topic="orders",subscription="a "b""}'
    assert numbers[f"holdfast_durable_subscription_backlog_messages{labels}"] == 7
    assert numbers[f"holdfast_durable_subscription_consumers{labels}"] == 0
    here = str(own_broker.data_directory)
    ended = subprocess.run(
        [HOLDFAST, "top", "--once", "--data-dir", here],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=True,
    )
    (row,) = (line.split() for line in ended.stdout.splitlines() if line.startswith(" orders"))
    # Topic, the two words of the name, messages, age, consumers.
    assert (row[0], row[-3], row[-1]) == ("orders", "7", "0")
