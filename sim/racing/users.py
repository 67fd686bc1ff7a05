"""Simulated users who act quickly: names are reused at once, owners and queues often change."""

import asyncio
from random import Random
from typing import Any

import msgspec

from onejob.client.base import Create, Delete, Op, Patch, Propagation, Selection
from onejob.client.local import LocalClient
from onejob.clock import Clock
from onejob.controllers.queueing.config import write_limits
from onejob.objects.cronjob import CronJob, read_cronjob
from onejob.objects.job import Job, read_job
from onejob.objects.meta import CRONJOBS, JOBS, PODS, Key
from onejob.objects.pod import Pod, read_pod
from onejob.planning.queue.limits import Limits
from onejob.wire.errors import ApiError
from sim import workloads
from sim.faults import Trace
from sim.racing.deletions import DeletionCheck

CONFIG_MAPS = "configmaps"
PRIORITY = "example.com/priority"
_CLASSES = {"low": -5, "high": 10}
_QUEUES = ("gpu", "cpu")
_JOBS = 6
_ARTIFACTS = 6


class RacingUsers:
    """Users of a world of races."""

    client: LocalClient
    clock: Clock

    def __init__(self, seed: int, trace: Trace, check: DeletionCheck) -> None:
        self._rng = Random(f"{seed} racing people")
        self._trace = trace
        self._check = check
        self.deleted: set[Key] = set()
        #: Whether Jobs change their queue: then no limit can be kept exactly.
        self.requeues = self._rng.random() < 0.5
        most = (0, 1, 1) if self.requeues else (1, 2)
        self.limits = Limits({"*": 3, "gpu": self._rng.choice(most), "cpu": 1})
        self.closed_queue = self.limits.by_scope["gpu"] == 0
        self.uses_cron = self._rng.random() < 0.5
        self._deeds = [
            *[self._create_job] * 4, *[self._replace_job] * 4, *[self._delete_job] * 2,
            *[self._raise_ttl] * 2, *[self._create_artifact] * 3, *[self._change_owners] * 4,
            *[self._replace_artifact] * 2, *[self._delete_pod] * 2,
        ]  # fmt: skip
        if self.requeues:
            self._deeds += [self._change_queue] * 6
        if self.uses_cron:
            self._deeds += [self._take_slot_name] * 2

    async def begin(self) -> None:
        for name, value in _CLASSES.items():
            document = {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
            }
            await self._create("priorityclasses.scheduling.k8s.io", document, "")
        if self.uses_cron:
            cronjob = workloads.cronjob(self._rng, "cron")
            # Its Jobs are finished and deleted before the clock may be set back: only the status
            # records them.
            simple = {"completions": 1, "parallelism": 1, "ttlSecondsAfterFinished": 0}
            cronjob["spec"]["jobTemplate"]["spec"] |= simple
            await self._create(CRONJOBS, cronjob)
        for _ in range(3):
            await self._create_job()

    async def act(self) -> None:
        for _ in range(self._rng.randint(1, 3)):
            await self._rng.choice(self._deeds)()

    async def make_room(self) -> None:
        if self.closed_queue:
            await write_limits(self.client, Limits({**self.limits.by_scope, "gpu": 1}))
        for cronjob in await self._cronjobs():
            await self._patch(cronjob.key, {"spec": {"suspend": True}})
        for job in await self._jobs():
            if not job.finished and "onejob.dev/queued" not in job.metadata.annotations:
                await self._patch(job.key, {"spec": {"suspend": False, "parallelism": 3}})

    # --- Jobs

    async def _create_job(self, name: str = "") -> None:
        rng = self._rng
        document = workloads.job(rng, name or f"job-{rng.randint(1, _JOBS)}")
        metadata, spec = document["metadata"], document["spec"]
        metadata.pop("finalizers", None)
        spec.pop("managedBy", None)
        spec["completions"] = min(spec.get("completions", 1), 3)
        spec.pop("successPolicy", None)
        if rng.random() < 0.5:
            spec["ttlSecondsAfterFinished"] = rng.choice((0, 1, 5))
        labels = metadata.setdefault("labels", {})
        if rng.random() < 0.7:
            labels["onejob.dev/queue"] = rng.choice(_QUEUES)
        if rng.random() < 0.3:
            chosen = rng.choice(sorted(_CLASSES))
            spec["template"]["spec"]["priorityClassName"] = chosen
            labels[PRIORITY] = f"p{_CLASSES[chosen]}"
        await self._create(JOBS, document)

    async def _replace_job(self) -> None:
        """Replace a Job by another one of the same name at once."""
        jobs = await self._jobs()
        job = self._one_of([job for job in jobs if job.finished] or jobs)
        if job is not None and not job.metadata.owner_references:
            await self._delete(job.key, job.metadata.uid, "Background")
            await self._create_job(job.metadata.name)

    async def _delete_job(self) -> None:
        job = self._one_of(await self._jobs())
        if job is not None:
            how: Propagation = self._rng.choice(("Background", "Foreground", "Orphan"))
            await self._delete(job.key, job.metadata.uid, how)

    async def _raise_ttl(self) -> None:
        jobs = [
            one for one in await self._jobs() if one.spec.ttl_seconds_after_finished is not None
        ]
        job = self._one_of(jobs)
        if job is not None:
            seconds = self._rng.choice((None, 100))
            await self._patch(job.key, {"spec": {"ttlSecondsAfterFinished": seconds}})

    async def _change_queue(self) -> None:
        job = self._one_of([job for job in await self._jobs() if not job.finished])
        if job is not None:
            queue = self._rng.choice((*_QUEUES, None))
            await self._patch(job.key, {"metadata": {"labels": {"onejob.dev/queue": queue}}})

    async def _delete_pod(self) -> None:
        listing = await self.client.list(Selection(PODS))
        pods: list[Pod] = [read_pod(document) for document in listing.documents]
        pod = self._one_of([pod for pod in pods if not pod.terminal])
        if pod is not None:
            await self._write(Delete(pod.key))

    async def _take_slot_name(self) -> None:
        """Create a Job with the name of the CronJob's next one."""
        minute = int(self.clock.now().timestamp()) // 60 + 1
        await self._create_job(f"cron-{minute}")

    # --- dependents of Jobs

    async def _create_artifact(self, name: str = "") -> None:
        owners = await self._owners()
        if not owners:
            return
        metadata = {"name": name or f"artifact-{self._rng.randint(1, _ARTIFACTS)}"}
        document = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**metadata, "ownerReferences": owners},
        }
        await self._create(CONFIG_MAPS, document)

    async def _change_owners(self) -> None:
        """Let another Job own the object, often while its owner is being deleted, or edit it."""
        found = await self._artifacts()
        going = [one for one in found if await self._owner_is_going(one)]
        one = self._one_of(going or found)
        if one is None:
            return
        key = Key(CONFIG_MAPS, "default", one["metadata"]["name"])
        await self._patch(key, {"data": {"touched": str(self._rng.random())}})
        owners = await self._owners(living=True)
        if owners and self._rng.random() < 0.7:
            await asyncio.sleep(self._rng.random() * 0.5)
            await self._patch(key, {"metadata": {"ownerReferences": owners}})

    async def _owner_is_going(self, document: dict[str, Any]) -> bool:
        names = {owner["name"] for owner in document["metadata"].get("ownerReferences", ())}
        jobs = {job.metadata.name: job for job in await self._jobs()}
        return any(name not in jobs or jobs[name].metadata.deleting for name in names)

    async def _replace_artifact(self) -> None:
        one = self._one_of(await self._artifacts())
        if one is not None:
            name, uid = one["metadata"]["name"], one["metadata"]["uid"]
            await self._delete(Key(CONFIG_MAPS, "default", name), uid, "")
            await self._create_artifact(name)

    async def _owners(self, *, living: bool = False) -> list[dict[str, Any]]:
        jobs = [job for job in await self._jobs() if not (living and job.metadata.deleting)]
        chosen = self._rng.sample(jobs, min(len(jobs), self._rng.choice((1, 1, 2))))
        return [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": job.metadata.name,
                "uid": job.metadata.uid,
                "blockOwnerDeletion": self._rng.random() < 0.7,
            }
            for job in chosen
        ]

    # --- helpers

    async def _jobs(self) -> list[Job]:
        listing = await self.client.list(Selection(JOBS))
        return [read_job(document) for document in listing.documents]

    async def _cronjobs(self) -> list[CronJob]:
        listing = await self.client.list(Selection(CRONJOBS))
        return [read_cronjob(document) for document in listing.documents]

    async def _artifacts(self) -> list[dict[str, Any]]:
        listing = await self.client.list(Selection(CONFIG_MAPS, "default"))
        found = [msgspec.json.decode(document) for document in listing.documents]
        return [one for one in found if one["metadata"]["name"].startswith("artifact")]

    async def _create(
        self, resource: str, document: dict[str, Any], namespace: str = "default"
    ) -> None:
        await self._write(Create(resource, namespace, msgspec.json.encode(document)))

    async def _patch(self, key: Key, body: dict[str, Any]) -> None:
        await self._write(Patch(key, msgspec.json.encode(body), "merge"))

    async def _delete(self, key: Key, uid: str, how: Propagation) -> None:
        self.deleted.add(key)
        if uid in self._check.unwanted:
            self._check.mind_changed.add(uid)
        self._check.unwanted.add(uid)
        if how != "Foreground":
            self._check.unwaiting.add(uid)
        await self._write(Delete(key, how, uid=uid))

    async def _write(self, op: Op) -> None:
        what = f"Create {op.document!r}" if isinstance(op, Create) else repr(op)
        try:
            written = await self.client.write(op)
        except ApiError as error:
            self._trace.note(f"users: {what}: {error}")
        else:
            self._trace.note(f"users: {what}: revision {written.revision}")

    def _one_of(self, candidates: list[Any]) -> Any:
        return self._rng.choice(candidates) if candidates else None


def priority_of(job: Job) -> int:
    """Return the queue priority of a Job, from its label."""
    return int(job.metadata.labels.get(PRIORITY, "p0")[1:])
