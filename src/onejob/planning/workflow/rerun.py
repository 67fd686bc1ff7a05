"""Re-run of a workflow: a first run in which some tasks have given ends.

Pure: a document in, a document out.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import count
from typing import Any, Final

import msgspec

from onejob.objects.workflow import TaskStatus, Workflow, all_tasks, read_workflow
from onejob.planning.bad_input import BadInput
from onejob.planning.names import LAST_APPLIED
from onejob.planning.workflow.graph import Graph, build_graph
from onejob.planning.workflow.states import COMPLETE, GIVEN, SKIPPED, WHEN_FALSE

#: Annotations: name and UID of the workflow that this one repeats.
RERUN_OF: Final = "onejob.dev/rerun-of"
RERUN_OF_UID: Final = "onejob.dev/rerun-of-uid"

_SUFFIX: Final = re.compile(r"-rerun-[0-9]+$")
#: Characters of the name of a task's Job.
_MAX_JOB_NAME: Final = 63

Document = dict[str, Any]


def rerun_names(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield names for a re-run, in order, that leave room for the names of the tasks."""
    spec = document["spec"]
    tasks = (*spec["tasks"], *spec.get("finally", ()))
    room = _MAX_JOB_NAME - 1 - max((len(task["name"]) for task in tasks), default=0)
    base = _SUFFIX.sub("", document["metadata"]["name"])
    for number in count(1):
        suffix = f"-rerun-{number}"
        yield base[: max(room - len(suffix), 1)].rstrip("-.") + suffix


def rerun_workflow(
    document: Mapping[str, Any],
    *,
    name: str,
    from_task: str = "",
    failed_only: bool = False,
    stopped: bool = False,
) -> Document:
    """Return the workflow to create under `name`.

    With `from_task`, that task and all that depend on it run again, and with `failed_only` those
    that failed, were never started, or depend on such; so do, in both cases, all that did not
    complete. All others keep their ends and results. Tasks of `finally` always run. `stopped` is
    True if the workflow cannot go on, because its run has ended.

    Raises:
        BadInput: if the task is unknown, or the workflow has not finished.
    """
    workflow = read_workflow(msgspec.json.encode(document))
    if not workflow.finished and not stopped:
        raise BadInput(
            f"workflow {workflow.metadata.name} has not finished", "wait until it has, or delete it"
        )
    spec = {key: value for key, value in document["spec"].items() if key != "given"}
    spec.pop("suspend", None)
    if from_task or failed_only:
        given = _given(workflow, from_task)
        if given:
            spec["given"] = given
    metadata = document["metadata"]
    annotations = metadata.get("annotations", {})
    return {
        "apiVersion": document["apiVersion"],
        "kind": document["kind"],
        "metadata": {
            "name": name,
            **({"namespace": metadata["namespace"]} if "namespace" in metadata else {}),
            **({"labels": metadata["labels"]} if metadata.get("labels") else {}),
            "annotations": {
                **{key: text for key, text in annotations.items() if key != LAST_APPLIED},
                RERUN_OF: metadata["name"],
                RERUN_OF_UID: metadata.get("uid", ""),
            },
        },
        "spec": spec,
    }


def _given(workflow: Workflow, from_task: str) -> list[Document]:
    graph = build_graph(workflow.spec)
    if from_task and graph.positions.get(from_task, graph.ordinary) >= graph.ordinary:
        names = ", ".join(task.name for task in all_tasks(workflow)[: graph.ordinary])
        raise BadInput(f"there is no task {from_task!r}", f"the tasks are {names}")
    ends = {task.name: task for task in workflow.status.tasks}
    again = _run_again(graph, ends, {from_task} if from_task else set())
    return [
        {
            "task": task.name,
            "state": ends[task.name].state,
            **({"results": ends[task.name].results} if ends[task.name].results else {}),
        }
        for task in workflow.spec.tasks
        if task.name not in again
    ]


def _run_again(
    graph: Graph, ends: Mapping[str, TaskStatus], chosen: Collection[str]
) -> frozenset[str]:
    """Return the tasks without a lasting end, the chosen ones, and all that depend on these."""
    again: set[str] = set()
    for position in graph.order:
        name = graph.tasks[position].name
        depends = any(graph.tasks[other].name in again for other, _ in graph.edges[position])
        if depends or name in chosen or not _lasts(ends.get(name)):
            again.add(name)
    return frozenset(again)


def _lasts(end: TaskStatus | None) -> bool:
    if end is None:
        return False
    if end.state == SKIPPED:
        return end.reason in (WHEN_FALSE, GIVEN)
    return end.state == COMPLETE
