"""A writer's questions to the broker: keep this part, commit this batch.

Owns: how long and how often a broker is asked again, and the words for what it refuses.
Never: knows what Spark is.

Invariants:
1. What time heals is asked again with growing pauses, until `brokerTimeout`: no answer, a
   connection that breaks, a broker that starts or has no room.
2. What time does not heal raises at once: refused credentials, a row nobody may publish, parts that
   are gone.

Every question may be asked twice: a part is known by what it holds, and a batch by its number.
"""

import json
import ssl
import threading
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final

from holdfast import system
from holdfast.client.http import Answer, HttpClient
from holdfast.core.written import ARROW_STREAM

PAUSES_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Between one question and the next; the last one repeats."""
HEALED_BY_TIME: Final = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}


class WriteError(Exception):
    """Rows could not be written: why, where, and what to do."""


class StagingBroker:
    """The broker at `host:port` that keeps parts and commits batches."""

    def __init__(
        self, address: str, user: str | None, password: str | None, timeout_s: float
    ) -> None:
        self._address = address
        self._client = HttpClient.at(address, user, password).keep()
        self._timeout_s = timeout_s

    def stage(self, producer: str, batch: int, part: str, stream: bytes, about: str) -> str | None:
        """Keeps a part; returns by which name a commit knows it. `None`: the batch is decided
        already, and its rows are not needed any more. `about` says which rows these are."""
        path = f"/v1/staged/{producer}/{batch}/{part}"
        answer = self._asked("PUT", path, stream, ARROW_STREAM, about)
        identifier: str | None = answer["identifier"]
        return identifier

    def commit(self, producer: str, batch: int, parts: list[str], *, is_last: bool) -> None:
        """All rows of these parts are in the log on return, each once."""
        body = json.dumps({"parts": parts, "last": is_last}).encode()
        self._asked("POST", f"/v1/staged/{producer}/{batch}", body, "application/json", "the rows")

    def forget(self, producer: str, batch: int) -> None:
        """What is staged of a batch that will not be committed goes, if the broker answers; else it
        goes when it is old."""
        with suppress(OSError):
            self._client.request("DELETE", f"/v1/staged/{producer}/{batch}")

    def _asked(self, method: str, path: str, body: bytes, kind: str, about: str) -> dict[str, Any]:
        until_s = system.monotonic_s() + self._timeout_s
        for attempt in range(1 << 30):
            try:
                answer = self._client.request(method, path, body, kind=kind)
                if answer.status == HTTPStatus.OK:
                    document: dict[str, Any] = json.loads(answer.content)
                    return document
                problem = _told(answer)
                if answer.status not in HEALED_BY_TIME:
                    refused = self._refused(answer.status, about, problem)
                    raise WriteError(f"holdfast writer: {refused}")
            except ssl.SSLCertVerificationError as error:
                raise WriteError(
                    f"holdfast writer: the certificate of the broker at {self._address} cannot be"
                    f" verified: {error}. Name the authority's file in the environment variable"
                    " SSL_CERT_FILE"
                ) from error
            except OSError as error:
                problem = f"no answer: {error}"
            pause_s = PAUSES_S[min(attempt, len(PAUSES_S) - 1)]
            if system.monotonic_s() + pause_s > until_s:
                break
            threading.Event().wait(pause_s)
        raise WriteError(
            f"holdfast writer: the broker at {self._address} has not taken the rows within"
            f" {self._timeout_s:g} s (option 'brokerTimeout'): {problem}"
        )

    def _refused(self, status: int, about: str, problem: str) -> str:
        if status == HTTPStatus.UNAUTHORIZED:
            return (
                f"the broker at {self._address} takes rows of users with a password only: give"
                " options 'user' and 'password'"
            )
        return f"the broker at {self._address} refuses {about}: {problem}"


def _told(answer: Answer) -> str:
    try:
        return str(json.loads(answer.content)["detail"])
    except (ValueError, KeyError, TypeError):
        return f"status {answer.status}"


@lru_cache(maxsize=4)
def staging_broker(
    address: str, user: str | None, password: str | None, timeout_s: float
) -> StagingBroker:
    """One connection per worker process: workers are reused, writers are unpickled for each
    task."""
    return StagingBroker(address, user, password, timeout_s)
