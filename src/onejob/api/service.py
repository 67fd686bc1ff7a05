"""Transport-independent Kubernetes API verbs: create, get, list, watch, update, patch, delete.

Called by the HTTP server (`onejob.api.http.app`) and by the in-process client
(`onejob.client.local`).

Guarantees:
    A write returns only after it is durable on disk.
    A rejection is raised only after every write it depended on is durable.

Errors:
    Failures are raised as `onejob.wire.errors.ApiError`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from functools import cached_property, partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from onejob.api.admission.admission import Admission, ObservableStore
from onejob.api.admission.dynamic.attributes import Operation, Requester, requester_of
from onejob.api.aliases import ConvertedKinds
from onejob.api.crd.definitions import DEFINITIONS, DefinitionStrategy
from onejob.api.documents import deep_copy, read_metadata
from onejob.api.kinds import Strategies, strategy_for
from onejob.api.reading import Reading
from onejob.api.schema.schema import load_schema
from onejob.api.strategy import Document, Guard, Strategy
from onejob.api.writing.managed_fields import STATUS_WRITERS
from onejob.api.writing.pod_subresources import bind, evict
from onejob.api.writing.rehearsal import rehearsed
from onejob.api.writing.status_entries import StatusEntries
from onejob.api.writing.writes import Writes
from onejob.api.yielding import (
    INLINE_BYTES,
    PER_DOCUMENT_COST_BYTES,
    SharedYieldBudget,
    Turns,
    Worker,
)
from onejob.clock import Clock
from onejob.gates import FeatureGates
from onejob.objects.disruption_budget import BUDGETS
from onejob.objects.meta import JOBS, NAMESPACES, PODS, WORKFLOWS, Key
from onejob.planning.custom_resources import is_true
from onejob.planning.names import AFTER_ANNOTATIONS, TRACKING
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
from onejob.wire.kinds import KINDS, WORKLOAD_KINDS, Kind
from onejob.wire.registry import KindRegistry, KindsChanged
from onejob.wire.requests import (
    DeleteOptions,
    ListOptions,
    ListOutcome,
    Outcome,
    Target,
    User,
    WatchEvent,
    WatchOptions,
    WriteOptions,
)

if TYPE_CHECKING:
    from onejob.api.crd.serving import Definitions
    from onejob.api.history.records import JobHistory

log = logging.getLogger(__name__)

_DEFINITIONS_PER_PAGE = 100
#: Resources whose removal concerns the history of Jobs.
_RECORDED = frozenset({PODS, JOBS, WORKFLOWS, NAMESPACES})
#: Kinds whose DELETE returns the object even if it is removed immediately.
_ANSWER_WITH_OBJECT = frozenset({"pods", "serviceaccounts"})


#: Returns custom objects in the version of a kind, in order. Raises ConversionFailed.
Converter: TypeAlias = Callable[[Sequence[Document], Kind], Awaitable[Sequence[Document]]]


class Service:
    """Entry point for all API verbs on stored objects.

    Arguments shared by the write methods:

    - `body`: decoded document (dict). The service may modify it.
    - `problems`: decoding problems such as duplicate fields. They are reported together with
      unknown fields according to `options.field_validation`.
    - `size`: approximate size of the document in bytes. Large documents are processed in a worker
      thread.
    """

    def __init__(
        self,
        store: ObservableStore,
        *,
        clock: Clock,
        rng: Random,
        gates: FeatureGates,
        tracking: str = TRACKING,
        means: Means | None = None,
        kinds: KindRegistry | None = None,
    ) -> None:
        """Build the write and read paths on top of `store`.

        `tracking` is the name with which tracked Jobs are marked. `means` describes how the node
        enforces a securityContext, for warnings about unenforced fields. `kinds` defaults to the
        built-in kinds that these gates serve.
        """
        self.kinds = kinds or KindRegistry(_served_kinds(gates))
        self._strategy_for = partial(strategy_for, gates=gates, tracking=tracking)
        strategies = Strategies(
            {kind.resource: partial(self._strategy_for, kind) for kind in self.kinds.kinds}
        )
        if DEFINITIONS in self.kinds.by_resource:
            definitions = DefinitionStrategy(self.kinds.by_resource[DEFINITIONS])
            strategies[DEFINITIONS] = definitions
        self.store = store
        self.clock = clock
        #: Strategies by resource name; updated when the kind registry changes.
        self.strategies: dict[str, Strategy] = strategies
        self.schema = load_schema().for_server()
        #: The synchronous half of every write; callers batch with it, then await `durable`.
        means = msgspec.structs.replace(
            means or Means(engine=True, runtime=""),
            gangs=gates.enabled("GenericWorkload"),
            job_gangs=gates.enabled("WorkloadWithJob"),
        )
        #: Checks of user rights per resource, registered by the authorization setup: see `Guard`.
        self.guards: dict[str, Guard] = {JOBS: self._check_dependencies}
        self.admission = Admission(
            store,
            lambda: {kind.storage for kind in self.kinds.kinds if kind.namespaced},
            can_change_user=means.engine or means.root,
        )
        self.writes = Writes(
            store,
            strategies,
            self.schema,
            clock,
            rng,
            means,
            self.guards,
            self.admission,
            on_removal=self._record_removal,
        )
        #: Returns whether a Job, by namespace, name and UID, is awaited by another one. Until the
        #: controllers have loaded all Jobs, each might be.
        self.awaits_end: Callable[[str, str, str], bool] = lambda namespace, name, uid: True
        #: Returns whether the stored status of a workflow, by namespace, name and UID, may lack
        #: Jobs that were created for it, or their ends.
        self.workflow_lacks_jobs: Callable[[str, str, str], bool] = lambda namespace, name, uid: (
            True
        )
        #: Conversion of custom objects to the version of a kind, by webhooks; None without any.
        self.converter: Converter | None = None
        self.worker = Worker()
        #: Yield budget shared by all watches that are streamed to clients.
        self.watch_turns = SharedYieldBudget()
        self._reading = Reading(store, strategies)
        self._other_names = ConvertedKinds(self, self._reading)
        self._status_entries = StatusEntries(store.committed_at, self.writes.type_of)
        self.kinds.subscribe(self._kinds_changed)

    @cached_property
    def definitions(self) -> "Definitions":
        """Return the registrar of custom resources.

        Imported lazily: most servers have no custom resources.
        """
        from onejob.api.crd.serving import Definitions

        return Definitions(self)

    def _check_dependencies(
        self, user: User, kind: Kind, namespace: str, new: Document, old: Document | None
    ) -> None:
        """Check the dependencies of a Job, for which the rules are imported on use."""
        if not AFTER_ANNOTATIONS.isdisjoint(new["metadata"].get("annotations", ())):
            from onejob.api.admission.job_dependencies import DependencyGuard

            DependencyGuard(self.store)(user, kind, namespace, new, old)

    @cached_property
    def history(self) -> "JobHistory":
        """Return the records of ended Pods. Imported with the first removal."""
        from onejob.api.history.records import JobHistory

        return JobHistory(
            self.store,
            lambda *job: self.awaits_end(*job),
            lambda *workflow: self.workflow_lacks_jobs(*workflow),
        )

    def _record_removal(self, stored: Stored) -> None:
        if stored.key.resource in _RECORDED:
            self.history.removing(stored)

    def install_definitions(self) -> None:
        """Serve the custom resources that were established before this server started."""
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
        """Serve the kinds of a stored definition; one whose names are taken is logged."""
        terminating = "deletionTimestamp" in document["metadata"]
        try:
            self.definitions.install(document, terminating=terminating)
        except ValueError as error:
            # The data dir predates a built-in kind of this server that claims the same names. The
            # definition's status will report it, too.
            log.warning("%s is not served any more: %s", document["metadata"]["name"], error)

    def _kinds_changed(self, change: KindsChanged) -> None:
        """Add and remove the strategies and schemas of changed kinds."""
        # Strategies belong to roles: another version may take that of the storage version.
        strategies = {kind.strategy for kind in change.added}
        shapes = {(kind.api_version, kind.kind) for kind in change.added}
        for kind in change.removed:
            if kind.strategy not in strategies:
                self.strategies.pop(kind.strategy, None)
            if (kind.api_version, kind.kind) not in shapes:
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
        """Handle POST. `name` and `subresource` are set for pods/binding and pods/eviction only."""
        size = self._expanded(kind, body, size)
        if kind.stored_as:
            return await self._other_names.create(kind, namespace, body, options, problems, size)
        if subresource or kind.plural == "bindings":
            if size > INLINE_BYTES:
                raise RequestTooLarge(f"Request entity too large: limit is {INLINE_BYTES}")
            target = Target(kind, namespace, name, subresource)
            return await self._move_pod(target, body, options)

        def create(writes: Writes, body: Document) -> Outcome:
            return writes.create(kind, namespace, body, options, problems)

        requester = self._reviews("CREATE", kind, "", options)
        keys = (Key(NAMESPACES, "", namespace),)
        return await self._write(create, body, size, keys, requester)

    async def _move_pod(self, target: Target, body: Document, options: WriteOptions) -> Outcome:
        """Bind or evict a Pod."""
        namespace, name = target.namespace, target.name
        warnings: tuple[str, ...] = ()
        if requester := self._reviews("CREATE", target.kind, target.subresource, options):
            # Imported with the first reviewed write: most servers have no webhook.
            from onejob.api.writing.reviewed import admitted_body

            dynamic = self.admission.dynamic
            body, warnings = await admitted_body(dynamic, requester, "CREATE", target, body)
        if target.subresource == "eviction":
            budgets = self.budgets_in(namespace)
            outcome = await self.decided(
                lambda: evict(self.writes, namespace, name, body, options, budgets)
            )
        else:
            outcome = await self.decided(lambda: bind(self.writes, namespace, name, body, options))
        return msgspec.structs.replace(outcome, warnings=(*outcome.warnings, *warnings))

    def _reviews(
        self,
        operation: Operation,
        kind: Kind,
        subresource: str,
        options: WriteOptions | DeleteOptions,
    ) -> Requester | None:
        """Return the attributes for dynamic admission; None if the write is not subject to it."""
        dynamic = self.admission.dynamic
        if not dynamic.active or not dynamic.concerns(
            operation, options.requested or kind, subresource
        ):
            return None
        return requester_of(options)

    async def admitted(
        self,
        operation: Operation,
        target: Target,
        body: Document,
        old: Document | None,
        options: WriteOptions,
    ) -> tuple[Document, tuple[str, ...]]:
        """Return the body of a subresource, such as a scale, as dynamic admission leaves it, and
        warnings. Raises ApiError."""
        requester = self._reviews(operation, target.kind, target.subresource, options)
        if requester is None:
            return body, ()
        from onejob.api.writing.reviewed import admitted_body

        dynamic = self.admission.dynamic
        return await admitted_body(dynamic, requester, operation, target, body, old)

    def budgets_in(self, namespace: str) -> Sequence[Key]:
        """Return the keys of the PodDisruptionBudgets of a namespace; evictions are charged to
        them."""
        return [stored.key for stored in self.store.list(BUDGETS, namespace).items]

    def require_reached(self, resource_version: str) -> None:
        """Raise Timeout if `resource_version` is in the future.

        Reads always return the newest state.
        """
        self._reading.require_reached(resource_version)

    async def get(self, kind: Kind, namespace: str, name: str) -> bytes:
        if kind.stored_as or self._stored_in_others(kind):
            return await self._other_names.get(kind, namespace, name)
        return self.stored(kind, namespace, name).value

    def stored(self, kind: Kind, namespace: str, name: str) -> Stored:
        """Return the durable version of an object. Raises NotFound."""
        stored = self.store.get(Key(kind.storage, namespace, name))
        if stored is None:
            raise not_found(kind.resource, name)
        return stored

    async def get_for_client(self, kind: Kind, namespace: str, name: str) -> bytes:
        """Return the stored object with all its managedFields. Raises NotFound.

        Some entries are not stored but computed on read: see `status_entries`.
        """
        if (kind.api_version, kind.kind) not in STATUS_WRITERS:
            return await self.get(kind, namespace, name)
        stored = self.stored(kind, namespace, name)
        return self._status_entries.shown(stored, kind)

    async def converted(self, documents: Sequence[Document], kind: Kind) -> Sequence[Document]:
        """Return objects in another version of their resource. Raises ConversionFailed."""
        if kind.custom and self.definitions.has_conversion_webhook(kind) and self.converter:
            return await self.converter(documents, kind)
        if not kind.custom:
            return self._other_names.translated(documents, kind)
        return [{**document, "apiVersion": kind.api_version} for document in documents]

    def _stored_in_others(self, kind: Kind) -> bool:
        """Return whether objects may be stored in versions that only a webhook converts."""
        if not kind.custom or self.converter is None:
            return False
        return self.definitions.needs_conversion(kind)

    def _is_stored_in_another(self, target: Target) -> bool:
        """Return whether an object has to be converted by a webhook to be patched."""
        if not self._stored_in_others(target.kind):
            return False
        stored = self.store.newest(target.key)
        if stored is None:
            return False
        document: Document = msgspec.json.decode(stored.value)
        return bool(document["apiVersion"] != target.kind.api_version)

    def outcome_for_client(self, kind: Kind, outcome: Outcome) -> Outcome:
        """Return `outcome` with the managedFields that a GET would return."""
        if (kind.api_version, kind.kind) not in STATUS_WRITERS:
            return outcome
        document = self._status_entries.written(outcome.document, outcome.revision, kind)
        return msgspec.structs.replace(outcome, document=document)

    async def list(self, kind: Kind, namespace: str, options: ListOptions) -> ListOutcome:
        if kind.stored_as or self._stored_in_others(kind):
            return await self._other_names.list(kind, namespace, options)
        return await self._reading.list(kind, namespace, options)

    def watch(
        self, kind: Kind, namespace: str, options: WatchOptions
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        """Yield batches of watch events until the watch's timeout.

        Raises Expired, before or between events, when the requested revision is too old. Close the
        generator to end the watch early.
        """
        translated = kind.stored_as or self._stored_in_others(kind)
        served = self._other_names if translated else self._reading
        batches = served.watch(kind, namespace, options)
        return self._while_served(kind, batches) if kind.custom else batches

    async def _while_served(
        self, kind: Kind, batches: AsyncGenerator[Sequence[WatchEvent], None]
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        """End a custom resource's watch when its definition is removed or changed.

        Clients that reconnect then watch the new definition.
        """
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

        requester = self._reviews("UPDATE", kind, subresource, options)
        return await self._write(update, body, size, (target.key,), requester)

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
        """Handle PATCH.

        `patch_type` is json, merge, strategic or apply; `body` is the decoded patch.
        """
        size = self._expanded(kind, body, size)
        target = Target(kind, namespace, name, subresource)
        if kind.stored_as or (patch_type != "apply" and self._is_stored_in_another(target)):
            return await self._other_names.patch(target, patch_type, body, options, problems, size)

        def patch(writes: Writes, body: Any) -> Outcome:
            return writes.patch(target, patch_type, body, options, problems)

        keys = (target.key, Key(NAMESPACES, "", namespace))
        requester = (
            None if options.admitted else self._reviews("UPDATE", kind, subresource, options)
        )
        if requester is None and patch_type == "apply":
            requester = self._reviews("CREATE", kind, subresource, options)
        return await self._write(patch, body, size, keys, requester)

    async def delete(
        self, kind: Kind, namespace: str, name: str, options: DeleteOptions
    ) -> Outcome:
        """Delete one object.

        The outcome's document is the object if it remains (finalizers, grace period) or if it is a
        Pod or ServiceAccount; otherwise it is a Status.
        """
        target = Target(kind, namespace, name)
        outcome = await self.remove(target, options)
        metadata = read_metadata(outcome.document)
        stays = "deletionTimestamp" in metadata
        if stays or kind.storage in _ANSWER_WITH_OBJECT:
            return await self._other_names.outcome(kind, outcome) if kind.stored_as else outcome
        return Outcome(200, _deleted(kind, metadata), outcome.revision, outcome.warnings)

    async def remove(self, target: Target, options: DeleteOptions) -> Outcome:
        """Delete one object and return its last state."""
        kind = target.kind
        if self.admission.dynamic.active and kind.stored_as:
            options = msgspec.structs.replace(options, requested=kind)
            stored = self.kinds.by_resource[kind.storage]
            target = Target(stored, target.namespace, target.name)
        requester = self._reviews("DELETE", kind, "", options)
        if requester is None or (
            options.despite_damage and self.store.newest_is_damaged(target.key)
        ):
            return await self.decided(lambda: self.writes.delete(target, options))
        return await self._write(
            lambda writes, _: writes.delete(target, options), None, 0, (target.key,), requester
        )

    async def delete_collection(
        self, kind: Kind, namespace: str, selection: ListOptions, options: DeleteOptions
    ) -> ListOutcome:
        found = await self.list(kind, namespace, selection)
        documents = []
        newest = 0
        gone_already = False
        turns = Turns()
        reviewed = self._reviews("DELETE", kind, "", options) is not None
        if reviewed:
            options = msgspec.structs.replace(options, collective=True)
        for document in found.documents:
            # Factor 8: a deletion reads and rewrites the whole document.
            await turns.spend(8 * (len(document) + PER_DOCUMENT_COST_BYTES))
            metadata = read_metadata(document)
            target = Target(kind, metadata.get("namespace", ""), metadata["name"])
            try:
                if reviewed:
                    outcome = await self.remove(target, options)
                else:
                    outcome = self.writes.delete(target, options)
            except NotFound:
                # A concurrent request deleted it; the result is the requested one.
                gone_already = True
                continue
            newest = max(newest, outcome.revision)
            documents.append(outcome.document)
        if gone_already:
            await self.settled()
        await self.durable(newest)
        deleted = ListOutcome(tuple(documents), self.store.revision)
        return await self._other_names.listing(kind, deleted) if kind.stored_as else deleted

    def _expanded(self, kind: Kind, body: Any, size: int) -> int:
        """Return the size of `body` in bytes including the defaults that its kind adds."""
        if not kind.custom or size > INLINE_BYTES:
            return size
        return size + self.strategies[kind.strategy].bytes_added_by_defaults(body)

    async def _write(
        self,
        decide: Callable[[Writes, Any], Outcome],
        body: Any,
        size: int,
        keys: Iterable[Key],
        requester: Requester | None,
    ) -> Outcome:
        """Execute a write and wait until it is durable.

        `keys` are the objects that the write is known to read; their sizes count towards the
        decision to use the worker thread. `requester` is None if the write is not subject to
        dynamic admission.
        """
        held = (self.store.newest(key) for key in keys)
        size += sum(len(stored.value) for stored in held if stored is not None)
        is_small = size <= INLINE_BYTES
        if is_small and requester is None:
            return await self.decided(lambda: decide(self.writes, body))

        async def run(writes: Writes) -> Outcome:
            # `decide` modifies the body, so every attempt gets its own copy.
            if is_small:
                return decide(writes, deep_copy(body))
            return await self.worker.run(lambda: decide(writes, deep_copy(body)))

        async def evaluate(writes: Writes) -> Outcome:
            if requester is None:
                return await run(writes)
            from onejob.api.writing.reviewed import evaluated

            return await evaluated(writes, self.admission.dynamic, requester, run)

        try:
            outcome = await rehearsed(self.writes, None if is_small else keys, evaluate)
        except ApiError:
            await self.settled()
            raise
        await self.durable(outcome.revision)
        return outcome

    async def decided(self, decide: Callable[[], Outcome]) -> Outcome:
        """Run `decide` and return its outcome once the result can no longer be rolled back.

        An ApiError of `decide` is raised at that point, too.
        """
        try:
            outcome = decide()
        except ApiError:
            await self.settled()
            raise
        await self.durable(outcome.revision)
        return outcome

    async def settled(self) -> None:
        """Wait until all staged writes are durable.

        Required before reporting a rejection: it may have been based on a staged write that is
        rolled back later. If a deletion is rolled back, for example, its object never disappeared.
        """
        await self.durable(self.store.pending_revision)

    async def durable(self, revision: int) -> None:
        """Wait until the staged write `revision` is durable.

        Raises InsufficientStorage if the commit failed, InternalError for other store errors.
        """
        try:
            await self.store.durable(revision)
        except CommitFailed as error:
            raise InsufficientStorage(f"the write could not be stored: {error}") from error
        except StoreError as error:
            raise InternalError(f"the write could not be stored: {error}") from error


def _deleted(kind: Kind, metadata: Document) -> bytes:
    """Return the Status that confirms a deletion."""
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


def _served_kinds(gates: FeatureGates) -> Sequence[Kind]:
    if not gates.enabled("GenericWorkload"):
        return KINDS
    return (*KINDS, *WORKLOAD_KINDS)
