"""One informer per resource for everybody in the process: each change is decoded once."""

import asyncio
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec

from onejob.client.base import Client, Selection
from onejob.informers.cache import Place
from onejob.informers.informer import Informer
from onejob.informers.slim_jobs import read_slim_job
from onejob.objects.cronjob import CronJob, read_cronjob
from onejob.objects.job import Job
from onejob.objects.meta import CRONJOBS, JOBS, PODS, SERVICES, Key, Meta, View
from onejob.objects.pod import Pod, read_pod
from onejob.objects.service import Service, read_service
from onejob.planning.job.pod_facts import is_tracked


class AnyObject(View, frozen=True):
    """What is common to all kinds."""

    metadata: Meta = Meta()


_read_any = msgspec.json.Decoder(AnyObject).decode


class SharedInformers:
    """Informers by resource, made when first asked for. Ask before `start`.

    The Pod cache keeps only what a controller may still act on: Pods that have not ended, or
    that still wait to be counted. Those who need finished Pods follow the deltas.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._made: dict[str, Informer[Any]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    @cached_property
    def jobs(self) -> Informer[Job]:
        informer = Informer(
            self._client,
            Selection(JOBS),
            read_slim_job,
            lambda job: job.key,
            places=_places_of_job,
        )
        return self._remember(JOBS, informer)

    @cached_property
    def pods(self) -> Informer[Pod]:
        informer = Informer(
            self._client,
            Selection(PODS),
            read_pod,
            lambda pod: pod.key,
            keep=_still_matters,
            places=_places_of_pod,
        )
        return self._remember(PODS, informer)

    @cached_property
    def cronjobs(self) -> Informer[CronJob]:
        informer = Informer(
            self._client, Selection(CRONJOBS), read_cronjob, lambda cronjob: cronjob.key
        )
        return self._remember(CRONJOBS, informer)

    @cached_property
    def services(self) -> Informer[Service]:
        informer = Informer(
            self._client,
            Selection(SERVICES),
            read_service,
            lambda service: Key(SERVICES, service.metadata.namespace, service.metadata.name),
            places=lambda service: (("namespace", service.metadata.namespace),),
        )
        return self._remember(SERVICES, informer)

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
                if resource not in self._made:
                    self._remember(
                        resource,
                        Informer(
                            self._client,
                            Selection(resource),
                            _read_any,
                            lambda view: Key(resource, view.metadata.namespace, view.metadata.name),
                        ),
                    )
                return self._made[resource]

    async def start(self) -> None:
        """Run every informer that was asked for, and wait until each has listed once."""
        for resource, informer in self._made.items():
            task = asyncio.create_task(informer.run(), name=f"informer-{resource}")
            self._tasks.append(task)
        for task, informer in zip(self._tasks, self._made.values(), strict=True):
            synced = asyncio.ensure_future(informer.synced())
            await asyncio.wait((task, synced), return_when=asyncio.FIRST_COMPLETED)
            if not synced.done():
                # It ended instead: whoever waits for its list would wait for ever.
                synced.cancel()
                await task
                raise RuntimeError(f"{task.get_name()} ended")

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """They go on until `stop`; one that ends by itself leaves its listeners deaf."""
        return self._tasks

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _remember(self, resource: str, informer: "Informer[Any]") -> "Informer[Any]":
        assert not self._tasks, f"{resource} was asked for after the informers were started"
        self._made[resource] = informer
        return informer


def _still_matters(pod: Pod) -> bool:
    return not pod.terminal or is_tracked(pod) or pod.metadata.controller_ref is None


def _places_of_pod(pod: Pod) -> Sequence[Place]:
    metadata = pod.metadata
    owner = metadata.controller_ref
    if owner is not None:
        return (("controller", owner.uid),)
    # By namespace, and there by each label: a selector need not try all of them.
    namespace = metadata.namespace
    labels = [("uncontrolled", (namespace, *label)) for label in metadata.labels.items()]
    return (("uncontrolled", namespace), *labels)


def _places_of_job(job: Job) -> Sequence[Place]:
    namespace = ("namespace", job.metadata.namespace)
    owner = job.metadata.controller_ref
    return (namespace,) if owner is None else (namespace, ("owner", owner.uid))
