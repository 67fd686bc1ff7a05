"""Explanation of a Job's state: one row per situation."""

from collections.abc import Sequence
from typing import Any

import pytest

from onejob.cli.kept_runs import Run, RunEnd, RunJob
from onejob.diagnosis.explanation import Explanation
from onejob.diagnosis.jobs import explain_job
from onejob.planning.pod.placement import NodeView
from tests.cli.build import NOON, after, finished, job_document, pod_document, stamp


def explain(
    *pods: dict[str, Any],
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    at: float = 0.0,
    node: NodeView | None = None,
    ended: RunEnd | None = None,
    events: Sequence[dict[str, Any]] = (),
) -> Explanation:
    status = {"startTime": stamp(NOON), **(status or {})}
    document = job_document(spec=spec, status=status, metadata=metadata)
    return explain_job(document, pods, after(at), events=events, node=node, ended=ended)


def test_a_running_job_waits_for_its_pods() -> None:
    answer = explain(pod_document(), status={"active": 1})
    assert answer.state == "job/pi is running."
    assert answer.evidence == ("Pods: 0 of 1 succeeded, 1 active",)
    assert answer.next == ("it waits for its Pods to end",)


def test_backoff_explanation_has_time_and_remaining_retries() -> None:
    failed = pod_document("pi-a", "Failed", exit_code=3, message="no space left")
    answer = explain(failed, status={"failed": 1}, spec={"backoffLimit": 2}, at=4)
    assert answer.state == "job/pi is waiting to retry."
    assert "waits after 1 failure in a row, until 12:00:10 UTC (in 6.0s)" in answer.cause[0]
    assert answer.evidence[1] == (
        "pod pi-a failed 4.0s ago: container main exited with code 3 (Error): no space left"
    )
    assert answer.next == (
        "a new Pod is started at 12:00:10 UTC (in 6.0s)",
        "2 more failures would make the Job fail",
    )
    assert answer.shown_failure == ("pi-a", "main")


def test_an_index_that_backs_off_is_no_job_without_pods() -> None:
    failed = pod_document("pi-0-a", "Failed", exit_code=3, index=0)
    failed["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking"]
    indexed = {"completionMode": "Indexed", "completions": 2, "backoffLimitPerIndex": 3}
    answer = explain(failed, spec=indexed, at=4)
    assert answer.state == "job/pi is waiting to retry."
    assert "index 0 waits after a failure, until 12:00:10 UTC (in 6.0s)" in answer.cause
    assert answer.next == ("a new Pod is started at 12:00:10 UTC (in 6.0s)",)


def test_failed_pod_of_an_index_that_backs_off_long_is_counted_with_its_replacement() -> None:
    """It stores the number of failures, so it keeps its finalizer until then."""
    failed = pod_document("pi-0-a", "Failed", exit_code=3, index=0)
    failed["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking"]
    failed["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] = "3"
    indexed = {"completionMode": "Indexed", "completions": 2, "backoffLimitPerIndex": 5}
    answer = explain(failed, spec=indexed, at=60)
    assert answer.state == "job/pi is waiting to retry."
    assert "finalizer" not in " ".join(answer.cause)
    given_up = explain(failed, spec=indexed, status={"failedIndexes": "0"}, at=60)
    assert "still holds the finalizer" in " ".join(given_up.cause)


def test_several_indexes_that_back_off_are_named() -> None:
    failed = [pod_document(f"pi-{index}-a", "Failed", exit_code=3, index=index) for index in (0, 1)]
    for pod in failed:
        pod["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking"]
    indexed = {
        "completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 3,
    }  # fmt: skip
    answer = explain(*failed, spec=indexed, at=4)
    assert "indexes 0,1 wait after failures, until 12:00:10 UTC (in 6.0s)" in answer.cause


def test_failed_pod_explanation_has_reason() -> None:
    failed = pod_document("pi-a", "Failed")
    missing = {"reason": "PendingDeadlineExceeded", "message": 'configmap "nope"\nnot found'}
    failed["status"]["reason"] = "PendingDeadlineExceeded"
    failed["status"].setdefault("conditions", []).append(
        {"type": "onejob.dev/PendingDeadlineExceeded", "status": "True", **missing}
    )
    failed["status"]["containerStatuses"] = []
    answer = explain(failed, status={"failed": 1}, at=4)
    assert answer.evidence[1].endswith('ago: PendingDeadlineExceeded: configmap "nope" not found')


def test_suspended_job_explanation_names_manager() -> None:
    writer = {
        "manager": "kubectl-patch",
        "time": "2026-01-01T11:59:00Z",
        "fieldsV1": {"f:spec": {"f:suspend": {}}},
    }
    answer = explain(spec={"suspend": True}, metadata={"managedFields": [writer]})
    assert answer.state == "job/pi is suspended."
    assert answer.cause == ("spec.suspend is true, set by kubectl-patch at 2026-01-01T11:59:00Z",)
    assert answer.next == ("nothing until resumed with onejob resume job/pi",)


def test_a_foreign_manager_that_never_answered_is_doubted() -> None:
    document = job_document(spec={"managedBy": "example.org/other"})
    answer = explain_job(document, (), NOON)
    assert answer.state == "job/pi is managed by another controller."
    assert "spec.managedBy is example.org/other" in answer.cause[0]
    assert "may not be running" in answer.cause[0]
    answered = job_document(
        spec={"managedBy": "example.org/other"}, status={"startTime": stamp(NOON)}
    )
    assert "perhaps" not in explain_job(answered, (), NOON).cause[0]


def test_explanation_warns_about_approaching_deadline() -> None:
    answer = explain(
        pod_document(), spec={"activeDeadlineSeconds": 60}, status={"active": 1}, at=20
    )
    assert "must end within 60 s of its start, at 12:01:00 UTC (in 40s)" in answer.cause
    assert answer.next[-1] == (
        "unless it ends before, it fails at 12:01:00 UTC (in 40s): activeDeadlineSeconds"
    )


def test_unschedulable_pod_explanation_has_reason() -> None:
    pod = pod_document(phase="Pending")
    pod["status"] = {
        "phase": "Pending",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/1 nodes are available: 1 Insufficient cpu.",
            }
        ],
    }
    answer = explain(pod, status={"active": 1})
    assert answer.state == "job/pi is waiting for capacity on the node: insufficient cpu."
    assert answer.evidence[1] == "pod pi-aaaaa: 0/1 nodes are available: 1 Insufficient cpu."
    assert answer.next == ("its Pods start when capacity is available",)
    node = NodeView("here", allocatable={"cpu": 2000, "pods": 110})
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    answer = explain(pod, status={"active": 1}, node=node)
    assert answer.evidence[1] == "pod pi-aaaaa: waiting for capacity: cpu"
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "3"}}
    answer = explain(pod, status={"active": 1}, node=node)
    assert answer.state.startswith("job/pi cannot start: Unschedulable: 0/1 nodes are available")
    assert answer.state.endswith("it requests cpu 3 of 2")
    assert answer.next == ("reduce the request, or increase the capacity with --capacity cpu=3",)


@pytest.mark.parametrize(
    ("message", "step"),
    [
        (
            'MountVolume.SetUp failed for volume "d" : this node does not provide volumes of this '
            "kind",
            "use emptyDir, hostPath, persistentVolumeClaim, configMap, secret, downwardAPI or "
            "projected volumes",
        ),
        (
            'MountVolume.SetUp failed for volume "d" : configmap "x" not found',
            "create it, or mark the reference optional: true",
        ),
    ],
)
def test_explanation_on_a_server_names_the_remedy_that_a_run_shows(message: str, step: str) -> None:
    pod = pod_document(phase="Pending")
    pod["spec"]["nodeName"] = "here"
    waiting = {"reason": "ContainerCreating", "message": message}
    pod["status"] = {
        "phase": "Pending",
        "containerStatuses": [{"name": "main", "state": {"waiting": waiting}}],
    }
    assert explain(pod, status={"active": 1}).next == (step,)


def test_explanation_lists_each_distinct_failure_once_with_its_count() -> None:
    pods = [
        pod_document(f"pi-{number}", phase="Failed", exit_code=3 if number else 4)
        for number in range(4)
    ]
    answer = explain(*pods, status={"failed": 4})
    assert [line.partition(" ago")[2] for line in answer.evidence[1:]] == [
        ": container main exited with code 4 (Error)",
        ": container main exited with code 3 (Error)",
    ]
    assert answer.evidence[2].startswith("3 pods failed, the last (pi-3) ")


def test_a_job_is_running_only_if_a_pod_of_it_is() -> None:
    def waiting(name: str) -> dict[str, Any]:
        pod = pod_document(name, phase="Pending")
        message = "0/1 nodes are available: 1 Insufficient memory, 1 Too many pods."
        condition = {"type": "PodScheduled", "status": "False", "message": message}
        pod["status"] = {"phase": "Pending", "conditions": [condition]}
        return pod

    def crashing() -> dict[str, Any]:
        pod = pod_document("pi-c")
        pod["spec"]["nodeName"] = "here"
        state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
        pod["status"]["containerStatuses"][0]["state"] = state
        return pod

    def delayed() -> dict[str, Any]:
        pod = pod_document("pi-h", "Pending")
        pod["spec"]["nodeName"] = "here"
        state = {"waiting": {"reason": "DiskPressure", "message": "No space left on device"}}
        pod["status"]["containerStatuses"][0]["state"] = state
        return pod

    starting = pod_document("pi-s", "Pending")
    starting["spec"]["nodeName"] = "here"
    starting["status"] = {"phase": "Pending"}
    two = [waiting("pi-a"), waiting("pi-b")]
    for pods, state in (
        ([pod_document(), *two], "is running: 1 running, 2 waiting for capacity (memory, pods)."),
        (two, "is waiting for capacity on the node: insufficient memory and pods."),
        ([starting], "is starting its Pods."),
        ([delayed()], "is waiting for the node: DiskPressure: No space left on device"),
        ([crashing()], "is waiting to restart a failed container."),
        ([crashing(), pod_document()], "is running: 1 running, 1 waiting to restart a container."),
        ([], "has no Pods yet."),
    ):
        answer = explain(*pods, status={"active": len(pods)}, spec={"parallelism": 3})
        assert answer.state == f"job/pi {state}"


def test_restarted_container_explanation_has_last_termination() -> None:
    crashing = pod_document("pi-c")
    crashing["spec"]["nodeName"] = "here"
    crashing["status"]["containerStatuses"][0] |= {
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
        "lastState": {"terminated": {"exitCode": 128, "reason": "StartError", "message": "no x"}},
    }
    blocked = pod_document("pi-d", "Pending")
    blocked["spec"]["nodeName"] = "here"
    blocked["status"]["containerStatuses"][0]["state"] = {
        "waiting": {"reason": "ErrImageNeverPull", "message": "not here"}
    }
    answer = explain(crashing, blocked, status={"active": 2}, spec={"parallelism": 2})
    assert answer.evidence[1:] == (
        "pod pi-d cannot start: ErrImageNeverPull: not here",
        "pod pi-c, container main is waiting: CrashLoopBackOff: back-off 10s; its last exit "
        "code was 128 (StartError): no x",
    )


def an_end(word: str, cause: str, **run: Any) -> RunEnd:
    return RunEnd(word, after(12), cause, Run("20260101-120000.000-ab", NOON, **run))


@pytest.mark.parametrize(
    ("end", "state", "cause"),
    [
        (
            an_end("Stopped", "it was stopped by Ctrl-C"),
            "was stopped 1m00s ago, after 12s.",
            "it was stopped by Ctrl-C",
        ),
        (
            an_end("Lost", "killed"),
            "is lost: its run was killed about 1m00s ago, after 12s.",
            "killed",
        ),
        (
            an_end("Stopped", "onejob", jobs=(RunJob("default", "pi", "no such ConfigMap"),)),
            "could not start; its run ended 1m00s ago, after 12s.",
            "no such ConfigMap",
        ),
    ],
)
def test_a_job_whose_run_is_over_is_never_running(end: RunEnd, state: str, cause: str) -> None:
    answer = explain(pod_document(), status={"active": 1}, at=72, ended=end)
    assert answer.state == f"job/pi {state}"
    assert answer.cause == (cause,)
    assert answer.evidence == ("Pods: 0 of 1 succeeded, 1 interrupted",)
    assert answer.next == (f"{end.resume} runs what did not succeed",)


def test_waiting_container_explanation_has_reason() -> None:
    pod = pod_document(phase="Pending")
    pod["spec"]["nodeName"] = "here"
    pod["status"]["containerStatuses"][0]["state"] = {
        "waiting": {"reason": "CreateContainerConfigError", "message": 'secret "x" not found'}
    }
    answer = explain(pod, status={"active": 1})
    assert 'CreateContainerConfigError: secret "x" not found' in answer.evidence[1]


def test_a_job_that_is_being_deleted_names_its_finalizers() -> None:
    metadata = {"deletionTimestamp": stamp(NOON), "finalizers": ["example.org/hold"]}
    answer = explain(metadata=metadata)
    assert answer.state == "job/pi is being deleted."
    assert "finalizer example.org/hold prevents the deletion" in answer.cause


def test_the_rule_that_matched_is_named() -> None:
    rule = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [3]}}
    other = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    failed = pod_document("pi-a", "Failed", exit_code=3)
    answer = explain(failed, spec={"podFailurePolicy": {"rules": [other, rule]}}, at=1)
    assert answer.evidence[1].endswith("it matched podFailurePolicy rule 1 (Ignore)")


@pytest.mark.parametrize(
    ("status", "spec", "cause"),
    [
        (
            finished("Failed", "BackoffLimitExceeded", "limit"),
            {"backoffLimit": 0},
            "BackoffLimitExceeded: limit (backoffLimit 0, 0 failed)",
        ),
        (
            finished("Failed", "DeadlineExceeded", "late"),
            {"activeDeadlineSeconds": 5},
            "DeadlineExceeded: late (activeDeadlineSeconds 5)",
        ),
        (
            {**finished("Failed", "FailedIndexes", "some"), "failedIndexes": "1,3"},
            {"completionMode": "Indexed", "backoffLimitPerIndex": 0},
            "FailedIndexes: some (failed indexes: 1,3)",
        ),
        (finished("Complete", "SuccessPolicy", "rule 0"), {}, "SuccessPolicy: rule 0"),
    ],
)
def test_finished_job_explanation_has_cause(
    status: dict[str, Any], spec: dict[str, Any], cause: str
) -> None:
    answer = explain(status=status, spec=spec, at=3)
    assert answer.cause[0] == cause
    assert answer.state.endswith(", 3.0s ago.")
    assert answer.next == ("nothing: a finished Job is kept until it is deleted",)


def test_a_time_to_live_is_counted_down() -> None:
    answer = explain(status=finished("Complete", "x"), spec={"ttlSecondsAfterFinished": 100}, at=40)
    assert answer.next == ("it is deleted in 1m00s (ttlSecondsAfterFinished is 100)",)


def test_no_pods_are_started_with_parallelism_zero() -> None:
    answer = explain(spec={"parallelism": 0})
    assert answer.state == "job/pi runs no Pods because of its parallelism."
    assert answer.next == ("nothing until spec.parallelism is increased",)


def event(
    reason: str, message: str, *, first: float = 0.0, last: float = 0.0, **more: Any
) -> dict[str, Any]:
    return {
        "reason": reason,
        "message": message,
        "firstTimestamp": stamp(after(first)),
        "lastTimestamp": stamp(after(last)),
        **more,
    }


QUOTA = 'Error creating: pods "pi-x" is forbidden: exceeded quota: small, requested: pods=1'
PRIORITY = 'Error creating: pods "pi-x" is forbidden: no PriorityClass with name high was found'
SECURITY = 'Error creating: pods "pi-x" is forbidden: violates PodSecurity "restricted:latest": a'
ACCOUNT = (
    'Error creating: pods "pi-x" is forbidden: error looking up service account default/worker: '
    'serviceaccount "worker" not found'
)
INVALID = (
    'Error creating: Pod "pi-x" is invalid: [spec.containers[0].securityContext.procMount: '
    'Unsupported value: "Foo": supported values: "Default", "Unmasked", spec.hostname: Invalid]'
)


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        (QUOTA, "raise the ResourceQuota small or reduce its usage"),
        (PRIORITY, "create the PriorityClass high"),
        (
            SECURITY,
            "make spec.template comply with the level restricted and create the Job again, or",
        ),
        (ACCOUNT, "create the ServiceAccount worker in namespace default"),
        (INVALID, "correct spec.template.spec.containers[0].securityContext.procMount: delete"),
        ("Error creating: no", "resolve the problem, or delete the Job and create it with another"),
    ],
)
def test_explain_job_gives_reason_and_remedy_when_pods_cannot_be_created(
    message: str, remedy: str
) -> None:
    events = [
        event("SuccessfulCreate", "Created pod: pi-w", last=1),
        event("FailedCreate", message, first=2, last=20),
    ]
    answer = explain(events=events, at=30)
    assert answer.state == "job/pi cannot create its Pods."
    assert answer.cause == (f"FailedCreate (10s ago, first 28s ago): {message}",)
    assert answer.next[0].startswith(remedy)
    assert answer.next[1] == "creating Pods is retried automatically, at increasing intervals"


@pytest.mark.parametrize(
    "events",
    [
        [event("FailedCreate", QUOTA, last=5), event("SuccessfulCreate", "Created", last=6)],
        [event("FailedDelete", "Error deleting", last=5)],
        [{"reason": "FailedCreate", "message": "without a time"}],
    ],
)
def test_explain_job_ignores_creation_failures_that_are_overcome(
    events: list[dict[str, Any]],
) -> None:
    answer = explain(events=events, at=30)
    assert answer.cause == ()
    assert answer.next == ("1 Pod is started",)


def test_explain_job_ignores_creation_failures_when_no_pod_is_to_be_created() -> None:
    events = [event("FailedCreate", QUOTA, last=5)]
    answer = explain(pod_document(), events=events, status={"active": 1}, at=30)
    assert answer.state == "job/pi is running."
    assert answer.cause == ()


DECIDED = {
    **finished("SuccessCriteriaMet", "CompletionsReached", "Reached expected number"),
    "uncountedTerminatedPods": {"succeeded": ["uid-of-pi-a"]},
}


def test_explain_job_names_the_finalizer_that_keeps_it_from_finishing() -> None:
    pod = pod_document("pi-a", "Succeeded", exit_code=0)
    denied = 'Error removing tracking finalizer: pods "pi-a" is forbidden: cannot patch'
    events = [event("FailedFinalizerRemoval", denied, first=1, last=290)]
    answer = explain(pod, events=events, status=DECIDED, at=300)
    assert answer.state == "job/pi has an outcome, but its ended Pods cannot be counted."
    assert answer.cause[:2] == (
        "pod pi-a still holds the finalizer batch.kubernetes.io/job-tracking, although it "
        "ended 5m00s ago",
        f"FailedFinalizerRemoval (10s ago, first 4m59s ago): {denied}",
    )
    assert answer.next == (
        "it becomes Complete when the Job controller has removed that finalizer; it retries "
        "automatically and needs permission to patch Pods",
    )


def test_explain_job_names_uncounted_pods_of_a_job_that_goes_on() -> None:
    ended = [pod_document(name, "Succeeded", exit_code=0) for name in ("pi-a", "pi-b", "pi-c")]
    answer = explain(*ended, spec={"completions": 9, "parallelism": 2}, at=300)
    assert answer.cause[0] == (
        "pod pi-a and 2 others still hold the finalizer batch.kubernetes.io/job-tracking, "
        "although it ended 5m00s ago"
    )
    assert answer.state == "job/pi has ended Pods that cannot be counted."
    assert answer.next[0].startswith("its ended Pods are counted when the Job controller has")


def test_explain_job_waits_for_pods_that_ended_just_now() -> None:
    pod = pod_document("pi-a", "Succeeded", exit_code=0)
    answer = explain(pod, status=DECIDED, at=5)
    assert answer.state == "job/pi has an outcome and is waiting for its Pods to end."
    assert "finalizer" not in " ".join((*answer.cause, *answer.next))
