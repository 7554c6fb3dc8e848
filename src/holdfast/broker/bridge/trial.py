"""One attempt to connect with a remote, to see what it allows before a bridge is made.

Owns: that attempt. Never: subscribes or publishes: what the remote answers to CONNECT is all that
is learnt, and nothing is left of it there.

Flow: bridges -> here -> dialer -> Connection -> here.
"""

import asyncio
from typing import Final

from holdfast.broker.bridge import terms
from holdfast.broker.bridge.link import Dial
from holdfast.broker.sockets.connection import Connection, Connections
from holdfast.broker.stages import KernelStages
from holdfast.core.bridge import Bridge
from holdfast.core.config import Config
from holdfast.core.limits import CONNECT_TIMEOUT_S
from holdfast.kernel import Packet, encode_packet
from holdfast.protocols.mqtt.reason_code import ReasonCode, reason_name
from holdfast.protocols.mqtt.remote import Granted, Refused, Wish, connect, read_connack

SUFFIX: Final = "-check"
"""Behind the client identifier, so that a bridge that is connected stays so."""


class Trial:
    """Connects once, and ends at once."""

    def __init__(
        self,
        bridge: Bridge,
        password: bytes | None,
        kernel: KernelStages,
        config: Config,
        connections: Connections,
    ) -> None:
        self._kernel = kernel
        self._connections = connections
        self._bridge = bridge
        self._config = config
        self._inbound = terms.inbound(bridge)
        self._wish = Wish(
            client_identifier=bridge.identifier + SUFFIX,
            protocol_version=bridge.mqtt_version,
            clean_start=True,
            keep_alive_s=bridge.keep_alive_s,
            session_expiry_s=0,
            receive_maximum=config.receive_maximum,
            maximum_packet_size_bytes=config.maximum_packet_size_bytes,
            topic_alias_maximum=config.topic_alias_maximum,
            user_name=bridge.user_name,
            password=password,
        )
        self._answer: asyncio.Future[Granted | Refused] = asyncio.get_running_loop().create_future()

    async def run(self, dial: Dial) -> Granted | Refused:
        """What the remote answers. Raises `OSError` or `TimeoutError`."""
        await dial(self._bridge, self)
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            return await self._answer

    def began(self, _connection: Connection) -> None:
        """Its handshakes may take their time."""

    def broken(self, _connection: Connection, reason: str) -> None:
        """TLS or WebSocket will end it."""
        self._failed(reason)

    def opened(self, connection: Connection) -> None:
        """It can be written to: CONNECT goes out."""
        version = connection.protocol_version = self._bridge.mqtt_version
        self._kernel.inbox.expect(
            connection.handle,
            protocol_version=version,
            maximum_packet_size_bytes=self._config.maximum_packet_size_bytes,
            rewriting=self._inbound,
        )
        self._write(connection, "connect", connect(self._wish))

    def take(self, connection: Connection, packet: Packet, _now_us: int) -> None:
        """CONNACK, or something that nobody asked for; either ends it."""
        if packet.kind != "connack":
            self._failed(f"the remote answered CONNECT with {packet.kind}")
        elif not self._answer.done():
            self._answer.set_result(read_connack(packet.fields, self._wish))
        self._connections.close(connection, self._goodbye())

    def not_taken(self, _count: int) -> None:
        """It is subscribed to nothing, and nothing comes."""

    def last_words(self, _connection: Connection, reason_code: int) -> bytes:
        """DISCONNECT: nothing of the session outlives the connection."""
        self._failed(f"the connection was ended: {reason_name(reason_code)}")
        return self._goodbye()

    def ended(self, _connection: Connection, reason: str, _now_us: int) -> None:
        """Without an answer, if there has been none."""
        self._failed(f"the remote ended the connection without an answer: {reason}")

    def _goodbye(self) -> bytes:
        fields = {"reason_code": ReasonCode.SUCCESS, "properties": {}}
        version = self._bridge.mqtt_version
        return encode_packet("disconnect", fields, protocol_version=version)

    def _failed(self, reason: str) -> None:
        if not self._answer.done():
            self._answer.set_exception(ConnectionError(reason))

    def _write(self, connection: Connection, kind: str, fields: dict[str, object]) -> None:
        data = encode_packet(kind, fields, protocol_version=self._bridge.mqtt_version)
        self._connections.write([(connection.handle, data)])
