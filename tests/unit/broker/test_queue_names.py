"""Which queue has which name: the second under a name gets another, and names come free again."""

from dataclasses import replace

import pytest

from holdfast.broker.delivery.queue_names import Owner, QueueNames
from holdfast.core.config import Config

CONFIG = Config()


@pytest.fixture
def names() -> QueueNames:
    return QueueNames(CONFIG)


def test_the_second_filter_of_a_name_is_named_by_its_hash(names: QueueNames) -> None:
    assert names.of_filter("a/mlw") == "tbmq.msg.app.shared.a.mlw"
    second = names.of_filter("a/#")
    assert second is not None
    assert len(second) == len("tbmq.msg.app.shared.") + 64
    assert names.owner(second) == Owner("shared", "a/#")
    # Whoever has it already has it again: one queue for all that share the filter.
    assert names.of_filter("a/mlw") == "tbmq.msg.app.shared.a.mlw"
    assert names.of_filter("a/#") == second


def test_who_is_called_as_the_hash_of_another_has_a_queue_of_its_own(names: QueueNames) -> None:
    named = names.of_client("pod-1")
    assert named is not None
    called_so = named.removeprefix("tbmq.msg.app.")
    other = names.of_client(called_so)
    assert other not in (None, named)


def test_a_name_is_free_when_its_last_record_is_gone(names: QueueNames) -> None:
    first, again = names.of_filter("a/mlw"), names.of_filter("a/mlw")
    assert first == again == "tbmq.msg.app.shared.a.mlw"
    names.release(first)
    assert names.of_filter("a/#") != first
    names.release(again)
    assert names.owner("tbmq.msg.app.shared.a.mlw") is None
    assert len(names) == 1


def test_names_are_paged_in_their_order(names: QueueNames) -> None:
    for client in ("c", "a", "b"):
        names.of_client(client)
    assert [name for name, _ in names.page("", 2)] == ["tbmq.msg.app.a", "tbmq.msg.app.b"]
    assert [name for name, _ in names.page("tbmq.msg.app.b", 2)] == ["tbmq.msg.app.c"]


def test_with_validation_off_other_characters_have_no_name(names: QueueNames) -> None:
    names.reconfigure(replace(CONFIG, application_client_id_validation=False))
    assert names.of_client("pod-1") is None
    assert names.of_client("pod1") == "tbmq.msg.app.pod1"
    assert names.of_filter("my-topic") is not None
