"""Connections in memory between the machines of a simulated run.

Owns: who listens where, and every byte on its way, with the delays, splits, resets, silences and
slow links that the loop's hardships ask for.
Never: reorders or changes the bytes of a connection; it is TCP, not a link layer.

Invariants:
1. Each direction of a connection delivers a prefix of what was written, in order.
2. At most `LINK_BYTES_MAXIMUM` bytes are on their way in one direction; more wait at the sender,
   whose protocol is told to pause above its high water mark.
3. `connection_lost` is called exactly once for each `connection_made`, unless the machine has no
   power.
"""

# ruff: noqa: D102 (most methods are asyncio's own)

import asyncio
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from random import Random
from typing import Any

from holdfast.testing.hardships import Hardships
from holdfast.testing.machine import MACHINE, Machine

LINK_BYTES_MAXIMUM = 64 * 1024
"""What the buffers of both kernels hold of one direction."""

READ_BYTES_MAXIMUM = 256 * 1024
"""What one read of asyncio's own transports takes."""

SPLITS_MAXIMUM = 8
"""Small pieces that one write is split into; the rest follows whole, so that a run does not drown
in bytes."""

FIRST_EPHEMERAL_PORT = 49_152

Address = tuple[str, int]


class Network:
    """Who listens, and which connections exist."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        random: Random,
        hardships: Hardships,
        note: Callable[[str], None],
    ) -> None:
        self.loop = loop
        self.random = random
        self.hardships = hardships
        self.note = note
        self.faults = True
        self.names: dict[str, list[str]] = {}
        """Addresses of each host's name."""
        self._listeners: dict[Address, SimulatedServer] = {}
        self._transports: dict[int, SimulatedTransport] = {}
        self._next_port = FIRST_EPHEMERAL_PORT
        self._next_number = 0

    def calm(self) -> None:
        """Faults stop: new connections live, and those that fell silent are reset."""
        self.faults = False
        for transport in list(self._transports.values()):
            if transport.silent:
                transport.reset(TimeoutError("timed out"))

    def listen(
        self, protocol_factory: Callable[[], Any], host: Any, port: Any, **options: Any
    ) -> "SimulatedServer":
        """Takes connections to (`host`, `port`) from now on; port 0 is any free one."""
        if options.get("ssl") is not None:
            raise NotImplementedError("no TLS in virtual time")
        address = (str(host or "127.0.0.1"), int(port or self._free_port()))
        if address in self._listeners:
            raise OSError(98, f"address already in use: {address[0]}:{address[1]}")
        server = SimulatedServer(self, protocol_factory, address)
        self._listeners[address] = server
        return server

    def forget_listener(self, address: Address) -> None:
        """Connections to `address` are refused from now on."""
        self._listeners.pop(address, None)

    async def connect(
        self, protocol_factory: Callable[[], Any], host: Any, port: Any, **_options: Any
    ) -> tuple["SimulatedTransport", Any]:
        """Opens a connection, or raises `ConnectionRefusedError` after the time a refusal takes."""
        await asyncio.sleep(self.delay_s())
        server = self._listeners.get((str(host), int(port)))
        if server is None:
            self.note(f"refused {host}:{port}")
            raise ConnectionRefusedError(111, f"connection refused: {host}:{port}")
        here = ("127.0.0.1", self._free_port())
        number = self._next_number
        self._next_number += 1
        near = SimulatedTransport(self, f"{number}<", here, server.address, copy_context())
        far = SimulatedTransport(self, f"{number}>", server.address, here, server.context.copy())
        near.join(far)
        far.join(near)
        self._transports[id(near)] = near
        self._transports[id(far)] = far
        self._plan_faults(near)
        self.note(f"open {number}")
        far.start(far.context.run(server.protocol_factory))
        await asyncio.sleep(self.delay_s())
        if near.is_closing():
            raise ConnectionResetError(104, "connection reset while it was made")
        protocol = protocol_factory()
        near.start(protocol)
        await near.made
        return near, protocol

    def power_off(self, machine: Machine) -> None:
        """The machine's listeners are gone, and its peers see a reset."""
        for address, server in list(self._listeners.items()):
            if server.machine is machine:
                del self._listeners[address]
        for transport in list(self._transports.values()):
            if transport.machine is machine:
                transport.vanish()

    def forget(self, transport: "SimulatedTransport") -> None:
        """The transport is closed for good."""
        self._transports.pop(id(transport), None)

    def delay_s(self) -> float:
        """The time that the next piece of bytes takes."""
        mean_s = self.hardships.delay_s
        return self.random.expovariate(1 / mean_s) if mean_s else 0.0

    def _plan_faults(self, near: "SimulatedTransport") -> None:
        hardships, random = self.hardships, self.random
        if not self.faults:
            return
        if hardships.slow_link_bytes_per_s and random.random() < 0.25:
            near.slow_down(hardships.slow_link_bytes_per_s)
        context = Context()  # The network's own: no machine's.
        if hardships.reset_after_s:
            after_s = random.expovariate(1 / hardships.reset_after_s)
            self.loop.call_later(after_s, self._reset, near, context=context)
        if hardships.half_open_after_s:
            after_s = random.expovariate(1 / hardships.half_open_after_s)
            self.loop.call_later(after_s, self._silence, near, context=context)

    def _reset(self, transport: "SimulatedTransport") -> None:
        if self.faults and id(transport) in self._transports:
            transport.reset(ConnectionResetError(104, "connection reset by the network"))

    def _silence(self, transport: "SimulatedTransport") -> None:
        if self.faults and id(transport) in self._transports:
            transport.fall_silent()
            # What TCP does after its retransmissions: between one and fifteen minutes.
            after_s = self.random.uniform(60, 900)
            self.loop.call_later(
                after_s, transport.reset, TimeoutError(110, "timed out"), context=Context()
            )

    def _free_port(self) -> int:
        self._next_port += 1
        return self._next_port


class SimulatedSocket:
    """What `get_extra_info("socket")` and `Server.sockets` give: a name, and options that change
    nothing."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def getsockname(self) -> Address:
        return self._address

    def setsockopt(self, *_: Any) -> None:
        """Accepted; there is no Nagle here."""

    def getsockopt(self, *_: Any) -> int:
        return 0

    def fileno(self) -> int:
        return -1


class SimulatedServer(asyncio.AbstractServer):
    """A listener; it belongs to the machine on which it was made."""

    def __init__(
        self, network: Network, protocol_factory: Callable[[], Any], address: Address
    ) -> None:
        self.network = network
        self.protocol_factory = protocol_factory
        self.address = address
        self.context = copy_context()
        self.machine = MACHINE.get()
        self.sockets = (SimulatedSocket(address),)

    def close(self) -> None:
        self.network.forget_listener(self.address)

    async def wait_closed(self) -> None:
        """Nothing is left to wait for."""

    async def start_serving(self) -> None:
        """It serves since it was made."""

    async def serve_forever(self) -> None:
        await self.network.loop.create_future()

    def is_serving(self) -> bool:
        return self.network._listeners.get(self.address) is self

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self.network.loop


class SimulatedTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self, network: Network, name: str, local: Address, remote: Address, context: Context
    ) -> None:
        socket = SimulatedSocket(local)
        super().__init__({"sockname": local, "peername": remote, "socket": socket})
        self.network = network
        self.context = context
        self.machine = context.get(MACHINE)
        self.silent = False
        self._name = name
        self._loop = network.loop
        self._protocol: Any = None
        self._peer: SimulatedTransport = self
        self._bytes_per_s = 0
        # Sending.
        self._buffer = bytearray()
        self._on_the_way: deque[bytes] = deque()
        self._on_the_way_bytes = 0
        self._taken_bytes = 0
        self._last_arrival = 0.0
        self._end_wanted = False
        self._end_sent = False
        self._writing_paused = False
        self.set_write_buffer_limits()
        # Receiving.
        self._received: deque[bytes] = deque()
        self._reading_paused = False
        self._end_received = False
        # Life: started, then closing, then lost.
        self.made: asyncio.Future[None] = network.loop.create_future()
        self._started = False
        self._closing = False
        self._lost = False

    # --- set up by the network ------------------------------------------------------------------

    def join(self, peer: "SimulatedTransport") -> None:
        """The other end."""
        self._peer = peer

    def start(self, protocol: Any) -> None:
        """Tells the protocol that it is connected, before anything else reaches it."""
        self._protocol = protocol
        self._soon(self._made)

    def slow_down(self, bytes_per_s: int) -> None:
        """From now on bytes to this end arrive at this rate only."""
        self._peer._bytes_per_s = bytes_per_s

    def fall_silent(self) -> None:
        """Nothing arrives any more, and nobody is told."""
        self._note("silent")
        self.silent = self._peer.silent = True

    def reset(self, error: OSError) -> None:
        """Both ends learn that the connection is gone."""
        self._lose(error)
        self._peer._lose(error)

    def vanish(self) -> None:
        """This end's machine has no power; the other end sees a reset."""
        self._lost = self._closing = True
        self.network.forget(self)
        error = ConnectionResetError(104, "connection reset by peer")
        self._peer._soon_after(self.network.delay_s(), self._peer._lose, error)

    # --- sending --------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        if self._lost:
            # uvloop raises here; asyncio's own transports let it pass.
            raise RuntimeError("the connection is closed")
        if self._closing or not data:
            return
        self._buffer += data
        self._pump()
        if len(self._buffer) > self._high and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The same rules as asyncio's own transports."""
        if high is None:
            high = 64 * 1024 if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high}) must be at least low ({low}), and low not negative")
        self._high, self._low = high, low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "taken":
            return self._taken_bytes, sum(map(len, self._on_the_way))
        return super().get_extra_info(name, default)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._end_wanted = True
        self._pump()

    def _pump(self) -> None:
        """Puts as many bytes on the way as there is room for."""
        if self._lost:
            return
        pieces = 0
        while self._buffer:
            size = min(len(self._buffer), LINK_BYTES_MAXIMUM - self._on_the_way_bytes)
            if size <= 0:
                break
            pieces += 1
            if self.network.hardships.split_bytes and pieces <= SPLITS_MAXIMUM:
                size = min(size, self.network.random.randint(1, self.network.hardships.split_bytes))
            piece = bytes(self._buffer[:size])
            del self._buffer[:size]
            self._on_the_way_bytes += size
            self._send(piece)
        if self._end_wanted and not self._buffer and not self._end_sent:
            self._end_sent = True
            self._send(b"")
        if self._closing and not self._buffer:
            self._soon(self._end, None)

    def _send(self, piece: bytes) -> None:
        """An empty piece is the end of the stream."""
        if self.silent:
            return
        now = self._loop.time()
        takes_s = len(piece) / self._bytes_per_s if self._bytes_per_s else 0.0
        self._last_arrival = max(self._last_arrival + takes_s, now + self.network.delay_s())
        peer = self._peer
        # Timers of one instant fire in no promised order, so they do not carry the bytes
        # themselves.
        self._on_the_way.append(piece)
        self._loop.call_at(self._last_arrival, peer._arrive, context=peer.context)

    def _drained(self, count: int) -> None:
        """The other end has read `count` bytes."""
        self._on_the_way_bytes -= count
        self._pump()
        if self._writing_paused and len(self._buffer) <= self._low and not self._lost:
            self._writing_paused = False
            self._protocol.resume_writing()

    # --- receiving ------------------------------------------------------------------------------

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        if self._reading_paused:
            self._reading_paused = False
            self._soon(self._deliver)

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._closing

    def _arrive(self) -> None:
        piece = self._peer._on_the_way.popleft()
        if self.silent:
            return
        if self._closing:
            # Bytes to a socket that nobody reads any more are answered with a reset.
            error = ConnectionResetError(104, "connection reset by peer")
            if piece:
                self._peer._soon_after(self.network.delay_s(), self._peer._lose, error)
            return
        if piece:
            self._peer._taken_bytes += len(piece)
            self._received.append(piece)
        else:
            self._end_received = True
        self._deliver()

    def _deliver(self) -> None:
        """Hands what has arrived to the protocol, as one read."""
        while self._started and not self._reading_paused and not self._closing and self._received:
            data = b"".join(self._received)
            self._received.clear()
            data, rest = data[:READ_BYTES_MAXIMUM], data[READ_BYTES_MAXIMUM:]
            if isinstance(self._protocol, asyncio.BufferedProtocol):
                buffer = memoryview(self._protocol.get_buffer(-1))
                data, rest = data[: len(buffer)], data[len(buffer) :] + rest
            if rest:
                self._received.append(rest)
            self._note(f"read {len(data)} {zlib.crc32(data):08x}")
            self._peer._soon(self._peer._drained, len(data))
            if isinstance(self._protocol, asyncio.BufferedProtocol):
                buffer[: len(data)] = data
                self._protocol.buffer_updated(len(data))
            else:
                self._protocol.data_received(data)
        has_all = self._end_received and not self._received
        if self._started and has_all and not self._reading_paused:
            self._end_received = False
            if not self._closing and not self._protocol.eof_received():
                self.close()

    # --- life -----------------------------------------------------------------------------------

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Sends what is buffered, then the end of the stream; reads nothing any more."""
        if self._closing:
            return
        self._closing = True
        self._end_wanted = True
        self._pump()

    def abort(self) -> None:
        """Drops what is buffered; the other end sees a reset."""
        if self._lost:
            return
        self._lose(None)
        if not self.silent:
            error = ConnectionResetError(104, "connection reset by peer")
            self._peer._soon_after(self.network.delay_s(), self._peer._lose, error)

    def _made(self) -> None:
        self._protocol.connection_made(self)
        self._started = True
        self.made.set_result(None)
        self._deliver()

    def _lose(self, error: OSError | None) -> None:
        self._closing = True
        self._buffer.clear()
        self._soon(self._end, error)

    def _end(self, error: OSError | None) -> None:
        if self._lost or self._protocol is None:
            return
        self._lost = True
        self._note("lost" if error is None else f"lost {type(error).__name__}")
        self.network.forget(self)
        self._protocol.connection_lost(error)

    def _soon(self, callback: Callable[..., Any], *args: Any) -> None:
        self._loop.call_soon(callback, *args, context=self.context)

    def _soon_after(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> None:
        self._loop.call_later(delay_s, callback, *args, context=self.context)

    def _note(self, what: str) -> None:
        self.network.note(f"{self._name} {what}")
