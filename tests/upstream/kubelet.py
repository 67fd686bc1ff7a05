"""Fake kubelet: binds Pods to a nonexistent node and reports that they have ended.

It keeps a ledger of the Pods that ran, so that a Job's counters can be compared with it: each Pod
ends once, and two Pods of one index never run at the same time.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from onejob.client.base import Bind, Client, Delete, Op, Patch, Selection
from onejob.objects.meta import PODS
from onejob.objects.pod import Pod, read_pod
from onejob.planning.names import INDEX_ANNOTATION
from onejob.wire.errors import ApiError, Conflict, Expired, NotFound

NODE: Final = "bench-node"
#: Pods with this label are left alone.
NOT_FOR_KUBELET: Final = "bench.onejob.dev/unmanaged"
_EPOCH: Final = "2026-01-01T00:00:00Z"


@dataclass
class Ledger:
    """History of Pods, by UID."""

    started: set[str] = field(default_factory=set)
    succeeded: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    #: UIDs of the currently running Pods of each index.
    running: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    #: Indexes that ran twice at once.
    doubles: list[tuple[str, str]] = field(default_factory=list)
    #: Number of successes of each index.
    successes: dict[tuple[str, str], int] = field(default_factory=dict)


class Kubelet:
    """Fake kubelet; `exit_code` decides a Pod's outcome.

    Runs until cancelled; survives lost connections.
    """

    def __init__(
        self,
        client: Client,
        *,
        exit_code: Callable[[Pod], int] = lambda pod: 0,
        seconds: float = 0.0,
        workers: int = 16,
        bind: bool = True,
    ) -> None:
        """Without `bind`, Pods end unbound: one request less for each."""
        self.ledger = Ledger()
        self._client = client
        self._exit_code = exit_code
        self._seconds = seconds
        self._workers = workers
        self._bind = bind
        self._due: asyncio.Queue[Pod] = asyncio.Queue()
        self._seen: set[str] = set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            for _ in range(self._workers):
                group.create_task(self._work())

    async def _follow(self) -> None:
        revision: int | None = None
        while True:
            try:
                if revision is None:
                    listing = await self._client.list(Selection(PODS))
                    for document in listing.documents:
                        self._notice(read_pod(document))
                    revision = listing.revision
                batches = self._client.watch(Selection(PODS), after=revision)
                async with aclosing(batches) as stream:
                    async for batch in stream:
                        for event in batch:
                            revision = event.revision
                            if event.type in ("ADDED", "MODIFIED"):
                                self._notice(read_pod(event.document))
            except Expired:
                revision = None
            except ApiError:
                await asyncio.sleep(0.2)

    def _notice(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if NOT_FOR_KUBELET in pod.metadata.labels:
            return
        if pod.terminal or (uid in self._seen and not pod.metadata.deleting):
            return
        self._seen.add(uid)
        self._due.put_nowait(pod)

    async def _work(self) -> None:
        while True:
            pod = await self._due.get()
            if pod.metadata.deleting:
                await self._surely(Delete(pod.key, grace_seconds=0, uid=pod.metadata.uid))
                continue
            await self._run_pod(pod)

    async def _run_pod(self, pod: Pod) -> None:
        index = self._index(pod)
        unbound = self._bind and not pod.spec.node_name
        if unbound and not await self._surely(Bind(pod.key, NODE, pod.metadata.uid)):
            return
        self._start(pod, index)
        if self._seconds:
            await asyncio.sleep(self._seconds)
        code = self._exit_code(pod)
        kept = await self._surely(Patch(pod.key, ended(code), "merge", "status"))
        running = self.ledger.running.get(index)
        if running is not None:
            running.discard(pod.metadata.uid)
        if not kept:
            return
        if code:
            self.ledger.failed.add(pod.metadata.uid)
        else:
            self.ledger.succeeded.add(pod.metadata.uid)
            self.ledger.successes[index] = self.ledger.successes.get(index, 0) + 1

    def _start(self, pod: Pod, index: tuple[str, str]) -> None:
        uid = pod.metadata.uid
        self.ledger.started.add(uid)
        if index[1]:
            running = self.ledger.running.setdefault(index, set())
            running.add(uid)
            if len(running) > 1:
                self.ledger.doubles.append(index)

    def _index(self, pod: Pod) -> tuple[str, str]:
        owner = pod.metadata.controller_ref
        job = owner.uid if owner is not None else pod.metadata.uid
        return job, pod.metadata.annotations.get(INDEX_ANNOTATION, "")

    async def _surely(self, op: Op) -> bool:
        """Write until the server accepts or refuses it. Return whether the Pod exists."""
        while True:
            try:
                await self._client.write(op)
                return True
            except (NotFound, Conflict) as error:
                # A repeated binding, after a lost response, is refused.
                return isinstance(error, Conflict) and isinstance(op, Bind)
            except ApiError:
                await asyncio.sleep(0.2)


def ended(code: int) -> bytes:
    phase = "Failed" if code else "Succeeded"
    state = {
        "terminated": {
            "exitCode": code,
            "reason": "Error" if code else "Completed",
            "startedAt": _EPOCH,
            "finishedAt": _EPOCH,
        }
    }
    status: dict[str, Any] = {
        "phase": phase,
        "containerStatuses": [
            {
                "name": "c", "image": "none", "imageID": "", "ready": False, "restartCount": 0,
                "state": state,
            }
        ],
    }  # fmt: skip
    return msgspec.json.encode({"status": status})
