"""How often the disk is asked for something, where one message follows another."""

import socket
from pathlib import Path
from typing import Any

from holdfast.client.http import HttpClient
from holdfast.kernel import decode_packets, encode_packet
from tests.process import HOST, BrokerProcess

MESSAGES = 200
PATIENCE_S = 30


class Conversation:
    """A socket, written and read packet by packet."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread = b""

    def say(self, kind: str, **fields: Any) -> None:
        fields = {"properties": {}, **fields}
        self._socket.sendall(encode_packet(kind, fields, protocol_version=5))

    def hear(self) -> tuple[str, dict[str, Any]]:
        while True:
            packets, _ = decode_packets(self._unread, protocol_version=5, role="client")
            if packets:
                break
            self._unread += self._socket.recv(65_536)
        # One comes at a time: each is waited for.
        (packet,) = packets
        self._unread = b""
        return packet.kind, packet.fields

    def connect(self, client_identifier: str, expiry_s: int) -> None:
        self.say(
            "connect",
            client_identifier=client_identifier,
            clean_start=True,
            keep_alive_s=0,
            properties={"session_expiry_interval": expiry_s},
        )
        assert self.hear()[0] == "connack"

    def close(self) -> None:
        self._socket.close()


def test_what_is_acknowledged_while_the_next_message_comes_is_no_commit_of_its_own(
    tmp_path: Path,
) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    subscriber, publisher = Conversation(broker.port), Conversation(broker.port)
    try:
        subscriber.connect("persistent", 600)
        subscriber.say(
            "subscribe", packet_identifier=1, subscriptions=[{"topic_filter": "t", "qos": 1}]
        )
        assert subscriber.hear()[0] == "suback"
        publisher.connect("publisher", 0)
        before = commits(broker)
        for number in range(1, MESSAGES + 1):
            publisher.say(
                "publish",
                topic_name="t",
                payload=b"x",
                qos=1,
                retain=False,
                dup=False,
                packet_identifier=number,
            )
            assert publisher.hear()[0] == "puback"
            kind, fields = subscriber.hear()
            assert kind == "publish"
            # Its acknowledgement and the next message are in the broker's hands together.
            subscriber.say("puback", packet_identifier=fields["packet_identifier"], reason_code=0)
        # One for each message, and those of other things that the broker does in the meantime.
        assert commits(broker) - before < 1.25 * MESSAGES
    finally:
        subscriber.close()
        publisher.close()
        broker.stop()


def commits(broker: BrokerProcess) -> int:
    numbers = HttpClient.on(broker.data_directory).get("/v1/statistics")["statistics"]
    return int(numbers["holdfast_commits"])
