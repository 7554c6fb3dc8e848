"""When queues were done with what they had to deliver, over HTTP, as the log has it on record.

Never: reads on the loop's own thread.

Flow: HTTP -> query -> DirectoryProgress (on a thread) -> Arrow stream.
"""

import asyncio
from typing import Final

from aiohttp import web

from holdfast.broker.admin.http import query
from holdfast.broker.admin.http.arrow_stream import ARROW_STREAM, encode_stream, send
from holdfast.broker.admin.http.operation import (
    Answered,
    Asked,
    Operation,
    ProblemError,
    bad_request,
    number,
    text,
)
from holdfast.broker.admin.v1.reading import LogReaders
from holdfast.broker.state.recorded import Recorded
from holdfast.reading.progress import DirectoryProgress, NoSuchQueueError, Progress

QUEUE: Final = text(
    "queue", "A client's identifier, a group, its share name, or any other name of a queue."
)
FROM: Final = number(
    "from", 0, 0, query.OFFSET_MAXIMUM, "By records that lie before this message or a later one."
)
TO: Final = number(
    "to", query.OFFSET_MAXIMUM, 0, query.OFFSET_MAXIMUM, "And before one that is before this one."
)
NUMBER: Final = number(
    "number", 0, 0, query.OFFSET_MAXIMUM, "`next_number` of the answer before, to go on there."
)
SUMMARY: Final = "When a queue was done with what it had to deliver, as the log has it on record."


class ProgressView:
    """Tells the progress of queues."""

    def __init__(self, readers: LogReaders, recorded: Recorded) -> None:
        self._readers = readers
        self._recorded = recorded

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        return [
            Operation(
                method="GET",
                path="/v1/log/progress",
                name="readProgress",
                summary=SUMMARY,
                run=self.progress,
                parameters=(QUEUE, FROM, TO, NUMBER),
                answers={
                    200: Answered("Ranges of offsets with times.", content_type=ARROW_STREAM),
                    404: Answered("No queue on record is called so."),
                },
            )
        ]

    async def progress(self, asked: Asked) -> web.StreamResponse:
        """Ranges that records say are done, as an Arrow stream."""
        name, begin, end = asked.query["queue"], asked.query["from"], asked.query["to"]
        if not name:
            raise bad_request("queue is missing: the name of a queue")

        def found() -> Progress:
            told = DirectoryProgress(reader, self._recorded.moment)
            return told.progress(name, begin, end, asked.query["number"])

        async with self._readers.lend() as reader:
            # It names the queues, and the losses, of all records that the reader sees.
            await self._recorded.caught_up()
            try:
                progress = await asyncio.to_thread(found)
            except NoSuchQueueError as error:
                raise ProblemError(404, "no_such_queue", str(error)) from error
        return await send(asked.request, encode_stream(progress.told()))
