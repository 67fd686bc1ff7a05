"""Non-resource pages: health, version, metrics, discovery, OpenAPI, OIDC."""

import hashlib
import platform
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec

from onejob.api.access.service_accounts.accounts import ServiceAccounts
from onejob.api.decoding.query import first
from onejob.api.http.discovery import (
    aggregated,
    api_group,
    api_group_list,
    api_resource_list,
    api_versions,
)
from onejob.api.http.negotiation import (
    aggregated_discovery_version,
    negotiate,
    prefers_protobuf_openapi,
)
from onejob.api.http.requests import UserRequest
from onejob.api.http.responses import (
    GZIP_FROM_BYTES,
    Header,
    Response,
    accepts_gzip,
    json_response,
    text_response,
)
from onejob.api.http.routing import GroupPath, PageNotFound, ServerPath
from onejob.metrics import Metrics
from onejob.wire.errors import NotAcceptable
from onejob.wire.registry import KindRegistry

#: Health or readiness check: returns "" on success, else the reason of the failure.
Check = Callable[[], str]

#: Accept headers spell it with an @, which a Content-Type may not contain.
_OPENAPI_V2_PROTOBUF: Final = b"application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_PROMETHEUS: Final = b"text/plain; version=0.0.4; charset=utf-8"
_IMMUTABLE: Final = (b"cache-control", b"public, immutable")
_BRIEFLY: Final = (b"cache-control", b"public, max-age=3600")


class OpenApi(Protocol):
    """Provider of the OpenAPI documents."""

    async def prepare(self) -> None:
        """Prepare the v3 documents; must be awaited before they are requested."""

    def root(self) -> bytes:
        """Return the index of the OpenAPI v3 documents."""

    def document(self, path: str) -> tuple[bytes, str] | None:
        """Return the v3 document of a group version (`api/v1`, `apis/batch/v1`) and its hash; None
        if unknown."""

    async def version_2(self, *, protobuf: bool) -> tuple[bytes, str]:
        """Return the v2 document of all groups and its hash."""


def version_document(release: str) -> dict[str, str]:
    """Return the document of GET /version.

    `release` is the Kubernetes release whose API is served: `v1.37.0`.
    """
    major, minor, *_ = release.removeprefix("v").split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": release,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": f"CPython {platform.python_version()}",
        "platform": f"{platform.system().lower()}/{_architecture()}",
    }


def health_response(
    page: str, name: str, checks: Mapping[str, Check], request: UserRequest
) -> Response:
    """Return `ok` or the failed checks; one line per check with `?verbose`.

    Raises PageNotFound for an unknown check.
    """
    if name and name not in checks:
        raise PageNotFound(name)
    asked = {name: checks[name]} if name else checks
    excluded = set(request.query.get("exclude", ()))
    lines = []
    healthy = True
    for check_name, check in asked.items():
        if check_name in excluded:
            lines.append(f"[+]{check_name} excluded: ok")
            continue
        problem = check()
        healthy = healthy and not problem
        lines.append(f"[-]{check_name} failed: {problem}" if problem else f"[+]{check_name} ok")
    if healthy and "verbose" not in request.query:
        return text_response("ok")
    lines.append(f"{page} check {'passed' if healthy else 'failed'}")
    return text_response("\n".join(lines) + "\n", 200 if healthy else 500)


class ServerPages:
    """Pages about the server itself."""

    def __init__(
        self,
        release: str,
        openapi: OpenApi,
        metrics: Metrics,
        *,
        checks: Mapping[str, Check] | None = None,
        accounts: ServiceAccounts | None = None,
    ) -> None:
        """`release` is the Kubernetes release whose API is served: `v1.37.0`."""
        self._version = version_document(release)
        self._openapi = openapi
        self._metrics = metrics
        self._checks = {"ping": lambda: "", **(checks or {})}
        self._accounts = accounts

    async def answer(self, path: ServerPath, request: UserRequest) -> Response:
        """Return a page. Raises PageNotFound."""
        match path.page:
            case "version" if not path.rest:
                return json_response(self._version)
            case "healthz" | "livez" | "readyz" if len(path.rest) <= 1:
                return health_response(path.page, "".join(path.rest), self._checks, request)
            case "metrics" if not path.rest:
                return Response(200, self._metrics.exposition().encode(), _PROMETHEUS)
            case "openapi":
                return await openapi_response(path.rest, request, self._openapi)
            case "openid" | ".well-known" if self._accounts is not None:
                return issuer_response((path.page, *path.rest), self._accounts)
            case _:
                raise PageNotFound(path.page)


class DiscoveryPages:
    """Discovery endpoints of one server."""

    def __init__(self, kinds: KindRegistry) -> None:
        self._kinds = kinds
        #: Body and ETag by (version, core); cleared when the kinds change.
        self._aggregated: dict[tuple[str, bool], tuple[bytes, str]] = {}
        kinds.subscribe(lambda change: self._aggregated.clear())

    def answer(self, place: GroupPath, request: UserRequest, address: str) -> Response:
        """Answer a request for an API group list, an API version or aggregated discovery."""
        accept = request.header(b"accept")
        if place.group is None:
            version = aggregated_discovery_version(accept)
            if version:
                body, tag = self._aggregated_bytes(version, place.legacy_root)
                content_type = (
                    f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
                )
                return _cacheable(request, body, tag, content_type.encode())
        _require_json(accept)
        kinds = self._kinds
        if place.group is None and place.legacy_root:
            return json_response(api_versions(kinds, address))
        if place.group is None:
            return json_response(api_group_list(kinds))
        if not place.version:
            return json_response(api_group(kinds, place.group))
        return json_response(api_resource_list(kinds, place.group, place.version))

    def _aggregated_bytes(self, version: str, core: bool) -> tuple[bytes, str]:
        """Return body and ETag of an aggregated discovery document, from a cache."""
        made = self._aggregated.get((version, core))
        if made is None:
            body = msgspec.json.encode(aggregated(self._kinds, version, core=core))
            made = self._aggregated[version, core] = (body, _tag(body))
        return made


async def openapi_response(
    rest: tuple[str, ...], request: UserRequest, openapi: OpenApi
) -> Response:
    """Return the OpenAPI document at a path. Raises NotFound, NotAcceptable."""
    if rest == ("v2",):
        protobuf = prefers_protobuf_openapi(request.header(b"accept"))
        body, tag = await openapi.version_2(protobuf=protobuf)
        content_type = _OPENAPI_V2_PROTOBUF if protobuf else b"application/json"
        return _cacheable(request, body, tag, content_type)
    if rest[:1] == ("v3",):
        _require_json(request.header(b"accept"))
        await openapi.prepare()
    if rest == ("v3",):
        root = openapi.root()
        return _cacheable(request, root, _tag(root), b"application/json")
    if rest[:1] == ("v3",):
        found = openapi.document("/".join(rest[1:]))
        if found is not None:
            body, tag = found
            # The root lists documents by hash; a document with a matching hash never changes.
            fresh = first(request.query, "hash").strip('"') == tag
            return _cacheable(
                request, body, tag, b"application/json", (_IMMUTABLE,) if fresh else ()
            )
    raise PageNotFound("/".join(rest))


def issuer_response(path: tuple[str, ...], accounts: ServiceAccounts) -> Response:
    """Return the OIDC documents with which third parties verify service-account tokens.

    Raises PageNotFound for other paths.
    """
    match path:
        case (".well-known", "openid-configuration"):
            document, content_type = accounts.configuration(), b"application/json"
        case ("openid", "v1", "jwks"):
            document, content_type = accounts.key_set(), b"application/jwk-set+json"
        case _:
            raise PageNotFound("/".join(path))
    return Response(200, msgspec.json.encode(document), content_type, (_BRIEFLY,))


def _cacheable(
    request: UserRequest,
    body: bytes,
    tag: str,
    content_type: bytes,
    headers: tuple[Header, ...] = (),
) -> Response:
    """Return the document, or 304 if the client has it.

    The compressed form has its own ETag: its bytes differ, and a cache must not mix the two.
    """
    plain, squeezed = f'"{tag}"'.encode(), f'"{tag}-gzip"'.encode()
    is_compressed = len(body) > GZIP_FROM_BYTES and accepts_gzip(request.headers)
    etag = squeezed if is_compressed else plain
    headers = (*headers, (b"etag", etag), (b"vary", b"Accept, Accept-Encoding"))
    held = request.headers.get(b"if-none-match", b"").split(b",")
    if {plain, squeezed, b"*"} & {each.strip().removeprefix(b"W/") for each in held}:
        return Response(304, b"", content_type, headers)
    return Response(200, body, content_type, headers)


def _require_json(accept: str) -> None:
    if negotiate(accept).media != "json":
        raise NotAcceptable("only the following media types are accepted: application/json")


def _tag(body: bytes) -> str:
    """Return the ETag of a body."""
    return hashlib.sha256(body).hexdigest().upper()


def _architecture() -> str:
    """Return the machine's architecture by its name in Go."""
    machine = platform.machine().lower()
    known: dict[str, Any] = {"x86_64": "amd64", "aarch64": "arm64"}
    return str(known.get(machine, machine))
