"""What the driver hands to executors, and what is said where it cannot be opened.

Owns: the sentence for an executor whose Python lacks this package. Never: knows what is inside.

Invariant: `opened` travels to an executor as its code, not by its name, so that it is there where
nothing of this package is. It uses the standard library alone.
"""

import pickle
import platform
import sys
from typing import Any

from pyspark import cloudpickle


def opened(content: bytes) -> Any:
    """The object that was handed over. Raises `ModuleNotFoundError` with what to do about it."""
    try:
        kind, state = pickle.loads(content)  # noqa: S301 - what the driver has packed.
    except ModuleNotFoundError as problem:
        raise ModuleNotFoundError(
            f"holdfast data source: {sys.executable} on {platform.node()} runs a task of this query"
            f" and has no module {problem.name!r}: install the package holdfast with its extra"
            " 'pipeline' there, or name a Python that has it in PYSPARK_PYTHON, for the driver and"
            " all executors",
            name=problem.name,
        ) from None
    found = kind.__new__(kind)
    found.__dict__.update(state)
    return found


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


class Parcel:
    """What executors are handed: readers and writers, and the source that they are of."""

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return opened, (pickle.dumps((type(self), self.__dict__)),)
