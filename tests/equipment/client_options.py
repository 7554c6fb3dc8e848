"""How a client for tests behaves, as one value."""

from dataclasses import dataclass

from holdfast.client import mqtt


@dataclass(frozen=True, slots=True)
class ClientOptions(mqtt.ClientOptions):
    """How a client behaves that has habits."""

    answer_after_s: float = 0.0
    """Mean time before an acknowledgement leaves; zero answers at once."""
    answers_share: float = 1.0
    """The part of the PUBLISH packets that it answers; of the others it says nothing."""
