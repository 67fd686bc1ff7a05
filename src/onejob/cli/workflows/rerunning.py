"""Re-runs of workflows, of a server and of kept runs, planned by `planning.workflow.rerun`."""

from collections.abc import Mapping, Sequence
from typing import Any

from onejob.cli.errors import CommandError
from onejob.objects.job import finished_condition
from onejob.planning.workflow.rerun import rerun_workflow

Document = dict[str, Any]


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
