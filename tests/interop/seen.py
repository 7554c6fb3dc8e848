"""A broker whose admin interface is used: every answer is held to its own OpenAPI document."""

import contextlib
import http.client
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jsonschema import Draft202012Validator

from tests.process import HOST, BrokerProcess


class Seen(BrokerProcess):
    """A broker with an HTTP listener; every answer is held to the OpenAPI document."""

    def __init__(self, directory: Path, **settings: object) -> None:
        super().__init__(directory, http_port=0, **settings)
        self._document: dict[str, Any] = {}

    def ask(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, dict[str, Any]]:
        """The status and the document of an answer."""
        if not self._document and path != "/v1/openapi.json":
            self._document = self.ask("GET", "/v1/openapi.json")[1]
        connection = http.client.HTTPConnection(HOST, self.http_port, timeout=60)
        with contextlib.closing(connection):
            sent = None if body is None else json.dumps(body)
            given = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, sent, given | headers)
            answer = connection.getresponse()
            found = json.loads(answer.read())
        if self._document:
            self._hold_to_document(method, path, answer.status, found)
        return answer.status, found

    def get(self, path: str, **query: object) -> dict[str, Any]:
        """What is there."""
        status, found = self.ask("GET", f"{path}?{urlencode(query)}" if query else path)
        assert status == 200, found
        return found

    def number(self, name: str) -> float:
        """A number of the statistics; 0 if it is not there yet."""
        return float(self.get("/v1/statistics")["statistics"].get(name, 0))

    def _hold_to_document(self, method: str, path: str, status: int, found: dict[str, Any]) -> None:
        bare = path.partition("?")[0]
        for template, methods in self._document["paths"].items():
            pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))
            if re.fullmatch(pattern, bare) and method.lower() in methods:
                documented = methods[method.lower()]["responses"]
                assert str(status) in documented, f"{method} {path} answered {status}: {found}"
                schema = documented[str(status)]["content"]["application/json"]["schema"]
                described = schema | {"components": self._document["components"]}
                Draft202012Validator(described).validate(found)
                return
        assert status in (404, 405), f"{method} {path} is not in the document"
