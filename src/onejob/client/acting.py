"""In-process client with an identity: enforces RBAC and counts requests.

The server's own components use the API in its process, without HTTP. Authorization is decided once
for each verb and resource and cached until the roles change; after that it costs a dict lookup.
Single requests are also timed; batches and staged writes, of which there are several per Pod, cost
one counter increment each.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from onejob.client.base import (
    Bind,
    Create,
    Delete,
    Evict,
    Listing,
    Op,
    Patch,
    Replace,
    Result,
    Selection,
    WatchEvent,
    Written,
)
from onejob.client.local import LocalClient
from onejob.metrics import Metrics, RequestLabels
from onejob.objects.meta import Key
from onejob.planning.rbac.rules import AccessAttributes
from onejob.wire.errors import ApiError, Forbidden
from onejob.wire.registry import KindRegistry
from onejob.wire.requests import User

if TYPE_CHECKING:
    from onejob.prometheus import Series

T = TypeVar("T")

_VERBS: Final[dict[type[Op], str]] = {
    Create: "create",
    Patch: "patch",
    Replace: "update",
    Delete: "delete",
}
#: Operations that are requests to a subresource of a Pod rather than writes of its document.
_SUBRESOURCES: Final[dict[type[Op], str]] = {Bind: "binding", Evict: "eviction"}


class Rights(Protocol):
    """Permissions of a client."""

    def allows(self, user: User, question: AccessAttributes) -> bool:
        """Return whether `user` may perform the request in the whole cluster."""

    def on_change(self, notify: Callable[[], None]) -> None:
        """Call `notify` whenever the permissions may have changed."""


class AllRights:
    """Unrestricted permissions, of the API server itself."""

    def allows(self, user: User, question: AccessAttributes) -> bool:
        return True

    def on_change(self, notify: Callable[[], None]) -> None:
        """Do nothing: these permissions never change."""


class _Requests:
    """Request metrics of one verb and resource.

    All requests are counted by response code; single requests are also timed.
    """

    __slots__ = ("_by_code", "_labels", "_metrics")

    def __init__(self, metrics: Metrics, labels: RequestLabels) -> None:
        self._metrics = metrics
        self._labels = labels
        self._by_code: dict[int, Series] = {}

    def add(self, code: int) -> None:
        """Count a request by its response code."""
        series = self._by_code.get(code)
        if series is None:
            series = self._metrics.requests.series(**self._labels, code=str(code))
            self._by_code[code] = series
        series.value += 1

    async def timed(self, request: Awaitable[T], success: int) -> T:
        """Await one request; count and time its response, also if it is an error."""
        time = asyncio.get_running_loop().time
        sent_at = time()
        try:
            answer = await request
        except ApiError as error:
            self._add_timed(error.code, time() - sent_at)
            raise
        self._add_timed(success, time() - sent_at)
        return answer

    def _add_timed(self, code: int, seconds: float) -> None:
        self.add(code)
        self._metrics.request_duration.observe(seconds, **self._labels)


class AuthorizedClient:
    """Implementation of `onejob.client.base.Client` for one user; supports `StagedWrites`.

    Raises Forbidden for requests that the user's roles do not allow.
    """

    def __init__(
        self,
        client: LocalClient,
        user: User,
        rights: Rights,
        kinds: KindRegistry,
        metrics: Metrics,
    ) -> None:
        self._client = client
        self.user = user
        self._rights = rights
        self._kinds = kinds
        self._metrics = metrics
        #: Requests found to be allowed since the roles last changed.
        self._allowed: dict[tuple[object, str, str], _Requests] = {}
        rights.on_change(self._allowed.clear)
        self.durable: Callable[[int], Awaitable[None]] = client.durable

    @property
    def pending_revision(self) -> int:
        return self._client.pending_revision

    @property
    def rollbacks(self) -> int:
        return self._client.rollbacks

    async def get(self, key: Key) -> bytes:
        return await self._require("get", key.resource).timed(self._client.get(key), 200)

    async def list(self, what: Selection, *, limit: int = 0, token: str = "") -> Listing:
        requests = self._require("list", what.resource)
        return await requests.timed(self._client.list(what, limit=limit, token=token), 200)

    def watch(self, what: Selection, *, after: int) -> AsyncGenerator[Sequence[WatchEvent], None]:
        self._require("watch", what.resource).add(200)
        return self._client.watch(what, after=after)

    async def write(self, op: Op) -> Written:
        return await self._requests(op).timed(self._client.write(op), code_of(op))

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        allowed, asked, refused = self._authorize(ops)
        results = await self._client.write_many(allowed)
        return self._merged(allowed, asked, results, refused)

    def stage_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        """Validate writes and stage them; return one result each, in order."""
        allowed, asked, refused = self._authorize(ops)
        return self._merged(allowed, asked, self._client.stage_many(allowed), refused)

    def _merged(
        self,
        allowed: Sequence[Op],
        asked: Sequence[_Requests],
        results: Sequence[Result],
        refused: Mapping[int, ApiError],
    ) -> Sequence[Result]:
        """Count the results of the allowed writes, and return them with the refusals."""
        for op, requests, result in zip(allowed, asked, results, strict=True):
            requests.add(result.code if isinstance(result, ApiError) else code_of(op))
        if not refused:
            return results
        following = iter(results)
        return [
            refused[place] if place in refused else next(following)
            for place in range(len(allowed) + len(refused))
        ]

    async def close(self) -> None:
        await self._client.close()

    def _authorize(
        self, ops: Sequence[Op]
    ) -> tuple[Sequence[Op], Sequence[_Requests], Mapping[int, ApiError]]:
        """Return the allowed writes, their metrics, and the refusals of the others by position."""
        refused: dict[int, ApiError] = {}
        asked: list[_Requests] = []
        for place, op in enumerate(ops):
            try:
                asked.append(self._requests(op))
            except Forbidden as error:
                refused[place] = error
        allowed = [op for place, op in enumerate(ops) if place not in refused] if refused else ops
        return allowed, asked, refused

    def _requests(self, op: Op) -> _Requests:
        """Return the metrics of a write. Raises Forbidden if the user may not perform it."""
        kind = type(op)
        if isinstance(op, Create):
            return self._require(kind, op.resource)
        if isinstance(op, (Patch, Replace)):
            return self._require(kind, op.key.resource, op.subresource)
        return self._require(kind, op.key.resource)

    def _require(self, what: "type[Op] | str", resource: str, subresource: str = "") -> _Requests:
        """Return the metrics of a request. Raises Forbidden if the user may not perform it."""
        place = (what, resource, subresource)
        requests = self._allowed.get(place)
        if requests is None:
            requests = self._allowed[place] = self._permitted_requests(what, resource, subresource)
        return requests

    def _permitted_requests(
        self, what: "type[Op] | str", resource: str, subresource: str
    ) -> _Requests:
        """Return the counter of a verb on a resource. Raises Forbidden."""
        if isinstance(what, str):
            verb = what
        else:
            verb, subresource = verb_of(what), _SUBRESOURCES.get(what, subresource)
        plural, _, group = resource.partition(".")
        kind = self._kinds.by_resource.get(resource)
        version = kind.version if kind is not None else ""
        labels = RequestLabels(
            verb=verb.upper(),
            group=group,
            version=version,
            resource=plural,
            subresource=subresource,
        )
        requests = _Requests(self._metrics, labels)
        if not self._rights.allows(self.user, AccessAttributes(verb, group, plural, subresource)):
            full = f"{plural}/{subresource}" if subresource else plural
            requests.add(403)
            raise Forbidden(
                f'{resource} is forbidden: User "{self.user.name}" cannot {verb} resource '
                f'"{full}" in API group "{group}" at the cluster scope'
            )
        return requests


def verb_of(op: type[Op]) -> str:
    return _VERBS.get(op, "create")


def subresource_of(op: Op) -> str:
    if isinstance(op, (Patch, Replace)):
        return op.subresource
    return _SUBRESOURCES.get(type(op), "")


def code_of(op: Op) -> int:
    return 201 if isinstance(op, (Create, Bind, Evict)) else 200
