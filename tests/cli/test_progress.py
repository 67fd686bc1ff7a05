"""Progress of a run, derived from a handful of events."""

from typing import Any

import pytest
from msgspec.structs import replace

from onejob.cli.run.progress import KEPT_FAILURES, JobProgress, RunProgress
from onejob.diagnosis.pod_waits import PodWait
from tests.cli.build import NOON, a_job, a_pod, after, finished


def follow(**spec: Any) -> JobProgress:
    return RunProgress().expect(a_job(spec=spec), NOON)


def saw(job: JobProgress, name: str, *phases: str, at: float = 0.0, **parts: Any) -> list[Any]:
    """Return the changes of a Pod that goes through phases, a second each."""
    codes = {"Succeeded": 0, "Failed": 3}
    return [
        job.saw_pod(
            a_pod(name, phase, exit_code=codes.get(phase), ended_at=after(at + n), **parts),
            after(at + n),
            deleted=False,
        )
        for n, phase in enumerate(phases)
    ]


def test_a_pod_starts_runs_and_ends_once() -> None:
    job = follow()
    changes = saw(job, "pi-a", "Pending", "Running", "Succeeded", "Succeeded")
    assert changes == ["started", None, "succeeded", None]
    assert (job.pods, job.ended_pods, job.failed_pods) == (1, 1, 0)
    assert job.slowest[0].seconds == 1.0


def test_a_replacement_of_a_failed_pod_is_a_retry() -> None:
    job = follow()
    saw(job, "pi-a", "Running", "Failed")
    saw(job, "pi-b", "Running", at=20)
    assert (job.pods, job.retries) == (2, 1)
    assert job.failures[0].exit_code == 3


def test_a_pod_of_another_index_is_no_retry() -> None:
    job = follow(completions=2, completionMode="Indexed", backoffLimitPerIndex=1)
    saw(job, "pi-0", "Running", "Failed", index=0)
    saw(job, "pi-1", "Running", at=2, index=1)
    assert job.retries == 0
    saw(job, "pi-0b", "Running", at=12, index=0)
    assert job.retries == 1


def test_a_restart_in_place_is_a_retry_too() -> None:
    job = follow()
    saw(job, "pi-a", "Running")
    assert saw(job, "pi-a", "Running", restarts=2) == ["restarted"]
    assert job.retries == 2


def test_a_pod_that_was_deleted_is_stopped_not_failed() -> None:
    job = follow()
    saw(job, "pi-a", "Running")
    assert saw(job, "pi-a", "Failed", deleted=True) == ["stopped"]
    assert job.failed_pods == 0
    assert job.failures[0].stopped


def test_a_job_waits_ten_seconds_then_twenty() -> None:
    job = follow(backoffLimit=6)
    saw(job, "pi-a", "Failed")
    assert job.retry_at(after(3)) == after(10)
    saw(job, "pi-b", "Failed", at=12)
    assert job.retry_at(after(13)) == after(32)
    assert job.retry_at(after(40)) is None


def test_nothing_is_retried_while_enough_pods_run() -> None:
    job = follow(completions=2, parallelism=1)
    saw(job, "pi-a", "Failed")
    saw(job, "pi-b", "Running", at=1)
    assert job.retry_at(after(2)) is None


def test_a_job_that_is_bound_to_fail_shows_no_countdown() -> None:
    job = follow()
    saw(job, "pi-a", "Failed")
    status = {"conditions": [{"type": "FailureTarget", "status": "True"}]}
    job.saw_job(a_job(status=status), after(1), deleted=False)
    assert job.retry_at(after(2)) is None


def test_indexes_back_off_each_on_its_own() -> None:
    job = follow(completions=2, parallelism=2, completionMode="Indexed", backoffLimitPerIndex=3)
    saw(job, "pi-0", "Failed", index=0)
    saw(job, "pi-1", "Failed", index=1, at=4)
    assert job.retry_at(after(5)) == after(10)
    saw(job, "pi-2", "Succeeded", index=0, at=10)
    assert job.retry_at(after(11)) == after(14)


def test_rate_and_time_left_follow_the_successes() -> None:
    job = follow(completions=100, parallelism=10)
    job.saw_job(
        a_job(spec={"completions": 100}, status={"succeeded": 20}), after(10), deleted=False
    )
    assert job.rate(after(10)) == pytest.approx(2.0)
    assert job.seconds_left(after(10)) == pytest.approx(40.0)


def test_rate_ignores_old_samples() -> None:
    job = follow(completions=1000)
    for second in range(0, 120, 10):
        succeeded = 0 if second < 60 else (second - 50) * 2
        status = {"succeeded": succeeded}
        job.saw_job(a_job(spec={"completions": 1000}, status=status), after(second), deleted=False)
    assert job.rate(after(110)) == pytest.approx(2.0)


def test_a_work_queue_has_no_time_left_to_tell() -> None:
    job = RunProgress().expect(a_job(spec={"completions": None}), NOON)
    assert job.goal is None
    assert job.seconds_left(after(5)) is None


def test_a_job_is_done_when_it_is_finished_or_gone() -> None:
    run = RunProgress()
    first, second = run.expect(a_job("a"), NOON), run.expect(a_job("b"), NOON)
    first.saw_job(a_job("a", status=finished("Complete", "x")), after(2), deleted=False)
    assert (first.done, run.done) == (True, False)
    second.saw_job(a_job("b"), after(3), deleted=True)
    assert run.done
    assert (first.outcome, second.outcome) == ("Complete", "Deleted")
    assert not run.all_complete
    assert first.wall_seconds(after(60)) == 2.0


def test_a_finished_job_that_is_deleted_keeps_its_outcome() -> None:
    job = follow()
    document = a_job(status=finished("Complete", "x"))
    job.saw_job(document, after(1), deleted=False)
    job.saw_job(document, after(2), deleted=True)
    assert job.outcome == "Complete"


def test_only_the_last_failures_are_kept_of_many() -> None:
    job = follow(completions=100, parallelism=100)
    for number in range(KEPT_FAILURES + 5):
        saw(job, f"pi-{number}", "Failed")
    assert job.failed_pods == KEPT_FAILURES + 5
    assert [pod.name for pod in job.failures] == [f"pi-{n}" for n in range(5, KEPT_FAILURES + 5)]


def test_pods_of_others_are_nobodys() -> None:
    run = RunProgress()
    run.expect(a_job("pi"), NOON)
    assert run.of_pod(a_pod(job="other")) is None
    assert run.of_pod(a_pod(job="pi")) is not None


NEVER_COMES = PodWait("CreateContainerConfigError", "no such ConfigMap", patience_seconds=1.5)
ROOM = PodWait("Unschedulable", "waiting for capacity: cpu")


def waits(job: JobProgress, name: str, wait: PodWait | None, at: float = 0.0) -> None:
    saw(job, name, "Pending", at=at)
    job.running[f"uid-of-{name}"].record_wait(wait, after(at))


def test_a_run_whose_only_pod_can_never_start_is_blocked_after_a_moment() -> None:
    run = RunProgress()
    waits(run.expect(a_job(), NOON), "pi-a", NEVER_COMES)
    assert not run.blocked(after(1))
    assert run.blocked(after(2))


def test_the_moment_begins_anew_when_the_reason_changes() -> None:
    run = RunProgress()
    job = run.expect(a_job(), NOON)
    waits(job, "pi-a", PodWait("ErrImagePull", "refused", patience_seconds=16))
    waits(job, "pi-a", NEVER_COMES, at=20)
    assert not run.blocked(after(21))
    assert run.blocked(after(22))


def test_an_image_that_is_pulled_in_vain_twice_is_one_reason() -> None:
    run = RunProgress()
    job = run.expect(a_job(), NOON)
    refused = PodWait("ErrImagePull", "connection refused", patience_seconds=16)
    again = PodWait("ImagePullBackOff", "Back-off pulling image", patience_seconds=16)
    for second, wait in ((0, refused), (1, again), (10, refused), (11, again)):
        waits(job, "pi-a", wait, at=second)
    assert not run.blocked(after(15))
    assert run.blocked(after(16))
    assert job.lasting_wait == refused


def test_a_run_goes_on_while_any_pod_of_it_runs_or_is_about_to() -> None:
    run = RunProgress()
    waits(run.expect(a_job("stuck"), NOON), "stuck-a", NEVER_COMES)
    other = run.expect(a_job("busy"), NOON)
    assert not run.blocked(after(60)), "a Pod of the other Job is still to come"
    waits(other, "busy-a", None)
    assert not run.blocked(after(60)), "it is about to start"
    saw(other, "busy-a", "Running", at=60)
    assert not run.blocked(after(120))
    saw(other, "busy-a", "Succeeded", at=120)
    other.saw_job(a_job("busy", status=finished("Complete", "")), after(120), deleted=False)
    assert run.blocked(after(121))


def test_a_pod_is_waited_for_while_one_of_its_containers_runs() -> None:
    run = RunProgress()
    job = run.expect(a_job(), NOON)
    waits(job, "pi-a", None)
    saw(job, "pi-a", "Running", at=1)
    pod = job.running["uid-of-pi-a"]
    pod.record_wait(replace(NEVER_COMES, idle=False), after(2))
    assert not run.blocked(after(60))
    pod.record_wait(NEVER_COMES, after(61))
    assert run.blocked(after(62))


def test_room_that_is_held_by_a_pod_that_never_starts_is_not_waited_for() -> None:
    run = RunProgress()
    job = run.expect(a_job(spec={"completions": 2, "parallelism": 2}), NOON)
    waits(job, "pi-a", NEVER_COMES)
    waits(job, "pi-b", ROOM)
    assert run.blocked(after(3))


def test_pods_that_wait_for_room_alone_are_waited_for() -> None:
    run = RunProgress()
    waits(run.expect(a_job(), NOON), "pi-a", ROOM)
    assert not run.blocked(after(3600))


def test_a_pod_that_has_just_ended_may_make_room() -> None:
    run = RunProgress()
    waits(run.expect(a_job("stuck"), NOON), "stuck-a", NEVER_COMES)
    job = run.expect(a_job(spec={"completions": 2, "parallelism": 2}), NOON)
    saw(job, "pi-a", "Running")
    waits(job, "pi-b", ROOM)
    saw(job, "pi-a", "Succeeded", at=10)
    assert not run.blocked(after(11))
    assert run.blocked(after(13))


def test_a_retry_that_is_due_is_waited_for() -> None:
    run = RunProgress()
    waits(run.expect(a_job("stuck"), NOON), "stuck-a", NEVER_COMES)
    saw(run.expect(a_job(), NOON), "pi-a", "Running", "Failed")
    assert not run.blocked(after(8))


def test_a_pod_that_ends_because_the_run_does_has_not_failed() -> None:
    run = RunProgress()
    job = run.expect(a_job(), NOON)
    saw(job, "pi-a", "Running")
    run.stop()
    assert saw(job, "pi-a", "Failed", at=1) == ["stopped"]
    assert job.failed_pods == 0


def test_an_index_that_is_given_up_shows_no_countdown() -> None:
    job = follow(completions=2, parallelism=2, completionMode="Indexed", backoffLimitPerIndex=1)
    saw(job, "pi-0", "Failed", index=0)
    assert job.retry_at(after(1)) == after(10)
    saw(job, "pi-0b", "Failed", index=0, at=10)
    assert job.retry_at(after(11)) is None


def test_an_index_that_a_rule_fails_shows_no_countdown() -> None:
    rule = {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [3]}}
    job = follow(
        completions=2,
        parallelism=2,
        completionMode="Indexed",
        backoffLimitPerIndex=5,
        podFailurePolicy={"rules": [rule]},
    )
    saw(job, "pi-0", "Failed", index=0)
    assert job.retry_at(after(1)) is None


def test_a_job_without_retries_shows_no_countdown() -> None:
    job = follow(backoffLimit=0)
    saw(job, "pi-a", "Failed")
    assert job.retry_at(after(1)) is None
