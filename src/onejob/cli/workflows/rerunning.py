"""Re-runs of workflows, of a server and of kept runs, planned by `planning.workflow.rerun`."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from onejob.cli.errors import CommandError
from onejob.objects.job import finished_condition
from onejob.planning.workflow.rerun import rerun_workflow

Document = dict[str, Any]

_SUFFIX: Final = re.compile(r"-rerun-[0-9]+$")
#: Characters of the name of a task's Job.
_MAX_JOB_NAME: Final = 63


def free_name(workflow: Mapping[str, Any], taken: Collection[str]) -> str:
    """Return a name for the re-run that leaves room for the names of the tasks."""
    spec = workflow["spec"]
    tasks = (*spec["tasks"], *spec.get("finally", ()))
    room = _MAX_JOB_NAME - 1 - max(len(task["name"]) for task in tasks)
    base = _SUFFIX.sub("", workflow["metadata"]["name"])
    number = 1
    while True:
        suffix = f"-rerun-{number}"
        name = base[: max(room - len(suffix), 1)].rstrip("-.") + suffix
        if name not in taken:
            return name
        number += 1


def plain_jobs(jobs: Sequence[Document]) -> list[Document]:
    """Return the Jobs that no workflow controls."""
    return [
        job
        for job in jobs
        if not any(
            owner["kind"] == "Workflow" and owner.get("controller")
            for owner in job["metadata"].get("ownerReferences", ())
        )
    ]


def rerun_stored(
    workflows: Sequence[Document],
    *,
    failed_only: bool,
    from_task: str,
    settings: Mapping[str, str],
) -> list[Document]:
    """Return the workflows of an ended run to run again, under their own names.

    With `failed_only`, those that are Complete are left out. Raises CommandError and BadInput.
    """
    if settings:
        raise CommandError(
            "--set does not support workflows", "change the manifest, and run it instead"
        )
    if from_task and len(workflows) != 1:
        raise CommandError("--from requires a run of one workflow")
    return [
        rerun_workflow(
            workflow,
            name=workflow["metadata"]["name"],
            from_task=from_task,
            failed_only=failed_only,
            stopped=True,
        )
        for workflow in workflows
        if not (failed_only and _is_complete(workflow))
    ]


def _is_complete(workflow: Document) -> bool:
    condition = finished_condition(workflow)
    return condition is not None and condition.get("type") == "Complete"
