"""Shared informers: one per resource for all controllers, so that each change is decoded once."""

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from onejob.client.base import Client, Selection, WatchEvent
from onejob.informers.cache import IndexEntry
from onejob.informers.informer import PAGE, Informer
from onejob.informers.slim_jobs import read_slim_job, slim
from onejob.objects.cronjob import CronJob, read_cronjob
from onejob.objects.job import Job
from onejob.objects.meta import (
    CRONJOBS,
    CRONWORKFLOWS,
    JOBS,
    PODS,
    SERVICES,
    WORKFLOWS,
    Key,
    Meta,
    View,
)
from onejob.objects.pod import Pod, read_pod
from onejob.objects.service import Service, read_service
from onejob.planning.job.pod_facts import is_tracked

if TYPE_CHECKING:
    from onejob.objects.workflow import CronWorkflow, Workflow

#: Page size for a client in the server's process, where a page is not a network request: small
#: enough that views decoded for the damage check are still in the processor's cache when they are
#: read.
_NEAR_PAGE = 200


class AnyObject(View, frozen=True):
    """View of the fields common to all kinds."""

    metadata: Meta = Meta()


_read_any = msgspec.json.Decoder(AnyObject).decode


class SharedInformers:
    """Informers by resource, created on first access.

    Informers are accessed before `start`; later only through `metadata`, for a kind that the API
    server has begun to serve since.

    The Pod cache keeps only Pods on which a controller may still act: Pods that have not ended,
    that are not counted yet, or that have no controller. A controller that needs finished Pods
    reads them from the deltas.

    Errors:
        An informer task that ends before `stop` is a failure; see `tasks`.
    """

    def __init__(
        self,
        client: Client,
        namespace: str = "",
        known_view: Callable[[bytes], Any] | None = None,
    ) -> None:
        """Create informers for one namespace, or for all if it is "".

        `known_view`, given in the server's process, returns the view of a document of a first list
        if the document was decoded just before, by the server's check for damaged objects.
        """
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
        """Informer of Jobs, created on first use."""
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
        """Informer of Pods, created on first use; ended Pods that need no action are not cached."""
        informer = Informer(
            self._client,
            Selection(PODS, self._namespace),
            read_pod,
            lambda pod: pod.key,
            keep=_may_need_action,
            index_entries=_index_pod,
            read_first=self._read_first_pod,
            derive=_derived_pod,
            page=self._page,
        )
        return self._register(PODS, informer)

    @cached_property
    def cronjobs(self) -> Informer[CronJob]:
        """Informer of CronJobs, created on first use."""
        informer = Informer(
            self._client,
            Selection(CRONJOBS, self._namespace),
            read_cronjob,
            lambda cronjob: cronjob.key,
        )
        return self._register(CRONJOBS, informer)

    @cached_property
    def workflows(self) -> "Informer[Workflow]":
        informer: Informer[Workflow] = Informer(
            self._client,
            Selection(WORKFLOWS, self._namespace),
            self._read_workflow,
            lambda workflow: workflow.key,
            index_entries=_index_owner,
        )
        return self._register(WORKFLOWS, informer)

    @cached_property
    def cronworkflows(self) -> "Informer[CronWorkflow]":
        informer: Informer[CronWorkflow] = Informer(
            self._client,
            Selection(CRONWORKFLOWS, self._namespace),
            _read_cronworkflow,
            lambda cronworkflow: cronworkflow.key,
        )
        return self._register(CRONWORKFLOWS, informer)

    @cached_property
    def services(self) -> Informer[Service]:
        """Informer of Services, created on first use."""
        informer = Informer(
            self._client,
            Selection(SERVICES, self._namespace),
            read_service,
            lambda service: Key(SERVICES, service.metadata.namespace, service.metadata.name),
            index_entries=lambda service: (("namespace", service.metadata.namespace),),
        )
        return self._register(SERVICES, informer)

    def viewed(
        self,
        resource: str,
        read: Callable[[bytes], Any],
        index_entries: Callable[[Any], Sequence[IndexEntry]] | None = None,
    ) -> "Informer[Any]":
        """Return the informer of a resource with a view of its own, created on first use.

        Access it before `metadata` of this resource, which would create one without that view.
        """
        if resource not in self._informers:
            informer: Informer[Any] = Informer(
                self._client,
                Selection(resource, self._namespace),
                read,
                lambda view: Key(resource, view.metadata.namespace, view.metadata.name),
                index_entries=index_entries,
            )
            self._register(resource, informer)
        return self._informers[resource]

    def metadata(self, resource: str) -> "Informer[Any]":
        """Return an informer whose views have at least `metadata`.

        For controllers that treat all kinds alike. Jobs, Pods, CronJobs and Services use the
        informers that all controllers share.
        """
        match resource:
            case "pods":
                return self.pods
            case "jobs.batch":
                return self.jobs
            case "cronjobs.batch":
                return self.cronjobs
            case "services":
                return self.services
            case "workflows.onejob.dev":
                return self.workflows
            case "cronworkflows.onejob.dev":
                return self.cronworkflows
            case _:
                return self.viewed(resource, _read_any)

    async def begin(self) -> None:
        """Fetch the first page of each first list, so that no change from here on is missed.

        Call before `start` if others may write in between.
        """
        for informer in self._informers.values():
            await informer.begin()

    async def start(self) -> None:
        """Run every informer created so far, and wait until each has listed once."""
        self._started = True
        # Owners before dependents: otherwise controllers would have to remember Pods until their
        # Jobs are cached.
        if JOBS in self._informers:
            await self._list_once([JOBS])
        await self._list_once([name for name in self._informers if name not in self._tasks])

    async def _list_once(self, resources: Sequence[str]) -> None:
        """Start the informers of these resources and wait for their first lists. Raises the error
        of one that ended before."""
        informers = {name: self._informers[name] for name in resources}
        started = [(self._run(name, informer), informer) for name, informer in informers.items()]
        for task, informer in started:
            synced = asyncio.ensure_future(informer.synced())
            await asyncio.wait((task, synced), return_when=asyncio.FIRST_COMPLETED)
            if not synced.done():
                # The informer ended before its first list, so that `synced` would never return.
                synced.cancel()
                await task
                raise RuntimeError(f"{task.get_name()} ended")

    def _read_workflow(self, document: bytes) -> "Workflow":
        """Decode a workflow, whose spec mostly is that of the cached version.

        Its view is imported with the first one: most servers have none.
        """
        from onejob.objects.workflow import read_next_workflow

        return read_next_workflow(document, self.workflows.cache.get)

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
        """Tasks of the running informers.

        A task that ends before `stop` is a failure: its handlers would never be called again.
        """
        return tuple(self._tasks.values())

    def on_task(self, call: "Callable[[asyncio.Task[None]], None]") -> None:
        """Call `call` with each running task, and with each task started later."""
        self._on_task = call
        for task in self._tasks.values():
            call(task)

    def drop(self, resource: str) -> None:
        """Stop and remove the informer of a kind that is no longer served."""
        self._informers.pop(resource, None)
        task = self._tasks.pop(resource, None)
        if task is not None:
            task.cancel()

    async def stop(self) -> None:
        """Cancel all informers and wait for their end."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def _register(self, resource: str, informer: "Informer[Any]") -> "Informer[Any]":
        """Add an informer, started if the others are, and return it."""
        self._informers[resource] = informer
        if self._started:
            self._run(resource, informer)
        return informer

    def _run(self, resource: str, informer: "Informer[Any]") -> asyncio.Task[None]:
        """Start an informer in a task of its own and return the task."""
        task = asyncio.create_task(informer.run(), name=f"informer-{resource}")
        self._tasks[resource] = task
        self._on_task(task)
        return task


def _derived_pod(last: Pod, event: WatchEvent) -> Pod | None:
    """Return a Pod of which only the finalizers have changed since its last view; None if another
    version was in between."""
    assert event.finalizers is not None, "of other changes, no view is derived"
    finalizers, previous = event.finalizers
    if last.metadata.resource_version != str(previous):
        return None
    metadata = replace(last.metadata, finalizers=finalizers, resource_version=str(event.revision))
    return Pod(metadata=metadata, spec=last.spec, status=last.status)


def _may_need_action(pod: Pod) -> bool:
    return bool(
        pod.status.phase not in ("Succeeded", "Failed")
        or (pod.metadata.finalizers and is_tracked(pod))
        or pod.metadata.controller_ref is None
    )


def _index_pod(pod: Pod) -> Sequence[IndexEntry]:
    metadata = pod.metadata
    for owner in metadata.owner_references:
        if owner.controller:
            return (("controller", owner.uid),)
    # By namespace and label, so that a selector is not matched against every Pod.
    namespace = metadata.namespace
    labels = [("uncontrolled", (namespace, *label)) for label in metadata.labels.items()]
    return (("uncontrolled", namespace), *labels)


def _read_cronworkflow(document: bytes) -> "CronWorkflow":
    from onejob.objects.workflow import read_cronworkflow

    return read_cronworkflow(document)


def _index_owner(view: "Workflow") -> Sequence[IndexEntry]:
    owner = view.metadata.controller_ref
    return () if owner is None else (("owner", owner.uid),)


def _index_job(job: Job) -> Sequence[IndexEntry]:
    namespace = ("namespace", job.metadata.namespace)
    owner = job.metadata.controller_ref
    return (namespace,) if owner is None else (namespace, ("owner", owner.uid))
