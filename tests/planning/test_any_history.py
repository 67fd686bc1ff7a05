"""Whatever happens to a Job, in whatever order: exact counters, no crowding, and an end."""

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from onejob.planning.job.indexes import parse_indexes
from onejob.planning.job.plan import PodOutcomes
from onejob.planning.job.planner import account
from onejob.planning.names import INDEX_ANNOTATION
from tests.planning.build import job_document
from tests.planning.toy_cluster import Crash, Driver, Server, pass_time

POLICY = {
    "rules": [
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [3]}},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [9]}},
        {"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}},
    ]
}


@st.composite
def job_specs(draw: st.DrawFn) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "parallelism": draw(st.integers(0, 4)),
        "completions": draw(st.one_of(st.none(), st.integers(0, 6))),
        "backoffLimit": draw(st.sampled_from([0, 2, 1000])),
        "backoffSeconds": draw(st.sampled_from([0, 10])),
        "suspend": draw(st.booleans()),
        "podReplacementPolicy": draw(st.sampled_from(["TerminatingOrFailed", "Failed"])),
    }
    if draw(st.booleans()):
        spec |= {"podFailurePolicy": POLICY, "podReplacementPolicy": "Failed"}
    if draw(st.booleans()):
        spec |= {"completionMode": "Indexed", "completions": draw(st.integers(0, 6))}
        if draw(st.booleans()):
            spec |= {
                "backoffLimitPerIndex": draw(st.integers(0, 2)),
                "maxFailedIndexes": draw(st.one_of(st.none(), st.integers(0, 3))),
            }
        if draw(st.booleans()):
            spec["successPolicy"] = {"rules": [{"succeededCount": draw(st.integers(1, 4))}]}
    return spec


class AnyHistory(RuleBasedStateMachine):
    @initialize(spec=job_specs())
    def begin(self, spec: dict[str, Any]) -> None:
        self.server = Server(job_document(**spec))
        self.driver = Driver(self.server)
        self.smallest = spec["completions"] or 0

    # The controller, and what befalls it.

    @rule()
    def sync(self) -> None:
        try:
            self.driver.sync()
        except Crash:
            self.driver.restart()

    @rule(good=st.booleans())
    def a_good_while_passes(self, good: bool) -> None:
        """Enough quiet for Pods to come, run and end; without it trouble finds little to hit."""
        self.driver.observe()
        self.sync()
        for uid in self.server.pods_in("Pending", "Running"):
            self.server.end_pod(uid, "Succeeded" if good else "Failed", 0 if good else 1)
        self.driver.observe()
        self.sync()

    @rule()
    def observe(self) -> None:
        self.driver.observe()

    @rule()
    def observe_only_the_job(self) -> None:
        self.driver.observe_job()

    @rule()
    def observe_only_the_pods(self) -> None:
        self.driver.observe_pods()

    @rule()
    def restart(self) -> None:
        self.driver.restart()

    @rule(after=st.integers(1, 8))
    def crash_soon(self, after: int) -> None:
        self.driver.crash_after = self.driver.calls + after

    @rule(which=st.sets(st.integers(1, 8), min_size=1))
    def writes_will_fail(self, which: set[int]) -> None:
        self.driver.failing = {self.driver.calls + number for number in which}

    # The node.

    @rule(data=st.data())
    def pod_runs(self, data: st.DataObject) -> None:
        waiting = self.server.pods_in("Pending", deleting=False)
        if waiting:
            self.server.run_pod(data.draw(st.sampled_from(waiting)))

    @rule(data=st.data(), good=st.booleans(), exit_code=st.sampled_from([1, 2, 3, 9]))
    def pod_ends(self, data: st.DataObject, good: bool, exit_code: int) -> None:
        running = self.server.pods_in("Running")
        if running:
            phase = "Succeeded" if good else "Failed"
            uid = data.draw(st.sampled_from(running))
            self.server.end_pod(uid, phase, 0 if good else exit_code)

    @rule(seconds=st.sampled_from([1, 15, 700]))
    def time_passes(self, seconds: int) -> None:
        pass_time(self.server, seconds)

    # Other people.

    @rule(data=st.data())
    def somebody_deletes_a_pod(self, data: st.DataObject) -> None:
        if self.server.pods:
            self.server.delete_pod(data.draw(st.sampled_from(list(self.server.pods))))

    @precondition(lambda self: not self.server.view.finished)
    @rule(parallelism=st.integers(0, 4))
    def somebody_scales(self, parallelism: int) -> None:
        self.server.edit_job(parallelism=parallelism)

    @precondition(lambda self: self.server.view.indexed and not self.server.view.finished)
    @rule(size=st.integers(0, 6))
    def somebody_resizes(self, size: int) -> None:
        self.server.edit_job(parallelism=size, completions=size)
        self.smallest = min(self.smallest, size)

    @precondition(lambda self: not self.server.view.finished)
    @rule(suspend=st.booleans())
    def somebody_suspends_or_resumes(self, suspend: bool) -> None:
        self.server.edit_job(suspend=suspend)

    # What always holds. The server checks each write and each creation by itself.

    @invariant()
    def no_pod_is_counted_twice_or_both_ways(self) -> None:
        listed = self.server.listed
        assert not listed["succeeded"] & listed["failed"]
        status = self.server.view.status
        uncounted = status.uncounted_terminated_pods
        waiting_succeeded = len(uncounted.succeeded) if uncounted else 0
        waiting_failed = len(uncounted.failed) if uncounted else 0
        if not self.server.view.indexed:
            assert status.succeeded + waiting_succeeded == len(listed["succeeded"])
        assert status.failed + waiting_failed == len(listed["failed"])

    @invariant()
    def no_pod_is_let_go_uncounted(self) -> None:
        job = self.server.view
        verdict = job.condition_is_true("SuccessCriteriaMet")
        for uid, pod in self.server.freed.items():
            listed_as = [kind for kind, uids in self.server.listed.items() if uid in uids]
            codes = [
                status["state"]["terminated"]["exitCode"]
                for status in pod["status"].get("containerStatuses", ())
            ]
            ignored = job.spec.pod_failure_policy is not None and 3 in codes
            if pod["status"]["phase"] == "Failed" and not ignored and self._had_its_index(pod):
                # Seen running when the Job succeeded, it may have failed unseen.
                assert listed_as == ["failed"] or verdict, f"{uid} failed and is {listed_as}"
            if pod["status"]["phase"] == "Succeeded" and not job.indexed:
                assert listed_as or verdict, f"{uid} succeeded and is not counted"

    def _had_its_index(self, pod: dict[str, Any]) -> bool:
        """Pods of indexes that the Job lost by resizing may go uncounted."""
        index = pod["metadata"].get("annotations", {}).get(INDEX_ANNOTATION)
        return index is None or int(index) < self.smallest

    def teardown(self) -> None:
        if not hasattr(self, "server"):
            return
        self._comes_to_rest()
        self._let_it_end()
        self._counters_are_exact()
        self._nothing_is_left_to_do()

    def _comes_to_rest(self) -> None:
        """Left alone, a Job soon has nothing more to do, and then plans nothing."""
        self.driver.restart()
        for _ in range(20):
            before = self.server.revision
            self.driver.sync()
            self.driver.observe()
            if self.server.revision == before:
                break
        plan = self.driver.plan()
        assert (plan.deletions, plan.creations, plan.prunings) == ((), (), ())
        if plan.skipped is None:
            accounting = account(plan, PodOutcomes())
            assert (accounting.write, accounting.removals) == (None, ())

    def _let_it_end(self) -> None:
        """No more trouble; a node on which everything succeeds."""
        if not self.server.view.finished:
            completions = self.server.job["spec"].get("completions")
            parallelism = completions if self.server.view.indexed else 3
            self.server.edit_job(suspend=False, parallelism=parallelism)
        self.driver.restart()
        for _ in range(60):
            self.driver.sync()
            for uid in self.server.pods_in("Pending", "Running"):
                self.server.end_pod(uid, "Succeeded")
            self.driver.observe()
            pass_time(self.server, 700)
            if self.server.view.finished:
                return
        raise AssertionError(f"no end: {self.server.job['status']}")

    def _counters_are_exact(self) -> None:
        job = self.server.view
        assert not job.status.active
        assert not any(
            pod["metadata"]["finalizers"]
            for pod in self.server.pods.values()
            if pod["status"]["phase"] in ("Succeeded", "Failed")
        )
        if job.indexed:
            completions = job.spec.completions or 0
            completed = set(parse_indexes(job.status.completed_indexes, completions))
            assert completed <= self.server.successes
            assert len(completed) == job.status.succeeded
            complete = job.condition_is_true("Complete") and job.spec.success_policy is None
            if complete and self.server.size_at_verdict == completions:
                assert job.status.succeeded == completions
        elif job.condition_is_true("Complete") and job.spec.completions is not None:
            assert job.status.succeeded >= job.spec.completions

    def _nothing_is_left_to_do(self) -> None:
        plan = self.driver.plan()
        assert plan.skipped is not None
        before = self.server.revision
        self.driver.sync()
        assert self.server.revision == before


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(
    max_examples=300,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
