"""What a restart of the broker leaves of producers' receipts and consumers' acknowledgements."""

import pytest

from tests.interop.pulsar.conftest import MakeClient
from tests.process import BrokerProcess


@pytest.mark.accepts("S4.103", "S4.177", "S4.219")
@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
@pytest.mark.parametrize("ends", ["stop", "kill"])
def test_what_is_acknowledged_stays_so_and_the_rest_comes_again(
    own_broker: BrokerProcess, own_client: MakeClient, kind: str, ends: str
) -> None:
    pulsar = own_client()
    consumer = pulsar.consumer("topic", "mine", kind=kind)
    producer = pulsar.producer("topic", batching_enabled=True, batching_max_messages=2)
    producer.send_many([str(number).encode() for number in range(6)])
    taken = consumer.receive_many(6)
    for message in taken[:2]:
        consumer.acknowledge(message)
    # The client gathers acknowledgements; closing brings them to the broker.
    consumer.close()
    pulsar.disconnect()
    if ends == "kill":
        own_broker.kill()
    else:
        assert own_broker.stop() == 0
    own_broker.start()
    again = own_client().consumer("topic", "mine", kind=kind)
    assert again.take(4) == [b"2", b"3", b"4", b"5"]
    again.receives_nothing()


def test_a_connected_client_goes_on_after_a_restart(
    own_broker: BrokerProcess, own_client: MakeClient
) -> None:
    pulsar = own_client()
    consumer = pulsar.consumer("topic", "mine")
    producer = pulsar.producer("topic")
    producer.send(b"before")
    assert consumer.take(1) == [b"before"]
    assert own_broker.stop() == 0
    own_broker.start()
    producer.send(b"after")
    # What the client had not said to have when the broker stopped comes again.
    taken = consumer.take(1)
    assert (taken if taken == [b"after"] else consumer.take(1)) == [b"after"]
