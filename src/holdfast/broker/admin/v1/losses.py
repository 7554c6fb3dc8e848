"""The loss ledger: what will not be delivered to whom, and why; and to deliver it all the same.

Owns: when a loss may be driven again, and what is said where it may not. Never: delivers.
"""

from collections.abc import Iterable
from typing import Annotated, Final

from msgspec import Meta, Struct
from multidict import MultiMapping

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
from holdfast.broker.commands import CommandRefusedError, Commands, Refusal
from holdfast.broker.state.broker import Broker
from holdfast.broker.state.recorded import LOSS_TIME_END_US, LossesWanted
from holdfast.core.loss_reason import LossReason


def _moment(name: str, default_us: int, description: str) -> Parameter:
    return Parameter(
        name,
        {"type": "string"},
        f"{description} Microseconds since 1970, or ISO 8601.",
        lambda given: query.time_us(given, name) if name in given else default_us,
    )


def _reason(asked: MultiMapping[str]) -> str:
    found: str = asked.get("reason", "")
    if found and found not in REASONS:
        raise bad_request(f"reason must be one of {', '.join(REASONS)}, not {found!r}")
    return found


REASONS: Final = tuple(reason.value for reason in LossReason)
REASON: Final = Parameter(
    "reason",
    {"type": "string", "enum": list(REASONS)},
    "Only losses with this reason.",
    _reason,
)


class Range(Struct, kw_only=True):
    """Offsets from the first up to before the end."""

    first_offset: int
    end_offset: int


class LossRow(Struct, kw_only=True):
    """A row of the loss ledger."""

    number: int
    client_identifier: str
    environment: str | None
    reason: LossReason
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

    def __init__(self, broker: Broker, commands: Commands) -> None:
        self._recorded = broker.recorded
        self._environments = broker.environments
        self._commands = commands

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        return [
            listing(
                "losses",
                LossPage,
                self.page,
                summary="Rows of the loss ledger, the oldest first.",
                parameters=(
                    text("client_identifier", "Only losses of this client."),
                    REASON,
                    _moment("since", 0, "From this time on."),
                    _moment("until", LOSS_TIME_END_US, "Up to before this time."),
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
        if not after.isascii() or not after.isdigit() or int(after) > LOSS_TIME_END_US:
            raise bad_request(f"after must be the number of a row, not {after!r}")
        wanted = LossesWanted(
            after=int(after),
            client_identifier=asked.query["client_identifier"],
            reason=asked.query["reason"],
            since_us=asked.query["since"],
            until_us=asked.query["until"],
        )
        found = await self._recorded.losses(wanted, limit)
        losses = [
            LossRow(
                number=number,
                client_identifier=loss.client_identifier,
                environment=self._environments.of_owner(loss.client_identifier),
                reason=loss.reason,
                first_offset=loss.first_offset,
                end_offset=loss.end_offset,
                count=loss.count,
                at_us=loss.at_us,
                redriven_at_us=loss.redriven_at_us,
                ranges=_ranges(loss.spans),
            )
            for number, loss in found
        ]
        more = len(losses) == limit
        return LossPage(losses=losses, next=str(losses[-1].number) if more else None)

    async def redrive(self, asked: Asked) -> Redriven:
        """Has a loss delivered again; answers when that is durable."""
        written = asked.path["number"]
        is_number = written.isascii() and written.isdigit() and int(written) <= LOSS_TIME_END_US
        number = int(written) if is_number else 0
        try:
            found = await self._commands.redrive(number)
        except CommandRefusedError as error:
            if error.refusal is Refusal.NO_SUCH_LOSS:
                sentence = f"the loss ledger has no row {written!r}"
                raise ProblemError(404, "no_such_loss", sentence) from error
            raise ProblemError(409, error.refusal.value, str(error)) from error
        return Redriven(
            number=number,
            client_identifier=found.client_identifier,
            messages=found.messages,
            gone=_ranges(found.gone),
        )


def _ranges(spans: Iterable[tuple[int, int]]) -> list[Range]:
    return [Range(first_offset=first, end_offset=end) for first, end in spans]
