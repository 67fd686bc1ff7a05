"""Validation of a workflow's graph: names, edges, cycles, `when`, results.

Templates are validated by the API, with the rules of Jobs.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from onejob.cel import CompileError
from onejob.objects.workflow import Task, WorkflowSpec
from onejob.planning.workflow.conditions import MAX_WHEN_LENGTH, compile_when, mentions
from onejob.planning.workflow.graph import Graph, build_graph, find_cycle
from onejob.planning.workflow.results import may_refer, references
from onejob.planning.workflow.states import COMPLETE, EDGE_CONDITIONS, FAILED, ON_COMPLETE, SKIPPED
from onejob.wire.field_errors import (
    FieldError,
    duplicate,
    field_not_found,
    forbidden,
    invalid,
    not_supported,
    required,
    too_many,
)
from onejob.wire.names import label_errors

MAX_TASKS: Final = 1000
MAX_RESULTS: Final = 32
_MAX_RESULT_NAME: Final = 63
_RESULT_CHARACTERS: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
)


def check_workflow(spec: WorkflowSpec, path: str) -> list[FieldError]:
    """Return the errors of everything but the templates."""
    count = len(spec.tasks) + len(spec.finally_)
    if count > MAX_TASKS:
        # Nothing else is checked: the request may be a very large one.
        return [too_many(f"{path}.tasks", count, MAX_TASKS)]
    if not spec.tasks:
        return [required(f"{path}.tasks", "a workflow has at least one task")]
    errors = [*_names(spec, path), *_edges(spec, path)]
    for place, task in _places(spec, path):
        errors += _declarations(task, place)
        errors += _when(task, place)
    errors += _given(spec, path)
    if errors:
        return errors
    cycle = find_cycle(spec.tasks)
    if cycle:
        position = next(i for i, task in enumerate(spec.tasks) if task.name == cycle[0])
        text = f"the tasks form a cycle: {' → '.join(cycle)}"
        return [invalid(f"{path}.tasks[{position}].dependsOn", cycle[0], text)]
    return _uses(spec, build_graph(spec), path)


def _places(spec: WorkflowSpec, path: str) -> Iterator[tuple[str, Task]]:
    for field, tasks in (("tasks", spec.tasks), ("finally", spec.finally_)):
        for number, task in enumerate(tasks):
            yield f"{path}.{field}[{number}]", task


def _names(spec: WorkflowSpec, path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for place, task in _places(spec, path):
        if not task.name:
            yield required(f"{place}.name")
            continue
        for text in label_errors(task.name):
            yield invalid(f"{place}.name", task.name, text)
        if task.name in seen:
            yield duplicate(f"{place}.name", task.name)
        seen.add(task.name)


def _edges(spec: WorkflowSpec, path: str) -> Iterator[FieldError]:
    known = {task.name for task in spec.tasks}
    for place, task in _places(spec, path):
        if task.depends_on and place.startswith(f"{path}.finally"):
            yield forbidden(f"{place}.dependsOn", "tasks of finally start after all others")
            continue
        seen: set[str] = set()
        for number, edge in enumerate(task.depends_on):
            at = f"{place}.dependsOn[{number}]"
            if not edge.task:
                yield required(f"{at}.task")
            elif edge.task in seen:
                yield duplicate(f"{at}.task", edge.task)
            elif edge.task not in known:
                yield field_not_found(f"{at}.task", edge.task)
            elif edge.task == task.name:
                yield invalid(f"{at}.task", edge.task, "a task cannot depend on itself")
            seen.add(edge.task)
            if edge.condition not in EDGE_CONDITIONS:
                yield not_supported(f"{at}.condition", edge.condition, list(EDGE_CONDITIONS))


def _declarations(task: Task, place: str) -> Iterator[FieldError]:
    if len(task.results) > MAX_RESULTS:
        yield too_many(f"{place}.results", len(task.results), MAX_RESULTS)
        return
    seen: set[str] = set()
    for number, result in enumerate(task.results):
        at = f"{place}.results[{number}].name"
        if not result.name:
            yield required(at)
        elif not _RESULT_CHARACTERS.issuperset(result.name) or len(result.name) > _MAX_RESULT_NAME:
            text = f"must be 1 to {_MAX_RESULT_NAME} letters, digits, '_' or '-'"
            yield invalid(at, result.name, text)
        elif result.name in seen:
            yield duplicate(at, result.name)
        seen.add(result.name)


def _when(task: Task, place: str) -> Iterator[FieldError]:
    if len(task.when) > MAX_WHEN_LENGTH:
        yield invalid(f"{place}.when", task.when, f"must have at most {MAX_WHEN_LENGTH} characters")
    elif task.when:
        try:
            compile_when(task.when)
        except CompileError as error:
            yield invalid(f"{place}.when", task.when, str(error))


def _given(spec: WorkflowSpec, path: str) -> Iterator[FieldError]:
    known = {task.name for task in spec.tasks}
    seen: set[str] = set()
    for number, end in enumerate(spec.given):
        at = f"{path}.given[{number}]"
        if end.task in seen:
            yield duplicate(f"{at}.task", end.task)
        elif end.task not in known:
            yield field_not_found(f"{at}.task", end.task)
        seen.add(end.task)
        if end.state not in (COMPLETE, FAILED, SKIPPED):
            yield not_supported(f"{at}.state", end.state, [COMPLETE, FAILED, SKIPPED])


def _uses(spec: WorkflowSpec, graph: Graph, path: str) -> list[FieldError]:
    """Return the errors of results and states that are read where they do not exist."""
    errors: list[FieldError] = []
    for position, (place, task) in enumerate(_places(spec, path)):
        if task.when:
            for mention in mentions(task.when):
                at = f"column {mention.position + 1}: "
                problem = _problem(
                    graph, position, mention.task, mention.result, guarded=mention.tests_presence
                )
                if problem:
                    errors.append(invalid(f"{place}.when", task.when, at + problem))
        if may_refer(task.template.spec):
            errors += _template_uses(graph, position, place, task)
    return errors


def _template_uses(graph: Graph, position: int, place: str, task: Task) -> Sequence[FieldError]:
    errors = []
    spec: Any = msgspec.json.decode(task.template.spec)
    for reference in references(spec):
        problem = (
            _problem(graph, position, reference.task, reference.result)
            if reference.task
            else "must have the form $(tasks.NAME.results.KEY); write $$( for a literal $("
        )
        if problem:
            errors.append(
                invalid(f"{place}.template.spec.{reference.path}", reference.text, problem)
            )
    return errors


def _problem(
    graph: Graph, position: int, name: str, result: str | None, *, guarded: bool = False
) -> str:
    """Return why a task may not read the state or a result of another one; "" if it may."""
    earlier = graph.positions.get(name)
    if earlier is None or earlier >= graph.ordinary:
        return f'there is no task "{name}"'
    if not graph.is_earlier(earlier, position):
        return f'task "{name}" is not an earlier task: add it to dependsOn'
    if result is None:
        return ""
    task = graph.tasks[earlier]
    declared = next((each for each in task.results if each.name == result), None)
    if declared is None:
        return f'task "{name}" declares no result "{result}": add it to its results'
    if declared.default is not None or guarded:
        return ""
    if task.when:
        return f'task "{name}" may be skipped by its when: give its result "{result}" a default'
    if not graph.completed[position] >> earlier & 1:
        wanted = "" if position >= graph.ordinary else f", or depend on it with {ON_COMPLETE}"
        return f'task "{name}" may not complete: give its result "{result}" a default{wanted}'
    return ""
