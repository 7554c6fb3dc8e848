"""A processor of readings, which fails as its payloads say."""

import json
from collections.abc import Sequence

from holdfast.processors.message import Message
from holdfast.processors.processor import Processor, RejectedError
from holdfast.processors.table import Column, ColumnType, Row, Table

READINGS = Table(
    "readings", (Column("sensor", ColumnType.TEXT), Column("value", ColumnType.INTEGER))
)


class Readings(Processor):
    """`{"value": 7}` is a row; what is no JSON is rejected, and `null` ends in an exception."""

    table = READINGS

    def parse(self, message: Message) -> Sequence[Row]:
        try:
            said = json.loads(message.payload)
        except ValueError as error:
            raise RejectedError("the payload is no JSON") from error
        if said == []:
            return []
        return [{"sensor": message.topic.rpartition("/")[2], "value": said["value"]}]


def reading(value: int) -> bytes:
    """The payload of one row."""
    return b'{"value": %d}' % value
