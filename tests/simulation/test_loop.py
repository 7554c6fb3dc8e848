"""The virtual loop and its network: that runs repeat, and that they behave as asyncio and TCP
do."""

import asyncio
from random import Random

import pytest

from holdfast.testing.hardships import Hardships, draw_hardships
from holdfast.testing.loop import SimulationFailedError, VirtualLoop, simulate
from holdfast.testing.machine import Machine

CALM = Hardships()
REPEAT = "python -m pytest tests/simulation/test_loop.py"


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1_000):
            writer.write(data)
            await writer.drain()
    except (OSError, RuntimeError):
        pass  # RuntimeError: it wrote to a connection that was lost meanwhile.
    writer.close()


async def _talk(loop: VirtualLoop, number: int, lost: list[int]) -> None:
    """Says numbered lines and checks the echo, over as many connections as it takes."""
    said = 0
    while said < 20:
        reader, writer = await asyncio.open_connection("10.0.0.1", 7)
        try:
            while said < 20:
                line = b"client %d line %d " % (number, said) + b"x" * loop.random.randint(0, 500)
                writer.write(line + b"\n")
                async with asyncio.timeout(1_000):
                    assert await reader.readline() == line + b"\n"
                said += 1
                await asyncio.sleep(loop.random.random())
        except (OSError, RuntimeError, AssertionError):
            lost.append(number)
        finally:
            writer.close()
    loop.note(f"client {number} is done")


async def _many_talk(loop: VirtualLoop) -> list[int]:
    lost: list[int] = []
    await asyncio.start_server(_echo, "10.0.0.1", 7)
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(_talk(loop, number, lost))
    await asyncio.to_thread(loop.note, "threads run here too")
    return lost


def test_each_seed_repeats_exactly_and_no_two_are_alike() -> None:
    traces = {}
    for seed in range(12):
        _, first = simulate(_many_talk, seed=seed, repeat=REPEAT)
        _, second = simulate(_many_talk, seed=seed, repeat=REPEAT)
        assert first == second, f"seed {seed} did not repeat"
        traces[seed] = first
    assert len(set(traces.values())) == len(traces)


def test_resets_hit_and_streams_notice() -> None:
    lost, _ = simulate(_many_talk, seed=1, repeat=REPEAT, hardships=Hardships(reset_after_s=3.0))
    assert lost


def test_half_of_the_runs_are_without_a_hardship() -> None:
    drawn = [draw_hardships(Random(seed)) for seed in range(200)]
    for name in Hardships.__slots__:
        present = sum(bool(getattr(hardships, name)) for hardships in drawn)
        assert 20 <= present <= 180, f"{name} is in {present} of 200 runs"


def test_a_loop_with_nothing_to_do_says_deadlock() -> None:
    async def wait_for_nobody(loop: VirtualLoop) -> None:
        await loop.create_future()

    with pytest.raises(SimulationFailedError, match="deadlock: nothing is ready"):
        simulate(wait_for_nobody, seed=3, repeat=REPEAT, hardships=CALM)


def test_a_loop_that_spins_says_so() -> None:
    async def spin(_: VirtualLoop) -> None:
        while True:  # noqa: ASYNC110 (the fault meant here)
            await asyncio.sleep(0)

    with pytest.raises(SimulationFailedError, match="turns at one instant"):
        simulate(spin, seed=3, repeat=REPEAT, hardships=CALM)


def test_a_failure_tells_how_to_repeat_it() -> None:
    async def fail(loop: VirtualLoop) -> None:
        await asyncio.sleep(5)
        loop.note("the last thing that happened")
        raise AssertionError("two is not three")

    with pytest.raises(SimulationFailedError) as caught:
        simulate(fail, seed=77, repeat="python -m tests.simulation --seed 77")
    message = str(caught.value)
    for part in (
        "two is not three",
        "seed 77 on Python 3.",
        "after 5.000 virtual seconds",
        "repeat with: python -m tests.simulation --seed 77",
        "the last thing that happened",
    ):
        assert part in message


def test_an_exception_in_a_callback_fails_the_run() -> None:
    async def main(loop: VirtualLoop) -> None:
        loop.call_soon(lambda: [][1])
        await asyncio.sleep(1)

    with pytest.raises(SimulationFailedError, match="IndexError"):
        simulate(main, seed=1, repeat=REPEAT, hardships=CALM)


class _Reader(asyncio.BufferedProtocol):
    """Reads into a small buffer of its own and notes everything."""

    def __init__(self) -> None:
        self.buffer = bytearray(100)
        self.read = bytearray()
        self.ended: list[Exception | None] = []
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.read += self.buffer[:nbytes]

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.append(exc)


class _Writer(asyncio.Protocol):
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.ended: list[Exception | None] = []

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.append(exc)


async def _pair(loop: VirtualLoop) -> tuple[_Reader, _Writer, asyncio.Transport]:
    reader, writer = _Reader(), _Writer()
    await loop.create_server(lambda: reader, "10.0.0.1", 7)
    transport, _ = await loop.create_connection(lambda: writer, "10.0.0.1", 7)
    await asyncio.sleep(1)
    return reader, writer, transport


@pytest.mark.parametrize("seed", range(8))
def test_bytes_arrive_whole_and_in_order_however_they_are_split(seed: int) -> None:
    async def main(loop: VirtualLoop) -> None:
        reader, _, transport = await _pair(loop)
        sent = bytearray()
        for size in range(1, 300):
            sent += (piece := loop.random.randbytes(size))
            transport.write(piece)
        transport.close()
        await asyncio.sleep(10_000)
        assert reader.read == sent
        assert reader.ended == [None]

    hardships = Hardships(delay_s=0.05, split_bytes=7, slow_link_bytes_per_s=1_000)
    simulate(main, seed=seed, repeat=REPEAT, hardships=hardships)


def test_a_reader_that_pauses_makes_the_writer_pause_and_resume() -> None:
    async def main(loop: VirtualLoop) -> None:
        reader, writer, transport = await _pair(loop)
        transport.set_write_buffer_limits(high=10_000, low=2_000)
        reader.transport.pause_reading()
        for _ in range(8):
            transport.write(b"x" * 9_000)
        await asyncio.sleep(1)
        assert not writer.calls  # 64 KiB are in the kernels' buffers, 8 000 bytes in ours.
        transport.write(b"x" * 9_000)
        assert writer.calls == ["pause"]
        await asyncio.sleep(100)
        assert not reader.read
        assert writer.calls == ["pause"]
        reader.transport.resume_reading()
        await asyncio.sleep(1)
        assert writer.calls == ["pause", "resume"]
        assert len(reader.read) == 81_000

    simulate(main, seed=1, repeat=REPEAT, hardships=CALM)


def test_a_half_open_connection_tells_nobody_for_a_while() -> None:
    async def main(loop: VirtualLoop) -> None:
        reader, writer, transport = await _pair(loop)
        await asyncio.sleep(100)  # By now it has fallen silent.
        before = len(reader.read)
        transport.write(b"is anybody there")
        await asyncio.sleep(30)
        assert len(reader.read) == before
        assert not writer.ended
        await asyncio.sleep(900)
        assert isinstance(writer.ended[0], TimeoutError)
        assert isinstance(reader.ended[0], TimeoutError)

    simulate(main, seed=4, repeat=REPEAT, hardships=Hardships(half_open_after_s=0.5))


def test_abort_resets_the_peer_and_close_does_not() -> None:
    async def main(loop: VirtualLoop) -> None:
        reader, writer, transport = await _pair(loop)
        transport.abort()
        await asyncio.sleep(1)
        assert writer.ended == [None]
        assert isinstance(reader.ended[0], ConnectionResetError)
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(_Writer, "10.0.0.1", 8)

    simulate(main, seed=1, repeat=REPEAT, hardships=CALM)


def test_nothing_of_a_machine_without_power_runs() -> None:
    async def main(loop: VirtualLoop) -> None:
        machine = Machine("broker")
        ticks: list[float] = []

        async def tick() -> None:
            await loop.create_server(_Reader, "10.0.0.1", 7)
            while True:
                ticks.append(loop.time())
                await asyncio.sleep(1)

        task = loop.create_task(tick(), context=machine.context())
        await asyncio.sleep(2.5)
        writer = _Writer()
        await loop.create_connection(lambda: writer, "10.0.0.1", 7)
        loop.power_off(machine)
        await asyncio.sleep(10)
        assert ticks == [0.0, 1.0, 2.0]
        assert not task.done()
        assert isinstance(writer.ended[0], ConnectionResetError)
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(_Writer, "10.0.0.1", 7)
        await loop.create_server(_Reader, "10.0.0.1", 7)  # The address is free again.

    simulate(main, seed=1, repeat=REPEAT, hardships=CALM)


def test_only_steps_of_tasks_are_shuffled() -> None:
    async def main(loop: VirtualLoop) -> tuple[list[int], list[int]]:
        plain: list[int] = []
        steps: list[int] = []

        async def step(number: int) -> None:
            await asyncio.sleep(0)
            steps.append(number)

        for number in range(50):
            loop.call_soon(plain.append, number)
        await asyncio.gather(*(step(number) for number in range(50)))
        return plain, steps

    (plain, steps), _ = simulate(main, seed=1, repeat=REPEAT, hardships=Hardships(shuffle=True))
    assert plain == list(range(50))
    assert sorted(steps) == list(range(50))
    assert steps != sorted(steps)
