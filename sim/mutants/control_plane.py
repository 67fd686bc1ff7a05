"""Mutants of the API server, the caches and the controllers."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec

from onejob.api.kinds.job.strategy import JobStrategy
from onejob.client.base import Bind, Listing, Op, Result, Selection, WatchEvent, Written
from onejob.client.local import LocalClient
from onejob.controllers import job as job_module
from onejob.controllers.job import JobController
from onejob.controllers.job_effects import change_pods, remove_finalizers
from onejob.informers.cache import Delta
from onejob.informers.informer import Informer
from onejob.objects.job import Job
from onejob.objects.meta import PODS, Key
from onejob.planning.job.plan import Plan, PodRef
from onejob.planning.job.planner import plan_job
from onejob.planning.names import TRACKING
from onejob.wire.errors import Conflict, NotFound
from sim.mutants.planting import Plant, replace

#: One in this many events is dropped.
_DROPPED_EVENT = 37


def _count_twice_after_a_restart(undo: ExitStack) -> None:
    """The first list of Pods after a start shows counted Pods as uncounted."""
    original = LocalClient.list
    begun: set[int] = set()

    async def list_pods(
        self: LocalClient, what: Selection, *, limit: int = 0, token: str = ""
    ) -> Listing:
        listing = await original(self, what, limit=limit, token=token)
        if what.resource != PODS or id(self) in begun:
            return listing
        begun.add(id(self))
        documents = [_with_finalizer(document) for document in listing.documents]
        return Listing(documents, listing.revision, listing.continue_token)

    replace(undo, LocalClient, "list", list_pods)


def _with_finalizer(document: bytes) -> bytes:
    pod = msgspec.json.decode(document)
    ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    if not ended or "ownerReferences" not in pod["metadata"]:
        return document
    pod["metadata"]["finalizers"] = [TRACKING]
    return msgspec.json.encode(pod)


def _free_before_the_status(undo: ExitStack) -> None:
    """Finalizers are removed before the status that lists their Pods is written."""

    async def change(client: Any, plan: Plan, stamp: Any, state: Any, tell: Any) -> Any:
        outcomes = await change_pods(client, plan, stamp, state, tell)
        ended = [
            PodRef(pod.metadata.name, pod.metadata.uid) for pod in plan.ledger.held if pod.terminal
        ]
        if ended:
            await remove_finalizers(client, plan.job.metadata.namespace, ended, state)
        return outcomes

    replace(undo, job_module, "change_pods", change)


def _revive_a_terminal_status(undo: ExitStack) -> None:
    """A finished Job is planned as if it were not, and the API lets its status change."""

    def plan(job: Job, *rest: Any) -> Plan:
        if job.finished:
            status = msgspec.structs.replace(job.status, conditions=())
            job = msgspec.structs.replace(job, status=status)
        return plan_job(job, *rest)

    def validate(*_: Any) -> list[Any]:
        return []

    replace(undo, job_module, "plan_job", plan)
    replace(undo, JobStrategy, "validate_status_update", validate)


def _trust_after_a_lost_answer(undo: ExitStack) -> None:
    """After a write with a lost response, the controller does not relist."""

    async def relist(self: JobController, job: Job, state: Any) -> None:
        state.needs_relist = False

    replace(undo, JobController, "_relist_pods", relist)


def _drop_watch_events(undo: ExitStack) -> None:
    original = LocalClient.watch
    seen = 0

    async def watch(
        self: LocalClient, what: Selection, *, after: int
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        nonlocal seen
        async for batch in original(self, what, after=after):
            kept = []
            for event in batch:
                seen += 1
                if seen % _DROPPED_EVENT or event.type == "BOOKMARK":
                    kept.append(event)
            if kept:
                yield kept

    replace(undo, LocalClient, "watch", watch)


def _bind_what_is_deleted(undo: ExitStack) -> None:
    """The refusal to bind a deleted Pod is taken for success."""
    original = LocalClient.write_many

    async def write_many(self: LocalClient, ops: Sequence[Op]) -> Sequence[Result]:
        results = await original(self, ops)
        return [
            Written(1, b"")
            if isinstance(op, Bind) and isinstance(result, NotFound | Conflict)
            else result
            for op, result in zip(ops, results, strict=True)
        ]

    replace(undo, LocalClient, "write_many", write_many)


def _plan_on_stale_caches(undo: ExitStack) -> None:
    """Indexes are chosen from a cache that does not show our own writes yet."""

    async def wait_for_cache(self: JobController, *rest: Any) -> None:
        return

    replace(undo, JobController, "_wait_for_cache", wait_for_cache)


def _keep_gone_objects(undo: ExitStack) -> None:
    """Objects deleted during a gap of a watch stay in the cache.

    Only in that of Pods: controllers get objects of other kinds by name before they act on a
    deletion.
    """
    original = Informer._list_again

    async def list_again(
        self: Informer[Any], present: dict[Key, Any]
    ) -> tuple[list[Delta[Any]], int]:
        listed = await original(self, present)
        if self._what.resource == PODS:
            present.update((key, self.cache.get(key)) for key in list(self.cache.keys()))
        return listed

    replace(undo, Informer, "_list_again", list_again)


MUTANTS: Mapping[str, Plant] = {
    "count twice after a restart": _count_twice_after_a_restart,
    "finalizer removed before the status write": _free_before_the_status,
    "terminal status revived": _revive_a_terminal_status,
    "two Pods for an index after a lost answer": _trust_after_a_lost_answer,
    "dropped watch event": _drop_watch_events,
    "early binding of a Pod that was deleted": _bind_what_is_deleted,
    "stale cache used for index choice": _plan_on_stale_caches,
    "gone Pods kept by the relist": _keep_gone_objects,
}
