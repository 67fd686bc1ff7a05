"""What a Pod may cost, counted in virtual time: regressions show here, not on a clock."""

import pytest

from onejob.benchmarks.operation_counts import per_pod

#: Most allowed per Pod: up to 30 % above what was measured when the bound was set.
BOUNDS = {
    "writes per pod": 3.5,
    "commits per pod": 0.13,
    "syncs per pod": 0.065,
    "decodes per pod": 11.5,
    "encodes per pod": 8.0,
}


@pytest.mark.parametrize("indexed", [0, 1], ids=["NonIndexed", "Indexed"])
def test_operations_per_pod_stay_bounded(indexed: int) -> None:
    counted = per_pod(completions=200, parallelism=20, indexed=indexed).figures
    assert counted.keys() == BOUNDS.keys()
    too_many = {name: count for name, count in counted.items() if count > BOUNDS[name]}
    assert not too_many
    # Created with its node, ended and freed.
    assert counted["writes per pod"] >= 3
    assert counted["decodes per pod"] >= 1


def test_counts_repeat_exactly() -> None:
    sizes = {"completions": 60, "parallelism": 20}
    assert per_pod(**sizes) == per_pod(**sizes)


def test_a_pod_of_a_larger_job_takes_no_more_operations() -> None:
    small = per_pod(completions=100, parallelism=20).figures
    large = per_pod(completions=800, parallelism=20).figures
    assert {
        name: large[name] / small[name] for name in small if large[name] > 1.3 * small[name]
    } == {}
