"""Simulated users of mirrored Jobs.

Here they create, edit, move and delete Jobs; there they delete copies and take the names of future
copies.
"""

import base64
from random import Random
from typing import Any

import msgspec

from onejob.client.base import Create, Delete, Op, Patch, Propagation, Selection
from onejob.client.local import LocalClient
from onejob.objects.job import Job, read_job
from onejob.objects.meta import JOBS, NAMESPACES, PODS, Key
from onejob.objects.pod import Pod, read_pod
from onejob.planning.mirror import names
from onejob.wire.errors import ApiError
from sim.faults import Trace
from sim.mirroring.copies import CopyCheck

TARGET = "there"
HOST = "there.example.com"
_NOWHERE = "nowhere.example.com"
_NAMESPACES = ("default", "other")
_SECRET = Key("secrets", "default", TARGET)


class MirrorUsers:
    """Users of both sides. `here` is replaced with each process of that side."""

    here: LocalClient
    there: LocalClient

    def __init__(self, seed: int, trace: Trace, check: CopyCheck) -> None:
        self._rng = Random(f"{seed} mirror people")
        self._trace = trace
        self._check = check
        self._lost_after = self._rng.random() < 0.3
        self._names = 0
        self._deeds = (
            *[self._create_job] * 5, *[self._edit_job] * 4, *[self._delete_job] * 2,
            *[self._replace_job] * 2, *[self._move_job] * 3, self._delete_stand_in,
            *[self._delete_copy] * 3, *[self._replace_copy] * 3, self._delete_pod_there,
            self._take_name, self._change_target,
        )  # fmt: skip

    async def begin(self) -> None:
        for namespace in _NAMESPACES[1:]:
            document = {
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}
            }  # fmt: skip
            await self._write(self.there, Create(NAMESPACES, "", msgspec.json.encode(document)))
        metadata = {"name": TARGET, "labels": {names.TARGET_LABEL: "true"}}
        secret = {
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": _kubeconfig(HOST)
        }  # fmt: skip
        await self._write(self.here, Create("secrets", "default", msgspec.json.encode(secret)))
        for _ in range(self._rng.randint(1, 3)):
            await self._create_job()

    async def act(self) -> None:
        await self._rng.choice(self._deeds)()

    async def make_room(self) -> None:
        """Remove everything that keeps the world from coming to rest."""
        await self._point_target_to(HOST)
        for job in await self._jobs(self.there):
            if names.ORIGIN not in job.metadata.labels:
                await self._delete_there(job, "Background")
        for job in await self._jobs(self.here):
            if not job.finished and not job.metadata.deleting:
                await self._patch(job.key, {"spec": {"suspend": False, "parallelism": 3}})

    # --- here

    async def _create_job(self, name: str = "") -> None:
        rng = self._rng
        annotations = {names.TARGET: TARGET, names.NAMESPACE: rng.choice(_NAMESPACES)}
        annotations["onejob.dev/backoff-seconds"] = "0"
        if self._lost_after and rng.random() < 0.5:
            annotations[names.LOST_AFTER] = rng.choice(("15s", "60s"))
        if rng.random() < 0.5:
            annotations[names.WHEN_COPY_DELETED] = "Restart"
        container = {"name": "main", "image": "x", "command": ["true"]}
        spec: dict[str, Any] = {
            "managedBy": names.MANAGER,
            "completions": rng.randint(1, 4),
            "parallelism": rng.randint(1, 3),
            "backoffLimit": rng.choice((0, 3, 100)),
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [container],
                    "terminationGracePeriodSeconds": rng.choice((0, 2, 30)),
                }
            },
        }
        if rng.random() < 0.5:
            spec["completionMode"] = "Indexed"
        if rng.random() < 0.2:
            spec["suspend"] = True
        metadata = {"name": name or self._name(), "annotations": annotations}
        document = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
        await self._write(self.here, Create(JOBS, "default", msgspec.json.encode(document)))

    async def _edit_job(self) -> None:
        job = self._one_of([job for job in await self._jobs(self.here) if not job.finished])
        if job is not None:
            edits = (
                {"suspend": True},
                {"suspend": False},
                {"parallelism": self._rng.randint(0, 4)},
            )
            await self._patch(job.key, {"spec": self._rng.choice(edits)})

    async def _delete_job(self) -> Job | None:
        job: Job | None = self._one_of(await self._jobs(self.here))
        if job is not None:
            how: Propagation = self._rng.choice(
                ("Background", "Background", "Foreground", "Orphan")
            )
            if how == "Orphan":
                self._check.orphaned.add(job.metadata.uid)
            await self._write(self.here, Delete(job.key, how))
        return job

    async def _replace_job(self) -> None:
        """Delete a Job and create one of the same name as soon as that is possible."""
        job = await self._delete_job()
        if job is not None:
            await self._create_job(job.metadata.name)

    async def _move_job(self) -> None:
        job = self._one_of([job for job in await self._jobs(self.here) if not job.finished])
        if job is not None:
            annotations = {names.NAMESPACE: self._rng.choice(_NAMESPACES)}
            await self._patch(job.key, {"metadata": {"annotations": annotations}})

    async def _delete_stand_in(self) -> None:
        pod = self._one_of(await self._pods(self.here))
        if pod is not None:
            await self._write(self.here, Delete(pod.key))

    async def _change_target(self) -> None:
        """Change the kubeconfig to a wrong or the right address."""
        await self._point_target_to(self._rng.choice((HOST, HOST, _NOWHERE)))

    async def _point_target_to(self, host: str) -> None:
        await self._patch(_SECRET, {"data": _kubeconfig(host)})

    # --- there

    async def _delete_copy(self) -> None:
        job = self._one_of(await self._jobs(self.there))
        if job is not None:
            how: Propagation = self._rng.choice(("Background", "Foreground", "Orphan"))
            await self._delete_there(job, how)

    async def _replace_copy(self) -> None:
        """Replace a copy by another user's Job of the same name at once."""
        job = self._one_of(await self._jobs(self.there))
        if job is not None:
            await self._delete_there(job, "Background")
            await self._create_there(job.metadata.namespace, job.metadata.name)

    async def _delete_there(self, job: Job, how: Propagation) -> None:
        self._check.deleted_there.add(job.key)
        self._check.unwanted_there.add(job.metadata.uid)
        await self._write(self.there, Delete(job.key, how, uid=job.metadata.uid))

    async def _delete_pod_there(self) -> None:
        pod = self._one_of(await self._pods(self.there))
        if pod is not None:
            await self._write(self.there, Delete(pod.key))

    async def _take_name(self) -> None:
        """Create another user's Job with the name of a future copy."""
        await self._create_there(self._rng.choice(_NAMESPACES), f"job-{self._names + 1}")

    async def _create_there(self, namespace: str, name: str) -> None:
        container = {"name": "main", "image": "x", "command": ["true"]}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        document = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"template": template, "suspend": True},
        }
        await self._write(self.there, Create(JOBS, namespace, msgspec.json.encode(document)))

    # --- helpers

    async def _jobs(self, client: LocalClient) -> list[Job]:
        listing = await client.list(Selection(JOBS))
        return [read_job(document) for document in listing.documents]

    async def _pods(self, client: LocalClient) -> list[Pod]:
        listing = await client.list(Selection(PODS))
        return [read_pod(document) for document in listing.documents]

    async def _patch(self, key: Key, body: dict[str, Any]) -> None:
        await self._write(self.here, Patch(key, msgspec.json.encode(body), "merge"))

    async def _write(self, client: LocalClient, op: Op) -> None:
        side = "here" if client is self.here else "there"
        what = f"Create {op.document!r}" if isinstance(op, Create) else repr(op)
        try:
            written = await client.write(op)
        except ApiError as error:
            self._trace.note(f"people {side}: {what}: {error}")
        else:
            self._trace.note(f"people {side}: {what}: revision {written.revision}")

    def _name(self) -> str:
        self._names += 1
        return f"job-{self._names if self._rng.random() < 0.8 else 1}"

    def _one_of(self, candidates: list[Any]) -> Any:
        return self._rng.choice(candidates) if candidates else None


def _kubeconfig(host: str) -> dict[str, str]:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"https://{host}"}}],
        "users": [{"name": "u", "user": {"token": "simulated"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    return {names.KUBECONFIG_KEY: base64.b64encode(msgspec.json.encode(config)).decode()}
