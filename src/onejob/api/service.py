"""The verbs of the Kubernetes API, without transport.

HTTP (`onejob.api.http.app`) and the in-process client (`onejob.client.local`) both call this.
Failures are raised as `onejob.wire.errors.ApiError`. A write returns once it is on disk.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from functools import cached_property, partial
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from onejob.api.admission.admission import Admission, FollowedStore
from onejob.api.custom.definitions import DEFINITIONS, DefinitionStrategy
from onejob.api.other_names import OtherNames
from onejob.api.reading import Reading
from onejob.api.schema.schema import load_schema
from onejob.api.sections import copied, read_metadata
from onejob.api.strategies import Strategies, strategy_for
from onejob.api.strategy import Document, Guard, Strategy
from onejob.api.turns import DOCUMENT_COST, INLINE_BYTES, SharedTurns, Turns, Worker
from onejob.api.writing.created_metadata import CreatedMetadatas
from onejob.api.writing.created_spec import CreatedSpecs
from onejob.api.writing.managed_fields import STATUS_WRITERS
from onejob.api.writing.pod_subresources import bind, evict
from onejob.api.writing.rehearsal import rehearsed
from onejob.api.writing.status_entries import StatusEntries
from onejob.api.writing.writes import Writes
from onejob.clock import Clock
from onejob.gates import FeatureGates
from onejob.objects.disruption_budget import BUDGETS
from onejob.objects.meta import NAMESPACES, Key
from onejob.planning.custom_resources import is_true
from onejob.planning.names import TRACKING
from onejob.planning.pod.security import Means
from onejob.store.base import CommitFailed, Stored, StoreError
from onejob.wire.errors import (
    ApiError,
    InsufficientStorage,
    InternalError,
    NotFound,
    RequestTooLarge,
    not_found,
)
from onejob.wire.kinds import Kind
from onejob.wire.registry import KindRegistry, KindsChanged
from onejob.wire.requests import (
    DeleteOptions,
    ListOptions,
    ListOutcome,
    Outcome,
    Target,
    WatchEvent,
    WatchOptions,
    WriteOptions,
)

if TYPE_CHECKING:
    from onejob.api.custom.serving import Definitions

log = logging.getLogger(__name__)

_DEFINITIONS_PER_PAGE = 100
#: Kinds whose DELETE answers with the object even when it is gone at once.
_ANSWER_WITH_OBJECT = frozenset({"pods", "serviceaccounts"})


class Service:
    """`body` arguments are decoded documents (dicts) that the service may change; `problems`
    are what decoding already found (duplicate fields), to be reported with unknown fields
    according to field_validation; `size` is what a document takes as bytes, about: large ones
    are worked on by another thread."""

    def __init__(
        self,
        store: FollowedStore,
        *,
        clock: Clock,
        rng: Random,
        gates: FeatureGates,
        tracking: str = TRACKING,
        means: Means | None = None,
        kinds: KindRegistry | None = None,
    ) -> None:
        """`tracking` is the name written where Jobs are marked as tracked; `means` is how the node
        enforces a securityContext, if there is one to warn of; `kinds` are those to serve, if not
        only the ones that all servers have."""
        self.kinds = kinds or KindRegistry()
        self._strategy_for = partial(strategy_for, gates=gates, tracking=tracking)
        strategies = Strategies(
            {kind.resource: partial(self._strategy_for, kind) for kind in self.kinds.kinds}
        )
        if DEFINITIONS in self.kinds.by_resource:
            definitions = DefinitionStrategy(self.kinds.by_resource[DEFINITIONS])
            strategies[DEFINITIONS] = definitions
        self.store = store
        self.clock = clock
        #: By the resource's name; follows the registry of kinds.
        self.strategies: dict[str, Strategy] = strategies
        self.schema = load_schema().for_server()
        #: The synchronous half of every write; callers batch with it, then await `durable`.
        means = means or Means(engine=True)
        #: Filled by whoever knows what users may do: see `Guard`.
        self.guards: dict[str, Guard] = {}
        self.admission = Admission(
            store,
            lambda: {kind.storage for kind in self.kinds.kinds if kind.namespaced},
            can_change_user=means.engine or means.root,
        )
        created_specs = CreatedSpecs(strategies, self.schema, means)
        self.writes = Writes(
            store,
            strategies,
            self.schema,
            clock,
            rng,
            means,
            self.guards,
            created_specs,
            CreatedMetadatas(strategies, self.schema),
            self.admission,
        )
        self.worker = Worker()
        #: Of all watches that are sent to clients.
        self.watch_turns = SharedTurns()
        self._reading = Reading(store, strategies)
        self._other_names = OtherNames(self, self._reading)
        self._status_entries = StatusEntries(store.committed_at, self.writes.type_of)
        self.kinds.subscribe(self._kinds_changed)

    @cached_property
    def definitions(self) -> "Definitions":
        """Has custom resources served. Most servers have none and never import this."""
        from onejob.api.custom.serving import Definitions

        return Definitions(self)

    def install_definitions(self) -> None:
        """Serve the custom resources that were served before this server was started."""
        after = None
        while True:
            page = self.store.list(DEFINITIONS, "", limit=_DEFINITIONS_PER_PAGE, after=after)
            for stored in page.items:
                document = msgspec.json.decode(stored.value)
                if is_true(document, "Established"):
                    self._install_definition(document)
            after = page.next_after
            if after is None:
                return

    def _install_definition(self, document: Document) -> None:
        terminating = "deletionTimestamp" in document["metadata"]
        try:
            self.definitions.install(document, terminating=terminating)
        except ValueError as error:
            # Of a data dir that is older than a kind of the server. Its status will say so, too.
            log.warning("%s is not served any more: %s", document["metadata"]["name"], error)

    def _kinds_changed(self, change: KindsChanged) -> None:
        staying = {(kind.strategy, kind.api_version) for kind in change.added}
        for kind in change.removed:
            if (kind.strategy, kind.api_version) not in staying:
                self.strategies.pop(kind.strategy, None)
                self.schema.drop(kind.api_version, kind.kind)
        for kind in change.added:
            if kind.strategy not in self.strategies:
                self.strategies[kind.strategy] = self._strategy_for(kind)
            if not self.schema.knows(kind.api_version, kind.kind):
                from onejob.api.schema.added_kinds import open_definition, open_shape

                shape = open_shape(kind, self.schema)
                self.schema.add(kind.api_version, kind.kind, shape, open_definition(kind))

    async def create(
        self,
        kind: Kind,
        namespace: str,
        body: Document,
        options: WriteOptions,
        *,
        name: str = "",
        subresource: str = "",
        problems: Sequence[str] = (),
        size: int = 0,
    ) -> Outcome:
        """POST. `name` and `subresource` for pods/binding and pods/eviction."""
        size = self._expanded(kind, body, size)
        if kind.stored_as:
            return await self._other_names.create(kind, namespace, body, options, problems, size)
        if subresource or kind.plural == "bindings":
            if size > INLINE_BYTES:
                raise RequestTooLarge(f"Request entity too large: limit is {INLINE_BYTES}")
            if subresource == "eviction":
                budgets = self.budgets_in(namespace)
                return await self.decided(
                    lambda: evict(self.writes, namespace, name, body, options, budgets)
                )
            return await self.decided(lambda: bind(self.writes, namespace, name, body, options))

        def create(writes: Writes, body: Document) -> Outcome:
            return writes.create(kind, namespace, body, options, problems)

        return await self._write(create, body, size, (Key(NAMESPACES, "", namespace),))

    def budgets_in(self, namespace: str) -> Sequence[Key]:
        """The disruption budgets of a namespace, which evictions are charged to."""
        return [stored.key for stored in self.store.list(BUDGETS, namespace).items]

    def require_reached(self, resource_version: str) -> None:
        """Reads are always of the newest state; raises Timeout for one that is yet to come."""
        self._reading.require_reached(resource_version)

    async def get(self, kind: Kind, namespace: str, name: str) -> bytes:
        if kind.stored_as:
            return await self._other_names.get(kind, namespace, name)
        return self._stored(kind, namespace, name).value

    def _stored(self, kind: Kind, namespace: str, name: str) -> Stored:
        stored = self.store.get(Key(kind.storage, namespace, name))
        if stored is None:
            raise not_found(kind.resource, name)
        return stored

    async def get_for_client(self, kind: Kind, namespace: str, name: str) -> bytes:
        """With the managedFields that are not stored: see `status_entries`."""
        if (kind.api_version, kind.kind) not in STATUS_WRITERS:
            return await self.get(kind, namespace, name)
        stored = self._stored(kind, namespace, name)
        return self._status_entries.shown(stored, kind)

    def outcome_for_client(self, kind: Kind, outcome: Outcome) -> Outcome:
        """Return the outcome of a write with the managedFields that a GET returns."""
        if (kind.api_version, kind.kind) not in STATUS_WRITERS:
            return outcome
        document = self._status_entries.written(outcome.document, outcome.revision, kind)
        return msgspec.structs.replace(outcome, document=document)

    async def list(self, kind: Kind, namespace: str, options: ListOptions) -> ListOutcome:
        if kind.stored_as:
            return await self._other_names.list(kind, namespace, options)
        return await self._reading.list(kind, namespace, options)

    def watch(
        self, kind: Kind, namespace: str, options: WatchOptions
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        """Batches of events. Raises Expired (before or between events) when the revision is
        too old; ends when the time is over. Close the iterator to end it early."""
        served = self._other_names if kind.stored_as else self._reading
        batches = served.watch(kind, namespace, options)
        return self._while_served(kind, batches) if kind.custom else batches

    async def _while_served(
        self, kind: Kind, batches: AsyncGenerator[Sequence[WatchEvent], None]
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        """A watch ends when its definition goes or changes: who comes back finds the new one."""
        changed = asyncio.get_running_loop().create_future()

        def note(change: KindsChanged) -> None:
            if kind in change.removed and not changed.done():
                changed.set_result(None)

        unsubscribe = self.kinds.subscribe(note)
        try:
            while True:
                following = asyncio.ensure_future(anext(batches, None))
                try:
                    await asyncio.wait((following, changed), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not following.done():
                        following.cancel()
                        await asyncio.wait((following,))
                batch = None if following.cancelled() else following.result()
                if batch is None:
                    return
                yield batch
        finally:
            unsubscribe()
            await batches.aclose()

    async def update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Document,
        options: WriteOptions,
        *,
        subresource: str = "",
        problems: Sequence[str] = (),
        size: int = 0,
    ) -> Outcome:
        size = self._expanded(kind, body, size)
        if kind.stored_as:
            target = Target(kind, namespace, name, subresource)
            return await self._other_names.update(target, body, options, problems, size)
        target = Target(kind, namespace, name, subresource)

        def update(writes: Writes, body: Document) -> Outcome:
            return writes.update(target, body, options, problems)

        return await self._write(update, body, size, (target.key,))

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch_type: str,
        body: Any,
        options: WriteOptions,
        *,
        subresource: str = "",
        problems: Sequence[str] = (),
        size: int = 0,
    ) -> Outcome:
        """`patch_type` is json, merge, strategic or apply; `body` the decoded patch."""
        size = self._expanded(kind, body, size)
        if kind.stored_as:
            target = Target(kind, namespace, name, subresource)
            return await self._other_names.patch(target, patch_type, body, options, problems, size)
        target = Target(kind, namespace, name, subresource)

        def patch(writes: Writes, body: Any) -> Outcome:
            return writes.patch(target, patch_type, body, options, problems)

        keys = (target.key, Key(NAMESPACES, "", namespace))
        return await self._write(patch, body, size, keys)

    async def delete(
        self, kind: Kind, namespace: str, name: str, options: DeleteOptions
    ) -> Outcome:
        """The document is the object if it stays (finalizers, grace) or for Pods and
        ServiceAccounts, else a Status."""
        target = Target(kind, namespace, name)
        outcome = await self.decided(lambda: self.writes.delete(target, options))
        metadata = read_metadata(outcome.document)
        stays = "deletionTimestamp" in metadata
        if stays or kind.storage in _ANSWER_WITH_OBJECT:
            return self._other_names.outcome(kind, outcome) if kind.stored_as else outcome
        return Outcome(200, _deleted(kind, metadata), outcome.revision, outcome.warnings)

    async def delete_collection(
        self, kind: Kind, namespace: str, selection: ListOptions, options: DeleteOptions
    ) -> ListOutcome:
        found = await self.list(kind, namespace, selection)
        documents = []
        newest = 0
        gone_already = False
        turns = Turns()
        for document in found.documents:
            # Deleting reads and writes the whole document.
            await turns.spend(8 * (len(document) + DOCUMENT_COST))
            metadata = read_metadata(document)
            target = Target(kind, metadata.get("namespace", ""), metadata["name"])
            try:
                outcome = self.writes.delete(target, options)
            except NotFound:
                # Somebody else was faster; the collection is without it, as was asked.
                gone_already = True
                continue
            newest = max(newest, outcome.revision)
            documents.append(outcome.document)
        if gone_already:
            await self.settled()
        await self.durable(newest)
        deleted = ListOutcome(tuple(documents), self.store.revision)
        return self._other_names.listing(kind, deleted) if kind.stored_as else deleted

    def _expanded(self, kind: Kind, body: Any, size: int) -> int:
        """Return the size of a body with the defaults that its kind adds."""
        if not kind.custom or size > INLINE_BYTES:
            return size
        return size + self.strategies[kind.strategy].expansion(body)

    async def _write(
        self,
        decide: Callable[[Writes, Any], Outcome],
        body: Any,
        size: int,
        keys: Iterable[Key],
    ) -> Outcome:
        """Decide a write and wait until it is on disk; `keys` are objects it is known to read."""
        held = (self.store.newest(key) for key in keys)
        size += sum(len(stored.value) for stored in held if stored is not None)
        if size <= INLINE_BYTES:
            return await self.decided(lambda: decide(self.writes, body))
        try:
            outcome = await rehearsed(
                # A copy for each try: deciding changes the body.
                self.writes, self.worker, keys, lambda writes: decide(writes, copied(body))
            )  # fmt: skip
        except ApiError:
            await self.settled()
            raise
        await self.durable(outcome.revision)
        return outcome

    async def decided(self, decide: Callable[[], Outcome]) -> Outcome:
        """What was decided, or its refusal, once nobody can take it back."""
        try:
            outcome = decide()
        except ApiError:
            await self.settled()
            raise
        await self.durable(outcome.revision)
        return outcome

    async def settled(self) -> None:
        """Wait until all that is staged is on disk: before a refusal is told, for it was decided by
        what may not be written in the end. An object whose deletion is rolled back was never
        gone."""
        await self.durable(self.store.pending_revision)

    async def durable(self, revision: int) -> None:
        """Wait until a staged write is on disk."""
        try:
            await self.store.durable(revision)
        except CommitFailed as error:
            raise InsufficientStorage(f"the write could not be stored: {error}") from error
        except StoreError as error:
            raise InternalError(f"the write could not be stored: {error}") from error


def _deleted(kind: Kind, metadata: Document) -> bytes:
    details = {"name": metadata["name"]}
    if kind.group:
        details["group"] = kind.group
    details |= {"kind": kind.plural, "uid": metadata["uid"]}
    return msgspec.json.encode(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": details,
        }
    )
