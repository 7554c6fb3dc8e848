"""Acknowledgement timeouts, with the client for Java, which takes shorter ones than others and a
tick: what consumers ask for again when a time has passed, beside what they give back.

The time, the tick and the wish to have a message again are the client's. The broker's are that each
wish is fulfilled once, and that an acknowledgement counts whichever delivery it answers.
"""

from collections.abc import Iterator

import pytest

from tests.interop import installation
from tests.interop.driver import Driver
from tests.interop.installation import ROOT
from tests.interop.pulsar.conftest import MakeClient

TIMEOUT_MS = 4_000
"""Longer than `receives_nothing` waits, so that nothing of a timeout comes meanwhile."""
LATE_MS = 2 * TIMEOUT_MS
"""By then whatever a timeout and its tick bring has come."""
QUICKLY = {"negative_ack_redelivery_delay_ms": 100}
TIMED = {"unacked_messages_timeout_ms": TIMEOUT_MS, "unacked_messages_tick_ms": 1_000}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """It, in a process for all tests of the module."""
    log_file = tmp_path_factory.mktemp("library") / "client.log"
    driver = Driver(installation.pulsar_java(), ROOT, log_file)
    yield driver
    driver.stop()


@pytest.mark.accepts("S4.33")
def test_what_is_given_back_before_its_timeout_comes_at_once_and_not_a_second_time(
    client: MakeClient, prefix: str
) -> None:
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine", kind="Shared", **QUICKLY, **TIMED)
    pulsar.producer(prefix).send(b"x")
    consumer.give_back(consumer.receive())
    # The timeout would bring it later than this waits.
    again = consumer.receive(TIMEOUT_MS // 2)
    assert (again.payload, again.redeliveries) == (b"x", 1)
    consumer.acknowledge(again)
    consumer.receives_nothing(LATE_MS)


@pytest.mark.accepts("S4.33")
def test_what_is_given_back_after_its_timeout_has_brought_it_again_is_only_what_was_held(
    client: MakeClient, prefix: str
) -> None:
    """Giving back comes too late: what the timeout brought was acknowledged, and stays so."""
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine", kind="Shared", **QUICKLY, **TIMED)
    pulsar.producer(prefix).send(b"x")
    held = consumer.receive()
    brought = consumer.receive()
    assert (brought.payload, brought.redeliveries) == (b"x", 1)
    consumer.acknowledge(brought)
    consumer.give_back(held)
    consumer.receives_nothing()
    consumer.close()
    pulsar.consumer(prefix, "mine", kind="Shared").receives_nothing()


@pytest.mark.accepts("S4.41")
def test_a_client_looks_at_its_timeouts_once_a_tick_and_is_given_what_it_asks_for(
    client: MakeClient, prefix: str
) -> None:
    """With a tick as long as the timeout a message is two ticks old before it is asked for."""
    pulsar = client()
    finely = pulsar.consumer(f"{prefix}-fine", "mine", kind="Shared", **TIMED)
    pulsar.producer(f"{prefix}-fine").send_many([b"0", b"1", b"2"])
    assert [finely.receive().payload for _ in range(3)] == [b"0", b"1", b"2"]
    coarse = {"unacked_messages_timeout_ms": TIMEOUT_MS, "unacked_messages_tick_ms": TIMEOUT_MS}
    coarsely = pulsar.consumer(f"{prefix}-coarse", "mine", kind="Shared", **coarse)
    pulsar.producer(f"{prefix}-coarse").send(b"x")
    assert coarsely.receive().payload == b"x"
    finely.receives_nothing()
    again = finely.receive_many(3)
    assert [message.payload for message in again] == [b"0", b"1", b"2"]
    assert {message.redeliveries for message in again} == {1}
    coarsely.receives_nothing(500)
    again = finely.receive_many(3)
    assert {message.redeliveries for message in again} == {2}
    (brought,) = coarsely.receive_many(1)
    assert (brought.payload, brought.redeliveries) == (b"x", 1)


@pytest.mark.accepts("S4.45")
def test_what_is_merely_slow_comes_again_and_its_late_acknowledgement_counts(
    client: MakeClient, prefix: str
) -> None:
    """Why giving back is recommended: a timeout cannot tell a slow consumer from one that failed.
    What a slow one acknowledges in the end is nobody's any more, whoever was given it since."""
    one, other = client(), client()
    slow = one.consumer(prefix, "mine", kind="Shared", **TIMED)
    one.producer(prefix).send_many([b"0", b"1"])
    held = slow.receive_many(2)
    # What comes again is dealt in turn, so that the other one has a part of it.
    quick = other.consumer(prefix, "mine", kind="Shared")
    brought = quick.receive()
    assert brought.payload in (b"0", b"1")
    assert brought.redeliveries == 1
    for message in held:
        slow.acknowledge(message)
    # Its acknowledgement is on its way when the consumer that sent it has closed.
    slow.close()
    quick.close()
    one.consumer(prefix, "mine", kind="Shared").receives_nothing()


@pytest.mark.accepts("S4.45")
def test_what_is_given_back_alone_comes_again_and_what_is_slow_does_not(
    client: MakeClient, prefix: str
) -> None:
    """What is recommended: only what has failed comes again."""
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine", kind="Shared", **QUICKLY)
    pulsar.producer(prefix).send_many([b"failed", b"slow"])
    failed, slow = consumer.receive_many(2)
    consumer.give_back(failed)
    again = consumer.receive()
    assert (again.payload, again.redeliveries) == (b"failed", 1)
    consumer.acknowledge(again)
    consumer.receives_nothing(LATE_MS)
    consumer.acknowledge(slow)
    consumer.close()
    pulsar.consumer(prefix, "mine", kind="Shared").receives_nothing()
