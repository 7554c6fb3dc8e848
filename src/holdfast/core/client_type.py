"""What a client is: one of a fleet of devices, or a service."""

from typing import Final, Literal

ClientType = Literal["DEVICE", "APPLICATION"]
"""What a client is: a DEVICE, of which there are many and each gets little; or an APPLICATION, a
service that takes high-rate streams and has a queue with a name of its own."""
CLIENT_TYPES: Final = ("DEVICE", "APPLICATION")
