"""One informer per resource, shared by all controllers: each change is decoded once."""

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import msgspec

from onejob.client.base import Client, Selection
from onejob.informers.cache import IndexEntry
from onejob.informers.informer import PAGE, Informer
from onejob.informers.slim_jobs import read_slim_job, slim
from onejob.objects.cronjob import CronJob, read_cronjob
from onejob.objects.job import Job
from onejob.objects.meta import CRONJOBS, JOBS, PODS, SERVICES, Key, Meta, View
from onejob.objects.pod import Pod, read_pod
from onejob.objects.service import Service, read_service
from onejob.planning.job.pod_facts import is_tracked

#: Where a page is no request over a network: so few that what was decoded to judge them is still in
#: the processor's cache when it is read.
_NEAR_PAGE = 200


class AnyObject(View, frozen=True):
    """What is common to all kinds."""

    metadata: Meta = Meta()


_read_any = msgspec.json.Decoder(AnyObject).decode


class SharedInformers:
    """Informers by resource, made when first asked for: before `start`, or by `metadata` for a
    kind that is served only since then.

    The Pod cache keeps only what a controller may still act on: Pods that have not ended, or
    that are not counted yet. A controller that needs finished Pods reads them from the deltas.
    """

    def __init__(
        self,
        client: Client,
        namespace: str = "",
        known_view: Callable[[bytes], Any] | None = None,
    ) -> None:
        """Of one namespace, or of all. `known_view`, in the process of the server, has views of
        documents of a first list that were decoded just before, to judge them."""
        self._client = client
        self._known_view = known_view or (lambda document: None)
        self._page = PAGE if known_view is None else _NEAR_PAGE
        self._namespace = namespace
        self._informers: dict[str, Informer[Any]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._started = False
        self._on_task: Callable[[asyncio.Task[None]], None] = lambda task: None

    @cached_property
    def jobs(self) -> Informer[Job]:
        informer = Informer(
            self._client,
            Selection(JOBS, self._namespace),
            read_slim_job,
            lambda job: job.key,
            index_entries=_index_job,
            read_first=self._read_first_job,
            page=self._page,
        )
        return self._register(JOBS, informer)

    @cached_property
    def pods(self) -> Informer[Pod]:
        informer = Informer(
            self._client,
            Selection(PODS, self._namespace),
            read_pod,
            lambda pod: pod.key,
            keep=_may_need_action,
            index_entries=_index_pod,
            read_first=self._read_first_pod,
            page=self._page,
        )
        return self._register(PODS, informer)

    @cached_property
    def cronjobs(self) -> Informer[CronJob]:
        informer = Informer(
            self._client,
            Selection(CRONJOBS, self._namespace),
            read_cronjob,
            lambda cronjob: cronjob.key,
        )
        return self._register(CRONJOBS, informer)

    @cached_property
    def services(self) -> Informer[Service]:
        informer = Informer(
            self._client,
            Selection(SERVICES, self._namespace),
            read_service,
            lambda service: Key(SERVICES, service.metadata.namespace, service.metadata.name),
            index_entries=lambda service: (("namespace", service.metadata.namespace),),
        )
        return self._register(SERVICES, informer)

    def metadata(self, resource: str) -> "Informer[Any]":
        """An informer whose views have at least `metadata`; for those who treat all kinds alike.
        Jobs, Pods, CronJobs and Services share theirs with everybody else."""
        match resource:
            case "pods":
                return self.pods
            case "jobs.batch":
                return self.jobs
            case "cronjobs.batch":
                return self.cronjobs
            case "services":
                return self.services
            case _:
                if resource not in self._informers:
                    self._register(
                        resource,
                        Informer(
                            self._client,
                            Selection(resource, self._namespace),
                            _read_any,
                            lambda view: Key(resource, view.metadata.namespace, view.metadata.name),
                        ),
                    )
                return self._informers[resource]

    async def begin(self) -> None:
        """Before `start`, if others may write meanwhile: no change from here on is missed."""
        for informer in self._informers.values():
            await informer.begin()

    async def start(self) -> None:
        """Run every informer that was asked for, and wait until each has listed once."""
        self._started = True
        # Owners before what they own: nobody has to keep a Pod in mind until its Job is known.
        if JOBS in self._informers:
            await self._list_once([JOBS])
        await self._list_once([name for name in self._informers if name not in self._tasks])

    async def _list_once(self, resources: Sequence[str]) -> None:
        informers = {name: self._informers[name] for name in resources}
        started = [(self._run(name, informer), informer) for name, informer in informers.items()]
        for task, informer in started:
            synced = asyncio.ensure_future(informer.synced())
            await asyncio.wait((task, synced), return_when=asyncio.FIRST_COMPLETED)
            if not synced.done():
                # It ended before its first list: waiting for that would never end.
                synced.cancel()
                await task
                raise RuntimeError(f"{task.get_name()} ended")

    def _read_first_job(self, document: bytes) -> Job:
        known = self._known_view(document)
        if known is None:
            return read_slim_job(document)
        return slim(Job(known.metadata, known.spec, known.status))

    def _read_first_pod(self, document: bytes) -> Pod:
        known = self._known_view(document)
        if known is None:
            return read_pod(document)
        return Pod(known.metadata, known.spec, known.status)

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """They run until `stop`. One that ends by itself is a failure: its handlers would never
        be called again."""
        return tuple(self._tasks.values())

    def on_task(self, call: "Callable[[asyncio.Task[None]], None]") -> None:
        """Call with each task that is there, and with each that begins later."""
        self._on_task = call
        for task in self._tasks.values():
            call(task)

    def drop(self, resource: str) -> None:
        """Its kind is served no more."""
        self._informers.pop(resource, None)
        task = self._tasks.pop(resource, None)
        if task is not None:
            task.cancel()

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def _register(self, resource: str, informer: "Informer[Any]") -> "Informer[Any]":
        self._informers[resource] = informer
        if self._started:
            self._run(resource, informer)
        return informer

    def _run(self, resource: str, informer: "Informer[Any]") -> asyncio.Task[None]:
        task = asyncio.create_task(informer.run(), name=f"informer-{resource}")
        self._tasks[resource] = task
        self._on_task(task)
        return task


def _may_need_action(pod: Pod) -> bool:
    return (
        pod.status.phase not in ("Succeeded", "Failed")
        or is_tracked(pod)
        or pod.metadata.controller_ref is None
    )


def _index_pod(pod: Pod) -> Sequence[IndexEntry]:
    metadata = pod.metadata
    owner = metadata.controller_ref
    if owner is not None:
        return (("controller", owner.uid),)
    # By namespace and label, so that a selector is not matched against every Pod.
    namespace = metadata.namespace
    labels = [("uncontrolled", (namespace, *label)) for label in metadata.labels.items()]
    return (("uncontrolled", namespace), *labels)


def _index_job(job: Job) -> Sequence[IndexEntry]:
    namespace = ("namespace", job.metadata.namespace)
    owner = job.metadata.controller_ref
    return (namespace,) if owner is None else (namespace, ("owner", owner.uid))
