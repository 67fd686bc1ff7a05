"""Parameters and original numbers of the indexes of a Job that is about to be created."""

import contextlib
from itertools import islice
from typing import Final

from onejob.cli.run.plan import PlannedObject, RunPlan
from onejob.planning.job.parameter_rows import PARAMS_ANNOTATION, row_text, rows_of
from onejob.planning.job.rerun import origins_of

#: Indexes of a resumed Job at most, as in `planning/job/rerun.py`.
_MAX_ORIGINS: Final = 100_000


def indexes_of(wanted: PlannedObject, plan: RunPlan) -> tuple[list[str], list[int]]:
    """Return the parameters of each index of a Job, and its index in the first Job."""
    annotations = wanted.document["metadata"].get("annotations") or {}
    rows: list[str] = []
    origins: list[int] = []
    if PARAMS_ANNOTATION in annotations:
        for other in plan.objects:
            metadata = other.document["metadata"]
            if (
                other.document["kind"] == "ConfigMap"
                and metadata.get("name") == annotations[PARAMS_ANNOTATION]
                and other.namespace == wanted.namespace
            ):
                # The annotation may have been written by a user.
                with contextlib.suppress(ValueError):
                    rows = [row_text(row) for row in rows_of(other.document)]
    if (noted := origins_of(wanted.document)) is not None:
        origins = [*islice(noted, _MAX_ORIGINS)]
    return rows, origins
