"""What client commands know of an API server: ask, and get bytes back.

Two implementations: a server over HTTPS (`http_api`), and the kept state of a past run
(`stored_api`), which answers with the same code that a server uses.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode

import msgspec

from onejob.cli.run.runs import RunEnd
from onejob.wire.kinds import Kind

JSON: Final = "application/json"
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
FIELD_MANAGER: Final = "onejob"


class Ask(msgspec.Struct, frozen=True):
    method: str
    path: str
    query: Mapping[str, str] = msgspec.field(default_factory=dict)
    accept: str = JSON
    body: bytes = b""
    content_type: str = JSON

    @property
    def target(self) -> str:
        """Path and query; parameters without a value are left out."""
        given = {name: value for name, value in self.query.items() if value}
        return f"{self.path}?{urlencode(given)}" if given else self.path


class Reply(msgspec.Struct, frozen=True):
    code: int
    body: bytes
    #: Texts of `Warning` headers.
    warnings: tuple[str, ...] = ()

    @property
    def document(self) -> dict[str, Any]:
        decoded: dict[str, Any] = msgspec.json.decode(self.body)
        return decoded


class Api(Protocol):
    """Failures are `onejob.wire.errors.ApiError`s; no server is a CommandError."""

    #: For people: which server, or which run.
    title: str
    #: The namespace of commands that name none; "" where all are meant.
    namespace: str
    #: How the run ended whose kept state this is; None where things go on.
    ended: RunEnd | None
    #: Whether it is reached without leaving this machine.
    on_this_machine: bool

    def send(self, ask: Ask) -> Reply: ...

    def stream(self, ask: Ask) -> Iterator[bytes]:
        """The answer in pieces, as they come."""

    def fresh(self) -> "Api":
        """The same for another thread: one of these serves one thread."""

    def close(self) -> None: ...


def path_of(kind: Kind, namespace: str, name: str = "", subresource: str = "") -> str:
    segments = ["apis", kind.group, kind.version] if kind.group else ["api", kind.version]
    if kind.namespaced and namespace:
        segments += ["namespaces", namespace]
    segments.append(kind.plural)
    segments += [segment for segment in (name, subresource) if segment]
    return "/" + "/".join(quote(segment, safe="") for segment in segments)


def get(api: Api, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
    return api.send(Ask("GET", path_of(kind, namespace, name))).document


def list_all(api: Api, kind: Kind, namespace: str, **query: str) -> list[dict[str, Any]]:
    """All matching objects, page by page."""
    items: list[dict[str, Any]] = []
    token = ""
    while True:
        asked = {**query, "limit": "500", "continue": token}
        page = api.send(Ask("GET", path_of(kind, namespace), asked)).document
        items.extend(page["items"])
        token = page["metadata"].get("continue", "")
        if not token:
            return items


def watch_events(api: Api, ask: Ask) -> Iterator[dict[str, Any]]:
    """The events of a watch; ends when the server ends it."""
    rest = b""
    for piece in api.stream(ask):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line:
                yield msgspec.json.decode(line)
