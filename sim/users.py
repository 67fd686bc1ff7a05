"""Simulated users: they create, edit, suspend, scale and delete objects, and edit Pods by hand."""

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

import msgspec

from onejob.client.base import Create, Delete, Evict, Op, Patch, Propagation, Selection
from onejob.client.local import LocalClient
from onejob.control_plane import ControlPlane
from onejob.objects.job import Job, read_job
from onejob.objects.meta import CRONJOBS, JOBS, NAMESPACES, PODS, Key
from onejob.objects.pod import Pod, read_pod
from onejob.wire.errors import ApiError
from onejob.wire.requests import User, WriteOptions
from sim import workloads
from sim.faults import Trace
from sim.history import History

_SELECTED_BY = "batch.kubernetes.io/controller-uid"
TEAM = "team"


class Users:
    """Users of one world. They outlive the control plane and see only its responses."""

    #: The `managedBy` of their Jobs; Jobs with any other value are not run.
    manager: str | None = None

    def __init__(self, seed: int, history: History, trace: Trace) -> None:
        self._rng = Random(f"{seed} people")
        self._history = history
        self._trace = trace
        self._client: LocalClient
        self._names = 0
        self._uses_team = self._rng.random() < 0.3
        self._uses_cron = self._rng.random() < 0.3
        self._deeds: Sequence[Callable[[], Awaitable[None]]] = (
            *[self._create_job] * 4, *[self._edit_job] * 4, self._delete_job,
            *[self._delete_pod] * 3, self._edit_pod, self._create_pod, self._evict_pod,
        )  # fmt: skip
        #: Keys that they tried to delete, whether or not they got a response.
        self.deleted: set[Key] = set()
        #: UIDs of Pods whose tracking finalizer they removed or tried to remove.
        self.stripped: set[str] = set()
        #: Problems: CronJobs that did not start a Job when one was due.
        self.idle_schedules: list[str] = []

    def meet(self, plane: ControlPlane) -> None:
        """Send requests to this process from now on, as an ordinary user."""
        self._client = LocalClient(plane.service, WriteOptions(User("somebody")))

    async def begin(self) -> None:
        if self._uses_team:
            await self._create(NAMESPACES, "", workloads.namespace(TEAM))
        if self._uses_cron:
            await self._create(CRONJOBS, self._place(), workloads.cronjob(self._rng, "cron"))
        for _ in range(self._rng.randint(1, 3)):
            await self._create_job()

    async def act(self) -> None:
        if self._uses_team and self._rng.random() < 0.05:
            await self._write(Delete(Key(NAMESPACES, "", TEAM)))
        else:
            await self._rng.choice(self._deeds)()

    async def make_room(self) -> None:
        """Remove everything that keeps the world from coming to rest."""
        for cronjob in await self._found(CRONJOBS):
            await self._patch(cronjob, {"spec": {"suspend": True}})
        for job in await self._jobs():
            if job.spec.managed_by not in (None, self.manager):
                # Its manager does not exist.
                await self._write(Delete(job.key, "Background"))
            elif not job.finished:
                await self._patch(job.key, {"spec": {"suspend": False, "parallelism": 3}})
        for pod in await self._pods():
            if workloads.never_ends(pod.metadata.name) and not pod.metadata.deleting:
                await self._write(Delete(pod.key))
        for resource in (JOBS, PODS):
            for key in await self._found(resource):
                await self._drop_foreign_finalizers(key)

    async def _create_job(self) -> None:
        await self._create(JOBS, self._place(), workloads.job(self._rng, self._name("job")))

    async def _create_pod(self) -> None:
        kind = self._rng.choice(("pod", workloads.SERVICE))
        await self._create(PODS, self._place(), workloads.pod(self._rng, self._name(kind)))

    async def _edit_job(self) -> None:
        job = self._one_of([job for job in await self._jobs() if not job.finished])
        if job is None:
            return
        edits: list[dict[str, Any]] = [
            {"suspend": True},
            {"suspend": False},
            {"parallelism": self._rng.randint(0, 6)},
        ]
        if job.indexed:
            size = self._rng.randint(1, 8)
            edits.append({"completions": size, "parallelism": size})
        await self._patch(job.key, {"spec": self._rng.choice(edits)})

    async def _delete_job(self) -> None:
        job = self._one_of(await self._jobs())
        if job is not None:
            how: Propagation = self._rng.choice(("Background", "Foreground", "Orphan"))
            await self._write(Delete(job.key, how))

    async def _delete_pod(self) -> None:
        pod = self._one_of(await self._pods())
        if pod is not None:
            grace = self._rng.choice((None, None, 0, 5))
            await self._write(Delete(pod.key, grace_seconds=grace))

    async def _evict_pod(self) -> None:
        pod = self._one_of([pod for pod in await self._pods() if pod.active])
        if pod is not None:
            await self._write(Evict(pod.key, grace_seconds=self._rng.choice((None, 5))))

    async def _edit_pod(self) -> None:
        pod = self._one_of([pod for pod in await self._pods() if pod.active])
        if pod is None:
            return
        edits: list[dict[str, Any]] = [{"annotations": {"example.com/note": "x"}}]
        if "batch.kubernetes.io/job-completion-index" not in pod.metadata.annotations:
            # A Pod that leaves its Job and comes back may find its index taken, which is no bug; so
            # only Pods without an index do.
            label = _SELECTED_BY if _SELECTED_BY in pod.metadata.labels else "app"
            edits += [{"ownerReferences": None}, {"labels": {label: None}}]
        # Only at the version that was read: a Pod that is counted meanwhile, leaves its Job and is
        # adopted again is counted again, as in Kubernetes.
        version = {"resourceVersion": pod.metadata.resource_version}
        if not pod.metadata.deleting:
            held = [*pod.metadata.finalizers, workloads.FOREIGN_FINALIZER]
            edits.append({"finalizers": held})
        await self._patch(pod.key, {"metadata": self._rng.choice(edits) | version})

    async def _drop_foreign_finalizers(self, key: Key) -> None:
        try:
            metadata = msgspec.json.decode(await self._client.get(key))["metadata"]
        except ApiError:
            return
        finalizers = metadata.get("finalizers", [])
        if workloads.FOREIGN_FINALIZER in finalizers:
            kept = [name for name in finalizers if name != workloads.FOREIGN_FINALIZER]
            version = metadata["resourceVersion"]
            await self._patch(key, {"metadata": {"finalizers": kept, "resourceVersion": version}})

    async def _jobs(self) -> list[Job]:
        listing = await self._client.list(Selection(JOBS))
        return [read_job(document) for document in listing.documents]

    async def _pods(self) -> list[Pod]:
        listing = await self._client.list(Selection(PODS))
        return [read_pod(document) for document in listing.documents]

    async def _found(self, resource: str) -> list[Key]:
        listing = await self._client.list(Selection(resource))
        found = (msgspec.json.decode(document)["metadata"] for document in listing.documents)
        return [Key(resource, one.get("namespace", ""), one["name"]) for one in found]

    async def _create(self, resource: str, namespace: str, document: dict[str, Any]) -> None:
        await self._write(Create(resource, namespace, msgspec.json.encode(document)))

    async def _patch(self, key: Key, body: dict[str, Any]) -> None:
        await self._write(Patch(key, msgspec.json.encode(body), "merge"))

    async def _write(self, op: Op) -> None:
        what = f"{op.resource} {op.document!r}" if isinstance(op, Create) else repr(op)
        if isinstance(op, Delete):
            self.deleted.add(op.key)
        try:
            written = await self._client.write(op)
        except ApiError as error:
            self._trace.note(f"users: {what}: {error}")
            return
        self._trace.note(f"users: {what}: revision {written.revision}")
        resource = op.resource if isinstance(op, Create) else op.key.resource
        self._history.acknowledge(resource, written.revision)

    def _place(self) -> str:
        return TEAM if self._uses_team and self._rng.random() < 0.5 else "default"

    def _name(self, kind: str) -> str:
        self._names += 1
        # Names are occasionally reused.
        return f"{kind}-{self._names if self._rng.random() < 0.8 else 1}"

    def _one_of(self, candidates: Sequence[Any]) -> Any:
        return self._rng.choice(candidates) if candidates else None
