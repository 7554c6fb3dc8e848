"""Who may connect, and what each may do.

Owns: the decision about a login, and what follows from an identity. Never: closes a connection or
tells the kernel; who watches does.

Invariants:
1. As soon as one credential or rule is there, what no rule allows is denied. A broker without
   either is open if it listens on loopback alone or `anonymous` is set; elsewhere it lets nobody
   in, so that removing the last user does not open it.
2. A login that fails costs an unknown user as much time as a known one.
3. What has changed is in force for every login from then on, and whoever watches is told at once.

Flow: admission -> authenticate -> Identity or Denial -> permissions.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Final, get_args

from holdfast.broker.access import rules
from holdfast.broker.access.book import Book
from holdfast.broker.access.client_types import ClientTypes
from holdfast.broker.access.credential import (
    ANONYMOUS,
    EVERYONE,
    Credential,
    Rule,
    matches_pattern,
)
from holdfast.broker.access.denial_reason import DenialReason
from holdfast.broker.access.login_failures import LoginFailures
from holdfast.broker.access.login_outcome import LoginOutcome
from holdfast.broker.access.passwords import Passwords
from holdfast.broker.counts import Counts, Event
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.world import World
from holdfast.core.client_type import ClientType
from holdfast.core.config import Config, is_loopback
from holdfast.core.errors import BrokerBusyError
from holdfast.core.share_name import is_shared, parse_shared

log = logging.getLogger(__name__)

SEAL_BYTES: Final = 16
"""What an identity remembers of its credential's proof: enough to see that it has changed."""


_NOT_LOOKED_AT: Final = {
    DenialReason.BANNED: LoginOutcome.NOT_LOOKED_AT_BANNED,
    DenialReason.BUSY: LoginOutcome.NOT_LOOKED_AT_BUSY,
}


@dataclass(slots=True, kw_only=True)
class Login:
    """Whoever asks to be let in."""

    client_identifier: str
    user_name: str | None
    password: bytes | None
    peer: str
    certificate_name: str | None = None

    def __repr__(self) -> str:
        return f"Login({self.client_identifier!r}, {self.peer!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a connection belongs to."""

    user_name: str | None
    """`None`: a client without a credential."""
    administrator: bool = False
    reader: bool = False
    messages_per_second: int | None = None
    """How many messages it may send; `None`: as many as is configured."""
    bytes_per_second: int | None = None
    """How many bytes it may send; `None`: as many as is configured."""
    seal: bytes = b""
    client_type: ClientType = "DEVICE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """A login is refused."""

    reason: DenialReason
    slowly: bool = False
    """True: it is told after `access.login_delay_s`, so that guessing takes time."""
    user_name: str | None = field(default=None, compare=False)
    """For the log: whose name it came under; `None` if that is nobody's."""


NOBODY: Final[Mapping[ClientType, Identity]] = {
    client_type: Identity(user_name=None, client_type=client_type)
    for client_type in get_args(ClientType)
}
"""Clients without a credential: one identity is as good as another."""

NOT_LOOKED_AT: Final[Mapping[DenialReason, str]] = {
    DenialReason.BUSY: "more passwords wait to be checked than are taken; ask again in a moment",
    DenialReason.BANNED: "too many logins from this address have failed; ask again later",
}
"""Who reads the log goes on with the same password once it is."""

Later = Callable[[Identity | Denial], None]


class Access:
    """Decides about logins and says what identities may do."""

    def __init__(
        self, config: Config, world: World, records: ControlRecords, counts: Counts
    ) -> None:
        self.book = Book(records)
        self.passwords = Passwords(world)
        self.watchers: list[Callable[[str | None], None]] = []
        """Called with the name of a user when something about it has changed, and with `None` when
        it concerns everybody."""
        self._failures = LoginFailures(config)
        self._client_types = ClientTypes(config)
        self._anonymous = config.anonymous
        self._is_open = config.anonymous or is_loopback(config.host)
        self._now_us = world.now_us
        self._counts = counts

    @property
    def required(self) -> bool:
        """True if credentials are configured."""
        return self.book.credentials > 0

    @property
    def restricts(self) -> bool:
        """True if somebody may be denied something."""
        return self.book.credentials > 0 or self.book.owners > 0

    def reconfigure(self, config: Config) -> None:
        """Other limits of failed logins hold from now on, and other rules of client types."""
        self._failures.reconfigure(config)
        self._client_types = ClientTypes(config)

    def unasked(self, client_identifier: str, user_name: str | None) -> Identity | None:
        """Who this is, where nobody is asked for a credential; `None` where everybody is."""
        if not self._is_open or self.required:
            return None
        return self._nobody(client_identifier, user_name)

    def authenticate(self, login: Login, later: Later) -> Identity | Denial | None:
        """The decision. `None`: the password has to be checked first, and `later` is called with
        the decision, on the loop's thread."""
        name = login.user_name
        unasked = self.unasked(login.client_identifier, name)
        if unasked is not None:
            return unasked
        if name is not None:
            return self._by_name(name, login, later)
        if login.password is not None:
            # MQTT 5 lets a password stand alone [MQTT 5 section 3.1.2.9]; no credential is one.
            return self._failed(None, login.peer)
        return self._without_name(login)

    async def identify(self, user_name: str, password: str, peer: str) -> Identity | None:
        """Who administers or reads with this password; `None`: nobody. Fails like any login
        does. Raises `BrokerBusyError` if it is not looked at now, and may be right."""
        login = Login(
            client_identifier="", user_name=user_name, password=password.encode(), peer=peer
        )
        decided: asyncio.Future[Identity | Denial] = asyncio.get_running_loop().create_future()

        def decide(decision: Identity | Denial) -> None:
            # Whoever asked may have gone.
            if not decided.done():
                decided.set_result(decision)

        decision = self._by_name(user_name, login, decide) or await decided
        if isinstance(decision, Identity):
            return decision
        if decision.reason in NOT_LOOKED_AT:
            raise BrokerBusyError(NOT_LOOKED_AT[decision.reason])
        return None

    def is_known(self, user_name: str) -> bool:
        """True if there is a credential of this name."""
        return self.book.credential(user_name) is not None

    def renewed(self, identity: Identity, client_identifier: str) -> Identity | None:
        """The identity as it is now; `None` if whoever has it would have to log in again."""
        if identity.user_name is None:
            is_open = self._anonymous if self.required else self._is_open
            return identity if is_open else None
        credential = self.book.credential(identity.user_name)
        if credential is None or not _may_use(credential, client_identifier):
            return None
        now = _identity(credential)
        return now if now.seal == identity.seal else None

    def publish_grant(self, identity: Identity, client_identifier: str) -> rules.Grant | None:
        """What it may publish to; `None` allows everything."""
        return self._grant(identity, client_identifier, rules.PUBLISH)

    def receive_grant(self, identity: Identity, client_identifier: str) -> rules.Grant | None:
        """What it may receive; `None` allows everything."""
        return self._grant(identity, client_identifier, rules.RECEIVE)

    def may_publish(self, identity: Identity, client_identifier: str, topic_name: str) -> bool:
        """True if it may publish to this topic."""
        return rules.allows_topic(self.publish_grant(identity, client_identifier), topic_name)

    def may_receive(self, identity: Identity, client_identifier: str, topic_name: str) -> bool:
        """True if it may receive from this topic."""
        return rules.allows_topic(self.receive_grant(identity, client_identifier), topic_name)

    def may_subscribe(self, identity: Identity, client_identifier: str) -> Callable[[str], bool]:
        """What says of each filter, shared or not, whether it may subscribe to that now: a
        SUBSCRIBE may have thousands, for which rules are gone through once."""
        subscribe = self._grant(identity, client_identifier, rules.SUBSCRIBE)
        if subscribe is None:
            return _anything
        receive = self.receive_grant(identity, client_identifier)
        return partial(_allows_subscription, subscribe, receive)

    def put(self, credential: Credential, now_us: int) -> int:
        """Adds or replaces a credential; returns the log position at which that is durable."""
        before = self._presence()
        position = self.book.put(credential, now_us)
        self._changed(credential.name, before)
        return position

    def remove(self, name: str, now_us: int) -> int:
        """Removes a credential with its rules; returns as `put` does."""
        before = self._presence()
        position = self.book.remove(name, now_us)
        self._changed(name, before)
        return position

    def put_rules(self, owner: str, rules: tuple[Rule, ...], now_us: int) -> int:
        """Replaces the rules of a user, of `everyone` or of `anonymous`; returns as `put` does."""
        before = self._presence()
        position = self.book.put_rules(owner, rules, now_us)
        self._changed(owner, before)
        return position

    def close(self) -> None:
        """Decides nothing more."""
        self.passwords.close()

    def _presence(self) -> tuple[bool, bool]:
        return self.book.credentials > 0, self.book.owners > 0

    def _changed(self, owner: str, before: tuple[bool, bool]) -> None:
        self.passwords.forget(owner)
        # The first credential or rule concerns everybody, and so does the end of the last.
        everybody = owner in (EVERYONE, ANONYMOUS) or before != self._presence()
        for watch in self.watchers:
            watch(None if everybody else owner)

    def _nobody(self, client_identifier: str, user_name: str | None) -> Identity:
        return NOBODY[self._client_types.of(client_identifier, user_name)]

    def _without_name(self, login: Login) -> Identity | Denial:
        if login.certificate_name is not None:
            credential = self.book.credential(login.certificate_name)
            if credential is not None and credential.proof == "certificate":
                return self._let_in(credential, login)
        for credential in self.book.by_identifier.values():
            if _may_use(credential, login.client_identifier):
                return self._let_in(credential, login)
        if self._anonymous:
            return self._nobody(login.client_identifier, login.user_name)
        self._counts.add(Event.LOGINS, LoginOutcome.WITHOUT_CREDENTIAL)
        return Denial(reason=DenialReason.NOT_AUTHORIZED)

    def _by_name(self, name: str, login: Login, later: Later) -> Identity | Denial | None:
        credential = self.book.credential(name)
        if credential is not None:
            shown = credential.proof == "certificate" and login.certificate_name == name
            if shown or credential.proof == "identifier":
                return self._let_in(credential, login)
        if login.password is None:
            return self._failed(credential, login.peer)
        return self._by_password(credential, name, login, login.password, later)

    def _by_password(
        self,
        credential: Credential | None,
        name: str,
        login: Login,
        password: bytes,
        later: Later,
    ) -> Identity | Denial | None:
        stored = None if credential is None else credential.password_hash
        if (
            credential is not None
            and stored is not None
            and self.passwords.is_remembered(name, stored, password)
        ):
            # Before any look at failures: who knows the password is let in beside whoever guesses.
            self._counts.add(Event.LOGINS, LoginOutcome.REMEMBERED)
            return self._let_in(credential, login)
        reason = self._failures.refusal(name, login.peer, self._now_us())
        if reason is not None:
            self._counts.add(Event.LOGINS, _NOT_LOOKED_AT[reason])
            return Denial(reason=reason)

        def checked(is_right: bool) -> None:
            now = self.book.credential(name)
            if is_right and now is not None and now.password_hash == stored:
                self._failures.succeeded(name)
                later(self._let_in(now, login))
            else:
                later(self._failed(now, login.peer))

        if not self.passwords.check(name, stored, password, checked):
            self._counts.add(Event.LOGINS, LoginOutcome.NOT_LOOKED_AT_TOO_MANY)
            return Denial(reason=DenialReason.BUSY)
        return None

    def _let_in(self, credential: Credential, login: Login) -> Identity | Denial:
        if not credential.enabled:
            self._counts.add(Event.LOGINS, LoginOutcome.DISABLED)
            return Denial(reason=DenialReason.NOT_AUTHORIZED, user_name=credential.name)
        # The administration has no client identifier.
        if login.client_identifier and not _may_use(credential, login.client_identifier):
            self._counts.add(Event.LOGINS, LoginOutcome.WITH_ANOTHER_IDENTIFIER)
            return Denial(reason=DenialReason.NOT_AUTHORIZED, user_name=credential.name)
        return _identity(credential)

    def _failed(self, credential: Credential | None, peer: str) -> Denial:
        self._counts.add(Event.LOGINS, LoginOutcome.FAILED)
        # A name that is no user's may be a password in the wrong place.
        known = None if credential is None else credential.name
        fields = {"user": known or "(unknown)", "peer": peer}
        log.warning("login failed", extra={"fields": fields})
        if self._failures.failed(known, peer, self._now_us()):
            self._counts.add(Event.ADDRESSES_BANNED)
            log.warning("address banned for a while", extra={"fields": {"peer": peer}})
        return Denial(reason=DenialReason.WRONG_CREDENTIALS, slowly=True, user_name=known)

    def _grant(
        self, identity: Identity, client_identifier: str, actions: frozenset[str]
    ) -> rules.Grant | None:
        if not self.restricts:
            return None
        if identity.user_name is None and self.book.owners == 0:
            # The word that anonymous clients are wanted, and no word about what they may do.
            return None
        owner = ANONYMOUS if identity.user_name is None else identity.user_name
        return rules.compile_grant(
            (*self.book.rules(owner), *self.book.rules(EVERYONE)),
            actions,
            client_identifier=client_identifier,
            user_name=identity.user_name,
        )


def _anything(_topic_filter: str) -> bool:
    """Where nothing is restricted."""
    return True


def _allows_subscription(
    subscribe: rules.Grant | None, receive: rules.Grant | None, topic_filter: str
) -> bool:
    if not is_shared(topic_filter):
        return rules.allows_filter(subscribe, topic_filter)
    shared = parse_shared(topic_filter)
    if shared is None:
        return False
    # What a group has is given to any of its members, so each must be allowed all of it.
    return all(rules.allows_filter(item, shared.topic_filter) for item in (subscribe, receive))


def _may_use(credential: Credential, client_identifier: str) -> bool:
    pattern = credential.client_identifiers
    if not credential.enabled:
        return False
    return pattern is None or matches_pattern(pattern, credential.name, client_identifier)


def _identity(credential: Credential) -> Identity:
    proof = f"{credential.proof} {credential.password_hash}".encode()
    return Identity(
        user_name=credential.name,
        administrator=credential.administrator,
        reader=credential.reader,
        messages_per_second=credential.messages_per_second,
        bytes_per_second=credential.bytes_per_second,
        seal=blake2b(proof, digest_size=SEAL_BYTES).digest(),
        client_type=credential.client_type,
    )
