"""What producers send comes to consumers as it was sent: alone, in batches, compressed or not."""

import pytest

from tests.interop.pulsar import stored
from tests.interop.pulsar.conftest import MakeClient
from tests.process import BrokerProcess

COMPRESSIONS = ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY")
NOT_SET = 0


@pytest.mark.accepts("S4.6", "S4.7", "S4.9", "S4.11", "S4.16", "S4.21")
def test_a_message_comes_as_it_was_sent(client: MakeClient, prefix: str) -> None:
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine")
    producer = pulsar.producer(prefix)
    sent = producer.send(
        b"\x00\xffhello",
        properties={"b": "2", "a": "1"},
        partition_key="key",
        ordering_key="order",
        event_timestamp=1_700_000_000_123,
    )
    taken = consumer.receive()
    assert taken.payload == b"\x00\xffhello"
    assert taken.properties == {"a": "1", "b": "2"}
    assert (taken.key, taken.ordering_key) == ("key", "order")
    assert taken.event_time_ms == 1_700_000_000_123
    assert taken.publish_time_ms > 0
    assert taken.message_id == sent
    assert taken.topic == f"persistent://public/default/{prefix}"
    assert taken.producer == producer.name


@pytest.mark.accepts("S4.17")
def test_an_event_time_that_was_not_set_is_zero(client: MakeClient, prefix: str) -> None:
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine")
    pulsar.producer(prefix).send(b"x")
    assert consumer.receive().event_time_ms == NOT_SET


@pytest.mark.accepts("S4.15")
def test_entries_of_a_topic_are_numbered_without_gaps(client: MakeClient, prefix: str) -> None:
    producer = client().producer(prefix)
    ids = [producer.send(b"x") for _ in range(5)]
    assert [entry for _, entry, _ in ids] == [0, 1, 2, 3, 4]
    assert len({ledger for ledger, _, _ in ids}) == 1


@pytest.mark.accepts("S4.15")
def test_two_topics_give_no_message_id_twice(client: MakeClient, prefix: str) -> None:
    pulsar = client()
    first = pulsar.producer(f"{prefix}-one").send(b"x")
    second = pulsar.producer(f"{prefix}-two").send(b"x")
    assert first != second


@pytest.mark.accepts("S4.74", "S4.75")
@pytest.mark.parametrize("batching", [False, True], ids=["alone", "batch"])
def test_one_consumer_reads_whatever_compression_was_chosen(
    client: MakeClient, prefix: str, batching: bool
) -> None:
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine")
    sent = []
    for compression in COMPRESSIONS:
        producer = pulsar.producer(prefix, compression=compression, batching_enabled=batching)
        payloads = [f"{compression}-{number}".encode() * 50 for number in range(3)]
        producer.send_many(payloads)
        sent += payloads
    assert consumer.take(len(sent)) == sent


@pytest.mark.accepts("S4.73")
@pytest.mark.parametrize("batching", [False, True], ids=["alone", "batch"])
def test_what_is_stored_is_compressed_only_where_the_producer_chose_it(
    shared_broker: BrokerProcess, client: MakeClient, prefix: str, batching: bool
) -> None:
    """The broker neither compresses nor opens: the log has what the library made of its options."""
    pulsar = client()
    chosen = [{}, *({"compression": name} for name in COMPRESSIONS)]
    for number, options in enumerate(chosen):
        producer = pulsar.producer(prefix, batching_enabled=batching, **options)
        producer.send_many([b"again and " * 50])
        (metadata,) = stored.metadata_by(shared_broker, producer.name)
        # The first two are without: nothing chosen, and NONE.
        assert metadata.get(stored.COMPRESSION, 0) == max(number - 1, 0)


@pytest.mark.accepts("S4.13")
def test_sequence_ids_begin_with_zero_and_may_be_chosen(client: MakeClient, prefix: str) -> None:
    producer = client().producer(prefix)
    producer.send(b"x")
    assert producer.sequence_id() == 0
    producer.send(b"x", sequence_id=40)
    assert producer.sequence_id() == 40


@pytest.mark.accepts("S4.76", "S4.77", "S4.79")
def test_a_batch_is_one_entry_and_comes_message_by_message(client: MakeClient, prefix: str) -> None:
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine")
    producer = pulsar.producer(
        prefix, batching_enabled=True, batching_max_messages=10, batching_max_publish_delay_ms=5_000
    )
    payloads = [str(number).encode() for number in range(30)]
    sent = producer.send_many(payloads)
    assert {entry for _, entry, _ in sent} == {0, 1, 2}
    assert [index for _, _, index in sent] == list(range(10)) * 3
    taken = consumer.receive_many(30)
    assert [message.payload for message in taken] == payloads
    assert [message.message_id for message in taken] == sent


@pytest.mark.accepts("S4.10")
def test_a_producer_without_a_name_is_given_one_of_its_own(client: MakeClient, prefix: str) -> None:
    pulsar = client()
    one, other = pulsar.producer(prefix), pulsar.producer(prefix)
    assert one.name
    assert one.name != other.name
    assert pulsar.producer(prefix, producer_name="chosen").name == "chosen"


def test_a_producer_begins_with_the_first_sequence_id(client: MakeClient, prefix: str) -> None:
    assert client().producer(prefix).last_sequence_id == -1


def test_a_name_that_is_taken_is_refused(client: MakeClient, prefix: str) -> None:
    pulsar = client()
    pulsar.producer(prefix, producer_name="only")
    with pytest.raises(AssertionError, match="ProducerBusy"):
        client().producer(prefix, producer_name="only")


def test_a_name_is_free_when_its_producer_has_closed(client: MakeClient, prefix: str) -> None:
    pulsar = client()
    pulsar.producer(prefix, producer_name="only").close()
    assert client().producer(prefix, producer_name="only").name == "only"


@pytest.mark.accepts("S4.18", "S4.20")
def test_a_message_of_five_megabytes_passes_and_a_larger_one_is_an_error(
    client: MakeClient, prefix: str
) -> None:
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine")
    producer = pulsar.producer(prefix)
    with pytest.raises(AssertionError, match="MessageTooBig"):
        producer.send(bytes(5 * 2**20 + 1))
    largest = bytes(5 * 2**20 - 1_024)
    producer.send(largest)
    assert consumer.take(1) == [largest]


@pytest.mark.accepts("S4.101", "S4.102", "S4.106")
def test_a_short_name_is_persistent_public_and_default(client: MakeClient, prefix: str) -> None:
    pulsar = client()
    consumer = pulsar.consumer(f"persistent://public/default/{prefix}", "mine")
    pulsar.producer(prefix).send(b"x")
    assert consumer.take(1) == [b"x"]


def test_a_topic_of_a_namespace_that_is_not_there_is_not_found(
    client: MakeClient, prefix: str
) -> None:
    with pytest.raises(AssertionError, match="TopicNotFound"):
        client().producer(f"persistent://nobody/nowhere/{prefix}")


@pytest.mark.accepts("S4.105")
def test_looking_a_topic_up_does_not_make_it(client: MakeClient, prefix: str) -> None:
    pulsar = client()
    assert pulsar.partitions(prefix) == [f"persistent://public/default/{prefix}"]
    consumer = pulsar.consumer(prefix, "mine", position="Earliest")
    pulsar.producer(prefix).send(b"x")
    assert consumer.take(1) == [b"x"]
