"""Results of a Job, merged with the results of the Jobs whose failed indexes it reran."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from onejob.cli.sources.base import Api, list_all
from onejob.cli.sources.params import params_of_job
from onejob.cli.sources.pods import pods_of_job
from onejob.diagnosis.results import Result, collect, merged, renumbered, with_missing
from onejob.objects.meta import JOBS
from onejob.planning.job.indexes import read_index
from onejob.planning.job.parameter_rows import row_text, rows_of
from onejob.planning.job.rerun import origins_of, repeated_uid
from onejob.planning.names import INDEX_ANNOTATION
from onejob.wire.kinds import BY_RESOURCE

if TYPE_CHECKING:
    from onejob.cli.sources.selection import Sources

Document = dict[str, Any]

#: Jobs followed at most: hand-written annotations may form a cycle.
_MAX_LINEAGE_JOBS: Final = 1000


def results_of_lineage(where: "Sources", api: Api, job: Document) -> list[Result]:
    """Return the newest attempt of each index of the original Job."""
    parts = [results_of_job(api, job)]
    repeated = repeated_uid(job)
    while repeated and len(parts) < _MAX_LINEAGE_JOBS:
        found = _on_server(api, job, repeated) or _in_runs(where, repeated)
        if found is None:
            print(
                f"note: results of an earlier Job (uid {repeated}) are not shown: the Job was "
                "deleted",
                file=sys.stderr,
            )
            break
        repeated, results = found
        parts.append(results)
    return merged(reversed(parts))


def results_of_job(api: Api, job: Document) -> list[Result]:
    """Return the results of the Job's own Pods, numbered by the indexes of the original Job."""
    rows, spec = _rows(api, job), job["spec"]
    results = collect(pods_of_job(api, job), rows)
    if rows or spec.get("completionMode") == "Indexed":
        results = with_missing(results, rows, spec.get("completions"))
    origins = origins_of(job)
    return results if origins is None else renumbered(results, list(origins))


def index_titles(api: Api, job: Document) -> Callable[[Document], str]:
    """Return a function that names a Pod of a sweep, as `17 seed=54 lr=0.01`; "" otherwise."""
    rows = _rows(api, job)
    origins = origins_of(job)
    numbers = None if origins is None else list(origins)

    def title(pod: Document) -> str:
        index = read_index(pod["metadata"].get("annotations", {}).get(INDEX_ANNOTATION))
        if index is None or index >= len(rows):
            return ""
        number = index if numbers is None or index >= len(numbers) else numbers[index]
        return f"{number} {row_text(rows[index])}"

    return title


def _on_server(api: Api, job: Document, uid: str) -> tuple[str, list[Result]] | None:
    jobs = list_all(api, BY_RESOURCE[JOBS], job["metadata"]["namespace"])
    return _find_job_results(api, jobs, uid)


def _in_runs(where: "Sources", uid: str) -> tuple[str, list[Result]] | None:
    if where.kubeconfig is not None:
        return None
    for api in where.all_runs():
        found = _find_job_results(api, list_all(api, BY_RESOURCE[JOBS], ""), uid)
        if found is not None:
            return found
    return None


def _find_job_results(api: Api, jobs: list[Document], uid: str) -> tuple[str, list[Result]] | None:
    for job in jobs:
        if job["metadata"]["uid"] == uid:
            return repeated_uid(job), results_of_job(api, job)
    return None


def _rows(api: Api, job: Document) -> list[dict[str, str]]:
    config_map = params_of_job(api, job)
    if config_map is None:
        return []
    try:
        return rows_of(config_map)
    except ValueError:
        name = config_map["metadata"]["name"]
        print(f"note: configmap/{name} contains no parameter rows", file=sys.stderr)
        return []
