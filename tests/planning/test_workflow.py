"""Workflow planner: deadlines, suspension, results, names and re-runs."""

from typing import Any

import msgspec
import pytest

from onejob.objects.job import JobSpec
from onejob.objects.meta import Meta, OwnerReference
from onejob.objects.workflow import ResultDeclaration, read_next_workflow, read_workflow
from onejob.planning.bad_input import BadInput
from onejob.planning.workflow.graph import InvalidGraph, build_graph, find_cycle
from onejob.planning.workflow.plan import Observed
from onejob.planning.workflow.planner import plan_workflow
from onejob.planning.workflow.rerun import rerun_workflow
from onejob.planning.workflow.results import (
    MAX_TASK_BYTES,
    MAX_WORKFLOW_BYTES,
    read_results,
    substitute,
)
from tests import build
from tests.build import a_task, a_workflow
from tests.planning.build import a_pod
from tests.planning.workflow_support import NOON, Run, task_job, view


def echo(*words: str) -> dict[str, Any]:
    return {"template": build.template(build.container("echo", *words))}


def test_find_cycle_follows_the_edges() -> None:
    tasks = view(a_task("x"), a_task("a", "x", "c"), a_task("b", "a"), a_task("c", "b")).spec.tasks
    assert find_cycle(tasks) == ["a", "b", "c", "a"]
    assert find_cycle(tasks[:1]) == []


@pytest.mark.parametrize(
    "tasks", [(a_task("a", "a"),), (a_task("a"), a_task("a")), (a_task("a", "x"),)]
)
def test_build_graph_refuses_what_is_no_graph(tasks: tuple[dict[str, Any], ...]) -> None:
    with pytest.raises(InvalidGraph):
        build_graph(view(*tasks).spec)


def test_skipped_task_names_the_reason_and_its_dependants_follow_at_once() -> None:
    run = Run(view(a_task("a"), a_task("b", "a:Failed"), a_task("c", "b")))
    run.sync()
    run.end("a", "Complete")
    run.sync()
    assert run.states == {"a": "Complete", "b": "Skipped", "c": "Skipped"}
    assert run.message("b") == 'task "a" was to fail, but is Complete'
    assert run.message("c") == 'task "b" was to complete, but is Skipped'
    assert run.outcome == "Complete"


def test_waiting_task_says_what_it_waits_for() -> None:
    run = Run(view(*(a_task(f"t{n}") for n in range(5)), a_task("z", *(f"t{n}" for n in range(5)))))
    run.sync()
    assert run.message("z") == "waits for t0, t1, t2 and 2 more"


def test_when_reads_states_and_results() -> None:
    when = "tasks.a.state == 'Complete' && int(tasks.a.results.n) > 1"
    for n, wanted in (("1", "Skipped"), ("2", "Running")):
        run = Run(view(a_task("a", results=[{"name": "n"}]), a_task("b", "a", when=when)))
        run.sync()
        run.end("a", "Complete", {"n": n})
        run.sync()
        assert run.states["b"] == wanted


def test_when_without_a_value_fails_the_task() -> None:
    run = Run(view(a_task("a", results=[{"name": "n"}]),
                   a_task("b", "a", when="tasks.a.results.n == '1'")))  # fmt: skip
    run.sync()
    run.end("a", "Complete", {})
    run.sync()
    assert run.reason("b") == "WhenError"
    assert run.outcome == "Failed"


def test_plan_waits_for_results_to_be_read() -> None:
    run = Run(view(a_task("a", results=[{"name": "n"}])))
    run.sync()
    run.end("a", "Complete")
    plan = run.sync()
    assert [job.metadata.name for job in plan.unread] == ["wf-a"]
    assert plan.status is None


def test_deadline_is_awaited_and_ends_running_jobs() -> None:
    run = Run(view(a_task("a"), a_task("b", "a"), activeDeadlineSeconds=60))
    assert run.sync().requeue_seconds == 60
    run.wait(61)
    plan = run.sync()
    assert [msgspec.json.decode(change.body)["spec"] for change in plan.changes] == [
        {"activeDeadlineSeconds": 0}
    ]
    assert run.states == {"a": "Running", "b": "Skipped"}
    assert run.workflow.condition("FailureTarget") is not None
    run.end("a", "Failed")
    run.sync()
    assert run.outcome == "Failed"


def test_resumed_workflow_gets_a_new_deadline() -> None:
    run = Run(view(a_task("a"), activeDeadlineSeconds=60))
    run.sync()
    run.suspend(True)
    run.wait(100)
    plan = run.sync()
    assert plan.requeue_seconds is None
    assert [msgspec.json.decode(change.body)["spec"] for change in plan.changes] == [
        {"suspend": True}
    ]
    run.suspend(False)
    assert run.sync().requeue_seconds == 60


def test_job_of_a_previous_workflow_is_awaited() -> None:
    run = Run(view(a_task("a")))
    other = OwnerReference(kind="Workflow", name="wf", uid="other", controller=True)
    job = task_job("a")
    metadata = Meta(name="wf-a", namespace="default", uid="u", owner_references=(other,))
    run.jobs["wf-a"] = msgspec.structs.replace(job, metadata=metadata)
    plan = run.sync()
    assert (run.states, run.reason("a")) == ({"a": "Waiting"}, "JobNameTaken")
    assert plan.requeue_seconds == 5
    del run.jobs["wf-a"]
    run.sync()
    assert run.states == {"a": "Running"}


def test_deleted_job_missing_from_the_status_is_recorded_with_its_uid() -> None:
    run = Run(view(a_task("a")))
    observed = Observed(created={"a": "uid-a"}, with_pods=frozenset({"uid-a"}))
    plan = plan_workflow(run.workflow, run.graph, observed, NOON)
    assert plan.creations == ()
    assert plan.status is not None
    (task,) = plan.status.tasks
    assert (task.state, task.job_name, task.job_uid) == ("Running", "wf-a", "uid-a")


def test_results_of_a_workflow_are_bounded_in_bytes_of_json() -> None:
    declared = [{"name": "x"}]
    run = Run(view(*(a_task(f"t{n}", results=declared) for n in range(70))))
    run.sync()
    for n in range(70):
        # Four bytes each.
        run.end(f"t{n}", "Complete", {"x": "\U0001f600" * 1000})
    run.sync()
    kept = [task.results for task in run.status.tasks if task.results]
    assert len(kept) > 60
    assert sum(len(msgspec.json.encode(results)) for results in kept) <= MAX_WORKFLOW_BYTES
    assert "keeps at most 262144 bytes of results" in run.message("t69")


def test_spec_of_a_known_generation_is_not_decoded_again() -> None:
    document = a_workflow("wf", a_task("a"))
    document["metadata"] |= {"namespace": "default", "uid": "u", "generation": 1}
    first = read_next_workflow(msgspec.json.encode(document), lambda _: None)
    document["status"] = {"running": 1}
    second = read_next_workflow(msgspec.json.encode(document), lambda _: first)
    assert second.spec is first.spec
    assert second == read_workflow(msgspec.json.encode(document))
    for change in ({"generation": 2}, {"uid": "v"}):
        other = {**document, "metadata": {**document["metadata"], **change}, "spec": {"tasks": []}}
        assert read_next_workflow(msgspec.json.encode(other), lambda _: first).spec.tasks == ()


def test_recorded_end_stays_whatever_becomes_of_the_job() -> None:
    run = Run(view(a_task("a"), a_task("b", "a")))
    run.sync()
    run.end("a", "Complete")
    run.sync()
    run.end("a", "Failed")
    run.sync()
    assert run.states == {"a": "Complete", "b": "Running"}


def test_status_of_an_indexed_job_has_bounded_ranges() -> None:
    run = Run(view(a_task("a")))
    run.sync()
    job = task_job("a", "Failed", spec=JobSpec(completion_mode="Indexed"))
    ranges = ",".join(str(n) for n in range(0, 100_000, 2))
    status = msgspec.structs.replace(job.status, completed_indexes=ranges, failed_indexes="1,3")
    run.jobs["wf-a"] = msgspec.structs.replace(job, status=status)
    run.sync()
    (task,) = run.status.tasks
    assert task.failed_indexes == "1,3"
    assert len(task.completed_indexes) < 410


def test_status_of_a_thousand_tasks_is_bounded() -> None:
    tasks = [a_task("t0"), *(a_task(f"t{n}", f"t{n - 1}") for n in range(1, 1000))]
    run = Run(view(*tasks))
    run.sync()
    assert len(msgspec.json.encode(run.status)) < 200_000


def test_substitute_inserts_text_literally() -> None:
    spec = {"template": {"spec": {"containers": [
        {"name": "c", "args": ["$(tasks.a.results.x)/$$(tasks.a.results.x)/$(HOME)"],
         "env": [{"name": "X", "value": "<$(tasks.a.results.x)>"}, {"name": "Y"}]}
    ]}}}  # fmt: skip
    substitute(spec, {"a": {"x": "1 $(HOME)"}})
    container = spec["template"]["spec"]["containers"][0]
    assert container["args"] == ["1 $$(HOME)/$$(tasks.a.results.x)/$(HOME)"]
    assert container["env"] == [{"name": "X", "value": "<1 $$(HOME)>"}, {"name": "Y"}]


@pytest.mark.parametrize(
    ("message", "values", "problem"),
    [
        ('{"n": "x", "other": 1}', {"n": "x"}, ""),
        ('{"n": 1.50}', {"n": "1.5"}, ""),
        ('{"n": {"a": [1, true]}}', {"n": '{"a":[1,true]}'}, ""),
        ("", {}, "no result n in the termination message"),
        ("[1]", {}, 'the termination message of container "c" is no JSON object'),
        ("{", {}, 'the termination message of container "c" is no JSON object'),
        (
            f'{{"n": "{"x" * MAX_TASK_BYTES}"}}',
            {},
            f"its results have {MAX_TASK_BYTES + 8} bytes; at most {MAX_TASK_BYTES} are kept",
        ),
    ],
)
def test_read_results_keeps_declared_values_as_text(
    message: str, values: dict[str, str], problem: str
) -> None:
    terminated = {"exitCode": 0, "message": message}
    statuses = [{"name": "c", "state": {"terminated": terminated}}]
    pod = a_pod(phase="S", status={"containerStatuses": statuses})
    read = read_results(pod, (ResultDeclaration(name="n"),))
    assert (read.values, read.problem) == (values, problem)


def finished(*ends: tuple[str, str, str]) -> dict[str, Any]:
    """Return a workflow a → b → c and a → d that has finished: name, state and reason of tasks."""
    tasks = (
        a_task("a", results=[{"name": "n"}]),
        a_task("b", "a"),
        a_task("c", "b"),
        a_task("d", "a"),
    )
    document = a_workflow("wf", *tasks, metadata={"uid": "u", "labels": {"x": "y"}}, suspend=False)
    document["status"] = {
        "conditions": [{"type": "Failed", "status": "True"}],
        "tasks": [
            {"name": name, "state": state, "reason": reason,
             **({"results": {"n": "1"}} if name == "a" else {})}
            for name, state, reason in ends
        ],
    }  # fmt: skip
    return document


B_FAILED = finished(
    ("a", "Complete", ""), ("b", "Failed", "BackoffLimitExceeded"),
    ("c", "Skipped", "DependencyNotMet"), ("d", "Skipped", "WhenFalse"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("how", "given"),
    [
        ({}, []),
        ({"failed_only": True}, ["a", "d"]),
        ({"from_task": "d"}, ["a"]),
        ({"from_task": "a"}, []),
    ],
)
def test_rerun_keeps_the_ends_that_last(how: dict[str, Any], given: list[str]) -> None:
    document = rerun_workflow(B_FAILED, name="wf-2", **how)
    kept = document["spec"].get("given", [])
    assert [end["task"] for end in kept] == given
    assert all(end["results"] == {"n": "1"} for end in kept if end["task"] == "a")
    assert document["metadata"]["annotations"]["onejob.dev/rerun-of"] == "wf"


def test_rerun_is_a_first_run_with_given_ends() -> None:
    document = rerun_workflow(B_FAILED, name="wf", failed_only=True)
    document["metadata"] |= {"namespace": "default", "uid": "wf-uid"}
    run = Run(read_workflow(msgspec.json.encode(document)))
    run.sync()
    assert run.created == ["b"]
    assert run.states == {"a": "Complete", "b": "Running", "c": "Waiting", "d": "Skipped"}
    for task in ("b", "c"):
        run.end(task, "Complete")
        run.sync()
    assert run.outcome == "Complete"


def test_rerun_refuses_unknown_tasks_and_running_workflows() -> None:
    with pytest.raises(BadInput, match="no task 'x'"):
        rerun_workflow(B_FAILED, name="wf-2", from_task="x")
    with pytest.raises(BadInput, match="has not finished"):
        rerun_workflow({**B_FAILED, "status": {}}, name="wf-2")
