"""Client-side interface to an API server: requests in, bytes out.

Two implementations: a server over HTTPS (`http_api`), and the kept state of a past run
(`stored_api`), which runs the server's own request handlers.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode

import msgspec

from onejob.cli.kept_runs import RunEnd
from onejob.wire.kinds import Kind

JSON: Final = "application/json"
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
FIELD_MANAGER: Final = "onejob"


class ApiRequest(msgspec.Struct, frozen=True):
    """HTTP request to an API server, independent of the connection.

    `path` must be quoted already; see `path_of`.
    """

    method: str
    path: str
    query: Mapping[str, str] = msgspec.field(default_factory=dict)
    accept: str = JSON
    body: bytes = b""
    content_type: str = JSON

    @property
    def target(self) -> str:
        """Return path and query, without parameters that have an empty value."""
        given = {name: value for name, value in self.query.items() if value}
        return f"{self.path}?{urlencode(given)}" if given else self.path


class ApiResponse(msgspec.Struct, frozen=True):
    """Successful response of an API server; error responses are raised as ApiError.

    `document` decodes the body at each access and raises msgspec.DecodeError if it is not JSON.
    """

    code: int
    body: bytes
    #: Texts of the response's `Warning` headers.
    warnings: tuple[str, ...] = ()

    @property
    def document(self) -> dict[str, Any]:
        decoded: dict[str, Any] = msgspec.json.decode(self.body)
        return decoded


class Api(Protocol):
    """Connection to an API server, or to the kept state of a run.

    Errors: `send` and `stream` raise `onejob.wire.errors.ApiError` for error responses, and
    CommandError if the server cannot be reached.

    Concurrency: an instance serves one thread; `fresh` opens another one for a second thread.
    """

    #: Description for messages: the server's URL or the run's id.
    title: str
    #: Default namespace of commands without -n; "" for all namespaces.
    namespace: str
    #: End of the run whose kept state this is; None for a server or a run that is under way.
    ended: RunEnd | None
    #: True if the server is on this machine, reached over loopback or in its data dir.
    on_this_machine: bool

    def send(self, ask: ApiRequest) -> ApiResponse: ...

    def stream(self, ask: ApiRequest) -> Iterator[bytes]:
        """Yield the response body in chunks as they arrive."""

    def fresh(self) -> "Api":
        """Return a new connection to the same server or run, for use in another thread."""

    def close(self) -> None: ...


def path_of(kind: Kind, namespace: str, name: str = "", subresource: str = "") -> str:
    segments = ["apis", kind.group, kind.version] if kind.group else ["api", kind.version]
    if kind.namespaced and namespace:
        segments += ["namespaces", namespace]
    segments.append(kind.plural)
    segments += [segment for segment in (name, subresource) if segment]
    return "/" + "/".join(quote(segment, safe="") for segment in segments)


def get(api: Api, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
    return api.send(ApiRequest("GET", path_of(kind, namespace, name))).document


def list_all(api: Api, kind: Kind, namespace: str, **query: str) -> list[dict[str, Any]]:
    """Return all matching objects, following `continue` tokens page by page."""
    items: list[dict[str, Any]] = []
    token = ""
    while True:
        asked = {**query, "limit": "500", "continue": token}
        page = api.send(ApiRequest("GET", path_of(kind, namespace), asked)).document
        items.extend(page["items"])
        token = page["metadata"].get("continue", "")
        if not token:
            return items


def watch_events(api: Api, ask: ApiRequest) -> Iterator[dict[str, Any]]:
    """Yield the events of a watch until the server ends it."""
    rest = b""
    for piece in api.stream(ask):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line:
                yield msgspec.json.decode(line)
