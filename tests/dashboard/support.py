"""Client that behaves like a browser, without one."""

import http.client
import json
import ssl
from typing import Any
from urllib.parse import urlsplit


class Browser:
    """HTTP client with the cookies and headers of a browser."""

    def __init__(self, url: str) -> None:
        self.cookie = ""
        self.key = ""
        self.last_headers: dict[str, str] = {}
        parts = urlsplit(url)
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self._connection = http.client.HTTPSConnection(
            parts.hostname or "", parts.port, timeout=60, context=context
        )

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        sent = dict(headers or {})
        if self.cookie:
            sent["Cookie"] = self.cookie
        if self.key:
            sent.setdefault("X-Onejob-Session", self.key)
        data = None if body is None else json.dumps(body)
        self._connection.request(method, path, data, sent)
        answer = self._connection.getresponse()
        self.last_headers = dict(answer.headers.items())
        text = answer.read()
        if self.last_headers.get("content-type", "").startswith("application/json"):
            return answer.status, json.loads(text)
        return answer.status, text

    def sign_in(self, code: str) -> int:
        status, answer = self.ask(
            "POST", "/ui/api/session", {"code": code}, {"X-Onejob-Session": "sign-in"}
        )
        if status == 201:
            self.key = answer["key"]
            self.cookie = self.last_headers["set-cookie"].partition(";")[0]
        return status

    def close(self) -> None:
        self._connection.close()
