"""Passwords: hashed with Argon2id, checked away from the loop, recognised again without a hash.

Owns: the parameters of the hash, the checks on their way, the digests of passwords found right.
Never: keeps a password, or tells an unknown user from a wrong password by the time it takes.

Invariants:
1. At most PASSWORD_CHECKS_AT_ONCE checks run and PASSWORD_CHECKS_WAITING_MAXIMUM wait; logins with
   the same name and password share one.
2. A digest covers the user's name and the stored hash besides the password, under a key that this
   process made; so it is worth nothing once the credential has another hash, or elsewhere.

Flow: access -> remembered, or -> a worker of the world -> answer on the loop's thread.
"""

import hmac
from base64 import b64encode
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from holdfast.broker.world import World
from holdfast.core.limits import (
    PASSWORD_CHECKS_AT_ONCE,
    PASSWORD_CHECKS_WAITING_MAXIMUM,
    PASSWORDS_REMEMBERED_MAXIMUM,
)

MEMORY_KIB: Final = 19_456
"""With two passes and one lane the least that OWASP's guidance on storing passwords accepts. More
would be bought with logins per second."""
PASSES: Final = 2
SALT_BYTES: Final = 16
HASH_BYTES: Final = 32
_HASHER: Final = PasswordHasher(
    time_cost=PASSES,
    memory_cost=MEMORY_KIB,
    parallelism=1,
    hash_len=HASH_BYTES,
    salt_len=SALT_BYTES,
)

Answer = Callable[[bool], None]


def hash_password(password: bytes, entropy: Callable[[int], bytes]) -> str:
    """The hash to be stored, with its parameters and a new salt. Takes some tens of
    milliseconds."""
    return _HASHER.hash(password, salt=entropy(SALT_BYTES))


def verify_password(password_hash: str, password: bytes) -> bool:
    """True if the hash is that of the password. Takes some tens of milliseconds."""
    try:
        return _HASHER.verify(password_hash, password)
    except (VerificationError, InvalidHashError):
        return False


@dataclass(slots=True)
class _Check:
    user_name: str
    digest: bytes
    password_hash: str
    password: bytes
    answers: list[Answer] = field(default_factory=list)


class Passwords:
    """Checks passwords."""

    def __init__(self, world: World) -> None:
        self._entropy = world.entropy
        self._key = world.entropy(HASH_BYTES)
        self._no_hash = _hash_of_nothing(world.entropy)
        self._workers = world.workers(PASSWORD_CHECKS_AT_ONCE)
        self._checks: dict[bytes, _Check] = {}
        """By digest: running ones and those that wait."""
        self._waiting: deque[_Check] = deque()
        self._running = 0
        self._remembered: OrderedDict[str, bytes] = OrderedDict()

    def is_remembered(self, user_name: str, password_hash: str, password: bytes) -> bool:
        """True if this password was found right for this very hash before."""
        known = self._remembered.get(user_name)
        if known is None:
            return False
        return hmac.compare_digest(known, self._digest(user_name, password_hash, password))

    def check(
        self, user_name: str, password_hash: str | None, password: bytes, answer: Answer
    ) -> bool:
        """Checks a password and calls `answer` later, on the loop's thread; `None` takes as long
        as a hash and is wrong. False, and nothing happens, if too many wait."""
        stored = self._no_hash if password_hash is None else password_hash
        digest = self._digest(user_name, stored, password)
        check = self._checks.get(digest)
        if check is None:
            if len(self._waiting) >= PASSWORD_CHECKS_WAITING_MAXIMUM:
                return False
            check = self._checks[digest] = _Check(user_name, digest, stored, password)
            self._waiting.append(check)
            self._next()
        check.answers.append(answer)
        return True

    def make_hash(self, password: bytes, answer: Callable[[str], None]) -> None:
        """Hashes a new password and calls `answer` later, on the loop's thread."""
        self._workers.run(partial(hash_password, password, self._entropy), answer)

    def forget(self, user_name: str) -> None:
        """What is remembered of this user's password is of no use any more."""
        self._remembered.pop(user_name, None)

    def close(self) -> None:
        """Checks nothing more."""
        self._waiting.clear()
        self._workers.stop()

    def _next(self) -> None:
        while self._waiting and self._running < PASSWORD_CHECKS_AT_ONCE:
            check = self._waiting.popleft()
            self._running += 1
            work = partial(verify_password, check.password_hash, check.password)
            self._workers.run(work, partial(self._checked, check))

    def _checked(self, check: _Check, is_right: bool) -> None:
        self._running -= 1
        del self._checks[check.digest]
        if is_right:
            self._remember(check.user_name, check.digest)
        self._next()
        for answer in check.answers:
            answer(is_right)

    def _remember(self, user_name: str, digest: bytes) -> None:
        self._remembered[user_name] = digest
        self._remembered.move_to_end(user_name)
        if len(self._remembered) > PASSWORDS_REMEMBERED_MAXIMUM:
            self._remembered.popitem(last=False)

    def _digest(self, user_name: str, password_hash: str, password: bytes) -> bytes:
        state = blake2b(key=self._key, digest_size=HASH_BYTES)
        for part in (user_name.encode(), password_hash.encode(), password):
            state.update(len(part).to_bytes(8, "little") + part)
        return state.digest()


def _hash_of_nothing(entropy: Callable[[int], bytes]) -> str:
    """A hash that costs as much to check as any other and that no password has: nobody computed its
    digest."""
    salt, digest = (
        b64encode(entropy(count)).rstrip(b"=").decode() for count in (SALT_BYTES, HASH_BYTES)
    )
    return f"$argon2id$v=19$m={MEMORY_KIB},t={PASSES},p=1${salt}${digest}"
