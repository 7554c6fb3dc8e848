"""Clients with thousands of subscriptions, in virtual time: a gateway has one for each device."""

import asyncio
from dataclasses import replace

import pytest

from holdfast.broker.assemble import assemble
from holdfast.broker.server import Server
from holdfast.core.limits import FILTERS_PER_TURN_MAXIMUM
from holdfast.core.units import KIB
from holdfast.testing.hardships import Hardships
from holdfast.testing.loop import VirtualLoop, simulate
from holdfast.testing.world import BrokerMachine
from tests.simulation.test_slow_readers import SLOW, joined, with_broker

ROOMY = replace(SLOW, maximum_packet_size_bytes=256 * KIB)
MANY = 20 * FILTERS_PER_TURN_MAXIMUM


def wanted(first: int, count: int) -> list[dict[str, object]]:
    return [{"topic_filter": f"device/{first + n}/+", "qos": 1} for n in range(count)]


def held(server: Server, name: str) -> int:
    """How many subscriptions the client has."""
    attached = server.stages.sessions.attached(name)
    assert attached is not None
    return len(attached.held)


def log_end(server: Server) -> int:
    return server.stages.kernel.log.end_position()


async def carried_out(server: Server, name: str, least: int, most: int = 10 * MANY) -> None:
    """Waits until that many of the client's filters are in force."""
    while not least <= held(server, name) <= most:  # noqa: ASYNC110 - nobody is told of a piece.
        await asyncio.sleep(0)


def test_a_packet_with_thousands_of_filters_holds_up_nobody() -> None:
    async def body(server: Server) -> None:
        gateway, other = await joined("gateway"), await joined("other")
        await asyncio.sleep(1)
        asked = server.stages.subscribe_packets.asked
        gateway.send("subscribe", packet_identifier=1, subscriptions=wanted(0, MANY))
        await carried_out(server, "gateway", 1)
        other.send("subscribe", packet_identifier=1, subscriptions=wanted(0, 1))
        seen = [held(server, "gateway")]
        while held(server, "other") == 0:
            await asyncio.sleep(0)
            seen.append(held(server, "gateway"))
        assert seen[-1] < MANY, "the other one did not wait until all of that was done"
        await asyncio.sleep(1)
        assert (held(server, "gateway"), len(asked)) == (MANY, 0)
        last = f"device/{MANY - 1}/x"
        other.send("publish", topic_name=last, payload=b"00000007", qos=1, packet_identifier=2)
        await asyncio.sleep(1)
        assert gateway.received == [(last, 7)]

    with_broker(body, ROOMY)


def test_what_is_on_record_is_not_written_again() -> None:
    async def body(server: Server) -> None:
        gateway = await joined("gateway")
        await asyncio.sleep(1)
        for repeat in range(2):
            before = log_end(server)
            for number in range(50):
                gateway.send(
                    "subscribe", packet_identifier=number + 1, subscriptions=wanted(number, 1)
                )
            await asyncio.sleep(1)
            written = log_end(server) - before
            assert held(server, "gateway") == 50
            assert (written > 0) == (repeat == 0)

    with_broker(body, ROOMY)


@pytest.mark.parametrize("kind", ["subscribe", "unsubscribe"])
def test_whoever_goes_before_the_answer_keeps_what_was_carried_out(kind: str) -> None:
    async def body(server: Server) -> None:
        gateway = await joined("gateway")
        await asyncio.sleep(1)
        gateway.send("subscribe", packet_identifier=1, subscriptions=wanted(0, 10))
        await carried_out(server, "gateway", 10)
        await asyncio.sleep(1)
        if kind == "subscribe":
            gateway.send("subscribe", packet_identifier=2, subscriptions=wanted(10, MANY))
            await carried_out(server, "gateway", 11)
        else:
            gateway.send("subscribe", packet_identifier=2, subscriptions=wanted(10, MANY))
            await carried_out(server, "gateway", 10 + MANY)
            filters = [f"device/{n}/+" for n in range(10 + MANY)]
            gateway.send("unsubscribe", packet_identifier=3, topic_filters=filters)
            await carried_out(server, "gateway", 1, 9 + MANY)
        gateway.transport.abort()
        await asyncio.sleep(1)
        session = server.stages.sessions.on_record("gateway")
        assert session is not None
        count = len(server.stages.sessions.subscriptions(session))
        assert 0 < count < 10 + MANY, "a part of it"
        again = await joined("gateway")
        await asyncio.sleep(1)
        assert held(server, "gateway") == count
        again.send("subscribe", packet_identifier=1, subscriptions=wanted(0, 10 + MANY))
        await carried_out(server, "gateway", 10 + MANY)

    with_broker(body, ROOMY)


def test_a_kill_in_the_middle_of_a_packet_leaves_what_had_its_answer() -> None:
    async def main(loop: VirtualLoop) -> None:
        machine = BrokerMachine(loop, lambda world: assemble(ROOMY, world))
        machine.start()
        await asyncio.sleep(1)
        gateway = await joined("gateway")
        await asyncio.sleep(1)
        gateway.send("subscribe", packet_identifier=1, subscriptions=wanted(0, 10))
        await asyncio.sleep(1)
        assert isinstance(machine.life, Server)
        gateway.send("subscribe", packet_identifier=2, subscriptions=wanted(10, MANY))
        await carried_out(machine.life, "gateway", 11)
        machine.kill()
        machine.start()
        await asyncio.sleep(1)
        assert isinstance(machine.life, Server)
        again = await joined("gateway")
        await asyncio.sleep(1)
        assert held(machine.life, "gateway") == 10
        again.send("subscribe", packet_identifier=1, subscriptions=wanted(0, 10 + MANY))
        await carried_out(machine.life, "gateway", 10 + MANY)
        await machine.stop()

    simulate(main, seed=1, repeat="this test", hardships=Hardships())
