"""Simulated users of workflows."""

from typing import Any

from onejob.client.base import Delete, Propagation, Selection
from onejob.objects.meta import JOBS, WORKFLOWS
from onejob.objects.workflow import Workflow, read_workflow
from sim.faults import Trace
from sim.history import History
from sim.users import Users
from sim.workflows.manifests import workflow

_NAMES = 5


class WorkflowUsers(Users):
    """Users who create workflows, and do to their Jobs and Pods what users of Jobs do."""

    def __init__(self, seed: int, history: History, trace: Trace) -> None:
        super().__init__(seed, history, trace)
        self._uses_team = self._uses_cron = False
        self._deeds = (
            *[self._create_workflow] * 5, *[self._edit_workflow] * 4, *[self._delete_workflow] * 2,
            *[self._delete_job] * 2, *[self._delete_pod] * 2, self._resume_job, self._take_name,
            *[self._delete_started_job] * 2,
        )  # fmt: skip

    async def begin(self) -> None:
        for _ in range(self._rng.randint(1, 3)):
            await self._create_workflow()

    async def make_room(self) -> None:
        for each in await self._workflows():
            if not each.finished and each.spec.suspend:
                await self._patch(each.key, {"spec": {"suspend": False}})
        await super().make_room()

    async def _create_workflow(self) -> None:
        # Few names, so that a new workflow meets the Jobs of a deleted one.
        name = f"wf-{self._rng.randint(1, _NAMES)}"
        await self._create(WORKFLOWS, "default", workflow(self._rng, name))

    async def _edit_workflow(self) -> None:
        found = self._one_of([each for each in await self._workflows() if not each.finished])
        if found is not None:
            edits: list[dict[str, Any]] = [
                {"suspend": True},
                {"suspend": False},
                {"parallelism": self._rng.randint(2, 5)},
                {"activeDeadlineSeconds": self._rng.choice((10, 100))},
            ]
            await self._patch(found.key, {"spec": self._rng.choice(edits)})

    async def _delete_workflow(self) -> None:
        found = self._one_of(await self._workflows())
        if found is not None:
            how: Propagation = self._rng.choice(("Background", "Foreground", "Orphan"))
            await self._write(Delete(found.key, how))

    async def _resume_job(self) -> None:
        job = self._one_of([job for job in await self._jobs() if job.spec.suspend])
        if job is not None:
            await self._patch(job.key, {"spec": {"suspend": False}})

    async def _delete_started_job(self) -> None:
        """Delete a Job that was started last, or the one it followed."""
        owned = [job for job in await self._jobs() if job.metadata.owner_references]
        owned.sort(key=lambda job: job.metadata.revision)
        job = self._one_of(owned[-2:])
        if job is not None:
            await self._write(Delete(job.key, "Background"))

    async def _take_name(self) -> None:
        """Create a Job with the name of a task's."""
        name = f"wf-{self._rng.randint(1, _NAMES)}-t{self._rng.randint(0, 5)}"
        document = workflow(self._rng, "x")["spec"]["tasks"][0]["template"]
        metadata = {"name": name}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, **document}
        await self._create(JOBS, "default", job)

    async def _workflows(self) -> list[Workflow]:
        listing = await self._client.list(Selection(WORKFLOWS))
        return [read_workflow(document) for document in listing.documents]
