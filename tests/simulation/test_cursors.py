"""Cursors over a broker's restarts and the log's retention: what is not released is kept, what is
lost of it is told, and one reader at a time has it."""

import asyncio
from dataclasses import replace

import pytest

from holdfast.broker.chores import at_once
from holdfast.broker.commands import CommandRefusedError, Refusal
from holdfast.broker.cursor_commands import Asker, CursorCommands
from holdfast.broker.store.questions import Inquiry
from holdfast.core.config import Config
from holdfast.core.cursor import CursorSeen
from holdfast.core.loss_reason import LossReason
from tests.simulation.peer import Stand, with_broker
from tests.simulation.test_retention import fill, has_gone, lost_by, until
from tests.simulation.whole import CONFIG

HOLD_S = 60
SENT = 120
CONFIGURED: Config = replace(
    CONFIG, retention_bytes=3 * CONFIG.segment_bytes, cursor_hold_timeout_s=HOLD_S
)
SMALL: Config = replace(CONFIGURED, cursor_unreleased_bytes=40 * 4_000)
ADMINISTRATOR = Asker(user_name="", administrator=True)
BRONZE, OTHER = "bronze", "silver"


def commands(stand: Stand) -> CursorCommands:
    return stand.server.cursor_commands


def cursor(stand: Stand, name: str = BRONZE) -> CursorSeen:
    return commands(stand).find(name)


async def make(stand: Stand, *filters: str) -> None:
    await commands(stand).make(BRONZE, filters or ("t",), "earliest", ADMINISTRATOR)


async def hold(stand: Stand, holder: str, name: str = BRONZE) -> CursorSeen:
    return await commands(stand).hold(name, holder, f"query {holder}")


async def release(stand: Stand, offset: int, holder: str = "a") -> CursorSeen:
    return await commands(stand).release(BRONZE, holder, offset, let_go=False)


def count(stand: Stand, begin: int, end: int) -> int:
    """Messages of t that the log still has there."""
    log, seen = stand.server.stages.kernel.log, cursor(stand)
    wanted = seen.reads
    return at_once(Inquiry(log).count(wanted, seen.party, begin, end))


def end_of(stand: Stand) -> int:
    return stand.server.durable_offset()


def refused(caught: "pytest.ExceptionInfo[CommandRefusedError]") -> Refusal:
    return caught.value.refusal


def test_what_a_cursor_has_not_released_outlives_its_segments_and_a_power_cut() -> None:
    async def story(stand: Stand) -> None:
        await make(stand)
        await fill(stand, "t")
        await fill(stand, "u")
        await until(lambda: has_gone(stand))
        await asyncio.sleep(700)
        stand.cut_power()
        await asyncio.sleep(3)
        assert cursor(stand).place == 0
        assert stand.server.stages.kernel.log.begin_offset() > 0
        assert count(stand, 0, end_of(stand)) == SENT
        assert stand.losses() == []

    with_broker(story, CONFIGURED)


def test_what_a_cursor_has_released_goes_with_its_segments() -> None:
    released = 2 * SENT - 20

    async def story(stand: Stand) -> None:
        await make(stand)
        await fill(stand, "t")
        await fill(stand, "t")
        await hold(stand, "a")
        assert (await release(stand, released)).place == released
        await asyncio.sleep(700)
        stand.cut_power()
        await asyncio.sleep(3)
        begin = stand.server.stages.kernel.log.begin_offset()
        assert begin > 100
        assert count(stand, released, end_of(stand)) == 2 * SENT - released
        # A segment of what is carried is written anew when half of it is not needed.
        assert count(stand, 0, released) == 0
        assert stand.losses() == []

    with_broker(story, CONFIGURED)


def test_what_is_beyond_its_quota_is_in_the_loss_ledger_and_its_place_is_behind_it() -> None:
    async def story(stand: Stand) -> None:
        await make(stand)
        await fill(stand, "t")
        await until(lambda: lost_by(stand, BRONZE) > 0)
        await asyncio.sleep(700)
        lost, place = lost_by(stand, BRONZE), cursor(stand).place
        assert 0 < lost < SENT
        assert place == lost
        assert count(stand, place, end_of(stand)) == SENT - lost
        assert {reason for _, reason, _ in stand.losses()} == {LossReason.RETENTION}

    with_broker(story, SMALL)


def test_releasing_again_or_less_changes_nothing() -> None:
    async def story(stand: Stand) -> None:
        await make(stand)
        await fill(stand, "t")
        await hold(stand, "a")
        assert [(await release(stand, offset)).place for offset in (50, 50, 7, 51)] == [
            *(50, 50, 50, 51)
        ]
        with pytest.raises(CommandRefusedError) as beyond:
            await release(stand, SENT + 1)
        assert refused(beyond) is Refusal.BEYOND_END

    with_broker(story, CONFIGURED)


def test_one_reader_holds_a_cursor_and_others_are_told_who_it_is() -> None:
    async def story(stand: Stand) -> None:
        await make(stand)
        await fill(stand, "t")
        await hold(stand, "a")
        for attempt in (hold(stand, "b"), release(stand, 5, "b")):
            with pytest.raises(CommandRefusedError, match=r"held by query a \(a\)") as held:
                await attempt
            assert refused(held) is Refusal.HELD
        await commands(stand).release(BRONZE, "a", 5, let_go=True)
        assert (await hold(stand, "b")).place == 5

    with_broker(story, CONFIGURED)


def test_a_hold_ends_by_itself_and_not_while_its_holder_asks() -> None:
    async def story(stand: Stand) -> None:
        await make(stand)
        await fill(stand, "t")
        await hold(stand, "a")
        for asked in (hold(stand, "a"), release(stand, 1)):
            await asyncio.sleep(HOLD_S - 2)
            await asked
        await asyncio.sleep(HOLD_S - 2)
        with pytest.raises(CommandRefusedError):
            await hold(stand, "b")
        await asyncio.sleep(3)
        assert cursor(stand).holder == ""
        assert (await hold(stand, "b")).holder == "b"

    with_broker(story, CONFIGURED)


def test_a_broker_that_was_cut_off_still_knows_who_holds_a_cursor() -> None:
    async def story(stand: Stand) -> None:
        await make(stand)
        await hold(stand, "a")
        stand.cut_power()
        await asyncio.sleep(3)
        assert (cursor(stand).holder, cursor(stand).held_as) == ("a", "query a")
        with pytest.raises(CommandRefusedError):
            await hold(stand, "b")
        assert (await hold(stand, "a")).holder == "a"
        await asyncio.sleep(HOLD_S + 2)
        assert (await hold(stand, "b")).holder == "b"
        await stand.restart()
        assert cursor(stand).holder == "b"

    with_broker(story, CONFIGURED)


def test_a_fork_is_kept_for_although_the_original_is_released() -> None:
    async def story(stand: Stand) -> None:
        await make(stand)
        await fill(stand, "t")
        await until(lambda: has_gone(stand))
        await hold(stand, "a")
        await release(stand, 10)
        forked = await commands(stand).fork(BRONZE, OTHER, ADMINISTRATOR)
        assert (forked.place, forked.selection, forked.holder) == (10, ("t",), "")
        await release(stand, SENT)
        await fill(stand, "u")
        await asyncio.sleep(700)
        stand.cut_power()
        await asyncio.sleep(3)
        assert cursor(stand, OTHER).place == 10
        assert count(stand, 10, SENT) == SENT - 10
        with pytest.raises(CommandRefusedError) as taken:
            await commands(stand).fork(BRONZE, OTHER, ADMINISTRATOR)
        assert refused(taken) is Refusal.NAME_TAKEN

    with_broker(story, CONFIGURED)


def test_a_cursor_moves_to_where_the_log_is_whole_while_nobody_holds_it() -> None:
    async def story(stand: Stand) -> None:
        await make(stand)
        await fill(stand, "t")
        await hold(stand, "a")
        with pytest.raises(CommandRefusedError) as held:
            await commands(stand).move(BRONZE, "latest")
        assert refused(held) is Refusal.HELD
        await commands(stand).release(BRONZE, "a", SENT, let_go=True)
        await fill(stand, "u")
        await asyncio.sleep(700)
        begin = stand.server.stages.kernel.log.begin_offset()
        with pytest.raises(CommandRefusedError) as gone:
            await commands(stand).move(BRONZE, begin - 1)
        assert refused(gone) is Refusal.GONE
        assert (await commands(stand).move(BRONZE, "earliest")).place == begin
        assert (await commands(stand).move(BRONZE, begin + 1)).place == begin + 1
        stand.cut_power()
        await asyncio.sleep(3)
        assert cursor(stand).place == begin + 1

    with_broker(story, CONFIGURED)


def test_a_cursor_that_was_removed_is_gone_with_what_was_kept_for_it() -> None:
    async def story(stand: Stand) -> None:
        await make(stand)
        await fill(stand, "t")
        await hold(stand, "a")
        other = Asker(user_name="eve", administrator=False)
        with pytest.raises(CommandRefusedError) as not_yours:
            await commands(stand).remove(BRONZE, other)
        assert refused(not_yours) is Refusal.NOT_YOURS
        await commands(stand).remove(BRONZE, ADMINISTRATOR)
        stand.cut_power()
        await asyncio.sleep(3)
        for attempt in (hold(stand, "a"), release(stand, 1)):
            with pytest.raises(CommandRefusedError) as missing:
                await attempt
            assert refused(missing) is Refusal.NO_SUCH_CURSOR
        await fill(stand, "u")
        await asyncio.sleep(700)
        carried = [name for name in stand.files() if name.startswith("carry-")]
        assert carried == []

    with_broker(story, CONFIGURED)


def test_another_selection_needs_another_name() -> None:
    async def story(stand: Stand) -> None:
        await make(stand, "t", "u")
        await fill(stand, "t")
        await hold(stand, "a")
        await release(stand, 9)
        await make(stand, "u", "t")
        assert cursor(stand).place == 9
        with pytest.raises(CommandRefusedError, match="selects t, u, not t") as other:
            await make(stand, "t")
        assert refused(other) is Refusal.OTHER_SELECTION

    with_broker(story, CONFIGURED)


class Query:
    """A reader as Spark is one: its sink, and a checkpoint of its own that outlives it."""

    def __init__(self, *, releases_first: bool) -> None:
        self.taken = 0
        self._checkpoint = 0
        self._releases_first = releases_first

    async def batch(self, stand: Stand, *, dies: bool) -> None:
        """Reads what is there; one that dies does so before its sink has committed."""
        end = end_of(stand)
        await hold(stand, "a")
        if self._releases_first:
            await release(stand, end)
        if dies:
            return
        self.taken += count(stand, self._checkpoint, end)
        self._checkpoint = end
        await release(stand, end)


@pytest.mark.parametrize("releases_first", [False, True], ids=["behind_commit", "before_commit"])
def test_release_before_commit_is_found(releases_first: bool) -> None:
    """The counts of a sink show the fault; without it they are those of the publisher."""
    query = Query(releases_first=releases_first)

    async def story(stand: Stand) -> None:
        await make(stand)
        await fill(stand, "t")
        await query.batch(stand, dies=True)
        await fill(stand, "u")
        await fill(stand, "u")
        await asyncio.sleep(700)
        stand.cut_power()
        await asyncio.sleep(3)
        await query.batch(stand, dies=False)
        await fill(stand, "t")
        await query.batch(stand, dies=False)

    with_broker(story, CONFIGURED)
    assert (query.taken < 2 * SENT) is releases_first
