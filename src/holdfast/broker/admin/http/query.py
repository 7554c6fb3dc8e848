"""Take the parameters of a request out of its query string, each within its bounds.

Owns: the names, forms and limits of the read interface's parameters.
Never: reads the log.

Invariant: whatever is wrong raises `web.HTTPBadRequest` with a sentence that names the parameter.
"""

from collections.abc import Callable, Mapping

from aiohttp import web
from multidict import MultiMapping

from holdfast.core.moment import parse_moment_us
from holdfast.kernel import is_valid_topic_filter
from holdfast.reading.log import BATCH_BYTES_MAXIMUM, BATCH_ROWS_MAXIMUM, COLUMNS

FILTERS_MAXIMUM = 256
"""Each filter is matched against the dictionary of topics once a request."""
READ_ROWS_MAXIMUM = 16 * BATCH_ROWS_MAXIMUM
READ_BYTES_MAXIMUM = 2 * BATCH_BYTES_MAXIMUM
"""An answer is built in memory; this times the answers at once is what reading may take."""
OFFSET_MAXIMUM = 2**63 - 1


def filters(query: MultiMapping[str]) -> list[str]:
    """The MQTT filters of the request; none at all means everything."""
    given = query.getall("filter", [])
    if len(given) > FILTERS_MAXIMUM:
        raise refusal(f"at most {FILTERS_MAXIMUM} filters, not {len(given)}")
    for each in given:
        if not is_valid_topic_filter(each.encode()):
            raise refusal(f"filter {each!r} is not a valid MQTT topic filter")
    return given


def offset(name: str) -> Callable[[MultiMapping[str]], int | None]:
    """Reads an offset that may be left out."""
    return lambda query: number(query, name, None, 0, OFFSET_MAXIMUM) if name in query else None


def count(name: str) -> Callable[[MultiMapping[str]], int | None]:
    """Reads a number above 0 that may be left out."""
    return lambda query: number(query, name, None, 1, OFFSET_MAXIMUM) if name in query else None


def columns(query: MultiMapping[str]) -> list[str] | None:
    """The columns that were asked for, or `None` for all."""
    if "columns" not in query:
        return None
    names = query["columns"].split(",")
    for name in names:
        if name not in COLUMNS:
            raise refusal(f"columns: no column {name!r}; there are {', '.join(COLUMNS)}")
    return names


def number(query: Mapping[str, str], name: str, default: int | None, low: int, high: int) -> int:
    """A whole number within its bounds; without a default it must be given."""
    text = query.get(name)
    if text is None and default is not None:
        return default
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 19:
        raise refusal(f"{name} must be a whole number from {low} to {high}, not {text!r}")
    value = int(text)
    if not low <= value <= high:
        raise refusal(f"{name} must be from {low} to {high}, not {value}")
    return value


def time_us(query: Mapping[str, str], name: str = "time") -> int:
    """Microseconds since the epoch, or ISO 8601 (UTC unless it says otherwise)."""
    text = query.get(name, "")
    if text.isascii() and text.isdigit():
        return number(query, name, None, 0, OFFSET_MAXIMUM)
    try:
        return parse_moment_us(text)
    except ValueError:
        detail = f"{name} must be microseconds since 1970 or ISO 8601, not {text!r}"
        raise refusal(detail) from None


def refusal(detail: str) -> web.HTTPBadRequest:
    """The answer to a wrong parameter."""
    return web.HTTPBadRequest(text=detail)
