"""The boundary's price for Pulsar: a turn makes as many calls for a thousand entries as for ten."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from holdfast.broker.turn import Turn
from tests.builders.entries import entry, flow, send
from tests.builders.pulsar import PulsarBroker, producer, subscribe
from tests.unit.broker.test_turn_calls import counted

FEW, MANY = 10, 1_000


async def turns_of(entries: int, directory: Path, turns: list[Counter[str]]) -> list[Counter[str]]:
    """The calls of the turn that takes entries in and of the turn that gives them out."""
    broker = PulsarBroker(directory)
    sending, taking = await broker.client(), await broker.client()
    await broker.ask(sending, producer("t"))
    await broker.ask(taking, subscribe("t", "mine"))
    await broker.send(taking, flow(1, 100_000))
    tail = entry([b"a", b"b", b"c"])
    frames = b"".join(send(1, 3 * number, tail, 3) for number in range(entries))
    turns.clear()
    sending.send(frames)
    await asyncio.sleep(0)
    taken_in = list(turns)
    broker.world.commits_made.commit()
    await asyncio.sleep(0)
    given_out = turns[len(taken_in) :]
    assert len(sending.answers()) == entries
    assert len(taking.answers()) == entries
    return [*taken_in[:1], *given_out[:1]]


def test_a_turn_makes_as_many_calls_for_many_entries_as_for_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[Counter[str]] = []
    monkeypatch.setattr(Turn, "stages_in_order", counted(turns, Turn.stages_in_order))
    for name in ("few", "many"):
        (tmp_path / name).mkdir()
    few = asyncio.run(turns_of(FEW, tmp_path / "few", turns))
    many = asyncio.run(turns_of(MANY, tmp_path / "many", turns))
    assert few == many
