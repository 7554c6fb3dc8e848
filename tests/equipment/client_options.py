"""How a client for tests behaves, as one value."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How a client behaves."""

    protocol_version: int = 5
    clean_start: bool = False
    session_expiry_interval_s: int = 86_400
    keep_alive_s: int = 30
    receive_maximum: int = 20
    answer_after_s: float = 0.0
    """Mean time before an acknowledgement leaves; zero answers at once."""
    in_flight_maximum: int = 20
    """What it has in flight itself, within the broker's Receive Maximum."""
    topic_alias_maximum: int = 0
    packet_bytes_maximum: int = 0
    """Its Maximum Packet Size; 0: it has none."""
    answers_share: float = 1.0
    """The part of the PUBLISH packets that it answers; of the others it says nothing."""
