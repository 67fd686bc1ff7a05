"""Results of tasks: reading them from a Pod, and inserting them into later Jobs.

A task declares its results. Its Pod writes them as a JSON object to its termination message, whose
path containers find in the variable `ONEJOB_RESULT`. `$(tasks.NAME.results.KEY)` in values of env,
in command and in args of a later task stands for one of them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from onejob.objects.pod import Pod
from onejob.objects.workflow import ResultDeclaration, Task, TaskStatus
from onejob.planning.names import INDEX_ANNOTATION
from onejob.planning.workflow.states import COMPLETE

#: Environment variable with the path of the file for results.
RESULT_VARIABLE: Final = "ONEJOB_RESULT"
#: Bytes of all results of one task, as JSON. A termination message is at most as long.
MAX_TASK_BYTES: Final = 4096
#: Bytes of the results of all tasks of a workflow, as JSON.
MAX_WORKFLOW_BYTES: Final = 256 * 1024

_DEFAULT_PATH: Final = "/dev/termination-log"
#: `$$(` is an escaped `$(`, as in all values that Kubernetes expands.
_REFERENCE: Final = re.compile(r"(?<!\$)\$\(tasks\.([^()\s]*)\)")
_PARTS: Final = re.compile(r"([a-z0-9]([-a-z0-9]*[a-z0-9])?)\.results\.([A-Za-z0-9_-]+)")

Spec = dict[str, Any]


class ResultsRead(Struct, frozen=True):
    """Results found in a Pod; `problem` says why declared ones are missing."""

    values: dict[str, str]
    problem: str = ""


class Reference(Struct, frozen=True):
    """Use of a result in a Job's template. `task` and `result` are empty if it is malformed."""

    #: Path of the string below the Job's spec: `template.spec.containers[0].args[1]`.
    path: str
    text: str
    task: str
    result: str


def may_refer(spec: bytes | msgspec.Raw) -> bool:
    return b"$(tasks." in bytes(spec)


def references(spec: Mapping[str, Any]) -> Iterator[Reference]:
    """Yield the references in a Job's spec."""
    for path, text, _, _ in _strings(spec):
        for match in _REFERENCE.finditer(text):
            parts = _PARTS.fullmatch(match[1])
            task, result = (parts[1], parts[3]) if parts is not None else ("", "")
            yield Reference(path, match[0], task, result)


def results_read(task: Task) -> tuple[tuple[str, str], ...]:
    """Return the results that a task's template refers to, as names of task and result."""
    if not may_refer(task.template.spec):
        return ()
    found = references(msgspec.json.decode(task.template.spec))
    return tuple(dict.fromkeys((each.task, each.result) for each in found if each.task))


def substitute(spec: Spec, values: Mapping[str, Mapping[str, str]]) -> None:
    """Replace all references in a Job's spec by `values`, by task and key.

    `$(` in a value is escaped: a result is text, whatever it contains.
    """

    def value_of(match: re.Match[str]) -> str:
        parts = _PARTS.fullmatch(match[1])
        if parts is None:
            return match[0]
        return values[parts[1]][parts[3]].replace("$(", "$$(")

    for _, text, holder, place in list(_strings(spec)):
        if "$(tasks." in text:
            holder[place] = _REFERENCE.sub(value_of, text)


def add_result_variable(spec: Spec) -> None:
    """Give each container the path of its termination message as `ONEJOB_RESULT`."""
    for container in _containers(spec, ("containers",)):
        env = container.setdefault("env", [])
        if all(variable.get("name") != RESULT_VARIABLE for variable in env):
            path = container.get("terminationMessagePath") or _DEFAULT_PATH
            env.insert(0, {"name": RESULT_VARIABLE, "value": path})


def values_of(task: Task, end: TaskStatus) -> dict[str, str]:
    """Return the results of a task that has ended, completed by defaults."""
    defaults = {
        result.name: result.default for result in task.results if result.default is not None
    }
    return defaults | end.results if end.state == COMPLETE else defaults


def holds_results(pod: Pod) -> bool:
    """Return whether the results of the Pod's Job are those of this Pod."""
    return pod.phase == "Succeeded" and pod.metadata.annotations.get(INDEX_ANNOTATION, "0") == "0"


def read_results(pod: Pod, declared: Sequence[ResultDeclaration]) -> ResultsRead:
    """Return the declared results in the termination messages of a Pod's containers."""
    found: dict[str, str] = {}
    problem = ""
    for status in pod.status.container_statuses:
        terminated = status.state.terminated
        if terminated is None or not terminated.message.strip():
            continue
        try:
            values = msgspec.json.decode(terminated.message, type=dict[str, Any])
        except (msgspec.MsgspecError, ValueError):
            problem = f'the termination message of container "{status.name}" is no JSON object'
            continue
        found |= {key: _text(value) for key, value in values.items()}
    kept = {result.name: found[result.name] for result in declared if result.name in found}
    size = len(msgspec.json.encode(kept))
    if size > MAX_TASK_BYTES:
        return ResultsRead({}, f"its results have {size} bytes; at most {MAX_TASK_BYTES} are kept")
    missing = [result.name for result in declared if result.name not in kept]
    if missing and not problem:
        problem = f"no result {', '.join(missing)} in the termination message"
    return ResultsRead(kept, problem)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _containers(spec: Mapping[str, Any], fields: Sequence[str]) -> Iterator[dict[str, Any]]:
    pod = (spec.get("template") or {}).get("spec") or {}
    for field in fields:
        yield from pod.get(field) or ()


def _strings(spec: Mapping[str, Any]) -> Iterator[tuple[str, str, Any, Any]]:
    """Yield path, text, holder and key of each string that may contain references."""
    pod = (spec.get("template") or {}).get("spec") or {}
    for field in ("initContainers", "containers"):
        for number, container in enumerate(pod.get(field) or ()):
            path = f"template.spec.{field}[{number}]"
            for part in ("command", "args"):
                for place, text in enumerate(container.get(part) or ()):
                    yield f"{path}.{part}[{place}]", text, container[part], place
            for place, variable in enumerate(container.get("env") or ()):
                if "value" in variable:
                    yield f"{path}.env[{place}].value", variable["value"], variable, "value"
