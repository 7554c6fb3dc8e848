"""What holds for every file of simulations: what a killed process leaves behind ends with it."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _nothing_is_left() -> Iterator[None]:
    """Tasks of a process that was killed in virtual time never go on. Python ends them where its
    collector finds them, which was in the middle of another test's `ast.parse` once: that fails
    then (CPython 3.11)."""
    yield
    # What one of them does as it ends leaves circles of its own.
    for _ in range(3):
        gc.collect()
