"""Bridges as they are configured: addresses, destinations, and what is refused."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.bridge import (
    TEXT_BYTES_MAXIMUM,
    Bridge,
    parse_address,
    parse_bridge,
    parts_of,
    public_fields,
)
from holdfast.core.errors import ConfigurationError
from holdfast.kernel import is_valid_topic_filter

OUT = {"local_subscriptions": [{"filters": ["plant/#"]}]}
LEVELS = st.text(st.characters(exclude_characters="+#{}/$\0", codec="utf-8"), max_size=5)


def is_filter(text: str) -> bool:
    return is_valid_topic_filter(text.encode())


def parsed(**fields: object) -> Bridge:
    written = {"name": "b", "address": "remote", **OUT, **fields}
    return parse_bridge(written, is_filter, "[[bridge]] 1")


@pytest.mark.parametrize(
    ("address", "transport", "host", "port", "path"),
    [
        ("remote", "tcp", "remote", 1883, "/mqtt"),
        ("remote:1884", "tcp", "remote", 1884, "/mqtt"),
        ("mqtt://remote", "tcp", "remote", 1883, "/mqtt"),
        ("tcp://10.0.0.7:99", "tcp", "10.0.0.7", 99, "/mqtt"),
        ("mqtts://remote", "tls", "remote", 8883, "/mqtt"),
        ("ssl://remote", "tls", "remote", 8883, "/mqtt"),
        ("tls://remote:1", "tls", "remote", 1, "/mqtt"),
        ("ws://remote", "ws", "remote", 80, "/mqtt"),
        ("wss://remote/deep/way", "wss", "remote", 443, "/deep/way"),
        ("mqtt://[::1]:1884", "tcp", "::1", 1884, "/mqtt"),
    ],
)
def test_an_address_says_where_and_how(
    address: str, transport: str, host: str, port: int, path: str
) -> None:
    place = parse_address(address)
    assert (place.transport, place.host, place.port, place.path) == (transport, host, port, path)


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("http://remote", "begins with http://; it can be mqtt, tcp"),
        ("mqtt://user:secret@remote", "user_name and password_file"),
        ("mqtt://", "names no host"),
        (":1883", "names no host"),
        ("remote:port", "cannot be read: it is host:port or scheme://host:port"),
        ("remote:99999", "a port from 1 to 65535"),
        ("http://user:secret@remote", "user_name and password_file"),
        ("mqtt://user:secret/1@remote:1883", "cannot be read"),
        ("mqtt://user:secret\u2100@remote", "cannot be read"),
        ("mqtt://[user:secret@remote", "cannot be read"),
        ("http://user/secret@remote", "begins with http://"),
        ("mqtt:///user:secret@remote", "names no host"),
        ("remote:0", "has port 0, on which nobody can listen; leave it out for 1883"),
        ("mqtts://remote:0", "leave it out for 8883"),
        ("re mote", "a space or a control character"),
        ("ws://remote/a b", "a space or a control character"),
        ("mqtt://re\nmote", "a space or a control character"),
    ],
)
def test_an_address_that_leads_nowhere_is_refused_with_a_sentence(
    address: str, sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence) as refused:
        parsed(address=address)
    assert str(refused.value).startswith("[[bridge]] 1: ")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("destination", "parts"),
    [
        ("{#}", [0]),
        ("site7/{#}", [b"site7/", 0]),
        ("{2}/{1}", [2, b"/", 1]),
        ("fixed/topic", [b"fixed/topic"]),
        ("{100}", [100]),
    ],
)
def test_a_destination_is_text_with_references(destination: str, parts: list[object]) -> None:
    assert parts_of(destination) == parts


@given(pieces=st.lists(st.one_of(LEVELS.filter(bool), st.integers(0, 999)), min_size=1))
def test_a_destination_has_the_parts_it_is_written_with(pieces: list[str | int]) -> None:
    text = "t/" + "".join(
        piece if isinstance(piece, str) else f"{{{piece or '#'}}}" for piece in pieces
    )
    found = parts_of(text)
    again = "".join(
        part.decode() if isinstance(part, bytes) else f"{{{part or '#'}}}" for part in found
    )
    assert again == text
    assert not any(
        isinstance(one, bytes) and isinstance(two, bytes) for one, two in pairwise(found)
    )


@pytest.mark.parametrize(
    "destination", ["", "a/+", "a/#", "{0}", "{1", "}", "{x}", "{1000}", "$SYS/{#}", "a\0"]
)
def test_a_destination_that_is_no_topic_is_refused(destination: str) -> None:
    with pytest.raises(ConfigurationError, match="destination"):
        parsed(local_subscriptions=[{"filters": ["#"], "destination": destination}])


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"name": "no spaces"}, 'the name "no spaces" has other characters'),
        ({"name": "x" * 65}, "more than 64"),
        ({"password": "p", "password_file": "f"}, "one of them is meant"),
        ({"password": "p", "protocol_version": "3.1.1"}, "no password without user_name"),
        ({"tls": {"certificate": "c"}}, "belong together"),
        ({"local_subscriptions": []}, "neither local_subscriptions nor remote_subscriptions"),
        ({"local_subscriptions": [{"filters": ["a/#/b"]}]}, '"a/#/b" is no topic filter'),
        ({"local_subscriptions": [{"filters": ["$share/g/a"]}]}, "is no topic filter"),
        ({"local_subscriptions": [{"filters": ["a"], "excludes": ["#a"]}]}, "no topic filter"),
        ({"local_subscriptions": [{"filters": []}]}, "length"),
        ({"local_subscriptions": [{"filters": ["a"], "max_qos": 3}]}, "<= 2"),
        ({"hop_limit": 0}, ">= 1"),
        ({"keep_alive_s": 0}, ">= 1"),
        ({"no_such_field": 1}, "no_such_field"),
    ],
)
def test_what_contradicts_itself_is_refused_with_a_sentence(
    fields: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        parsed(**fields)


def written_with(place: str, text: str) -> dict[str, object]:
    """The fields of a bridge that has a text in this place."""
    rule: dict[str, object] = {"filters": ["a"]}
    match place.split("."):
        case ["tls", name]:
            # A certificate needs its key.
            both = {"certificate": "c", "key": "k"} if name in ("certificate", "key") else {}
            return {"tls": both | {name: text}}
        case ["local_subscriptions 1", "user_properties 2", name]:
            properties = [{"key": "k", "value": "v"}, {"key": "k", "value": "v"} | {name: text}]
            return {"local_subscriptions": [rule | {"user_properties": properties}]}
        case ["remote_subscriptions 1", "destination"]:
            return {"remote_subscriptions": [rule | {"destination": text}]}
        case ["remote_subscriptions 1", list_and_number]:
            name = list_and_number.removesuffix(" 2")
            return {"remote_subscriptions": [rule | {name: ["a", text]}]}
        case _:
            return {place: text}


@pytest.mark.parametrize(
    "place",
    [
        "name",
        "address",
        "client_identifier",
        "user_name",
        "password",
        "password_file",
        "hop_property",
        "tls.ca",
        "tls.certificate",
        "tls.key",
        "tls.server_name",
        "local_subscriptions 1.user_properties 2.key",
        "local_subscriptions 1.user_properties 2.value",
        "remote_subscriptions 1.destination",
        "remote_subscriptions 1.filters 2",
        "remote_subscriptions 1.excludes 2",
    ],
)
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("ä" * (TEXT_BYTES_MAXIMUM // 2 + 1), "has 65536 bytes; it can have 65535"),
        ("a\0b", "has the character U+0000 in it, which MQTT does not allow"),
        ("a\udcff", "has half of a surrogate pair in it, which UTF-8 does not know"),
    ],
    ids=["too long", "U+0000", "surrogate"],
)
def test_a_text_that_mqtt_cannot_carry_is_refused_by_the_name_of_its_field(
    place: str, text: str, sentence: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parsed(**written_with(place, text))
    assert str(refused.value) == f"[[bridge]] 1: {place} {sentence}"


def test_a_text_may_be_as_long_as_mqtt_can_carry() -> None:
    longest = "x" * TEXT_BYTES_MAXIMUM
    for place in ("client_identifier", "password", "hop_property"):
        parsed(**written_with(place, longest))


@pytest.mark.parametrize("name", [".x", "x" * 64, "ü..x", ".".join(["x" * 63] * 4)])
def test_a_server_name_that_no_host_can_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="server_name is no name of a host"):
        parsed(tls={"server_name": name})


@pytest.mark.parametrize("name", ["remote", "remote.example.", "bücher.example", "10.0.0.7", "::1"])
def test_a_server_name_may_be_any_that_a_host_has(name: str) -> None:
    assert parsed(tls={"server_name": name}).tls.server_name == name


@pytest.mark.accepts("S1.21")
def test_a_subscription_persists_unless_it_says_otherwise() -> None:
    (subscription,) = parsed().local_subscriptions
    assert subscription.persist
    assert (subscription.max_qos, subscription.destination) == (2, "{#}")


def test_a_password_is_never_shown() -> None:
    bridge = parsed(user_name="u", password="secret")
    assert "secret" not in repr(bridge)
    assert "secret" not in str(public_fields(bridge))
    assert public_fields(bridge)["password"] == "********"
    assert public_fields(parsed())["password"] is None
