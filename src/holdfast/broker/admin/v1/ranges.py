"""What a reader of the log asks for, as the body of a request: criteria, a range, and how much.

Owns: the members of these bodies and their bounds. In a query string the same can be said of a few
filters; here there is room for thousands of topics.
Never: reads the log.
"""

from base64 import b64decode
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast.broker.admin.http import query
from holdfast.broker.admin.http.operation import TEXT_CHARACTERS_MAXIMUM, bad_request
from holdfast.core.limits import READ_PARTS_MAXIMUM
from holdfast.kernel import is_valid_topic_filter
from holdfast.reading.criteria import Criteria, Span
from holdfast.reading.directory import compiled
from holdfast.reading.log import BATCH_BYTES_MAXIMUM, BATCH_ROWS_MAXIMUM, COLUMNS

TOPICS_MAXIMUM: Final = 16_384
"""Filters, topics or keys of one request: each filter is looked up once, and remembered for the
next request that asks the same."""
PATTERN_CHARACTERS_MAXIMUM: Final = 4_096
"""Of a regular expression; its work is linear in the names that it is asked about."""

Text = Annotated[str, Meta(max_length=TEXT_CHARACTERS_MAXIMUM)]
Offset = Annotated[int, Meta(ge=0, le=query.OFFSET_MAXIMUM)]
OneQos = Annotated[int, Meta(ge=0, le=2)]


class AskedSpan(Struct, forbid_unknown_fields=True, kw_only=True, rename={"from_offset": "from"}):
    """A topic filter that holds between two offsets."""

    filter: Text
    from_offset: Offset = 0
    until: Offset = query.OFFSET_MAXIMUM
    without_publisher: Annotated[int, Meta(ge=0, le=2**32 - 1)] = 0


RENAMED: Final = {"from_offset": "from", "to_offset": "to"}


class AskedRange(Struct, forbid_unknown_fields=True, kw_only=True, rename=RENAMED):
    """Messages of a range that meet all criteria; one that is not given is met by anything."""

    filter: Annotated[
        list[Text],
        Meta(max_length=TOPICS_MAXIMUM, description="Topic filters; one of them has to match."),
    ] = []
    spans: Annotated[
        list[AskedSpan],
        Meta(max_length=TOPICS_MAXIMUM, description="Or one of these, each for some offsets."),
    ] = []
    pattern: (
        Annotated[
            str,
            Meta(
                max_length=PATTERN_CHARACTERS_MAXIMUM,
                description="A regular expression that the whole topic name matches.",
            ),
        ]
        | UnsetType
    ) = UNSET
    topics: (
        Annotated[
            list[Text],
            Meta(max_length=TOPICS_MAXIMUM, description="The topic is one of these."),
        ]
        | UnsetType
    ) = UNSET
    prefix: Annotated[Text, Meta(description="The topic name begins with this.")] = ""
    qos: Annotated[list[OneQos], Meta(max_length=3)] | UnsetType = UNSET
    retain: bool | UnsetType = UNSET
    keys: (
        Annotated[list[Text], Meta(max_length=TOPICS_MAXIMUM, description="In base64.")] | UnsetType
    ) = UNSET
    from_offset: Annotated[Offset, Meta(description="From this offset on.")] | UnsetType = UNSET
    to_offset: Annotated[Offset, Meta(description="Up to before it.")] | UnsetType = UNSET
    cursor: Annotated[
        Text,
        Meta(
            description="The name of a cursor: the range may begin at its place, before the log"
            " does. The filters are its own."
        ),
    ] = ""
    reader: Annotated[
        Text,
        Meta(
            description="A word that all requests of one reader have in common: where its range"
            " ends it is told how much of what it has asked for was gone."
        ),
    ] = ""

    def criteria(self) -> Criteria:
        """What is wanted; raises the refusal of what cannot be."""
        for each in (*self.filter, *(span.filter for span in self.spans)):
            if not is_valid_topic_filter(each.encode()):
                raise bad_request(f"filter {each!r} is not a valid MQTT topic filter")
        found = Criteria(
            filters=tuple(self.filter),
            spans=tuple(
                Span(each.filter, each.from_offset, each.until, each.without_publisher)
                for each in self.spans
            ),
            pattern=_given(self.pattern),
            topics=None if isinstance(self.topics, UnsetType) else tuple(self.topics),
            prefix=self.prefix,
            qos=None if isinstance(self.qos, UnsetType) else tuple(self.qos),
            retain=_given(self.retain),
            keys=None if isinstance(self.keys, UnsetType) else tuple(map(_key, self.keys)),
        )
        if found.pattern is not None:
            try:
                compiled(Criteria(pattern=found.pattern))
            except ValueError as error:
                raise bad_request(f"pattern: {error}") from error
        return found

    def within(self, begin: int, end: int) -> tuple[int, int]:
        """The range; what is not given is the beginning and the durable end of the log."""
        first = begin if isinstance(self.from_offset, UnsetType) else self.from_offset
        last = max(end, first) if isinstance(self.to_offset, UnsetType) else self.to_offset
        if first > last:
            raise bad_request(f"from ({first}) is greater than to ({last})")
        return first, min(last, max(end, first))


class AskedRecords(AskedRange, forbid_unknown_fields=True, kw_only=True, rename=RENAMED):
    """Messages to be read."""

    columns: Annotated[list[str], Meta(min_length=1, max_length=len(COLUMNS))] | UnsetType = UNSET
    max_rows: Annotated[int, Meta(ge=1, le=query.READ_ROWS_MAXIMUM)] = BATCH_ROWS_MAXIMUM
    max_bytes: Annotated[int, Meta(ge=1, le=query.READ_BYTES_MAXIMUM)] = BATCH_BYTES_MAXIMUM

    def names(self) -> list[str] | None:
        """The columns; `None`: those that are read without being asked for."""
        if isinstance(self.columns, UnsetType):
            return None
        for name in self.columns:
            if name not in COLUMNS:
                raise bad_request(f"columns: no column {name!r}; there are {', '.join(COLUMNS)}")
        return self.columns


class AskedParts(AskedRange, forbid_unknown_fields=True, kw_only=True, rename=RENAMED):
    """A range to be split."""

    parts: Annotated[int, Meta(ge=1, le=READ_PARTS_MAXIMUM)] = 1
    rows: (
        Annotated[int, Meta(ge=1, le=query.OFFSET_MAXIMUM, description="Of each, at most.")]
        | UnsetType
    ) = UNSET


class AskedReach(AskedRange, forbid_unknown_fields=True, kw_only=True, rename=RENAMED):
    """How far a range reaches."""

    rows: Annotated[int, Meta(ge=1, le=query.OFFSET_MAXIMUM)] | UnsetType = UNSET
    size_bytes: Annotated[int, Meta(ge=1, le=query.OFFSET_MAXIMUM)] | UnsetType = UNSET


def _given(value: Any) -> Any:
    return None if isinstance(value, UnsetType) else value


def _key(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise bad_request(f"keys: {text[:80]!r} is not base64: {error}") from error
