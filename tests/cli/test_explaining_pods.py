"""Explanation of a Pod's state: one row per situation."""

from typing import Any

from onejob.cli.kept_runs import Run, RunEnd
from onejob.diagnosis.pods import explain_pod
from tests.cli.build import NOON, after, pod_document, stamp


def test_running_pod_explanation_has_next_step() -> None:
    answer = explain_pod(pod_document(), after(5))
    assert answer.state == "pod/pi-aaaaa is running."
    assert answer.evidence == ("container main is running, started 5.0s ago",)
    assert answer.next == ("it ends when its containers end (restartPolicy is Never)",)
    assert answer.shown_failure is None


def test_failed_pod_explanation_names_container_and_controller() -> None:
    pod = pod_document(phase="Failed", exit_code=3, message="no space\nleft")
    answer = explain_pod(pod, after(60))
    assert answer.state == "pod/pi-aaaaa failed 1m00s ago."
    assert answer.cause == ("container main exited with code 3 (Error): no space left",)
    assert answer.next == ("job/pi decides; see onejob why job/pi",)
    assert answer.shown_failure == ("pi-aaaaa", "main")


def test_pod_level_reason_precedes_containers() -> None:
    pod = pod_document(phase="Failed", exit_code=137)
    pod["status"] |= {"reason": "DeadlineExceeded", "message": "Pod was active too long"}
    assert explain_pod(pod, NOON).cause == ("DeadlineExceeded: Pod was active too long",)


def test_a_pod_without_an_owner_that_succeeded_stays() -> None:
    pod = pod_document(phase="Succeeded", exit_code=0)
    del pod["metadata"]["ownerReferences"]
    answer = explain_pod(pod, after(1))
    assert answer.state == "pod/pi-aaaaa succeeded 1.0s ago."
    assert answer.next == ("nothing: it is kept until it is deleted",)


def test_a_deadline_after_the_end_of_the_calendar_is_none() -> None:
    pod = pod_document()
    pod["spec"]["activeDeadlineSeconds"] = 60
    pod["status"]["startTime"] = "9999-12-31T23:59:59Z"
    assert "activeDeadlineSeconds" not in str(explain_pod(pod, NOON).next)


def restarting(**waiting: str) -> dict[str, Any]:
    pod = pod_document(restarts=2)
    pod["spec"] |= {"restartPolicy": "OnFailure", "nodeName": "here"}
    (report,) = pod["status"]["containerStatuses"]
    report["state"] = {"waiting": waiting}
    report["lastState"] = {"terminated": {"exitCode": 1, "reason": "Error", "message": "boom"}}
    return pod


def test_a_container_that_is_restarted_shows_how_it_ended() -> None:
    pod = restarting(reason="CrashLoopBackOff", message="back-off 20s restarting failed container")
    answer = explain_pod(pod, NOON)
    assert answer.state == "pod/pi-aaaaa is waiting to restart a failed container."
    assert answer.evidence == (
        "container main waits: CrashLoopBackOff: back-off 20s restarting failed container; "
        "restarted 2 times; its last exit code was 1 (Error): boom",
    )
    assert answer.next == ("the container is restarted",)
    assert answer.shown_failure == ("pi-aaaaa", "main")


def test_pending_pod_explanation_names_missing_object() -> None:
    pod = restarting(reason="CreateContainerConfigError", message='secret "key" not found')
    pod["status"]["phase"] = "Pending"
    answer = explain_pod(pod, NOON)
    assert answer.state == "pod/pi-aaaaa cannot start."
    assert answer.cause == ('CreateContainerConfigError: secret "key" not found',)
    assert answer.next == ("nothing until its requirements are met",)


def test_a_deadline_of_the_pod_is_named() -> None:
    pod = pod_document()
    pod["spec"]["activeDeadlineSeconds"] = 60
    pod["status"]["startTime"] = stamp(NOON)
    assert explain_pod(pod, after(20)).next[-1] == (
        "unless it ends before, it fails at 12:01:00 UTC (in 40s): activeDeadlineSeconds"
    )


def test_deleted_pod_explanation_names_finalizers() -> None:
    pod = pod_document(deleted=True)
    assert explain_pod(pod, NOON).cause == ("its containers are stopping within the grace period",)
    pod["metadata"]["finalizers"].append("example.org/hold")
    answer = explain_pod(pod, NOON)
    assert answer.state == "pod/pi-aaaaa is being deleted."
    assert answer.cause == ("finalizer example.org/hold prevents the deletion",)


def test_nothing_follows_once_its_run_is_over() -> None:
    ended = RunEnd("Lost", NOON, "the process of the run was killed", Run("run", NOON))
    answer = explain_pod(pod_document(), after(30), ended=ended)
    assert answer.state == "pod/pi-aaaaa was interrupted 30s ago."
    assert answer.cause == ("the process of the run was killed",)
    assert answer.next == ("nothing: the run has ended; start another with onejob run",)
    done = explain_pod(pod_document(phase="Succeeded", exit_code=0), after(30), ended=ended)
    assert done.state == "pod/pi-aaaaa succeeded 30s ago."
