"""Upper bounds on the cost of a Pod, counted in virtual time instead of measured on a clock."""

import pytest

from onejob.benchmarks.operation_counts import per_finished_job, per_pod, per_task

#: Maximum per Pod: about 5 % above the count when the bound was set. Each Pod of an Indexed Job has
#: a document of its own.
BOUNDS = {
    "writes per pod": (3.3, 3.3),
    "commits per pod": (0.12, 0.12),
    "syncs per pod": (0.06, 0.06),
    "decodes per pod": (3.65, 3.55),
    "encodes per pod": (1.7, 3.8),
    # Calls of functions, by one thread: shows costs without a counter of their own.
    "calls per pod": (630, 700),
}


@pytest.mark.parametrize("indexed", [0, 1], ids=["NonIndexed", "Indexed"])
def test_operations_per_pod_stay_bounded(indexed: int) -> None:
    counted = per_pod(completions=200, parallelism=20, indexed=indexed).figures
    assert counted.keys() == BOUNDS.keys()
    too_many = {name: count for name, count in counted.items() if count > BOUNDS[name][indexed]}
    assert not too_many
    # Created with its node, ended and freed.
    assert counted["writes per pod"] >= 3
    assert counted["decodes per pod"] >= 1


def test_counts_repeat() -> None:
    # Process-wide caches are filled by the first.
    _, one, other = (dict(per_pod(completions=60, parallelism=20).figures) for _ in range(3))
    # A finalizer that the garbage collector runs is a call, too.
    calls, again = one.pop("calls per pod"), other.pop("calls per pod")
    assert one == other
    assert again == pytest.approx(calls, rel=0.02)


def test_a_pod_of_a_larger_job_takes_no_more_operations() -> None:
    small = per_pod(completions=100, parallelism=20).figures
    large = per_pod(completions=800, parallelism=20).figures
    assert {
        name: large[name] / small[name] for name in small if large[name] > 1.3 * small[name]
    } == {}


#: Bounds of a restart, per finished Job with its one Pod: both are validated, the caches take the
#: decoded objects, and no sync is needed.
RESTART_BOUNDS = {
    "syncs per finished job": 0.0,
    "decodes per finished job": 4.2,
    "encodes per finished job": 0.1,
    "calls per finished job": 270,
}


def test_restart_reads_little_for_finished_objects() -> None:
    counted = per_finished_job(jobs=60).figures
    assert counted.keys() == RESTART_BOUNDS.keys()
    too_many = {name: count for name, count in counted.items() if count > RESTART_BOUNDS[name]}
    assert not too_many
    assert counted["decodes per finished job"] >= 2


#: Operations of a task in a chain, as multiples of those of its Job alone.
TASK_BOUNDS = {
    "writes, ×": 1.1,
    "commits, ×": 1.05,
    "syncs, ×": 1.05,
    "decodes, ×": 1.25,
    "encodes, ×": 1.2,
    "calls, ×": 1.25,
}


def test_task_of_a_chain_costs_little_beyond_its_job() -> None:
    counted = per_task(tasks=60).figures
    too_many = {name: counted[name] for name, bound in TASK_BOUNDS.items() if counted[name] > bound}
    assert not too_many
    # The workflow is counted, too.
    assert counted["writes, ×"] > 1
