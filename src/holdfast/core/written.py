"""What a writer of many messages may send: the columns that the broker and the pipeline share."""

from typing import Final

WRITTEN_COLUMNS: Final = (
    "topic",
    "value",
    "key",
    "qos",
    "retain",
    "headers",
    "properties",
    "eventTime",
    "expiry",
)
"""The first two have to be there."""
ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"
"""The media type in which they travel."""
