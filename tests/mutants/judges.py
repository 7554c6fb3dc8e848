"""The faults that the checkers' own tests plant: in histories, and in the broker of a simulation.

Owns: looking at each of them by itself. Never: has faults of its own.
"""

from collections.abc import Callable, Iterator

import pytest

from tests.equipment.history import History
from tests.simulation import test_checkers, test_whole_broker

Planted = tuple[str, Callable[[], bool]]
"""A fault's name, and whether it is found."""


def faults() -> Iterator[Planted]:
    """All of them."""
    yield from _in_histories()
    yield from _in_the_broker()


def _in_histories() -> Iterator[Planted]:
    for number, (checker, events) in enumerate(test_checkers.PLANTED, 1):
        history = History(events)
        name = f"{checker.__name__}, history {number}"
        yield name, lambda checker=checker, history=history: bool(checker(history))
    for number, (checker, timed) in enumerate(test_checkers.PLANTED_IN_TIME, 1):
        history = History([event for _, event in timed], times_s=[at_s for at_s, _ in timed])
        name = f"{checker.__name__}, timed history {number}"
        yield name, lambda checker=checker, history=history: bool(checker(history))


def _in_the_broker() -> Iterator[Planted]:
    for plant, plan, found in test_whole_broker.PLANTED:
        name = f"the simulated broker: {plant.__name__.strip('_').replace('_', ' ')}"
        yield name, lambda plant=plant, plan=plan, found=found: _is_found(plant, plan, found)


def _is_found(
    plant: test_whole_broker.Patch, plan: str | test_whole_broker.Plan, found: str
) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        try:
            test_whole_broker.test_a_broker_with_a_planted_fault_is_found(patch, plant, plan, found)
        except (pytest.fail.Exception, AssertionError):
            return False
    return True
