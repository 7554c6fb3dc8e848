"""Names of queues: the rules of the acceptance list with its vectors."""

from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.queue_names import (
    APPLICATION_PREFIX,
    SHARED_PREFIX,
    client_queue_names,
    consumer_group,
    shared_queue_names,
)

identifiers = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
HASH_CHARACTERS = 64


def first(names: Iterator[str]) -> str | None:
    return next(names, None)


@pytest.mark.parametrize("client_identifier", ["bbu", "Pod1", "0", "A" * 200])
def test_letters_and_digits_are_the_name(client_identifier: str) -> None:
    name = first(client_queue_names(client_identifier, hashed=True))
    assert name == f"tbmq.msg.app.{client_identifier}"
    assert name == first(client_queue_names(client_identifier, hashed=False))


@pytest.mark.parametrize(
    ("client_identifier", "digest"),
    [
        (
            "bbu-processor-azure-prod-pod-1",
            "063b70394f7dcf6d8c54e52382af8f2591aea14040c384e8f71bdce9d3fcedbd",
        ),
    ],
)
def test_anything_else_is_hashed_as_the_vector_says(client_identifier: str, digest: str) -> None:
    assert first(client_queue_names(client_identifier, hashed=True)) == f"tbmq.msg.app.{digest}"


@pytest.mark.parametrize("character", ["-", "_", ".", "/", ":", " ", "ü", "٣"])
def test_every_other_character_leads_to_the_hash(character: str) -> None:
    name = first(client_queue_names(f"a{character}b", hashed=True))
    assert name is not None
    assert len(name) == len(APPLICATION_PREFIX) + HASH_CHARACTERS
    assert first(client_queue_names(f"a{character}b", hashed=False)) is None


@pytest.mark.parametrize(
    ("topic_filter", "name"),
    [
        ("test/topic", "test.topic"),
        ("test/#", "test.mlw"),
        ("test/+", "test.slw"),
        ("two/+/three/#", "two.slw.three.mlw"),
        ("zebra/fx/+/reads", "zebra.fx.slw.reads"),
        ("#", "mlw"),
        ("my-topic/#", "4f235e7d7e205def40795388af41e4f89b294ea6b7f8f003de2bb98d6fe58c01"),
    ],
)
def test_a_shared_filter_is_written_with_words_for_wildcards(topic_filter: str, name: str) -> None:
    assert first(shared_queue_names(topic_filter, hashed=True)) == SHARED_PREFIX + name


def test_without_hashing_a_filter_of_other_characters_has_no_name() -> None:
    assert first(shared_queue_names("my-topic/#", hashed=False)) is None
    assert first(shared_queue_names("test/#", hashed=False)) == "tbmq.msg.app.shared.test.mlw"


def test_the_consumer_group_has_the_share_name_and_the_queue_in_its_name() -> None:
    assert (
        consumer_group("workers", "tbmq.msg.app.shared.test.mlw")
        == "application-shared-msg-consumer-group-workers-tbmq.msg.app.shared.test.mlw"
    )


@given(st.lists(identifiers, unique=True, max_size=8))
def test_whoever_comes_later_finds_a_name_of_his_own(owners: list[str]) -> None:
    # Even where one is called as another's name would be, or both filters are written alike.
    owners += [name.removeprefix(APPLICATION_PREFIX) for each in owners
               for name in islice(client_queue_names(each, hashed=True), 2)]  # fmt: skip
    taken: dict[str, str] = {}
    for owner in dict.fromkeys(owners):
        name = next(n for n in client_queue_names(owner, hashed=True) if n not in taken)
        taken[name] = owner
    assert len(taken) == len(set(owners))
