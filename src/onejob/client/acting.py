"""A client under somebody's name: what they may not do is refused, what they do is counted.

The parts of the server use the API in its process, without HTTP. Whether one of them may do
something is decided once for each verb and resource, until the roles change; after that it costs
a look at a dict.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Final, Protocol

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
from onejob.metrics import Metrics
from onejob.objects.meta import Key
from onejob.planning.rbac.rules import Question
from onejob.wire.errors import ApiError, Forbidden
from onejob.wire.registry import KindRegistry
from onejob.wire.requests import Outcome, User

_VERBS: Final[dict[type[Op], str]] = {
    Create: "create",
    Patch: "patch",
    Replace: "update",
    Delete: "delete",
}
#: What is written for a Pod by other means than its document.
_SUBRESOURCES: Final[dict[type[Op], str]] = {Bind: "binding", Evict: "eviction"}


class Rights(Protocol):
    def allows(self, user: User, question: Question) -> bool:
        """Whether somebody may do something in the whole cluster."""

    def on_change(self, notify: Callable[[], None]) -> None:
        """Call it whenever what is allowed may have changed."""


class AllRights:
    """Of the API server itself."""

    def allows(self, user: User, question: Question) -> bool:
        return True

    def on_change(self, notify: Callable[[], None]) -> None:
        """Never."""


class _Requests:
    """How often one thing was asked for, by the code of the answer."""

    __slots__ = ("_by_code", "_counts", "_labels")

    def __init__(self, counts: dict[tuple[str, ...], float], *labels: str) -> None:
        """`labels` are verb, group, version, resource and subresource."""
        self._counts = counts
        self._labels = labels
        self._by_code: dict[int, tuple[str, ...]] = {}

    def add(self, code: int) -> None:
        place = self._by_code.get(code)
        if place is None:
            place = self._by_code[code] = (*self._labels, str(code))
        self._counts[place] = self._counts.get(place, 0) + 1


class ActingClient:
    """Implements `onejob.client.base.Client`, and what a `StagedWrites` needs."""

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
        self._counts = metrics.counter("apiserver_request_total")
        #: What was found to be allowed since the roles changed last.
        self._allowed: dict[tuple[object, str, str], _Requests] = {}
        rights.on_change(self._allowed.clear)
        self.durable: Callable[[int], Awaitable[None]] = client.durable
        self.look_ahead = client.look_ahead

    @property
    def pending_revision(self) -> int:
        return self._client.pending_revision

    @property
    def rollbacks(self) -> int:
        return self._client.rollbacks

    async def get(self, key: Key) -> bytes:
        requests = self._require("get", key.resource)
        try:
            document = await self._client.get(key)
        except ApiError as error:
            requests.add(error.code)
            raise
        requests.add(200)
        return document

    async def list(self, what: Selection, *, limit: int = 0, token: str = "") -> Listing:
        requests = self._require("list", what.resource)
        try:
            found = await self._client.list(what, limit=limit, token=token)
        except ApiError as error:
            requests.add(error.code)
            raise
        requests.add(200)
        return found

    def watch(self, what: Selection, *, after: int) -> AsyncGenerator[Sequence[WatchEvent], None]:
        self._require("watch", what.resource).add(200)
        return self._client.watch(what, after=after)

    async def write(self, op: Op) -> Written:
        requests = self._requests(op)
        try:
            written = await self._client.write(op)
        except ApiError as error:
            requests.add(error.code)
            raise
        requests.add(code_of(op))
        return written

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        refused: dict[int, Forbidden] = {}
        asked: list[_Requests] = []
        for place, op in enumerate(ops):
            try:
                asked.append(self._requests(op))
            except Forbidden as error:
                refused[place] = error
        allowed = [op for place, op in enumerate(ops) if place not in refused] if refused else ops
        results = await self._client.write_many(allowed)
        for op, requests, result in zip(allowed, asked, results, strict=True):
            requests.add(result.code if isinstance(result, ApiError) else code_of(op))
        if not refused:
            return results
        rest = iter(results)
        return [refused[place] if place in refused else next(rest) for place in range(len(ops))]

    def stage(self, op: Op) -> Outcome:
        requests = self._requests(op)
        try:
            outcome = self._client.stage(op)
        except ApiError as error:
            requests.add(error.code)
            raise
        requests.add(outcome.code)
        return outcome

    async def close(self) -> None:
        await self._client.close()

    def _requests(self, op: Op) -> _Requests:
        """Raises Forbidden."""
        kind = type(op)
        if isinstance(op, Create):
            return self._require(kind, op.resource)
        if isinstance(op, (Patch, Replace)):
            return self._require(kind, op.key.resource, op.subresource)
        return self._require(kind, op.key.resource)

    def _require(self, what: "type[Op] | str", resource: str, subresource: str = "") -> _Requests:
        """Raises Forbidden."""
        place = (what, resource, subresource)
        requests = self._allowed.get(place)
        if requests is None:
            requests = self._allowed[place] = self._decide(what, resource, subresource)
        return requests

    def _decide(self, what: "type[Op] | str", resource: str, subresource: str) -> _Requests:
        if isinstance(what, str):
            verb = what
        else:
            verb, subresource = verb_of(what), _SUBRESOURCES.get(what, subresource)
        plural, _, group = resource.partition(".")
        kind = self._kinds.by_resource.get(resource)
        version = kind.version if kind is not None else ""
        requests = _Requests(self._counts, verb.upper(), group, version, plural, subresource)
        if not self._rights.allows(self.user, Question(verb, group, plural, subresource)):
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
