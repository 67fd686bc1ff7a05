"""Mistakes of `run --resume`: items run again, left out or mixed up."""

from collections.abc import Mapping

from onejob.cli import kept_runs
from onejob.cli.run import resuming
from onejob.planning.job import rerun
from sim.mutants.planting import Plant, edit

MUTANTS: Mapping[str, Plant] = {
    "run resumed while it is under way": edit(
        kept_runs._is_locked, ("return True", "return False")
    ),
    "succeeded items run again": edit(
        rerun._unfinished, ('job.get("status", {}).get("completedIndexes", "")', '""')
    ),
    "failed items left out": edit(
        rerun._unfinished,
        (
            "return [index for gap in done.gaps(completions) for index in gap]",
            'text = job.get("status", {}).get("failedIndexes") or ""\n'
            "    failed = parse_indexes(text, completions)\n"
            "    left = [index for gap in done.gaps(completions) for index in gap]\n"
            "    return [index for index in left if index not in failed]",
        ),
    ),
    "parameters taken by position": edit(
        rerun.rerun,
        ("[rows[index] for index in indexes if index < len(rows)]", "rows[: len(indexes)]"),
    ),
    "successes not counted yet run again": edit(rerun._succeeded, ("+ len(uncounted)", "")),
    "indexes of the first run forgotten": edit(
        rerun._note_origin, ("if before is not None:", "if False:")
    ),
    "namespace of the run forgotten": edit(
        resuming._jobs_to_rerun,
        (
            'document["metadata"]["namespace"] = namespace',
            'document["metadata"]["namespace"] = "default"',
        ),
    ),
    "configuration of the run left out": edit(
        resuming.manifests_of_run,
        ("for resource in PREREQUISITES", "for resource in PREREQUISITES[:1]"),
    ),
}
