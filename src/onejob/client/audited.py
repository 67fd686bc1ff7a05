"""In-process client that records its requests in the audit log, like requests over HTTP.

Only on a server with an audit policy: elsewhere an `AuthorizedClient` is used, which has no
auditing overhead.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Final

import msgspec

from onejob.api.access.authorization import Attributes
from onejob.api.audit.recorder import AuditedRequest, Auditor
from onejob.client.acting import AuthorizedClient, Rights, code_of, subresource_of, verb_of
from onejob.client.base import Create, Listing, Op, Result, Selection, WatchEvent, Written
from onejob.client.local import LocalClient
from onejob.client.requests import body_of, content_type_of
from onejob.metrics import Metrics
from onejob.objects.meta import Key
from onejob.wire.errors import ApiError
from onejob.wire.registry import KindRegistry
from onejob.wire.requests import User

_AGENT: Final = b"onejob (in process)"
_JSON: Final = b"application/json"


class AuditedClient(AuthorizedClient):
    """Client whose requests are recorded."""

    def __init__(
        self,
        client: LocalClient,
        user: User,
        rights: Rights,
        kinds: KindRegistry,
        metrics: Metrics,
        auditor: Auditor,
    ) -> None:
        super().__init__(client, user, rights, kinds, metrics)
        self._auditor = auditor
        #: Staged writes not known to be on disk yet, with their audit records, oldest first.
        self._staged: list[tuple[Op, AuditedRequest, Written]] = []
        self.durable = self._durable

    async def get(self, key: Key) -> bytes:
        audited = self._begin("get", key.resource, key.namespace, key.name)
        try:
            document = await super().get(key)
        except ApiError as error:
            _fail(audited, error)
            raise
        audited.complete(200, document, _JSON)
        return document

    async def list(self, what: Selection, *, limit: int = 0, token: str = "") -> Listing:
        audited = self._begin("list", what.resource, what.namespace)
        try:
            found = await super().list(what, limit=limit, token=token)
        except ApiError as error:
            _fail(audited, error)
            raise
        # Whole lists go to caches, and are not repeated in the log.
        audited.complete(200, None, b"")
        return found

    def watch(self, what: Selection, *, after: int) -> AsyncGenerator[Sequence[WatchEvent], None]:
        audited = self._begin("watch", what.resource, what.namespace)
        try:
            events = super().watch(what, after=after)
        except ApiError as error:
            _fail(audited, error)
            raise
        audited.started(200)
        return _until_closed(events, audited)

    async def write(self, op: Op) -> Written:
        audited = self._begin_write(op)
        try:
            written = await super().write(op)
        except ApiError as error:
            _fail(audited, error)
            raise
        audited.complete(code_of(op), written.document, _JSON)
        return written

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        begun = [self._begin_write(op) for op in ops]
        try:
            results = await super().write_many(ops)
        except ApiError as error:
            for audited in begun:
                _fail(audited, error)
            raise
        for audited, op, result in zip(begun, ops, results, strict=True):
            if isinstance(result, ApiError):
                _fail(audited, result)
            else:
                audited.complete(code_of(op), result.document, _JSON)
        return results

    def stage_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        results: list[Result] = []
        for op in ops:
            # One by one, so that the annotations of each are in its own record.
            audited = self._begin_write(op)
            (result,) = super().stage_many((op,))
            results.append(result)
            if isinstance(result, ApiError):
                _fail(audited, result)
            else:
                self._staged.append((op, audited, result))
        return results

    async def _durable(self, revision: int) -> None:
        """Wait until a revision is durable, then record the staged writes up to it.

        Each is recorded with its result. If the caller is cancelled, the next call records them.
        """
        try:
            await self._client.durable(revision)
        except ApiError:
            await self._record(revision)
            raise
        await self._record(revision)

    async def _record(self, revision: int) -> None:
        """Record all staged writes up to `revision`, each with its own result.

        Each write is awaited separately, because the rollback of a commit does not affect writes
        that were on disk before.
        """
        ended = [entry for entry in self._staged if entry[2].revision <= revision]
        self._staged = [entry for entry in self._staged if entry[2].revision > revision]
        for op, audited, written in ended:
            try:
                await self._client.durable(written.revision)
            except ApiError as error:
                _fail(audited, error)
            else:
                audited.complete(code_of(op), written.document, _JSON)

    def _begin_write(self, op: Op) -> AuditedRequest:
        """Return the audit record of a write."""
        subresource = subresource_of(op)
        if isinstance(op, Create):
            place = (op.resource, op.namespace, "")
        else:
            place = (op.key.resource, op.key.namespace, op.key.name)
        audited = self._begin(verb_of(type(op)), *place, subresource, content_type_of(op))
        if audited.wants_body:
            audited.body(body_of(op))
        return audited

    def _begin(
        self,
        verb: str,
        resource: str,
        namespace: str,
        name: str = "",
        subresource: str = "",
        content_type: str = "",
    ) -> AuditedRequest:
        """Return the audit record of a request."""
        plural, _, group = resource.partition(".")
        kind = self._kinds.by_resource.get(resource)
        version = kind.version if kind is not None else ""
        wanted = Attributes(verb, group, version, plural, subresource, namespace, name)
        headers = {b"user-agent": _AGENT, b"content-type": content_type.encode()}
        audited = self._auditor.begin(_uri(wanted), headers)
        audited.identified(self.user, None, wanted)
        return audited


async def _until_closed(
    events: AsyncGenerator[Sequence[WatchEvent], None], audited: AuditedRequest
) -> AsyncGenerator[Sequence[WatchEvent], None]:
    """Yield the events of a watch, and complete its audit record at the end."""
    try:
        async for batch in events:
            yield batch
    finally:
        await events.aclose()
        audited.complete(200, None, b"")


def _uri(wanted: Attributes) -> str:
    """Return path and query of the equivalent HTTP request."""
    parts = ["apis", wanted.group] if wanted.group else ["api"]
    parts.append(wanted.version)
    if wanted.namespace:
        parts += ["namespaces", wanted.namespace]
    parts += [part for part in (wanted.resource, wanted.name, wanted.subresource) if part]
    return "/".join(("", *parts)) + ("?watch=true" if wanted.verb == "watch" else "")


def _fail(audited: AuditedRequest, error: ApiError) -> None:
    """Complete an audit record with an error."""
    audited.complete(error.code, msgspec.json.encode(error.status()), _JSON)
