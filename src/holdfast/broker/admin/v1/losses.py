"""The loss ledger: what will not be delivered to whom, and why; and to deliver it all the same.

Owns: when a loss may be driven again, and what is said where it may not. Never: delivers.
"""

import logging
from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta, Struct

from holdfast.broker.admin.http import query
from holdfast.broker.admin.http.operation import (
    Answered,
    Asked,
    Next,
    Nothing,
    Operation,
    Parameter,
    ProblemError,
    bad_request,
    listing,
    text,
)
from holdfast.broker.admin.v1.view_reader import ViewReader
from holdfast.broker.delivery.redrives import REDRIVES_MAXIMUM, Target
from holdfast.broker.server import Server
from holdfast.broker.store.tables import Loss, parse_loss

log = logging.getLogger(__name__)

EXPIRED = "expired"
"""The reason with which a message is too old for everybody."""
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


class Range(Struct, kw_only=True):
    """Offsets from the first up to before the end."""

    first_offset: int
    end_offset: int


class LossRow(Struct, kw_only=True):
    """A row of the loss ledger."""

    number: int
    client_identifier: str
    reason: str
    first_offset: int
    end_offset: int
    count: int
    at_us: int
    redriven_at_us: int | None
    ranges: Annotated[
        list[Range],
        Meta(
            description="Within the offsets: what was lost lies here. Empty if it was never stored."
        ),
    ]


class LossPage(Struct, kw_only=True):
    """A page of the loss ledger."""

    losses: list[LossRow]
    next: Next


class Redriven(Struct, kw_only=True):
    """What is delivered once more."""

    number: int
    client_identifier: Annotated[str, Meta(description="Who gets it.")]
    messages: Annotated[int, Meta(description="How many are delivered again.")]
    gone: Annotated[list[Range], Meta(description="Parts that the log has no more.")]


class LossesView:
    """What can be asked about losses."""

    def __init__(self, server: Server, view: ViewReader) -> None:
        self._server = server
        self._view = view

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        return [
            listing(
                *("listLosses", "losses", LossPage, self.page),
                summary="Rows of the loss ledger, the oldest first.",
                parameters=(
                    text("client_identifier", "Only losses of this client."),
                    text("reason", "Only losses with this reason."),
                    _moment("since", 0, "From this time on."),
                    _moment("until", TIME_END_US, "Up to before this time."),
                ),
            ),
            Operation(
                method="POST",
                path="/v1/losses/{number}/redrive",
                name="redriveLoss",
                summary="Deliver what a row tells of once more, as new messages, to who lost it.",
                run=self.redrive,
                body=Nothing,
                answers={
                    200: Answered("It is on record, and will be delivered.", Redriven),
                    404: Answered("There is no such row."),
                    409: Answered("It cannot be driven again: `error` and `detail` say why."),
                },
            ),
        ]

    async def page(self, asked: Asked) -> LossPage:
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
        more = len(losses) == limit
        return LossPage(losses=losses, next=str(losses[-1].number) if more else None)

    async def redrive(self, asked: Asked) -> Redriven:
        """Has a loss delivered again; answers when that is durable."""
        written = asked.path["number"]
        is_number = written.isascii() and written.isdigit() and int(written) <= TIME_END_US
        stages = self._server.stages
        number = int(written) if is_number else 0
        loss = stages.losses.find(number)
        if loss is None:
            raise ProblemError(404, "no_such_loss", f"the loss ledger has no row {written!r}")
        messages = None
        while messages is None:
            looking = stages.redrives.look(loss.spans, self._target(number, loss))
            found = await stages.chores.outcome(looking)
            # Somebody else may have asked for the same, or who lost it may have come or gone.
            loss, now_us = stages.losses.find(number) or loss, self._server.now_us()
            messages = stages.redrives.begin(number, found, self._target(number, loss), now_us)
        if not messages:
            raise self._nothing(number, loss, found.gone)
        stages.losses.redriven(number, loss, now_us)
        attached = stages.sessions.attached(loss.client_identifier)
        if attached is not None:
            stages.permissions.admit_redrive(attached)
        await stages.promises.wait_durable(stages.kernel.log.end_position())
        name = stages.sessions.name_of(loss.party)
        fields = {
            "client_identifier": name,
            "row": number,
            "messages": messages,
        }
        log.info("loss driven again", extra={"fields": fields})
        return Redriven(
            number=number,
            client_identifier=name,
            messages=messages,
            gone=_ranges(found.gone),
        )

    def _target(self, number: int, loss: Loss) -> Target:
        """Who gets it, if it may be driven again."""
        if loss.redriven_at_us is not None:
            raise _refused("redriven", f"row {number} was driven again already")
        if not loss.end_offset:
            sentence = f"what row {number} tells of was of QoS 0 and never stored"
            raise _refused("never_stored", sentence)
        if loss.reason == EXPIRED:
            sentence = f"the messages of row {number} have expired, so nobody is sent them any more"
            raise _refused("expired", sentence)
        if not loss.party:
            sentence = f"row {number} sums up the losses of many clients and does not say whose"
            raise _refused("many_clients", sentence)
        stages = self._server.stages
        if len(stages.redrives) >= REDRIVES_MAXIMUM:
            sentence = f"{REDRIVES_MAXIMUM} losses are being driven again; wait until some are done"
            raise _refused("too_many", sentence)
        client = loss.client_identifier
        target = stages.groups.target(loss.party) or stages.sessions.target(client)
        if target is None or target.party != loss.party:
            sentence = f"the session that lost it has ended; {client!r} would get it in another one"
            if target is None:
                sentence = f"neither a session nor a group {client!r} is there any more"
            raise _refused("session_ended", sentence)
        return target

    def _nothing(self, number: int, loss: Loss, gone: list[tuple[int, int]]) -> ProblemError:
        whole_from = self._server.stages.kernel.log.begin_offset()
        if loss.end_offset <= whole_from:
            sentence = f"the log begins at offset {whole_from}: all of row {number} is gone from it"
            return _refused("gone", sentence)
        rest = " of what the log still has of it" if gone else ""
        sentence = f"no subscription of {loss.client_identifier!r} matches any message{rest}"
        return _refused("not_subscribed", sentence)


def _row(key: bytes, value: str) -> LossRow:
    loss = parse_loss(value.encode())
    return LossRow(
        number=int.from_bytes(key, "big"),
        client_identifier=loss.client_identifier,
        reason=loss.reason,
        first_offset=loss.first_offset,
        end_offset=loss.end_offset,
        count=loss.count,
        at_us=loss.at_us,
        redriven_at_us=loss.redriven_at_us,
        ranges=_ranges(loss.spans),
    )


def _ranges(spans: Iterable[tuple[int, int]]) -> list[Range]:
    return [Range(first_offset=first, end_offset=end) for first, end in spans]


def _refused(error: str, sentence: str) -> ProblemError:
    return ProblemError(409, error, sentence)
