"""In-process API client with the faults that the `Client` interface allows.

Responses get lost after the write has happened, permissions are missing, watches are late, end, or
expire. Events are never reordered, dropped or repeated within one watch: no server does that.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

import msgspec

from onejob.api.service import Service
from onejob.client.base import Create, Listing, Op, Result, Selection, WatchEvent, Written
from onejob.client.local import LocalClient
from onejob.objects.meta import PODS, Key, Meta, View
from onejob.wire.errors import ApiError, Expired, InternalError
from sim.faults import Chance
from sim.rights import Rights

_LATEST_SECONDS = 2.0
#: Selection of the node's informer; all others list the Pods of a single namespace.
_ALL_PODS = Selection(PODS)


class _Named(View, frozen=True):
    metadata: Meta = Meta()


_read = msgspec.json.Decoder(_Named).decode


def _resource(op: Op) -> str:
    return op.resource if isinstance(op, Create) else op.key.resource


class FaultyClient(LocalClient):
    """`LocalClient` with drawn faults.

    `acknowledge` gets the resource and revision of each write reported as durable.
    """

    def __init__(
        self,
        service: Service,
        dice: Chance,
        rights: Rights,
        acknowledge: Callable[[str, int], None],
    ) -> None:
        super().__init__(service)
        self._dice = dice
        self._rights = rights
        self._acknowledge = acknowledge
        #: Resource of each write staged here, by revision.
        self._staged: dict[int, str] = {}
        #: Time at which this client first saw a Pod terminating or deleted, by UID.
        self.deletions_shown: dict[str, float] = {}
        #: Faults are off until the process has started: a failed start would only be repeated.
        self.reliable = True

    async def get(self, key: Key) -> bytes:
        self._require("get", key.resource)
        return await super().get(key)

    async def list(self, what: Selection, *, limit: int = 0, token: str = "") -> Listing:
        self._require("list", what.resource)
        listing = await super().list(what, limit=limit, token=token)
        if what == _ALL_PODS:
            for document in listing.documents:
                self._note_deletion(document)
        return listing

    async def watch(
        self, what: Selection, *, after: int
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        self._require("watch", what.resource)
        async with aclosing(super().watch(what, after=after)) as batches:
            async for batch in batches:
                for part in self._parts(batch):
                    if self._happens("late watch"):
                        await asyncio.sleep(self._dice.up_to("late watch", _LATEST_SECONDS))
                    if self._happens("expired watch"):
                        raise Expired("the simulated server forgot its history")
                    if what == _ALL_PODS:
                        for event in part:
                            self._note_deletion(event.document, gone=event.type == "DELETED")
                    yield part
                    if self._happens("broken watch"):
                        return

    async def write(self, op: Op) -> Written:
        written = await super().write(op)
        self._answer([(_resource(op), written.revision)])
        return written

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        results = await super().write_many(ops)
        self._answer(
            [
                (_resource(op), result.revision)
                for op, result in zip(ops, results, strict=True)
                if isinstance(result, Written)
            ]
        )
        return results

    def stage_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        refused = [self._refusal(op) for op in ops]
        allowed = [op for op, error in zip(ops, refused, strict=True) if error is None]
        outcomes = iter(super().stage_many(allowed))
        results = [next(outcomes) if error is None else error for error in refused]
        for op, outcome in zip(ops, results, strict=True):
            if not isinstance(outcome, ApiError):
                self._staged[outcome.revision] = _resource(op)
        return results

    def _refusal(self, op: Op) -> ApiError | None:
        if self._happens("refused write"):
            return InternalError("the simulation refused the write")
        if not self.reliable:
            try:
                self._rights.require_write(op)
            except ApiError as error:
                return error
        return None

    async def durable(self, revision: int) -> None:
        await super().durable(revision)
        # A refused caller waits for a revision that another client wrote, perhaps a user.
        resource = self._staged.get(revision)
        self._answer([] if resource is None else [(resource, revision)])

    def _answer(self, written: Sequence[tuple[str, int]]) -> None:
        if self._happens("lost answer"):
            raise InternalError("the simulation lost the answer")
        for resource, revision in written:
            self._acknowledge(resource, revision)

    def _parts(self, batch: Sequence[WatchEvent]) -> Sequence[Sequence[WatchEvent]]:
        if len(batch) < 2 or not self._happens("split watch"):
            return [batch]
        middle = len(batch) // 2
        return [batch[:middle], batch[middle:]]

    def _note_deletion(self, document: bytes, *, gone: bool = False) -> None:
        if gone or b'"deletionTimestamp"' in document:
            uid = _read(document).metadata.uid
            self.deletions_shown.setdefault(uid, asyncio.get_running_loop().time())

    def _require(self, verb: str, resource: str) -> None:
        if not self.reliable:
            self._rights.require(verb, resource)

    def _happens(self, kind: str) -> bool:
        return not self.reliable and self._dice.happens(kind)
