"""What of a query's filters the broker can obey.

Owns: which filters narrow what is read, and to what.
Never: takes a filter from Spark: each is applied again to what comes, so that reading too much
changes nothing. Reading too little would.

Invariant: every row that meets all filters meets the narrowing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from holdfast.reading.criteria import Criteria

KEYS_MAXIMUM: Final = 1_000
"""Values of one IN; a longer list is left to Spark."""
_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ANY_QOS: Final = (0, 1, 2)
_KINDS: Final[dict[str, type]] = {"topic": str, "retain": bool, "key": bytes}


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Which part of what was asked for the filters leave: half open ranges, and criteria."""

    begin: int = 0
    end: int | None = None
    begin_us: int = 0
    end_us: int | None = None
    topics: frozenset[str] | None = None
    prefix: str = ""
    qos: frozenset[int] | None = None
    retain: frozenset[bool] | None = None
    keys: frozenset[bytes] | None = None

    def applied(self, criteria: Criteria) -> Criteria:
        """The criteria, narrowed: what they say themselves has to be met as before."""
        retain = None if criteria.retain is None else (criteria.retain,)
        found = _beginning_with(
            replace(
                self,
                topics=_also(self.topics, criteria.topics),
                qos=_also(self.qos, criteria.qos),
                retain=_also(self.retain, retain),
                keys=_also(self.keys, criteria.keys),
            ),
            criteria.prefix,
        )
        is_nothing = found.retain is not None and not found.retain
        return replace(
            criteria,
            topics=() if is_nothing else _sorted(found.topics),
            prefix=found.prefix,
            qos=_sorted(found.qos),
            retain=next(iter(found.retain)) if found.retain and len(found.retain) == 1 else None,
            keys=_sorted(found.keys),
        )


def narrowed(filters: Iterable[Filter]) -> Narrowing:
    """What all filters together leave."""
    found = Narrowing()
    for each in filters:
        found = _by(found, each)
    return found


def _by(found: Narrowing, condition: Filter) -> Narrowing:
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    if len(attribute) != 1:
        return found
    column = attribute[0]
    if column == "topic" and isinstance(condition, StringStartsWith):
        return _beginning_with(found, condition.value)
    if column in ("offset", "timestamp"):
        return _in_range(found, column, condition)
    if column == "qos":
        possible = frozenset(each for each in _ANY_QOS if _may_be(condition, each))
        return replace(found, qos=_common(found.qos, possible))
    values = _values(condition)
    if values is None or column not in _KINDS:
        return found
    if not all(isinstance(each, _KINDS[column]) for each in values):
        return found
    if column == "topic":
        return replace(found, topics=_common(found.topics, values))
    if column == "retain":
        return replace(found, retain=_common(found.retain, values))
    return replace(found, keys=_common(found.keys, values))


def _in_range(found: Narrowing, column: str, condition: Filter) -> Narrowing:
    value = _number(getattr(condition, "value", None))
    if value is None:
        return found
    begin, end = 0, None
    if isinstance(condition, EqualTo | EqualNullSafe):
        begin, end = value, value + 1
    elif isinstance(condition, GreaterThan):
        begin = value + 1
    elif isinstance(condition, GreaterThanOrEqual):
        begin = value
    elif isinstance(condition, LessThan):
        end = value
    elif isinstance(condition, LessThanOrEqual):
        end = value + 1
    if column == "offset":
        return replace(found, begin=max(found.begin, begin), end=_least(found.end, end))
    return replace(found, begin_us=max(found.begin_us, begin), end_us=_least(found.end_us, end))


def _number(value: Any) -> int | None:
    """An offset, or a moment in microseconds."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // _MICROSECOND
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _values(condition: Filter) -> frozenset[Any] | None:
    """The values that a column may have, where a filter names them."""
    if isinstance(condition, EqualTo | EqualNullSafe):
        return None if condition.value is None else frozenset({_hashable(condition.value)})
    if isinstance(condition, In) and len(condition.value) <= KEYS_MAXIMUM:
        return frozenset(_hashable(each) for each in condition.value if each is not None)
    return None


def _hashable(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def _may_be(condition: Filter, value: int) -> bool:
    """False if a filter excludes the value for sure."""
    values = _values(condition)
    if values is not None:
        return value in values
    other = _number(getattr(condition, "value", None))
    if other is None:
        return True
    if isinstance(condition, GreaterThan):
        return value > other
    if isinstance(condition, GreaterThanOrEqual):
        return value >= other
    if isinstance(condition, LessThan):
        return value < other
    return value <= other if isinstance(condition, LessThanOrEqual) else True


def _beginning_with(found: Narrowing, prefix: str) -> Narrowing:
    if found.prefix.startswith(prefix):
        return found
    if prefix.startswith(found.prefix):
        return replace(found, prefix=prefix)
    return replace(found, topics=frozenset())


def _also(found: frozenset[Any] | None, own: Iterable[Any] | None) -> frozenset[Any] | None:
    return found if own is None else _common(found, frozenset(own))


def _common(one: frozenset[Any] | None, other: frozenset[Any]) -> frozenset[Any]:
    return other if one is None else one & other


def _least(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _sorted(values: frozenset[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(sorted(values))
