"""How strategies are found and compiled, and how key slots are divided."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.delivery.selection import (
    KEY_SLOTS,
    KINDS,
    PART_SLOTS,
    PARTS,
    Strategy,
    plan_owners,
    strategy_for,
)
from holdfast.core.config import Config, load
from holdfast.core.errors import ConfigurationError
from holdfast.core.limits import SHARED_MEMBERS_MAXIMUM

MEMBERS = st.lists(st.integers(1, 60), unique=True, max_size=40)


@given(changes=st.lists(MEMBERS, min_size=1, max_size=6))
def test_slots_are_divided_evenly_and_as_few_move_as_must(changes: list[list[int]]) -> None:
    owners: list[int] = []
    for members in changes:
        before, owners = owners, plan_owners(owners, members)
        if not members:
            assert owners == []
            continue
        assert len(owners) == PARTS
        shares = [owners.count(member) for member in members]
        assert sum(shares) == PARTS
        assert max(shares) - min(shares) <= 1
        moved = sum(was in members and was != now for was, now in zip(before, owners, strict=False))
        newcomers = [member for member in members if member not in before]
        given = sum(owners.count(member) for member in newcomers)
        assert moved <= given, "those who stay give only to newcomers"


def test_every_member_that_a_group_may_have_owns_something() -> None:
    members = list(range(SHARED_MEMBERS_MAXIMUM))
    assert set(plan_owners([], members)) == set(members)


@pytest.mark.parametrize("name", ["key:topic", "key:client", "key:property:reader"])
def test_a_strategy_by_key_is_compiled_with_an_owner_for_every_slot(name: str) -> None:
    owners = plan_owners(plan_owners([], [7]), [7, 8, 9])
    selection = Strategy(name).compile(owners)
    assert [selection.owner(slot) for slot in range(0, KEY_SLOTS, PART_SLOTS)] == owners
    assert [selection.owner(slot - 1) for slot in range(PART_SLOTS, KEY_SLOTS + 1, PART_SLOTS)] == (
        owners
    )
    assert any(one != other for one, other in pairwise(owners))


def test_other_strategies_have_no_owners() -> None:
    for name in ("round_robin", "least_in_flight", "sticky"):
        assert Strategy(name).compile([]).owner(0) is None
        assert Strategy(name).kind == name
    assert Strategy("key:property:a:b").kind == KINDS[-1] == "key:property"


def test_the_first_rule_that_fits_the_share_name_decides() -> None:
    config = Config(
        data_dir=Path("x"),
        shared_strategy="sticky",
        shared_strategies=("orders-*=key:topic", "orders-eu=key:client", "a*=round_robin"),
    )
    found = {name: strategy_for(name, config).name for name in ("orders-eu", "a1", "c1", "orders")}
    assert found == {
        "orders-eu": "key:topic",
        "a1": "round_robin",
        "c1": "sticky",
        "orders": "sticky",
    }


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("shared.strategy", "random", "'random' is none of them"),
        ("shared.strategy", "key:property:", "is none of them"),
        ("shared.strategies", "orders", '"orders" is not a share name'),
        ("shared.strategies", "=sticky", "is not a share name"),
        ("shared.strategies", "a=key:payload", "is not a share name"),
    ],
)
def test_a_strategy_that_there_is_not_is_refused_by_name(
    key: str, value: str, sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence) as refused:
        load(options={key: value}, disk_bytes=lambda _: 2**40)
    assert key in str(refused.value)
