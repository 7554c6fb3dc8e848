"""Tables about the broker over HTTP: taken at one moment, then read one by one as Arrow.

Never: knows what is in a table.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Final, get_args

from aiohttp import web
from msgspec import Meta, Struct

from holdfast.broker.admin.http.arrow_stream import ARROW_STREAM, send
from holdfast.broker.admin.http.operation import (
    Answered,
    Asked,
    Audience,
    Operation,
    ProblemError,
    text,
)
from holdfast.broker.observe.tables import Tables
from holdfast.core.table_names import FOR_READERS, TABLES, MomentTable

PATH: Final = "/v1/tables"
ROWS_PATH: Final = "/v1/tables/rows"
FOR_ADMINISTRATORS: Final = "/v1/sessions"
"""Who may ask for this may ask for every table."""
Permits = Callable[[web.Request, str], Awaitable[bool]]
"""True if who made a request may ask for a path."""
TABLE: Final = text("table", "The name of one of its tables.")
MOMENT: Final = text("moment", "`moment` of the answer that took it.")


class TablesWanted(Struct, kw_only=True, forbid_unknown_fields=True):
    """Tables that are to be of one moment."""

    tables: Annotated[list[MomentTable], Meta(min_length=1, max_length=len(get_args(MomentTable)))]


class TableThere(Struct, kw_only=True):
    """A table that can be read."""

    name: str
    rows: int
    bytes: int


class MomentThere(Struct, kw_only=True):
    """Tables of one moment, which can be read for some minutes."""

    moment: str
    epoch: Annotated[str, Meta(description="Which log it is.")]
    offset: Annotated[int, Meta(description="The moment: messages below it had been stored.")]
    begin_offset: Annotated[int, Meta(description="The oldest message that the log had.")]
    at_us: int
    tables: list[TableThere]


class TablesView:
    """Takes tables and hands them out."""

    def __init__(self, tables: Tables, permits: Permits) -> None:
        self._tables = tables
        self._permits = permits

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        gone = Answered("There is no such moment any more: take another one.")
        return [
            Operation(
                method="POST",
                path=PATH,
                name="takeTables",
                summary="Takes tables about the broker, all of one moment.",
                run=self.take,
                body=TablesWanted,
                answers={200: Answered("What can be read.", MomentThere)},
                audience=Audience.READERS,
            ),
            Operation(
                method="GET",
                path=ROWS_PATH,
                name="readTable",
                summary="A table of a moment as an Arrow stream.",
                run=self.rows,
                parameters=(MOMENT, TABLE),
                answers={
                    200: Answered("Its rows.", content_type=ARROW_STREAM),
                    404: gone,
                },
                audience=Audience.READERS,
            ),
        ]

    async def take(self, asked: Asked) -> MomentThere:
        """Takes tables of one moment."""
        wanted: TablesWanted = asked.body
        for name in wanted.tables:
            await self._check(asked.request, name)
        taken = await self._tables.take(wanted.tables)
        return MomentThere(
            moment=taken.moment,
            epoch=taken.epoch,
            offset=taken.offset,
            begin_offset=taken.begin_offset,
            at_us=taken.at_us,
            tables=[
                TableThere(name=table.name, rows=table.rows, bytes=table.bytes)
                for table in taken.tables
            ],
        )

    async def rows(self, asked: Asked) -> web.StreamResponse:
        """One table."""
        name, moment = asked.query["table"], asked.query["moment"]
        await self._check(asked.request, name)
        path = self._tables.file(moment, name)
        if path is None:
            detail = (
                f"no table {name!r} of a moment {moment!r}: it is kept for ten minutes, and eight"
                " moments at most; take it again"
            )
            raise ProblemError(404, "not_found", detail)
        import pyarrow as pa  # Loaded behind the start (`reading.log` says why).

        body = await asyncio.to_thread(lambda: pa.memory_map(str(path)).read_buffer())
        return await send(asked.request, [memoryview(body)])

    async def _check(self, request: web.Request, name: str) -> None:
        if name in FOR_READERS or await self._permits(request, FOR_ADMINISTRATORS):
            return
        known = ", ".join(table for table in TABLES if table in FOR_READERS)
        detail = f"table {name!r} is for administrators; who may read the log may read {known}"
        raise ProblemError(403, "forbidden", detail)
