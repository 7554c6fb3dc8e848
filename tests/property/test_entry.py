"""Entries that a producer writes are opened as their twin says, and messages become entries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import kernel
from tests.property.twins import entry as model

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
NAMES = st.one_of(TEXTS, st.sampled_from([*model.RESERVED, "mqtt-retain", "pulsar-key"]))
VALUES = st.one_of(TEXTS, st.sampled_from(["0", "1", "true", "a/b", "a/+", "AAE=", "AB=="]))
PROPERTIES = st.lists(st.tuples(NAMES, VALUES), max_size=5).map(tuple)
MESSAGES = st.builds(
    model.Message,
    payload=st.one_of(st.binary(max_size=40), st.binary(max_size=3).map(lambda data: data * 500)),
    properties=PROPERTIES,
    key=st.none() | TEXTS.map(str.encode),
    ordering_key=st.none() | st.binary(max_size=9),
    event_time_ms=st.integers(0, 2**40),
)
BINARY_KEYS = st.builds(
    model.Message, key=st.binary(min_size=1, max_size=9), key_is_bytes=st.just(True)
)
NULLS = st.builds(model.Message, properties=PROPERTIES, is_null=st.just(True))
ALL = st.one_of(MESSAGES, MESSAGES, BINARY_KEYS, NULLS)
WAYS = st.sampled_from([model.NONE, model.LZ4, model.ZLIB, model.ZSTD, model.SNAPPY])
PUBLICATIONS = st.builds(
    model.Publication,
    payload=st.binary(max_size=40),
    user=st.lists(st.tuples(TEXTS, TEXTS), max_size=5).map(tuple),
    format_indicator=st.none() | st.integers(0, 1),
    content_type=st.none() | TEXTS,
    response_topic=st.none() | TEXTS.filter(lambda text: text and not set(text) & set("+#")),
    correlation_data=st.none() | st.binary(max_size=9),
    retain=st.booleans(),
)


@given(message=ALL, way=WAYS)
def test_a_message_by_itself_is_opened(message: model.Message, way: int) -> None:
    tail = model.single(message, way)
    assert kernel.open_entry(tail) == [model.opened(message)]
    assert kernel.entry_key_hash(tail) == model.key_hash(message)


@given(messages=st.lists(ALL, min_size=1, max_size=9), way=WAYS)
def test_a_batch_is_opened_message_by_message(messages: list[model.Message], way: int) -> None:
    tail = model.batch(messages, way)
    assert kernel.open_entry(tail) == [model.opened(message) for message in messages]
    assert kernel.entry_key_hash(tail) == model.key_hash(messages[0])


@given(said=PUBLICATIONS, time=st.integers(0, 2**50), sequence=st.integers(0, 2**64 - 1))
def test_a_message_becomes_an_entry_and_comes_back(
    said: model.Publication, time: int, sequence: int
) -> None:
    travelling = said.travelling()
    tail = kernel.entry_of_message(
        travelling,
        said.payload,
        retain=said.retain,
        appended_at_us=time,
        producer_name=b"broker",
        sequence=sequence,
    )
    assert tail == model.of_message(
        said, appended_at_us=time, producer_name=b"broker", sequence=sequence
    )
    expected = (travelling, said.payload, None, None, said.retain, False)
    assert kernel.open_entry(tail) == [expected]


@given(message=ALL, way=WAYS, change=st.tuples(st.integers(0), st.integers(1, 255)))
def test_a_changed_entry_is_opened_or_refused(
    message: model.Message, way: int, change: tuple[int, int]
) -> None:
    changed = bytearray(model.batch([message, message], way))
    changed[change[0] % len(changed)] ^= change[1]
    try:
        opened = kernel.open_entry(bytes(changed))
    except ValueError:
        return
    assert opened


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (model.block(13, model.block(1, b"key")), "Encrypted"),
        (model.number(27, 3), "Chunk"),
        (model.number(8, model.ZSTD) + model.number(9, 2**32 - 1), "TooLarge"),
        (model.number(11, 65_537), "Malformed"),
    ],
)
def test_what_stays_closed_says_why(fields: bytes, why: str) -> None:
    said = model.metadata(model.Message(), model.NONE, 0, None)
    with pytest.raises(ValueError, match=why):
        kernel.open_entry(model.tail(said + fields, bytes(400_000)))
