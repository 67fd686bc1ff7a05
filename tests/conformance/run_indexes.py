"""Runner of upstream's cases about completion indexes."""

from collections.abc import Callable, Iterator
from typing import Any

from onejob.objects.pod import Pod
from onejob.planning.job.counting import completed_indexes
from onejob.planning.job.indexes import (
    IndexFormatError,
    IndexSet,
    check_no_overlap,
    first_pending,
    parse_indexes,
    validate_indexes,
)
from onejob.planning.job.per_index import (
    failed_indexes,
    fails_its_index,
    failure_count,
    next_failure_counts,
    retained_pods,
)
from onejob.planning.job.pod_facts import completion_index
from onejob.planning.job.pod_template import generate_name_with_index
from onejob.planning.job.scaling import split_by_index
from onejob.planning.names import INDEX_ANNOTATION
from tests.conformance.planner_cases import as_indexed_job, as_pod, as_pods, spoil_expected
from tests.conformance.verdict import Case, Verdict, compare

Args = dict[str, Any]


def run_case(case: Case) -> Verdict:
    return compare(case["function"], case["expected"], _FUNCTIONS[case["function"]](case["args"]))


def corruptions(case: Case) -> Iterator[tuple[str, Case]]:
    return spoil_expected(case)


def _duplicates(args: Args) -> Any:
    remove, keep = split_by_index(as_pods(args["pods"]), args["completions"])
    return {"remove": [_row(pod) for pod in remove], "keep": [_row(pod) for pod in keep]}


def _row(pod: Pod) -> Any:
    return {
        "index": pod.metadata.annotations.get(INDEX_ANNOTATION),
        "phase": pod.status.phase,
        "pod": pod.metadata.name,
    }


def _failed(args: Args) -> Any:
    found = failed_indexes(as_indexed_job(args["job"]), as_pods(args["pods"]))
    return {"intervals": _pairs(found), "string": str(found), "total": len(found)}


def _completed(args: Args) -> Any:
    recorded, found = completed_indexes(as_indexed_job(args["job"]), as_pods(args["pods"]))
    return {
        "intervals": _pairs(found),
        "string": str(found),
        "total": len(found),
        "statusIntervals": _pairs(recorded),
        "statusString": str(recorded),
    }


def _first_pending(args: Args) -> Any:
    completions = args["completions"]
    failed = parse_indexes(args["failedIndexes"] or "", completions)
    active = set(args["activeIndexes"])
    return first_pending(
        args["count"],
        completions,
        parse_indexes(args["succeededIndexes"], completions),
        lambda index: index in active or index in failed,
    )


def _retained(args: Args) -> Any:
    job = as_indexed_job(args["job"])
    # A Pod that lost its finalizer is planned for only once the cache shows that.
    unseen = args["finalizerRemovalExpectedUIDs"]
    pods = [pod for pod in as_pods(args["pods"]) if pod.metadata.uid not in unseen]
    active = {
        index
        for pod in pods
        if pod.metadata.uid in args["activePodUIDs"]
        and (index := completion_index(pod)) is not None
    }
    completions = job.spec.completions or 0
    retained = retained_pods(
        job,
        pods,
        active,
        parse_indexes(args["succeededIndexes"], completions),
        parse_indexes(args["failedIndexes"] or "", completions),
    )
    return {"podUIDByIndex": {str(index): pod.metadata.uid for index, pod in retained.items()}}


def _next_counts(args: Args) -> Any:
    replaced = args["podBeingReplaced"]
    counts = next_failure_counts(
        as_indexed_job(args["job"]), None if replaced is None else as_pod(replaced)
    )
    return {"indexFailureCount": counts[0], "indexIgnoredFailureCount": counts[1]}


def _validate(args: Args) -> Any:
    try:
        return {"total": validate_indexes(args["indexes"], args["completions"]), "error": None}
    except IndexFormatError as error:
        return {"total": 0, "error": str(error)}


def _overlap(args: Args) -> Any:
    try:
        check_no_overlap(args["completedIndexes"], args["failedIndexes"], args["completions"])
    except IndexFormatError as error:
        return {"error": str(error)}
    return {"error": None}


def _has(args: Args) -> Any:
    return args["index"] in IndexSet((first, last) for first, last in args["intervals"])


def _pairs(indexes: IndexSet) -> list[list[int]]:
    return [list(pair) for pair in indexes.intervals]


_FUNCTIONS: dict[str, Callable[[Args], Any]] = {
    "appendDuplicatedIndexPodsForRemoval": _duplicates,
    "calculateFailedIndexes": _failed,
    "calculateSucceededIndexes": _completed,
    "firstPendingIndexes": _first_pending,
    "getIndexFailureCount": lambda args: failure_count(as_pod(args["pod"])),
    "getNewIndexFailureCounts": _next_counts,
    "getPodsWithDelayedDeletionPerIndex": _retained,
    "isIndexFailed": lambda args: fails_its_index(as_indexed_job(args["job"]), as_pod(args["pod"])),
    "orderedIntervals.has": _has,
    "podGenerateNameWithIndex": lambda args: generate_name_with_index(
        args["jobName"], args["index"]
    ),
    "validateFailedIndexesNotOverlapCompleted": _overlap,
    "validateIndexesFormat": _validate,
}
