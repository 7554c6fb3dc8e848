"""The running broker as commands meet it: JSON over its control socket, or over HTTP elsewhere.

Owns: one request at a time, and what becomes of a refusal. Never: knows what is asked.
"""

import http.client
import json
import os
import socket
from base64 import b64encode
from collections.abc import Mapping
from getpass import getpass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlencode, urlsplit

from holdfast.core.errors import BrokerAbsentError, BrokerRefusedError, ConfigurationError
from holdfast.core.layout import CONTROL_SOCKET

TIMEOUT_S = 60
"""An answer takes milliseconds; a broker whose disk stalls may take many seconds."""


class RunningBroker:
    """A broker that runs on a data directory of this host, or, by `at`, anywhere."""

    def __init__(self, data_dir: Path) -> None:
        self._where = f"on the data directory {data_dir}"
        self._connection: http.client.HTTPConnection = _SocketConnection(data_dir)
        self._headers = {"Connection": "close"}

    @classmethod
    def at(cls, url: str) -> Self:
        """The broker whose HTTP listener is at `url` (http://user:password@host:port); a password
        that is left out is asked for."""
        parts = urlsplit(url if "//" in url else f"//{url}")
        try:
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise ConfigurationError(f"{parts.netloc!r} names no port: {error}") from error
        if host is None or parts.scheme not in ("", "http", "https"):
            raise ConfigurationError("expected the broker's address as http://host:port")
        secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        broker = cls.__new__(cls)
        broker._where = f"at {host}:{port}" if port else f"at {host}"
        broker._connection = kind(host, port, timeout=TIMEOUT_S)
        broker._headers = {"Connection": "close"}
        if parts.username is not None:
            # As they stand in a URL: what it could not hold is written with %.
            user, password = unquote(parts.username), parts.password
            if password is None:
                password = getpass(f"Password of {user}: ")
            else:
                password = unquote(password)
            word = b64encode(f"{user}:{password}".encode()).decode()
            broker._headers["Authorization"] = f"Basic {word}"
        return broker

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What is at `path`. Raises `BrokerAbsentError` or `BrokerRefusedError`, as all of these
        do."""
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
        headers = dict(self._headers)
        sent = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            sent = json.dumps(body).encode()
        try:
            self._connection.request(method, path, sent, headers)
            answer = self._connection.getresponse()
            content = answer.read()
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise BrokerAbsentError(f"no broker runs {self._where}") from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", "") or str(error) or type(error).__name__
            raise BrokerAbsentError(
                f"the broker {self._where} does not answer: {reason}"
            ) from error
        finally:
            self._connection.close()
        return _document(answer.status, content)


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


def _document(status: int, content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content) if content else {}
    except ValueError:
        document = {"detail": content[:200].decode(errors="replace")}
    if status >= HTTPStatus.BAD_REQUEST:
        detail = document.get("detail") or HTTPStatus(status).phrase
        raise BrokerRefusedError(status, f"the broker refused: {detail}")
    found: dict[str, Any] = document
    return found
