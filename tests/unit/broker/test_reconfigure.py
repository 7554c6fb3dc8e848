"""New settings reach every part of a broker that looks at settings."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from holdfast.broker.assemble import assemble
from holdfast.core.config import Config
from tests.unit.broker.test_turn_calls import StillWorld


def parts_of(part: object, found: dict[int, object]) -> dict[int, object]:
    """Everything of ours that can be reached from `part`."""
    if id(part) in found or not type(part).__module__.startswith("holdfast."):
        return found
    found[id(part)] = part
    for _, value in fields_of(part):
        parts_of(value, found)
    return found


def fields_of(part: object) -> Iterator[tuple[str, object]]:
    """Names and values of an object's attributes, however it keeps them."""
    names = set(getattr(part, "__dict__", ()))
    for each in type(part).__mro__:
        names |= set(getattr(each, "__slots__", ()))
    for name in names:
        if hasattr(part, name):
            yield name, getattr(part, name)


def test_no_part_goes_on_with_the_old_settings(tmp_path: Path) -> None:
    async def run() -> None:
        before = Config(data_dir=tmp_path, retention_bytes=2**30)
        server = assemble(before, StillWorld())
        after = replace(before, receive_maximum=7)
        server.reconfigure(after)
        parts = parts_of(server, {}).values()
        held = {
            f"{type(part).__name__}.{name}": value
            for part in parts
            for name, value in fields_of(part)
            if isinstance(value, Config)
        }
        assert len(held) >= 4
        assert not [name for name, value in held.items() if value is not after]

    asyncio.run(run())
