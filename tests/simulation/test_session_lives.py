"""How long a session is kept, and what its client is told: CONNECT by CONNECT, on the wire."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance.brokers import VirtualBroker
from tests.conformance.peer import Peer

Begin = Callable[..., VirtualBroker]

WEEK_S = 604_800
NEVER_ENDS = 0xFFFF_FFFF
EXPIRY = "session_expiry_interval"


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Begins a broker with these settings."""
    begun: list[VirtualBroker] = []

    def make(**settings: Any) -> VirtualBroker:
        begun.append(VirtualBroker(**settings))
        return begun[-1]

    yield make
    for broker in begun:
        broker.close()


def told(broker: VirtualBroker, client: str, requested_s: int | None, *, clean: bool) -> int | None:
    """What CONNACK says of the session's expiry; it leaves again without another word."""
    items = [] if requested_s is None else [(EXPIRY, requested_s)]
    peer = Peer(broker)
    connack = peer.connect(client, clean=clean, items=items)
    peer.subscribe(client, 1)
    peer.disconnect()
    found = connack.property(EXPIRY)
    assert found is None or isinstance(found, int)
    return found


def is_there(broker: VirtualBroker, client: str) -> bool:
    """Whether its session is still there for the client; it is left as long-lived as it was."""
    peer = Peer(broker)
    present = peer.connect(client, kept=True).session_present
    peer.close()
    return bool(present)


@pytest.mark.accepts("S2.28", "S2.43")
def test_clean_start_0_without_an_expiry_is_kept_for_the_administrative_time(begin: Begin) -> None:
    broker = begin(session_ttl_s=300)
    # Who asked for nothing, or for 0, is told what it really has.
    assert told(broker, "nothing", None, clean=False) == 300
    assert told(broker, "zero", 0, clean=False) == 300
    broker.pass_time(290)
    assert is_there(broker, "nothing")
    broker.pass_time(11)
    assert not is_there(broker, "zero")


def test_a_strict_broker_ends_it_with_its_connection(begin: Begin) -> None:
    broker = begin(session_strict_expiry=True)
    assert told(broker, "nothing", None, clean=False) is None
    assert told(broker, "zero", 0, clean=False) is None
    assert not is_there(broker, "nothing")
    assert not is_there(broker, "zero")
    # Everything else is as it was.
    assert told(broker, "asks", 60, clean=False) is None
    assert is_there(broker, "asks")


@pytest.mark.accepts("S2.24", "S2.43")
def test_an_older_client_has_the_administrative_time_too(begin: Begin) -> None:
    broker = begin(session_ttl_s=300)
    for client, away_s, present in (("early", 290, True), ("late", 301, False)):
        peer = Peer(broker, 4)
        peer.connect(client, kept=True)
        peer.disconnect()
        broker.pass_time(away_s)
        assert Peer(broker, 4).connect(client, kept=True).session_present is present


@pytest.mark.accepts("S2.44")
@pytest.mark.parametrize("ttl_s", [0, -1])
def test_without_an_administrative_time_such_sessions_are_kept_for_ever(
    begin: Begin, ttl_s: int
) -> None:
    broker = begin(session_ttl_s=ttl_s, session_expiry_maximum_s=60)
    # "Never" is what MQTT 5 calls it.
    assert told(broker, "c", None, clean=False) == NEVER_ENDS
    assert told(broker, "asks", 60, clean=False) is None
    older = Peer(broker, 4)
    older.connect("older", kept=True)
    older.disconnect()
    broker.stop()
    broker.wait(100 * WEEK_S)
    broker.begin()
    broker.pass_time(3_601)
    assert is_there(broker, "c")
    assert not is_there(broker, "asks")
    assert Peer(broker, 4).connect("older", kept=True).session_present


@pytest.mark.accepts("S2.29", "S2.41", "S2.42")
def test_who_asks_for_more_than_the_maximum_gets_that_and_is_told(begin: Begin) -> None:
    broker = begin()
    assert told(broker, "never", NEVER_ENDS, clean=False) == WEEK_S
    assert told(broker, "almost", NEVER_ENDS - 1, clean=True) == WEEK_S
    # Who gets what it asked for is told nothing [MQTT-3.2.2.3.2].
    assert told(broker, "exactly", WEEK_S, clean=False) is None
    brief = begin(session_expiry_maximum_s=100)
    assert told(brief, "c", 101, clean=False) == 100
    brief.pass_time(102)
    assert not is_there(brief, "c")


@pytest.mark.accepts("S2.30")
def test_how_a_session_begins_does_not_say_how_long_it_is_kept(begin: Begin) -> None:
    broker = begin()
    for clean in (False, True):
        told(broker, "kept", 60, clean=clean)
        assert is_there(broker, "kept")
    # Clean Start begins anew what was kept, and is kept itself.
    publisher = Peer(broker)
    publisher.connect("p")
    publisher.publish("kept", b"before", qos=1)
    anew = Peer(broker)
    assert not anew.connect("kept", clean=True, items=[(EXPIRY, 60)]).session_present
    anew.quiet()
    anew.disconnect()
    assert is_there(broker, "kept")


def test_disconnect_with_expiry_0_ends_a_session_that_would_have_been_kept(begin: Begin) -> None:
    broker = begin()
    for clean, items in ((False, []), (False, [(EXPIRY, 60)]), (True, [(EXPIRY, 60)])):
        peer = Peer(broker)
        peer.connect("c", clean=clean, items=items)
        peer.subscribe("a", 1)
        peer.disconnect(items=[(EXPIRY, 0)])
        assert not is_there(broker, "c")
        last = Peer(broker)
        last.connect("c", clean=True)
        last.disconnect()
