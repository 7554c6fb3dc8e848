"""The loss ledger: what will not be delivered to whom, and why."""

import json
from typing import Any

from holdfast.broker.admin import query
from holdfast.broker.admin.operation import (
    AFTER,
    LIMIT,
    Answered,
    Asked,
    Operation,
    Parameter,
    bad_request,
    page_of,
    row_of,
    text,
)
from holdfast.broker.admin.view_reader import ViewReader

ROW = row_of(
    number="integer",
    client_identifier="string",
    reason="string",
    first_offset="integer",
    end_offset="integer",
    count="integer",
    at_us="integer",
)
TIME_END_US = 2**63 - 1
_LIST = (
    "SELECT key, value FROM losses WHERE key > ?1"
    " AND (?2 = '' OR json_extract(value, '$.client_identifier') = ?2)"
    " AND (?3 = '' OR json_extract(value, '$.reason') = ?3)"
    " AND json_extract(value, '$.at_us') >= ?4 AND json_extract(value, '$.at_us') < ?5"
    " ORDER BY key LIMIT ?6"
)


def _moment(name: str, default_us: int, description: str) -> Parameter:
    return Parameter(
        name,
        {"type": "string"},
        f"{description} Microseconds since 1970, or ISO 8601.",
        lambda given: query.time_us(given, name) if name in given else default_us,
    )


class LossesView:
    """What can be asked about losses."""

    def __init__(self, view: ViewReader) -> None:
        self._view = view

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        return [
            Operation(
                method="GET",
                path="/v1/losses",
                name="listLosses",
                summary="Rows of the loss ledger, the oldest first.",
                run=self.page,
                parameters=(
                    text("client_identifier", "Only losses of this client."),
                    text("reason", "Only losses with this reason."),
                    _moment("since", 0, "From this time on."),
                    _moment("until", TIME_END_US, "Up to before this time."),
                    LIMIT,
                    AFTER,
                ),
                answers={200: Answered("A page of losses.", page_of("losses", ROW))},
            )
        ]

    async def page(self, asked: Asked) -> dict[str, Any]:
        """A page of the ledger."""
        after, limit = asked.query["after"] or "0", asked.query["limit"]
        if not after.isascii() or not after.isdigit() or int(after) > TIME_END_US:
            raise bad_request(f"after must be the number of a row, not {after!r}")
        rows = await self._view.rows(
            _LIST,
            int(after).to_bytes(8, "big"),
            asked.query["client_identifier"],
            asked.query["reason"],
            asked.query["since"],
            asked.query["until"],
            limit,
        )
        losses = [_row(key, value) for key, value in rows]
        return {
            "losses": losses,
            "next": str(losses[-1]["number"]) if len(losses) == limit else None,
        }


def _row(key: bytes, value: str) -> dict[str, Any]:
    loss = json.loads(value)
    del loss["party"]
    return {"number": int.from_bytes(key, "big"), **loss}
