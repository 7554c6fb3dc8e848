"""Which message a remote cannot take, where it ends the connection instead of saying so.

Owns: the rule. Never: asks for time, or sends, holds or loses anything; whoever connects tells how
each connection ended, and does what is said.

A remote that ends one connection after another and answers nothing may be at odds with a message,
or be ill itself. What tells them apart is what happens when that message has a connection to
itself, on which all was well until it was sent.

Invariants:
1. Messages get connections to themselves after FRUITLESS_MAXIMUM on which messages were sent, of
   which none was answered, and which the remote ended.
2. A message is refused after TRIES connections in a row that it had to itself: each was accepted
   and stood for QUIET_S before it was sent, and was ended by the remote within SOON_S.
3. Whatever the remote answers ends all suspicion.
"""

from dataclasses import dataclass
from typing import Final

from holdfast.protocols.mqtt.reason_code import ReasonCode

FRUITLESS_MAXIMUM: Final = 3
TRIES: Final = 3
"""A remote or a network that fails at any moment would have to do so this often within SOON_S, and
never in the QUIET_S before, in attempts that are ever further apart."""
QUIET_S: Final = 3
SOON_S: Final = 5
"""Who cannot take a message says so at once; this leaves time for a slow line. With QUIET_S it is
less than a connection has to last to be a success (`backoff.LASTING_S`)."""

OF_NO_MESSAGE: Final = frozenset(
    {
        ReasonCode.SERVER_BUSY,
        ReasonCode.SERVER_SHUTTING_DOWN,
        ReasonCode.KEEP_ALIVE_TIMEOUT,
        ReasonCode.SESSION_TAKEN_OVER,
        ReasonCode.MESSAGE_RATE_TOO_HIGH,
        ReasonCode.ADMINISTRATIVE_ACTION,
        ReasonCode.USE_ANOTHER_SERVER,
        ReasonCode.SERVER_MOVED,
        ReasonCode.CONNECTION_RATE_EXCEEDED,
        ReasonCode.MAXIMUM_CONNECT_TIME,
    }
)
"""A remote that ends a connection for one of these has nothing against what was sent on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """How a connection ended that the remote had accepted."""

    by_remote: bool
    """The remote ended it, and for none of the reasons that are of no message."""
    is_answered: bool
    """The remote had acknowledged or refused a message on it."""
    sent: int
    """Messages that were sent on it."""
    unanswered: dict[int, float]
    """Offsets of those of QoS 1 and 2 that were not answered, and for how many seconds."""


class Suspicion:
    """What is known of the remote of one bridge."""

    def __init__(self) -> None:
        self.refused = 0
        """Messages that it was found not to take, since it last answered one."""
        self._fruitless = 0
        self._suspect: int | None = None
        self._tries = 0

    @property
    def is_raised(self) -> bool:
        """The next connection is for one message alone."""
        return self._fruitless >= FRUITLESS_MAXIMUM

    def ended(self, parting: Parting) -> int | None:
        """The offset of the message that the remote cannot take, once that is proven."""
        if parting.is_answered:
            self.dispel()
        elif self.is_raised:
            return self._judge(parting)
        elif parting.by_remote and parting.unanswered:
            self._fruitless += 1
        return None

    def dispel(self) -> None:
        """The remote has answered, or there is nothing to try it with."""
        self.refused = self._fruitless = self._tries = 0
        self._suspect = None

    def _judge(self, parting: Parting) -> int | None:
        suspect = None
        if parting.by_remote and parting.sent == len(parting.unanswered) == 1:
            ((offset, after_s),) = parting.unanswered.items()
            suspect = offset if after_s <= SOON_S else None
        if suspect is None or suspect != self._suspect:
            self._suspect, self._tries = suspect, 0
        self._tries += suspect is not None
        if self._tries < TRIES:
            return None
        self._suspect, self._tries = None, 0
        self.refused += 1
        return suspect
