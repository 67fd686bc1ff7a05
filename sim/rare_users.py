"""Simulated users with rare actions, in some worlds only.

They edit limits and schedules, set selectors of their own and remove finalizers by hand.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from random import Random
from typing import Any

from onejob.client.base import Delete, Propagation, Selection
from onejob.objects.cronjob import read_cronjob
from onejob.objects.job import Job
from onejob.objects.meta import CRONJOBS, JOBS, PODS, Key
from onejob.objects.pod import Pod
from sim import workloads
from sim.faults import Trace
from sim.history import History
from sim.users import Users

#: Fraction of worlds with these users.
_SHARE = 0.3
#: Long enough for a slot and for the actions due just after it.
_MORE_THAN_A_MINUTE_SECONDS = 62.0
_TRACKING = "batch.kubernetes.io/job-tracking"


def users_of(seed: int, history: History, trace: Trace, *, rare: bool | None = None) -> Users:
    """Return the users of this world. `rare` overrides the drawn choice of `RareUsers`."""
    if rare if rare is not None else Random(f"{seed} rare").random() < _SHARE:
        return RareUsers(seed, history, trace)
    return Users(seed, history, trace)


class RareUsers(Users):
    """Users with rare actions in addition to those of `Users`."""

    def __init__(self, seed: int, history: History, trace: Trace) -> None:
        super().__init__(seed, history, trace)
        # A separate sequence keeps the actions of `Users` unchanged.
        self._dice = Random(f"{seed} rare people")
        self._schedules_watched = False
        self._rare: Sequence[Callable[[], Awaitable[None]]] = (
            *[self._edit_limits] * 4, *[self._edit_cronjob] * 4, self._edit_pod_lifetime,
            *[self._create_selecting_job] * 2, self._create_cronjob, self._delete_cronjob,
            self._strip_pod, self._delete_pods_of_job, *[self._replace_job] * 2,
        )  # fmt: skip

    async def begin(self) -> None:
        await super().begin()
        for _ in range(self._dice.randint(0, 2)):
            await self._create_cronjob()

    async def make_room(self) -> None:
        if not self._schedules_watched:
            self._schedules_watched = True
            await self._watch_schedules()
        await super().make_room()

    async def _watch_schedules(self) -> None:
        """Record each CronJob that does not start a Job every minute, whatever happened before."""
        often = {"schedule": "* * * * *", "timeZone": None, "suspend": False}
        anyhow = {"concurrencyPolicy": "Allow", "startingDeadlineSeconds": None}
        for key in await self._found(CRONJOBS):
            await self._patch(key, {"spec": {**often, **anyhow}})
        # If the clock was set back, the slot that ran last may come again; it is not run again.
        await asyncio.sleep(_MORE_THAN_A_MINUTE_SECONDS)
        started = await self._started()
        for _ in range(2):
            await asyncio.sleep(_MORE_THAN_A_MINUTE_SECONDS)
            before, started = started, await self._started()
            for key in before.keys() & started.keys():
                if before[key] == started[key]:
                    self.idle_schedules.append(f"{key} has started nothing since {started[key]}")

    async def _started(self) -> dict[Key, datetime | None]:
        """Return the last schedule time of each CronJob, by key."""
        listing = await self._client.list(Selection(CRONJOBS))
        cronjobs = [read_cronjob(document) for document in listing.documents]
        return {
            one.key: one.status.last_schedule_time for one in cronjobs if not one.metadata.deleting
        }

    async def act(self) -> None:
        if self._dice.random() < 0.6:
            await super().act()
        else:
            await self._dice.choice(self._rare)()

    async def _create_pod(self) -> None:
        kind = self._dice.choice(("pod", workloads.SERVICE))
        document = workloads.pod(self._dice, self._name(kind))
        if self._dice.random() < 0.4:
            document["spec"]["ttlSecondsAfterFinished"] = self._dice.choice((0, 5, 60))
        if self._dice.random() < 0.4:
            document["spec"]["activeDeadlineSeconds"] = self._dice.choice((1, 5, 60))
        await self._create(PODS, self._place(), document)

    # --- Jobs

    async def _create_selecting_job(self) -> None:
        """Create a Job that selects its Pods by a label that other Jobs may select as well."""
        document = workloads.job(self._dice, self._name("selecting"))
        spec = document["spec"]
        self._select(spec, {"app": self._dice.choice(("one", "two", document["metadata"]["name"]))})
        if self._dice.random() < 0.3:
            spec["template"]["spec"]["activeDeadlineSeconds"] = self._dice.choice((1, 5, 60))
        await self._create(JOBS, self._place(), document)

    def _select(self, spec: dict[str, Any], labels: Mapping[str, str]) -> None:
        spec |= {"manualSelector": True, "selector": {"matchLabels": labels}}
        spec["template"]["metadata"] = {"labels": labels}

    async def _edit_limits(self) -> None:
        job = self._any_of(await self._jobs())
        if job is not None:
            await self._patch(job.key, {"spec": self._dice.choice(self._limits(job))})

    def _limits(self, job: Job) -> Sequence[dict[str, Any]]:
        choice = self._dice.choice
        edits: list[dict[str, Any]] = [
            {"activeDeadlineSeconds": choice((None, 0, 5, 60))},
            {"backoffLimit": choice((0, 2, 1000))},
            {"ttlSecondsAfterFinished": choice((None, 0, 5, 60))},
            {"suspend": True, "parallelism": choice((1, 4))},
            {"suspend": False, "activeDeadlineSeconds": choice((None, 20))},
        ]
        if job.spec.backoff_limit_per_index is not None:
            edits.append({"maxFailedIndexes": choice((None, 0, 1))})
        if job.spec.pod_failure_policy is None:
            edits.append({"podReplacementPolicy": choice(("Failed", "TerminatingOrFailed"))})
        if job.indexed:
            size = self._dice.randint(0, 8)
            edits += [{"completions": size, "parallelism": size}] * 3
        return edits

    async def _replace_job(self) -> None:
        """Delete a Job and create one of the same name at once."""
        job = self._any_of(await self._jobs())
        if job is None or job.metadata.owner_references:
            return
        how: Propagation = self._dice.choice(("Background", "Foreground", "Orphan"))
        await self._write(Delete(job.key, how))
        document = workloads.job(self._dice, job.metadata.name)
        if job.spec.selector is not None and "app" in job.spec.selector.match_labels:
            # The second Job adopts the Pods that the first one leaves behind.
            self._select(document["spec"], job.spec.selector.match_labels)
        await self._create(JOBS, job.metadata.namespace, document)

    # --- Pods

    async def _strip_pod(self) -> None:
        """Remove the tracking finalizer: the Job may miss the Pod's end and must cope."""
        pod = self._any_of([pod for pod in await self._pods() if _is_tracked(pod)])
        if pod is None:
            return
        self.stripped.add(pod.metadata.uid)
        kept = [name for name in pod.metadata.finalizers if name != _TRACKING]
        metadata = {"finalizers": kept, "resourceVersion": pod.metadata.resource_version}
        await self._patch(pod.key, {"metadata": metadata})

    async def _delete_pods_of_job(self) -> None:
        job = self._any_of(await self._jobs())
        if job is None:
            return
        grace = self._dice.choice((None, 0, 5))
        for pod in await self._pods():
            owner = pod.metadata.controller_ref
            if owner is not None and owner.uid == job.metadata.uid:
                await self._write(Delete(pod.key, grace_seconds=grace))

    async def _edit_pod_lifetime(self) -> None:
        pod = self._any_of([pod for pod in await self._pods() if not pod.metadata.owner_references])
        if pod is not None:
            seconds = self._dice.choice((None, 0, 5, 60))
            await self._patch(pod.key, {"spec": {"ttlSecondsAfterFinished": seconds}})

    # --- CronJobs

    async def _create_cronjob(self) -> None:
        name = f"cron-{self._dice.randint(1, 3)}"
        document = workloads.cronjob(self._dice, name)
        document["spec"] |= self._schedule()
        if self._dice.random() < 0.4:
            document["spec"]["startingDeadlineSeconds"] = self._dice.choice((0, 10, 100, 10000))
        if self._dice.random() < 0.3:
            ttl = self._dice.choice((0, 5))
            document["spec"]["jobTemplate"]["spec"]["ttlSecondsAfterFinished"] = ttl
        await self._create(CRONJOBS, self._place(), document)

    async def _edit_cronjob(self) -> None:
        key = self._any_of(await self._found(CRONJOBS))
        if key is None:
            return
        choice = self._dice.choice
        edits: list[dict[str, Any]] = [
            {"suspend": True},
            {"suspend": False},
            self._schedule(),
            {"startingDeadlineSeconds": choice((None, 0, 10, 100))},
            {"concurrencyPolicy": choice(("Allow", "Forbid", "Replace"))},
            {
                "successfulJobsHistoryLimit": choice((0, 1)),
                "failedJobsHistoryLimit": choice((0, 1)),
            },
        ]
        await self._patch(key, {"spec": choice(edits)})

    async def _delete_cronjob(self) -> None:
        key = self._any_of(await self._found(CRONJOBS))
        if key is not None:
            how: Propagation = self._dice.choice(("Background", "Foreground", "Orphan"))
            await self._write(Delete(key, how))

    def _schedule(self) -> dict[str, Any]:
        return {
            "schedule": self._dice.choice(("* * * * *", "*/2 * * * *", "@every 20s", "@hourly")),
            "timeZone": self._dice.choice((None, "Asia/Kolkata", "America/New_York")),
        }

    def _any_of(self, candidates: Sequence[Any]) -> Any:
        return self._dice.choice(candidates) if candidates else None


def _is_tracked(pod: Pod) -> bool:
    return _TRACKING in pod.metadata.finalizers
