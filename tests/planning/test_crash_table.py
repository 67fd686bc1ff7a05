"""A controller killed after any of its effects loses no Pod and counts none twice."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.planning.build import job_document
from tests.planning.toy_cluster import Crash, Document, Driver, Server, pass_time

#: Pods end in the order of their making: each third one fails.
FAILS = 3
WANTED = 50


def the_50_pod_job(**spec: Any) -> Document:
    usual = {"parallelism": 10, "backoffLimit": 1000, "backoffSeconds": 0}
    return job_document(**{"completions": WANTED, **usual, **spec})


JOBS = {
    "NonIndexed": the_50_pod_job,
    "Indexed": lambda: the_50_pod_job(completionMode="Indexed"),
    "per index": lambda: the_50_pod_job(completionMode="Indexed", backoffLimitPerIndex=1000),
    # An index that waits is worked on by nobody: only its last failed Pod knows its count.
    "per index, waiting": lambda: the_50_pod_job(
        completionMode="Indexed", backoffLimitPerIndex=1000, backoffSeconds=2, parallelism=25
    ),
    "policy Failed": lambda: the_50_pod_job(podReplacementPolicy="Failed"),
}


@pytest.mark.parametrize("kind", JOBS)
def test_counters_are_exact_after_a_crash_behind_any_single_effect(kind: str) -> None:
    untouched = run_to_the_end(JOBS[kind])
    assert untouched.calls > WANTED
    for effect in range(1, untouched.calls + 1):
        crashed = run_to_the_end(JOBS[kind], crash_after=effect)
        assert_exact(crashed.server)


@pytest.mark.parametrize("kind", JOBS)
def test_counters_are_exact_when_any_single_write_fails(kind: str) -> None:
    calls = run_to_the_end(JOBS[kind]).calls
    for effect in range(1, calls + 1, 3):
        assert_exact(run_to_the_end(JOBS[kind], failing=effect).server)


@pytest.mark.parametrize("kind", JOBS)
def test_counters_are_exact_when_the_pod_cache_lags_behind_the_job(kind: str) -> None:
    """Pods whose finalizer we removed still show it; they must not count again."""
    assert_exact(run_to_the_end(JOBS[kind], lagging=True).server)


@pytest.mark.parametrize("kind", ["per index", "per index, waiting"])
def test_an_index_carries_its_failures_on_through_any_crash(kind: str) -> None:
    calls = run_to_the_end(JOBS[kind]).calls
    for effect in range(1, calls + 1, 3):
        server = run_to_the_end(JOBS[kind], crash_after=effect).server
        by_index: dict[int, list[int]] = {}
        for index, count in server.failure_counts:
            by_index.setdefault(index, []).append(count)
        assert len(by_index) == WANTED
        for counts in by_index.values():
            assert counts == list(range(len(counts)))


def run_to_the_end(
    make: Callable[[], Document],
    *,
    crash_after: int | None = None,
    failing: int | None = None,
    lagging: bool = False,
) -> Driver:
    server = Server(make())
    driver = Driver(server)
    driver.crash_after = crash_after
    if failing is not None:
        driver.failing = {failing}
    for _ in range(200):
        try:
            driver.sync()
            if lagging:
                driver.observe_job()
                driver.sync()
        except Crash:
            driver.restart()
        work(server)
        driver.observe()
        pass_time(server, 1)
        if server.view.finished:
            return driver
    raise AssertionError("the Job never finished")


def work(server: Server) -> None:
    """A node that runs each Pod to its end at once."""
    for uid in server.pods_in("Pending", "Running"):
        number = int(uid.removeprefix("pod-"))
        server.end_pod(uid, "Failed" if number % FAILS == 0 else "Succeeded")


def assert_exact(server: Server) -> None:
    made = range(1, server.made + 1)
    failed = sum(1 for number in made if number % FAILS == 0)
    status = server.view.status
    assert server.view.condition_is_true("Complete")
    assert status.succeeded == WANTED == server.made - failed
    assert status.failed == failed
    assert not any(pod["metadata"]["finalizers"] for pod in server.pods.values())
