"""Minimal API server that records the requests of kubectl."""

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

needs_kubectl = [
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH"),
]

_VERSION = {"major": "1", "minor": "32", "gitVersion": "v1.32.4"}
_VERBS = ["get", "list", "create", "patch"]


def discovery(groups: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Return responses of legacy discovery: API version -> plural -> kind."""
    named = [version for version in groups if "/" in version]
    answers: dict[str, Any] = {
        "/version": _VERSION,
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [
                {
                    "name": version.split("/")[0],
                    "versions": [{"groupVersion": version, "version": version.split("/")[1]}],
                }
                for version in named
            ],
        },
    }
    for version, kinds in groups.items():
        path = f"/apis/{version}" if "/" in version else f"/api/{version}"
        answers[path] = {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": version,
            "resources": [
                {
                    "name": plural,
                    "singularName": plural.removesuffix("s"),
                    "namespaced": plural != "namespaces",
                    "kind": kind,
                    "verbs": _VERBS,
                }
                for plural, kind in kinds.items()
            ],
        }
    return answers


@dataclass(frozen=True)
class Raw:
    """A response that is not JSON."""

    content_type: str
    body: bytes


class Recorder:
    def __init__(self, home: Path, answers: dict[str, Any]) -> None:
        self.answers = answers
        #: (method, path without query, content type, body)
        self.requests: list[tuple[str, str, str, bytes]] = []
        self._home = home
        self._url = ""

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl and return its output; fail the test when kubectl fails."""
        environment = {**os.environ, "HOME": str(self._home), "KUBECONFIG": os.devnull}
        done = subprocess.run(
            ["kubectl", "--server", self._url, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=environment,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def bodies(self, method: str) -> list[tuple[str, bytes]]:
        """Return (content type, body) of all requests with that method."""
        return [(kind, body) for verb, _, kind, body in self.requests if verb == method]

    @contextmanager
    def running(self) -> Iterator["Recorder"]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        self._url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                """Log nothing."""

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path in recorder.answers:
                    self._answer(200, recorder.answers[path])
                else:
                    self._answer(404, {"kind": "Status", "apiVersion": "v1", "code": 404})

            def do_POST(self) -> None:
                self._record(201)

            def do_PATCH(self) -> None:
                self._record(200)

            def _record(self, code: int) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                path = self.path.partition("?")[0]
                kind = self.headers["Content-Type"]
                recorder.requests.append((self.command, path, kind, body))
                answer = recorder.answers.get(f"{self.command} {path}", {"metadata": {}})
                self._answer(code, answer)

            def _answer(self, code: int, value: Any) -> None:
                raw = isinstance(value, Raw)
                body = value.body if raw else json.dumps(value).encode()
                self.send_response(code)
                self.send_header("Content-Type", value.content_type if raw else "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        return Handler
