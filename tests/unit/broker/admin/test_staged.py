"""Staging and committing over HTTP: who is refused how, and what is worth another try."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from holdfast.broker.admin.http import server as http
from holdfast.broker.admin.http.protection import Protection
from holdfast.broker.admin.v1 import staged as staged_module
from holdfast.broker.admin.v1.staged import RETRY_AFTER_S, STATUS, Staging
from holdfast.broker.batches.batches import Commit, Committed, NewPart
from holdfast.broker.batches.refusal import BatchRefusal, BatchRefusedError
from holdfast.broker.batches.staged import StagedPart
from holdfast.broker.steps import Steps
from holdfast.core.written import ARROW_STREAM

PART = "/v1/staged/query/7/0-1"
BATCH = "/v1/staged/query/7"
ARROW = {"Content-Type": ARROW_STREAM}


class Batches:
    """Answers as a test says."""

    def __init__(self) -> None:
        self.refusal: BatchRefusal | None = None
        self.new: NewPart | None = None
        self.order: Commit | None = None
        self.ends = True

    async def stage(self, new: NewPart) -> StagedPart | None:
        self.new = new
        self._refuse()
        return StagedPart(
            identifier="i",
            producer=new.producer,
            batch=new.batch,
            part=new.part,
            user_name=None,
            rows=3,
            staged_at_us=0,
        )

    async def commit(self, order: Commit) -> Committed:
        self.order = order
        self._refuse()
        while not self.ends:
            await asyncio.Event().wait()
        return Committed(producer=order.producer, batch=order.batch, rows=3, repeated=False)

    def _refuse(self) -> None:
        if self.refusal is not None:
            raise BatchRefusedError(self.refusal, "so it is")


class Access:
    """Everybody may publish below `mine`."""

    def publish_grant(self, _identity: object, _client: str) -> list[tuple[bytes, bool]]:
        return [(b"mine/#", True)]


def on(run: Callable[[Any, Batches], Awaitable[None]]) -> Callable[[], None]:
    """A test with a client of an interface over these batches."""

    def test() -> None:
        async def main() -> None:
            batches, protection = Batches(), Protection("127.0.0.1", metrics_public=False)
            staging = Staging(batches, Access())  # type: ignore[arg-type]
            steps = Steps(lambda: 0, lambda: 0)
            app = http.application(staging.operations(), protection, steps)
            async with TestClient(TestServer(app)) as client:
                await run(client, batches)

        asyncio.run(main())

    test.__name__ = run.__name__
    return test


@on
async def test_a_part_is_handed_on_with_who_sends_it_and_where_that_may_publish(
    client: Any, batches: Batches
) -> None:
    answer = await client.put(PART, data=b"rows", headers=ARROW)
    assert await answer.json() == {"identifier": "i", "rows": 3}
    assert batches.new is not None
    assert (batches.new.producer, batches.new.batch, batches.new.part) == ("query", 7, "0-1")
    assert (bytes(batches.new.content), batches.new.publish) == (b"rows", [(b"mine/#", True)])
    answer = await client.post(BATCH, json={"parts": ["i", "j"], "last": True})
    assert await answer.json() == {"producer": "query", "batch": 7, "rows": 3, "repeated": False}
    assert batches.order is not None
    assert (batches.order.parts, batches.order.is_last) == (("i", "j"), True)


@on
async def test_what_cannot_be_right_is_refused_before_it_is_looked_at(
    client: Any, batches: Batches
) -> None:
    long = "x" * 1_025
    for path in (
        "/v1/staged/a b/7/0",
        "/v1/staged/query/-1/0",
        f"/v1/staged/{long}/7/0",
        f"/v1/staged/query/7/{long}",
        f"/v1/staged/query/{'1' * 19}/0",
    ):
        assert (await client.put(path, data=b"", headers=ARROW)).status == 400
    assert (await client.put(PART, json={})).status == 415
    assert (await client.post(BATCH, json={"parts": ["i"], "lost": True})).status == 400
    assert (batches.new, batches.order) == (None, None)


def test_a_part_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_module, "STAGED_PART_BYTES_MAXIMUM", 10)

    @on
    async def run(client: Any, batches: Batches) -> None:
        assert (await client.put(PART, data=b"x" * 10, headers=ARROW)).status == 200
        batches.new = None
        assert (await client.put(PART, data=b"x" * 11, headers=ARROW)).status == 413
        assert batches.new is None

    run()


@on
async def test_what_time_heals_says_when_to_come_back(client: Any, batches: Batches) -> None:
    for refusal in BatchRefusal:
        batches.refusal = refusal
        for answer in (
            await client.put(PART, data=b"", headers=ARROW),
            await client.post(BATCH, json={"parts": []}),
        ):
            assert answer.status == STATUS[refusal]
            assert (await answer.json())["error"] == refusal.value
            again = answer.headers.get("Retry-After")
            heals = refusal in (BatchRefusal.BUSY, BatchRefusal.UNFINISHED)
            assert again == (str(RETRY_AFTER_S) if heals else None)


def test_a_commit_that_takes_long_is_to_be_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_module, "ANSWERED_WITHIN_S", 0)

    @on
    async def run(client: Any, batches: Batches) -> None:
        batches.ends = False
        answer = await client.post(BATCH, json={"parts": ["i"]})
        assert (answer.status, answer.headers["Retry-After"]) == (503, str(RETRY_AFTER_S))
        assert "ask again" in (await answer.json())["detail"]

    run()
