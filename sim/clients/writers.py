"""In-process writers that create Pods and drive them through their lifecycle."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

from onejob.client.base import Bind, Create, Delete, Op, Patch, Selection
from onejob.client.local import LocalClient
from onejob.objects.meta import PODS, Key
from onejob.objects.pod import Pod, read_pod
from onejob.wire.errors import ApiError
from sim.clients.caches import CacheCheck
from sim.faults import Trace

#: Probability that a Pod takes its next step at once.
_BURST = 0.6
_TRACKED = "batch.kubernetes.io/job-tracking"


class Writer:
    """In-process client that creates Pods and drives them through their lifecycle."""

    def __init__(self, seed: int, client: LocalClient, trace: Trace) -> None:
        self._rng = Random(f"{seed} writer")
        self._client = client
        self._trace = trace
        self._last: Key | None = None
        self._waits: list[asyncio.Task[None]] = []

    async def run(self, until: float, checks: Sequence[CacheCheck]) -> None:
        while asyncio.get_running_loop().time() < until:
            await asyncio.sleep(self._rng.random() ** 3)
            await self._act(checks)
            while self._rng.random() < _BURST:
                # Short Pods are bound, run and end within moments.
                await asyncio.sleep(self._rng.random() * 0.05)
                await self._act(checks, again=True)

    async def _act(self, checks: Sequence[CacheCheck], *, again: bool = False) -> None:
        """Change a random Pod, or, with `again`, the one that was changed last."""
        listing = await self._client.list(Selection(PODS))
        pods = [read_pod(document) for document in listing.documents]
        before = next((pod for pod in pods if pod.key == self._last), None)
        if again and before is not None:
            await self._write(self._next(before), checks)
            return
        if len(pods) < 2 or (len(pods) < 12 and self._rng.random() < 0.25):
            await self._write(Create(PODS, "default", self._new_pod()), checks)
            return
        pod = self._rng.choice(pods)
        self._last = pod.key
        await self._write(self._next(pod), checks)

    def _next(self, pod: Pod) -> Op:
        """Return a write, usually the next step in the Pod's lifecycle."""
        draw, key = self._rng.random(), pod.key
        if draw < 0.1:
            note = {"metadata": {"annotations": {"note": str(draw)}}}
            return Patch(key, msgspec.json.encode(note), "merge")
        if draw < 0.2:
            return Delete(key, grace_seconds=0)
        if not pod.spec.node_name:
            return Bind(key, "node")
        if pod.phase == "Pending":
            return self._status(key, "Running")
        if pod.phase == "Running":
            return self._status(key, self._rng.choice(("Succeeded", "Failed")))
        if pod.metadata.finalizers:
            return Patch(key, b'{"metadata":{"finalizers":null}}', "merge")
        return Delete(key)

    async def _write(self, op: Op, checks: Sequence[CacheCheck]) -> None:
        try:
            written = await self._client.write(op)
        except ApiError as error:
            self._trace.note(f"writer: {op!r}: {error}")
            return
        self._trace.note(f"writer: {_short(op)}: revision {written.revision}")
        if isinstance(op, Create) and self._rng.random() < 0.5:
            key = read_pod(written.document).key
            self._waits += [
                asyncio.create_task(check.expect(key, written.revision)) for check in checks
            ]

    def _status(self, key: Key, phase: str) -> Patch:
        return Patch(key, msgspec.json.encode({"status": {"phase": phase}}), "merge", "status")

    def _new_pod(self) -> bytes:
        # Few names, so that they are reused.
        metadata: dict[str, Any] = {"name": f"pod-{self._rng.randint(1, 15)}"}
        metadata["labels"] = {"app": self._rng.choice("ab")}
        if self._rng.random() < 0.6:
            owner = f"owner-{self._rng.randint(1, 3)}"
            reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner}
            metadata["ownerReferences"] = [{**reference, "controller": True}]
            metadata["finalizers"] = [_TRACKED]
        container = {"name": "main", "image": "x", "command": ["true"]}
        spec = {"restartPolicy": "Never", "containers": [container]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        return msgspec.json.encode(pod)


def _short(op: Op) -> str:
    if isinstance(op, Create):
        return "Create " + str(msgspec.json.decode(op.document)["metadata"]["name"])
    if isinstance(op, Patch):
        return f"Patch {op.key.name} {op.body.decode()}"
    return f"{type(op).__name__} {op.key.name}"
