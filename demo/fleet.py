"""A fleet of RFID readers: ordinary MQTT clients that report tag reads, as an FX9600 does.

Reader `i` uses QoS 1 or 2 and MQTT 5 or 3.1.1 in turn. Some reports are sent twice, some are late,
some are malformed. A message counts as acknowledged at PUBACK (QoS 1) or PUBCOMP (QoS 2). What a
reader has not been told is stored, its own client sends again after a reconnect.
"""

import json
import random
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

TAGS_PER_READER = 40
REPEATED, LATE, MALFORMED = 0.02, 0.02, 0.01
SESSION_EXPIRY_S = 3600
AGAIN_AFTER_S = 3
"""Time enough for a broker to start: this client publishes anew, and not as a repetition, what it
had already released if its first attempt to connect again fails."""


def client(identifier: str, protocol: int) -> mqtt.Client:
    """A client whose session outlives its connections, and which comes back by itself."""
    kept = {"clean_session": False} if protocol == mqtt.MQTTv311 else {}
    made = mqtt.Client(
        mqtt.CallbackAPIVersion.VERSION2, client_id=identifier, protocol=protocol, **kept
    )
    made.reconnect_delay_set(min_delay=AGAIN_AFTER_S, max_delay=AGAIN_AFTER_S)
    return made


def connect(made: mqtt.Client, port: int) -> None:
    """Connects and starts the client's own thread."""
    if made.protocol == mqtt.MQTTv5:
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = SESSION_EXPIRY_S
        made.connect("127.0.0.1", port, clean_start=False, properties=properties)
    else:
        made.connect("127.0.0.1", port)
    made.loop_start()


@dataclass
class Ledger:
    """What the fleet knows of its own messages, by payload: a report that is sent twice counts
    twice."""

    sent: Counter[bytes] = field(default_factory=Counter)
    acknowledged: Counter[bytes] = field(default_factory=Counter)
    qos: dict[bytes, int] = field(default_factory=dict)
    acknowledged_at: list[float] = field(default_factory=list)
    refused: int = 0


class Reader:
    """One reader, its client, and what of its reports is not acknowledged yet."""

    def __init__(self, number: int, ledger: Ledger, seed: int) -> None:
        self.host = f"FX9600-{number:02}"
        self.topic = f"zebra/fx/{number}/reads"
        self.qos = 1 + number % 2
        protocol = mqtt.MQTTv5 if number // 2 % 2 else mqtt.MQTTv311
        self._client = client(self.host, protocol)
        self._client.max_queued_messages_set(0)
        self._client.on_publish = self._on_publish
        self._ledger = ledger
        self._random = random.Random(seed * 1000 + number)
        self._numbers = count(1)
        self._waiting: dict[int, bytes] = {}
        self._answered: deque[int] = deque()

    def connect(self, port: int) -> None:
        """Connects; from then on the client keeps itself connected."""
        connect(self._client, port)

    def report(self) -> None:
        """Sends one report, or two that are the same."""
        payload = self._payload(next(self._numbers))
        self._publish(payload)
        if self._random.random() < REPEATED:
            self._publish(payload)

    def collect(self) -> int:
        """Books what has been acknowledged; returns how many messages still wait."""
        while self._answered:
            payload = self._waiting.pop(self._answered.popleft())
            self._ledger.acknowledged[payload] += 1
            self._ledger.acknowledged_at.append(time.monotonic())
        return len(self._waiting)

    def stop(self) -> None:
        """Ends the client's thread."""
        self._client.disconnect()
        self._client.loop_stop()

    def _publish(self, payload: bytes) -> None:
        self._ledger.sent[payload] += 1
        self._ledger.qos[payload] = self.qos
        self._waiting[self._client.publish(self.topic, payload, qos=self.qos).mid] = payload

    def _on_publish(
        self, _client: mqtt.Client, _userdata: Any, mid: int, reason: Any, _properties: Any
    ) -> None:
        # On the client's thread, under its locks: only noted here, booked by `collect`.
        if reason.is_failure:
            self._ledger.refused += 1
        else:
            self._answered.append(mid)

    def _payload(self, event: int) -> bytes:
        chance = self._random.random()
        moment = datetime.now(UTC)
        if chance < LATE:
            moment -= timedelta(minutes=self._random.randint(5, 60))
        tag = self._random.randrange(TAGS_PER_READER)
        report: dict[str, Any] = {
            "type": "SIMPLE",
            "timestamp": moment.strftime("%Y-%m-%dT%H:%M:%S.")
            + f"{moment.microsecond // 1000:03}+0000",
            "data": {
                "eventNum": event,
                "format": "epc",
                "idHex": f"e28011602000{tag:04x}{self.host.encode().hex()[-8:]}",
                "antenna": self._random.randint(1, 4),
                "peakRssi": self._random.randint(-75, -35),
                "reads": self._random.randint(1, 9),
                "hostName": self.host,
            },
        }
        if chance > 1 - MALFORMED:
            return self._malformed(report)
        return json.dumps(report).encode()

    def _malformed(self, report: dict[str, Any]) -> bytes:
        """Different each time, since the event number is still in it."""
        kind = self._random.randrange(4)
        if kind == 0:
            return json.dumps(report).encode()[:-10]
        if kind == 1:
            report["data"]["idHex"] = "no tag"
        elif kind == 2:
            report["timestamp"] = "yesterday"
        else:
            report["data"]["antenna"] = {"port": 1}
        return json.dumps(report).encode()


class Fleet:
    """All readers, paced together."""

    def __init__(self, readers: int, seed: int) -> None:
        self.ledger = Ledger()
        self.readers = [Reader(number, self.ledger, seed) for number in range(readers)]

    def connect(self, port: int) -> None:
        """Connects all of them."""
        for reader in self.readers:
            reader.connect(port)

    def report_for(self, seconds: float, reports_per_second: float) -> None:
        """Reports at an even pace. The broker may be away meanwhile: then the clients keep what
        they have."""
        began, done = time.monotonic(), 0
        while (passed := time.monotonic() - began) < seconds:
            while done < passed * reports_per_second:
                self.readers[done % len(self.readers)].report()
                done += 1
            self.collect()
            time.sleep(0.02)

    def collect(self) -> int:
        """Books what has been acknowledged; returns how many messages still wait."""
        return sum(reader.collect() for reader in self.readers)

    def stop(self) -> None:
        """Ends all of them."""
        for reader in self.readers:
            reader.stop()
