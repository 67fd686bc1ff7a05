"""Rules of Workflows and CronWorkflows: rejected values, at the exact field."""

import copy
from typing import Any

import pytest

from tests import build
from tests.api.kinds.build import METADATA, create, created, strategy, update
from tests.build import a_task, a_workflow

WORKFLOW = strategy("workflows.onejob.dev")
CRONWORKFLOW = strategy("cronworkflows.onejob.dev")


def document(*tasks: dict[str, Any], name: str = "wf", **spec: Any) -> dict[str, Any]:
    return a_workflow(name, *tasks, metadata=METADATA, **spec)


def reading(*words: str) -> dict[str, Any]:
    return {"template": build.template(build.container("echo", *words))}


def errors_of(*tasks: dict[str, Any], **spec: Any) -> list[str]:
    return create(WORKFLOW, document(*tasks, **spec))[1]


def test_create_sets_defaults_of_edges_and_leaves_templates_alone() -> None:
    stored = created(WORKFLOW, document(a_task("a"), a_task("b", "a")))
    assert stored["spec"]["tasks"][1]["dependsOn"] == [{"task": "a", "condition": "Complete"}]
    assert stored["spec"]["suspend"] is False
    assert stored["spec"]["tasks"][0]["template"]["spec"] == a_task("a")["template"]["spec"]


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([], "spec.tasks: Required value: a workflow has at least one task"),
        ([a_task("")], "spec.tasks[0].name: Required value"),
        ([a_task("a"), a_task("a")], 'spec.tasks[1].name: Duplicate value: "a"'),
        ([a_task("a", "x")], 'spec.tasks[0].dependsOn[0].task: Not found: "x"'),
        (
            [a_task("a", "a")],
            'spec.tasks[0].dependsOn[0].task: Invalid value: "a": a task cannot depend on itself',
        ),
        (
            [a_task("z"), a_task("a", "c"), a_task("b", "a"), a_task("c", "b")],
            'spec.tasks[1].dependsOn: Invalid value: "a": the tasks form a cycle: a → b → c → a',
        ),
        (
            [a_task("a"), a_task("b", "a:Succeeded")],
            'spec.tasks[1].dependsOn[0].condition: Unsupported value: "Succeeded": supported '
            'values: "Complete", "Failed", "Finished"',
        ),
        (
            [a_task("a"), a_task("b", "a", "a")],
            'spec.tasks[1].dependsOn[1].task: Duplicate value: "a"',
        ),
        (
            [a_task(f"t{number}") for number in range(1001)],
            "spec.tasks: Too many: 1001: must have at most 1000 items",
        ),
        (
            [a_task("a", results=[{"name": "x y"}])],
            "spec.tasks[0].results[0].name: Invalid value: \"x y\": must be 1 to 63 letters, "
            "digits, '_' or '-'",
        ),
        (
            [a_task("a", results=[{"name": "x"}], job={"completions": 3})],
            "spec.tasks[0].template.spec.completions: Invalid value: 3: must be 1, or "
            "completionMode Indexed: results are those of one Pod",
        ),
        (
            [a_task("a" * 61)],
            f'spec.tasks[0].name: Invalid value: "wf-{"a" * 61}": its Job is named '
            f"wf-{'a' * 61}, which has more than 63 characters",
        ),
    ],
)  # fmt: skip
def test_create_rejects_bad_graphs(tasks: list[dict[str, Any]], message: str) -> None:
    assert errors_of(*tasks) == [message]


def test_create_validates_templates_as_jobs() -> None:
    bad = a_task("a", job={"backoffLimit": -1, "template": {"spec": {"containers": []}}})
    errors = errors_of(a_task("ok"), bad)
    path = "spec.tasks[1].template.spec"
    assert f"{path}.backoffLimit: Invalid value: -1: must be greater than or equal to 0" in errors
    assert f"{path}.template.spec.containers: Required value" in errors
    assert any(
        error.startswith(f"{path}.template.spec.restartPolicy: Required") for error in errors
    )


@pytest.mark.parametrize(
    ("when", "part"),
    [
        ("tasks.a.state ==", "1:17: Syntax error"),
        ("tasks.a.state == 1", "1:15: found no matching overload for '_==_'"),
        ("tasks.a.stat == 'x'", "1:8: undefined field 'stat'"),
        ("'text'", "must evaluate to a bool"),
        ("tasks.x.state == 'Complete'", 'column 6: there is no task "x"'),
        ("tasks['late'].state == 'Complete'", 'task "late" is not an earlier task'),
        ("tasks.a.results.n == '1'", 'task "a" declares no result "n": add it to its results'),
    ],
)
def test_create_rejects_bad_when_with_position_and_reason(when: str, part: str) -> None:
    errors = errors_of(a_task("a"), a_task("b", "a", when=when), a_task("late"))
    assert len(errors) == 1
    assert errors[0].startswith("spec.tasks[1].when: Invalid value: ")
    assert part in errors[0]


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("$(tasks.x.results.n)", 'there is no task "x"'),
        ("$(tasks.late.results.n)", 'task "late" is not an earlier task: add it to dependsOn'),
        ("$(tasks.a.results.m)", 'task "a" declares no result "m": add it to its results'),
        (
            "$(tasks.a.result.n)",
            "must have the form $(tasks.NAME.results.KEY); write $$( for a literal $(",
        ),
    ],
)
def test_create_rejects_results_that_no_earlier_task_produces(word: str, problem: str) -> None:
    declared = [{"name": "n"}]
    errors = errors_of(
        a_task("a", results=declared),
        a_task("b", "a", job=reading(word)),
        a_task("late", results=declared),
    )
    at = "spec.tasks[1].template.spec.template.spec.containers[0].command[1]"
    assert errors == [f'{at}: Invalid value: "{word}": {problem}']


def test_create_accepts_escaped_references() -> None:
    assert errors_of(a_task("a", job=reading("$$(tasks.x.results.y)"))) == []


@pytest.mark.parametrize("declared", [{"name": "n"}, {"name": "n", "default": ""}])
@pytest.mark.parametrize(
    "tasks",
    [
        # Skipped by its when.
        [a_task("a", when="true"), a_task("b", "a", job=reading("$(tasks.a.results.n)"))],
        # Failed.
        [a_task("a"), a_task("b", "a:Finished", job=reading("$(tasks.a.results.n)"))],
        [a_task("a"), a_task("b", "a:Failed", when="tasks.a.results.n == ''")],
    ],
)
def test_create_requires_a_default_for_results_that_may_be_missing(
    tasks: list[dict[str, Any]], declared: dict[str, str]
) -> None:
    tasks = copy.deepcopy(tasks)
    tasks[0]["results"] = [declared]
    errors = errors_of(*tasks)
    assert bool(errors) == ("default" not in declared)
    assert all('give its result "n" a default' in error for error in errors)


def test_create_accepts_results_behind_another_edge_to_a_complete_task() -> None:
    declared = a_task("a", results=[{"name": "n"}])
    tasks = (a_task("m", "a"), a_task("b", "m:Finished", job=reading("$(tasks.a.results.n)")))
    assert errors_of(declared, *tasks) == []


def test_create_rejects_results_in_finally_without_a_default() -> None:
    last = a_task("last", job=reading("$(tasks.a.results.n)"))
    assert errors_of(a_task("a", results=[{"name": "n"}]), **{"finally": [last]})
    with_default = a_task("a", results=[{"name": "n", "default": "0"}])
    assert errors_of(with_default, **{"finally": [last]}) == []


def test_create_rejects_edges_of_finally() -> None:
    assert errors_of(a_task("a"), **{"finally": [a_task("f", "a")]}) == [
        "spec.finally[0].dependsOn: Forbidden: tasks of finally start after all others"
    ]


@pytest.mark.parametrize(
    ("field", "value", "detail"),
    [
        ("parallelism", 0, "must be greater than or equal to 1; use suspend to start nothing"),
        ("activeDeadlineSeconds", -1, "must be greater than or equal to 0"),
        ("ttlSecondsAfterFinished", -1, "must be greater than or equal to 0"),
        ("managedBy", "us", 'must be a domain-prefixed path (such as "acme.io/foo")'),
    ],
)
def test_create_rejects_bad_scalars(field: str, value: Any, detail: str) -> None:
    (error,) = errors_of(a_task("a"), **{field: value})
    assert error.startswith(f"spec.{field}: Invalid value: ")
    assert error.endswith(detail)


def test_update_may_suspend_but_not_change_tasks() -> None:
    stored = created(WORKFLOW, document(a_task("a")))
    new, errors = update(WORKFLOW, stored, suspend=True, parallelism=3)
    assert errors == []
    assert new["metadata"]["generation"] == 2
    _, errors = update(WORKFLOW, stored, tasks=[a_task("b")])
    assert errors == ['spec.tasks: Invalid value: "": field is immutable']


def test_cronworkflow_is_validated_as_cronjob_and_workflow() -> None:
    spec = document(a_task("a", "a"))["spec"]
    cron = {
        "apiVersion": "onejob.dev/v1alpha1",
        "kind": "CronWorkflow",
        "metadata": {"name": "nightly", **METADATA},
        "spec": {"schedule": "x", "workflowTemplate": {"spec": spec},
                 "failedWorkflowsHistoryLimit": -1},
    }  # fmt: skip
    _, errors = create(CRONWORKFLOW, cron)
    assert [error.partition(": ")[0] for error in errors] == [
        "spec.schedule",
        "spec.failedWorkflowsHistoryLimit",
        "spec.workflowTemplate.spec.tasks[0].dependsOn[0].task",
    ]
