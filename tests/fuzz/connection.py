"""Sequential requests over TLS to one of our servers, and watches that end on command."""

import http.client
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from onejob.testing import OnejobServer

_SECONDS = 30.0


class Answer(msgspec.Struct):
    code: int
    document: dict[str, Any]

    @property
    def reason(self) -> str:
        return str(self.document.get("reason", ""))


class Api:
    def __init__(self, server: OnejobServer, folder: Path) -> None:
        place = urlsplit(server.url)
        self._host, self._port = place.hostname or "", place.port
        self._token = (folder / "server" / "admin.token").read_text().strip()
        self._context = ssl._create_unverified_context()
        self._connection = self._connect()

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            self._host, self._port, context=self._context, timeout=_SECONDS
        )

    def _headers(self, content_type: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}", "Content-Type": content_type}

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        content_type: str = "application/json",
        **query: str,
    ) -> Answer:
        target = f"{path}?{urlencode(query)}" if query else path
        data = None if body is None else msgspec.json.encode(body)
        self._connection.request(method, target, data, self._headers(content_type))
        answer = self._connection.getresponse()
        text = answer.read()
        assert answer.status < 500, (method, target, body, text)
        return Answer(answer.status, msgspec.json.decode(text))

    @contextmanager
    def watch(self, path: str, revision: str) -> Iterator[Iterator[dict[str, Any]]]:
        """Yield an iterator over the events since a revision."""
        connection = self._connect()
        query = urlencode({"watch": "1", "resourceVersion": revision})
        connection.request("GET", f"{path}?{query}", headers=self._headers("application/json"))
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()

        def events() -> Iterator[dict[str, Any]]:
            while line := answer.readline():
                yield msgspec.json.decode(line)

        try:
            yield events()
        finally:
            answer.close()
            connection.close()

    def close(self) -> None:
        self._connection.close()
