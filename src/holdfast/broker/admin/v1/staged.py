"""Batches of a writer: parts are staged, and a commit puts all of them into the log.

Owns: how a part comes and how a refusal looks. Never: knows what becomes of a part.

Whoever has a credential may write, and its rules say where. What time heals is refused with 503 and
a `Retry-After`.
"""

import asyncio
import re
from collections.abc import Awaitable
from typing import Annotated, Final, TypeVar

from aiohttp import web
from msgspec import Meta, Struct

from holdfast.broker.access.access import Access, Identity
from holdfast.broker.admin.control_socket import is_local
from holdfast.broker.admin.http.operation import (
    Answered,
    Asked,
    Audience,
    Operation,
    ProblemError,
    bad_request,
)
from holdfast.broker.admin.http.protection import ROLE
from holdfast.broker.batches.arrow import PublishGrant
from holdfast.broker.batches.batches import Batches, Commit, NewPart
from holdfast.broker.batches.refusal import BatchRefusal, BatchRefusedError
from holdfast.core.limits import (
    BATCH_PARTS_MAXIMUM,
    PRODUCER_NAME_BYTES_MAXIMUM,
    STAGED_PART_BYTES_MAXIMUM,
    STAGINGS_AT_ONCE,
)
from holdfast.core.written import ARROW_STREAM, WRITTEN_COLUMNS

T = TypeVar("T")

ANSWERED_WITHIN_S: Final = 30
"""A commit whose batch is not in the log by then is answered 503, and goes on: whoever asks again
waits for the rest of it."""
RECEIVED_WITHIN_S: Final = 60
"""A part that has not come whole by then is given up, and makes room for others."""
RETRY_AFTER_S: Final = 1
NAME: Final = re.compile(r"[A-Za-z0-9._:~@=,+-]+")
STATUS: Final = {
    BatchRefusal.NOT_ROWS: 400,
    BatchRefusal.NOT_YOURS: 403,
    BatchRefusal.NO_SUCH_PART: 410,
    BatchRefusal.OTHER_BATCH: 409,
    BatchRefusal.UNFINISHED: 503,
    BatchRefusal.STAGED_ROWS_LOST: 410,
    BatchRefusal.BUSY: 503,
}
LATER: Final = Answered("Not now: too much is staged or on its way, or the log is full.")


class Staged(Struct, kw_only=True):
    """A part that is kept."""

    identifier: str | None
    """By which a commit names it; null where the batch is decided already: its rows are not needed
    any more, whoever sends them."""
    rows: int


class Forgotten(Struct, kw_only=True):
    """A batch of which nothing is staged any more."""

    parts: int
    """How many parts of it there were; 0 where it is decided already."""


class NewBatch(Struct, forbid_unknown_fields=True, kw_only=True):
    """What a batch is."""

    parts: Annotated[list[str], Meta(max_length=BATCH_PARTS_MAXIMUM)]
    """Their identifiers, in the order in which they enter the log."""
    last: bool = False
    """True: the producer comes with no other batch."""


class BatchInLog(Struct, kw_only=True):
    """A batch that is in the log whole, and durable."""

    producer: str
    batch: int
    rows: int | None
    """How many messages it has; null of one that is not the producer's last."""
    repeated: bool
    """True: an earlier request has decided what the batch is."""


class Staging:
    """Takes parts and commits."""

    def __init__(self, batches: Batches, access: Access) -> None:
        self._batches = batches
        self._access = access
        self._places = asyncio.Semaphore(STAGINGS_AT_ONCE)

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        wrong = Answered("A producer, batch or part that is none, or rows nobody may publish.")
        gone = Answered("A part is not there any more; the batch has to be written again.")
        other = Answered("A part is of another batch.")
        return [
            Operation(
                method="PUT",
                path="/v1/staged/{producer}/{batch}/{part}",
                name="stagePart",
                summary=f"Stage a part of a batch: columns {', '.join(WRITTEN_COLUMNS)}.",
                run=self.stage,
                takes=ARROW_STREAM,
                answers={
                    200: Answered("It is kept.", Staged),
                    400: wrong,
                    403: Answered("The producer is another user's."),
                    413: Answered(f"It has more than {STAGED_PART_BYTES_MAXIMUM} bytes."),
                    503: LATER,
                },
                audience=Audience.PUBLISHERS,
            ),
            Operation(
                method="POST",
                path="/v1/staged/{producer}/{batch}",
                name="commitBatch",
                summary="Put all rows of these parts into the log, once however often it is asked.",
                run=self.commit,
                body=NewBatch,
                answers={
                    200: Answered("All of it is durable.", BatchInLog),
                    400: wrong,
                    403: Answered("The producer is another user's."),
                    409: other,
                    410: gone,
                    503: LATER,
                },
                audience=Audience.PUBLISHERS,
            ),
            Operation(
                method="DELETE",
                path="/v1/staged/{producer}/{batch}",
                name="forgetBatch",
                summary="Remove what is staged of a batch that nobody will commit.",
                run=self.forget,
                answers={
                    200: Answered("Nothing of it is staged any more.", Forgotten),
                    400: wrong,
                    403: Answered("The producer is another user's."),
                },
                audience=Audience.PUBLISHERS,
            ),
        ]

    async def stage(self, asked: Asked) -> Staged:
        """Keeps the part of the body."""
        producer, batch = _named(asked)
        part = asked.path["part"]
        if not NAME.fullmatch(part) or len(part) > PRODUCER_NAME_BYTES_MAXIMUM:
            raise bad_request(f"{part!r} is no name of a part: {_RULE}")
        if asked.request.content_type != ARROW_STREAM:
            detail = f"the body must be an Arrow stream, Content-Type: {ARROW_STREAM}"
            raise ProblemError(415, "unsupported_media_type", detail)
        identity = self._identity(asked.request)
        async with self._places:
            content = await _received(asked.request)
            staged = await _refusing(
                self._batches.stage(
                    NewPart(
                        producer=producer,
                        batch=batch,
                        part=part,
                        user_name=_user_name(identity),
                        content=content,
                        publish=self._grant(identity),
                    )
                )
            )
        if staged is None:
            return Staged(identifier=None, rows=0)
        return Staged(identifier=staged.identifier, rows=staged.rows)

    async def forget(self, asked: Asked) -> Forgotten:
        """Makes room for others."""
        producer, batch = _named(asked)
        user_name = _user_name(self._identity(asked.request))
        return Forgotten(parts=await _refusing(self._batches.forget(producer, batch, user_name)))

    async def commit(self, asked: Asked) -> BatchInLog:
        """Puts the batch into the log."""
        producer, batch = _named(asked)
        new: NewBatch = asked.body
        order = Commit(
            producer=producer,
            batch=batch,
            user_name=_user_name(self._identity(asked.request)),
            parts=tuple(new.parts),
            is_last=new.last,
        )
        try:
            async with asyncio.timeout(ANSWERED_WITHIN_S):
                done = await _refusing(self._batches.commit(order))
        except TimeoutError:
            detail = (
                f"batch {batch} of {producer!r} is not in the log whole yet, and goes on when there"
                " is room; ask again"
            )
            raise _later("entering", detail) from None
        return BatchInLog(producer=producer, batch=batch, rows=done.rows, repeated=done.repeated)

    def _identity(self, request: web.Request) -> Identity | None:
        """Who asks; `None` over the control socket, where everything is allowed."""
        role = request.get(ROLE)
        if isinstance(role, Identity):
            return role
        return None if is_local(request) else Identity(user_name=None)

    def _grant(self, identity: Identity | None) -> PublishGrant:
        if identity is None or identity.administrator:
            return None
        grant = self._access.publish_grant(identity, "")
        return None if grant is None else list(grant)


_RULE: Final = (
    f"letters, digits and . _ : ~ @ = , + -, at most {PRODUCER_NAME_BYTES_MAXIMUM} of them"
)


def _user_name(identity: Identity | None) -> str | None:
    return None if identity is None else identity.user_name


def _named(asked: Asked) -> tuple[str, int]:
    producer, number = asked.path["producer"], asked.path["batch"]
    if not NAME.fullmatch(producer) or len(producer) > PRODUCER_NAME_BYTES_MAXIMUM:
        raise bad_request(f"{producer!r} is no name of a producer: {_RULE}")
    if not re.fullmatch(r"[0-9]{1,18}", number):
        raise bad_request(f"a batch has a number of at most 18 digits, not {number!r}")
    return producer, int(number)


async def _received(request: web.Request) -> bytearray:
    """The body, if it is not too large."""
    received = bytearray()
    try:
        async with asyncio.timeout(RECEIVED_WITHIN_S):
            async for piece in request.content.iter_any():
                received += piece
                if len(received) > STAGED_PART_BYTES_MAXIMUM:
                    detail = f"a part has at most {STAGED_PART_BYTES_MAXIMUM} bytes; send several"
                    raise ProblemError(413, "too_large", detail)
    except TimeoutError:
        detail = f"the part has not come whole within {RECEIVED_WITHIN_S} s"
        raise ProblemError(408, "timeout", detail) from None
    return received


async def _refusing(work: Awaitable[T]) -> T:
    try:
        return await work
    except BatchRefusedError as refused:
        status = STATUS[refused.refusal]
        if status == 503:
            raise _later(refused.refusal.value, str(refused)) from refused
        raise ProblemError(status, refused.refusal.value, str(refused)) from refused


def _later(error: str, detail: str) -> ProblemError:
    return ProblemError(503, error, detail, retry_after_s=RETRY_AFTER_S)
