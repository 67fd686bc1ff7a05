"""Decisions about allocations."""

import pytest

from onejob.node.slurm.sizing import Needs, Offer, Shape, fits, gpus_in, lacking, shapes_to_submit

WHOLE = {"cpu": 4000, "memory": 1 << 30, "pods": 10}
PLAIN = Shape()
LONG = Shape(partition="long")


def needs(cpu: int = 0, shape: Shape = PLAIN, seconds: float = 0.0) -> Needs:
    return Needs(shape, {"cpu": cpu, "pods": 1}, seconds)


def submitted(
    waiting: list[Needs], expected: list[Offer] | None = None, *, allowed: int = 10
) -> list[Shape]:
    whole = {PLAIN: WHOLE, LONG: WHOLE}
    return shapes_to_submit(waiting, expected or [], whole, seconds=600, allowed=allowed)


@pytest.mark.parametrize(
    ("pod", "offer", "expected"),
    [
        (needs(4000), Offer(PLAIN, WHOLE, 60), True),
        (needs(4001), Offer(PLAIN, WHOLE, 60), False),
        (needs(seconds=61), Offer(PLAIN, WHOLE, 60), False),
        (needs(shape=LONG), Offer(PLAIN, WHOLE, 60), False),
        (Needs(PLAIN, {"nvidia.com/gpu": 1}), Offer(PLAIN, WHOLE, 60), False),
        (Needs(PLAIN, {"nvidia.com/gpu": 0}), Offer(PLAIN, WHOLE, 60), True),
    ],
)
def test_a_pod_fits_an_allocation_of_its_shape_with_room_and_time(
    pod: Needs, offer: Offer, expected: bool
) -> None:
    assert fits(pod, offer) is expected


def test_one_allocation_is_submitted_for_pods_that_fit_together() -> None:
    assert submitted([needs()] * 10) == [PLAIN]
    assert submitted([needs()] * 11) == [PLAIN, PLAIN]
    assert submitted([needs(2000)] * 3) == [PLAIN, PLAIN]


def test_allocations_that_have_not_begun_are_taken_into_account() -> None:
    assert submitted([needs(2000)] * 2, [Offer(PLAIN, WHOLE, 600)]) == []
    assert submitted([needs(2000)] * 3, [Offer(PLAIN, WHOLE, 600)]) == [PLAIN]
    assert submitted([needs(2000, LONG)], [Offer(PLAIN, WHOLE, 600)]) == [LONG]


def test_no_more_allocations_are_submitted_than_allowed() -> None:
    assert submitted([needs(4000)] * 5, allowed=2) == [PLAIN, PLAIN]
    assert submitted([needs(4000)] * 5, allowed=0) == []


def test_pods_that_fit_no_allocation_do_not_cause_any() -> None:
    assert submitted([needs(5000), needs(seconds=601)]) == []
    assert lacking(needs(5000).demand, WHOLE) == ["cpu"]


@pytest.mark.parametrize(
    ("gres", "count"),
    [("", 0), ("gpu", 1), ("gpu:2", 2), ("gpu:a100:4", 4), ("tmpdisk:8", 0), ("gpu:1,gpu:b:2", 3)],
)
def test_gpus_are_counted_in_gres(gres: str, count: int) -> None:
    assert gpus_in(gres) == count
