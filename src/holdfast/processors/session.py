"""The session of a processor at its broker: kept over any number of connections.

Owns: when it connects, what it subscribes to, and what it says about the broker. Never: knows what
becomes of messages; whoever made it is handed them and says when they are done with.

Invariants:
1. One connection at a time, and after each end of one a pause before the next.
2. Whoever loses the session to another connection does not take it back (S3.28).
3. No password is logged or shown.

Flow: broker -> here -> gathering; work -> here -> broker.
"""

# ruff: noqa: D102 (what the client tells is described there)

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from ssl import SSLContext, SSLError, create_default_context
from typing import Any, Final, Protocol

from holdfast.client.consumer import Arrival, Consumer
from holdfast.client.mqtt import ClientOptions, ConnectionFailedError, Publication
from holdfast.core.errors import OperatingError
from holdfast.processors.settings import ProcessorSettings
from holdfast.protocols.mqtt.reason_code import ReasonCode, reason_name

log = logging.getLogger(__name__)

JITTER: Final = 0.2
"""By which part a pause may be longer or shorter, so that many do not come back at one moment."""
REFUSED_PAUSE_MAXIMUM_S: Final = 300.0
"""Wrong credentials are not right a moment later; the pause doubles up to this."""
SHORT_LIVES: Final = 3
"""Connections in a row that ended without a word as soon as another client's pause was over: so it
looks where a broker does not say that the session was taken over."""
KEEP_ALIVE_S: Final = 30
FAILED: Final = 0x80
IDENTITY_WISH: Final = ("holdfast-identity", "on")
"""Asks for an identity with each delivery."""
IDENTITY_PROPERTY: Final = "holdfast-id"
ENVIRONMENT_PROPERTY: Final = "holdfast-environment"
"""Of CONNECT: says to a broker that knows environments which one this is of."""


class ProcessorEndedError(OperatingError):
    """A processor cannot go on; somebody has to act."""

    retriable = False


class SessionTakenOverError(ProcessorEndedError):
    """Another live client has the same client identifier (S3.28)."""


class BrokerLostError(ProcessorEndedError):
    """The connection has ended, and `AutoReconnect` is false."""


class Watcher(Protocol):
    """Who is told what happens to a session."""

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Messages came."""

    def reconnected(self) -> None:
        """A connection was made again."""

    def session_lost(self) -> None:
        """The broker had nothing of the session that was there before."""


@dataclass(frozen=True, slots=True)
class Letter(Publication):
    """What is published at QoS 1, with whom to tell how it went."""

    done: Callable[[int], None] = lambda _reason_code: None


class Session(Consumer):
    """One processor's client identifier."""

    def __init__(self, settings: ProcessorSettings, watcher: Watcher, random: Random) -> None:
        super().__init__(settings.client_identifier, options_of(settings))
        self.settings = settings
        self.is_ready = False
        """It is subscribed to all that it wants."""
        self.identity_is_given: bool | None = None
        """None until the first message came."""
        self._watcher = watcher
        self._random = random
        self._was_connected = False
        self._is_present = False
        self._properties: Mapping[str, Any] = {}
        self._dismissed_with: int | None = None
        self._refusals = 0
        self._short_lives = 0

    # --- connecting -----------------------------------------------------------------------------

    async def keep(self) -> None:
        """Connects, subscribes, and does so again whenever a connection has ended. Raises
        `ProcessorEndedError` where it is not to."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self._begin()
                began_s = loop.time()
                await self.lost.wait()
                self._note_end(loop.time() - began_s)
            except ConnectionFailedError as error:
                self._note_failure(error)
            finally:
                self.is_ready = False
            if not self.settings.auto_reconnect:
                raise BrokerLostError("the connection has ended, and AutoReconnect is false")
            await asyncio.sleep(self._pause_s())

    def give_up(self) -> None:
        """Ends the connection; what is not acknowledged is the broker's again."""
        self.is_ready = False
        self.disconnect()

    async def _begin(self) -> None:
        settings = self.settings
        log.info(
            "Connecting to MQTT broker: %s:%d (Environment: %s, ClientId: %s, CleanStart: %s, "
            "SessionExpiry: %ds)",
            settings.broker_host,
            settings.broker_port,
            settings.environment,
            settings.client_identifier,
            settings.clean_start,
            settings.session_expiry_interval_s,
        )
        self._dismissed_with = None
        present = await self.connect(settings.broker_host, settings.broker_port)
        if self._was_connected:
            self._watcher.reconnected()
        self._note_session(present)
        if not (present and self._was_connected):
            self._note_lacks()
            await self._subscribe()
        self._was_connected = True
        self._refusals = 0
        self.is_ready = True

    async def _subscribe(self) -> None:
        settings = self.settings
        if not settings.topic_filters:
            raise ProcessorEndedError(f"{settings.name} has no topics to subscribe to")
        group = settings.group or "none"
        for topic_filter in settings.topic_filters:
            log.info("Subscribing to topic: %s (shared group: %s)", topic_filter, group)
        wish = {"user_property": [IDENTITY_WISH]}
        codes = await self.subscribe_all(settings.topic_filters, settings.qos, wish)
        refused = [
            f"{topic_filter}: {reason_name(code)}"
            for topic_filter, code in zip(settings.topic_filters, codes, strict=True)
            if code >= FAILED
        ]
        if refused:
            self._refusals += 1
            self.disconnect()
            raise ConnectionFailedError(f"the broker refuses to subscribe {', '.join(refused)}")
        if min(codes) < settings.qos:
            self._say_lack(f"it gives QoS {min(codes)}", "a message may come more than once")

    def _pause_s(self) -> float:
        pause_s = self.settings.reconnect_delay_s
        if self._refusals:
            longest_s = max(pause_s, REFUSED_PAUSE_MAXIMUM_S)
            pause_s = min(longest_s, max(pause_s, 1.0) * 2 ** min(self._refusals, 16))
        return pause_s * self._random.uniform(1 - JITTER, 1 + JITTER)

    # --- what it says ---------------------------------------------------------------------------

    def _note_session(self, present: bool) -> None:
        if present or self.settings.clean_start:
            return
        if self._was_connected:
            self._watcher.session_lost()
            log.warning("the broker has lost the session: subscribing again", extra=self._fields())
        else:
            log.info("the broker has no session yet, or it has expired", extra=self._fields())

    def _note_lacks(self) -> None:
        granted, settings = self.granted, self.settings
        if granted is None:
            return
        if granted.maximum_qos < settings.qos:
            self._say_lack(f"it knows QoS {granted.maximum_qos} at most", "messages may come again")
        expiry_s = granted.session_expiry_s
        if expiry_s is not None and expiry_s < settings.session_expiry_interval_s:
            self._say_lack(f"it keeps a session {expiry_s} s only", "then what waits is gone")
        if settings.group and self._properties.get("shared_subscription_available", 1) == 0:
            self._say_lack("it has no shared subscriptions", "no group can be joined")

    def _say_lack(self, what: str, follows: str) -> None:
        log.warning("the broker lacks something: %s; %s", what, follows, extra=self._fields())

    def _note_end(self, lived_s: float) -> None:
        self._refuse_to_fight()
        reason_code = self._dismissed_with
        why = "without a word" if reason_code is None else reason_name(reason_code)
        log.warning("the connection has ended: %s", why, extra=self._fields())
        is_short = reason_code is None and lived_s < 2 * self.settings.reconnect_delay_s
        self._short_lives = self._short_lives + 1 if is_short else 0
        if self._short_lives == SHORT_LIVES:
            log.error(
                "connections end as soon as they are made: perhaps another client has the ClientId "
                "%s too",
                self.settings.client_identifier,
                extra=self._fields(),
            )

    def _note_failure(self, error: ConnectionFailedError) -> None:
        self._refuse_to_fight()
        if error.refused is not None and error.refused.lasts:
            self._refusals += 1
        log.warning("no connection: %s", error, extra=self._fields())

    def _refuse_to_fight(self) -> None:
        if self._dismissed_with == ReasonCode.SESSION_TAKEN_OVER:
            log.error(
                "another client has taken over the session: ClientId %s is used twice; this one "
                "ends and does not fight for it",
                self.settings.client_identifier,
                extra=self._fields(),
            )
            raise SessionTakenOverError(
                f"another client has taken over the session of {self.settings.client_identifier}; "
                "give each instance an InstanceId of its own"
            )

    def _fields(self, **more: Any) -> dict[str, Any]:
        return {"fields": {"processor": self.settings.name, **more}}

    # --- what the client tells ------------------------------------------------------------------

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        if self.identity_is_given is None:
            pairs = arrivals[0].properties.get("user_property", ())
            self.identity_is_given = identity_among(pairs) is not None
            if not self.identity_is_given:
                self._say_lack(
                    "it gives no identity with a message",
                    "rows are told apart by what the processor finds in the payload",
                )
        self._watcher.arrived(arrivals)

    def opened(self, session_present: bool, properties: Mapping[str, Any]) -> None:
        del session_present
        self._properties = properties

    def dismissed(self, reason_code: int) -> None:
        self._dismissed_with = reason_code

    def broken(self, what: str) -> None:
        log.error("the broker broke the protocol", extra=self._fields(what=what))
        self.drop()

    def acknowledged(self, publication: Publication) -> None:
        if isinstance(publication, Letter):
            publication.done(ReasonCode.SUCCESS)

    def refused(self, publication: Publication, reason_code: int) -> None:
        if isinstance(publication, Letter):
            publication.done(reason_code)


def identity_among(user_properties: Iterable[tuple[str, str]]) -> str | None:
    """What the broker calls a message, if it does."""
    for name, value in user_properties:
        if name == IDENTITY_PROPERTY:
            return value
    return None


def options_of(settings: ProcessorSettings) -> ClientOptions:
    """How a client of these settings behaves."""
    return ClientOptions(
        clean_start=settings.clean_start,
        session_expiry_interval_s=settings.session_expiry_interval_s,
        keep_alive_s=KEEP_ALIVE_S,
        receive_maximum=settings.receive_maximum,
        user_name=settings.user_name,
        password=None if settings.password is None else settings.password.encode(),
        tls=tls_of(settings),
        user_properties=((ENVIRONMENT_PROPERTY, settings.environment),),
    )


def tls_of(settings: ProcessorSettings) -> SSLContext | None:
    """How the broker's certificate is checked. Raises `ProcessorEndedError` for a file that does
    not serve."""
    if not settings.tls:
        return None
    try:
        context = create_default_context(cafile=settings.tls_authority)
        if settings.tls_certificate is not None:
            context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    except (OSError, SSLError) as error:
        names = (settings.tls_authority, settings.tls_certificate, settings.tls_key)
        files = ", ".join(str(Path(name)) for name in names if name)
        raise ProcessorEndedError(f"TLS cannot use {files}: {error}") from error
    return context
