"""HTTP to a broker, over its control socket or its listeners: one request at a time.

Owns: where the broker is, credentials, the time that an answer may take, and one connection.
Never: knows what is asked, or asks a person.

Invariants:
1. A connection that is kept may have gone stale. What only reads and met one is asked again, once;
   nothing else is ever sent twice.
2. Certificates of `https` are checked against the host's authorities, or those of SSL_CERT_FILE.
"""

import http.client
import json
import os
import socket
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlencode, urlsplit

from holdfast.core.errors import BrokerAbsentError, BrokerRefusedError, ConfigurationError
from holdfast.core.layout import CONTROL_SOCKET

TIMEOUT_S = 60
"""An answer takes milliseconds; a broker that recovers, or whose disk stalls, many seconds."""


def reason_of(error: OSError) -> str:
    """What happened, in the system's words and without its number; never empty."""
    return error.strerror or str(error) or type(error).__name__


@dataclass(frozen=True, slots=True)
class Answer:
    """What the broker answered."""

    status: int
    content: bytes


class HttpClient:
    """A broker that runs on a data directory of this host (`on`), or anywhere (`at`)."""

    def __init__(self, connection: http.client.HTTPConnection, where: str) -> None:
        self.where = where
        """How a sentence ends that says which broker."""
        self._connection = connection
        self._headers = {"Connection": "close"}

    @classmethod
    def on(cls, data_dir: Path) -> Self:
        """The broker that runs on a data directory, over its control socket."""
        return cls(_SocketConnection(data_dir), f"on the data directory {data_dir}")

    @classmethod
    def at(
        cls,
        address: str,
        user: str | None = None,
        password: str | None = None,
        *,
        ask_password: Callable[[str], str] = lambda _user: "",
    ) -> Self:
        """The broker whose HTTP listener is at `address`: `host:port`, `http://host:port` or
        `https://host:port`, where `user:password@` may stand before the host.

        `ask_password` is called with a user whose password is left out. Raises
        `ConfigurationError` for what is no address.
        """
        parts = urlsplit(address if "//" in address else f"//{address}")
        try:
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise ConfigurationError(f"{parts.netloc!r} names no port: {error}") from error
        if host is None or parts.scheme not in ("", "http", "https"):
            raise ConfigurationError("expected the broker's address as http://host:port")
        secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        where = f"at {host}:{port}" if port else f"at {host}"
        client = cls(kind(host, port, timeout=TIMEOUT_S), where)
        if user is None and parts.username is not None:
            # As they stand in a URL: what it could not hold is written with %.
            user = unquote(parts.username)
            password = None if parts.password is None else unquote(parts.password)
        if user is not None:
            password = ask_password(user) if password is None else password
            word = b64encode(f"{user}:{password}".encode()).decode()
            client._headers["Authorization"] = f"Basic {word}"
        return client

    def keep(self) -> Self:
        """Keeps the connection open between requests, from now on."""
        self._headers.pop("Connection", None)
        return self

    def request(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        *,
        kind: str = "application/json",
        only_reads: bool = False,
    ) -> Answer:
        """Asks, and waits for the answer, whatever it is. Raises `OSError` where nobody gives
        one. `kind` is the media type of the body; `only_reads` says that it changes nothing, as a
        GET."""
        reused = self._connection.sock is not None
        try:
            return self._exchange(method, target, body, kind)
        except ConnectionError:
            if not reused or not (only_reads or method == "GET"):
                raise
            return self._exchange(method, target, body, kind)

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The document at `path`. Raises `BrokerAbsentError` or `BrokerRefusedError`, as all of
        these do."""
        return self._ask("GET", f"{path}?{urlencode(query)}" if query else path)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Asks for something to be done."""
        return self._ask("POST", path, body or {})

    def put(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Makes what is at `path` be so."""
        return self._ask("PUT", path, body)

    def delete(self, path: str) -> dict[str, Any]:
        """Removes what is at `path`."""
        return self._ask("DELETE", path)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        try:
            answer = self.request(method, path, None if body is None else json.dumps(body).encode())
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise BrokerAbsentError(f"no broker runs {self.where}") from error
        except OSError as error:
            raise BrokerAbsentError(
                f"the broker {self.where} does not answer: {reason_of(error)}"
            ) from error
        return _document(answer)

    def _exchange(self, method: str, target: str, body: bytes | None, kind: str) -> Answer:
        headers = self._headers if body is None else {**self._headers, "Content-Type": kind}
        is_kept = False
        try:
            self._connection.request(method, target, body, headers)
            answer = self._connection.getresponse()
            content = answer.read()
            is_kept = "Connection" not in headers
        except http.client.HTTPException as error:
            if isinstance(error, OSError):
                raise
            raise OSError(f"{type(error).__name__}: {error}") from error
        finally:
            if not is_kept:
                self._connection.close()
        return Answer(answer.status, content)


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over the control socket."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._data_dir = data_dir

    def connect(self) -> None:
        """Opens the socket in the data directory."""
        # By a descriptor: an address has room for 107 bytes, a path for thousands.
        directory = os.open(self._data_dir, os.O_PATH | os.O_DIRECTORY)
        try:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(TIMEOUT_S)
            self.sock.connect(f"/proc/self/fd/{directory}/{CONTROL_SOCKET}")
        finally:
            os.close(directory)


def _document(answer: Answer) -> dict[str, Any]:
    try:
        document = json.loads(answer.content) if answer.content else {}
    except ValueError:
        document = {"detail": answer.content[:200].decode(errors="replace")}
    if answer.status >= HTTPStatus.BAD_REQUEST:
        detail = document.get("detail") or HTTPStatus(answer.status).phrase
        raise BrokerRefusedError(answer.status, f"the broker refused: {detail}")
    found: dict[str, Any] = document
    return found
