"""Leadership tables: when a lease may be taken, and how long a leader may write."""

from datetime import timedelta

import msgspec
import pytest

from onejob.objects.meta import Meta
from onejob.planning.leadership import (
    Lease,
    LeaseSpec,
    Sighting,
    Term,
    Timing,
    read_lease,
    released,
    seconds_until_free,
    sighted,
    taken,
)
from onejob.virtual_time import NOON

TIMING = Timing()


def a_lease(holder: str, version: str = "1", seconds: int = 15, transitions: int = 0) -> Lease:
    return Lease(
        metadata=Meta(resource_version=version),
        spec=LeaseSpec(
            holder_identity=holder,
            lease_duration_seconds=seconds,
            acquire_time="2025-01-01T00:00:00.000000Z",
            lease_transitions=transitions,
        ),
    )


@pytest.mark.parametrize(
    ("lease", "seen_for", "wait"),
    [
        (None, 0, 0),
        (a_lease(""), 0, 0),
        (a_lease("me"), 0, 0),
        (a_lease("other"), 0, 15),
        (a_lease("other"), 14.5, 0.5),
        (a_lease("other"), 15, 0),
        (a_lease("other", seconds=60), 15, 45),
    ],
)
def test_lease_is_respected_for_its_duration(
    lease: Lease | None, seen_for: float, wait: float
) -> None:
    assert seconds_until_free(Sighting(lease, 100.0), "me", 100.0 + seen_for) == wait


def test_only_new_lease_version_counts_as_renewal() -> None:
    first = sighted(None, a_lease("other", "1"), 10.0)
    assert sighted(first, a_lease("other", "1"), 20.0) == first
    assert sighted(first, a_lease("other", "2"), 20.0).since == 20.0
    assert sighted(first, None, 20.0) == Sighting(None, 20.0)


def test_a_renewal_keeps_the_time_of_acquisition_and_a_take_over_counts() -> None:
    mine = taken(a_lease("me", transitions=4), "me", TIMING, NOON)
    assert mine["acquireTime"] == "2025-01-01T00:00:00.000000Z"
    assert (mine["renewTime"], mine["leaseTransitions"]) == ("2026-01-01T12:00:00.000000Z", 4)
    later = NOON + timedelta(microseconds=5)
    theirs = taken(a_lease("other", transitions=4), "me", TIMING, later)
    assert theirs["acquireTime"] == theirs["renewTime"] == "2026-01-01T12:00:00.000005Z"
    assert theirs["leaseTransitions"] == 5
    assert taken(None, "me", TIMING, NOON)["leaseTransitions"] == 0


def test_a_released_lease_is_nobodys() -> None:
    spec = released(a_lease("me", transitions=4), NOON)
    document = msgspec.json.encode({"metadata": {"resourceVersion": "2"}, "spec": spec})
    lease = read_lease(document)
    assert lease.spec.holder_identity == ""
    assert lease.spec.lease_transitions == 4
    assert seconds_until_free(Sighting(lease, 0.0), "other", 0.0) == 0


@pytest.mark.parametrize(
    ("now", "seconds"), [(100.0, 14.5), (105.0, 9.5), (109.99, 4.51), (110.0, 0), (120.0, 0)]
)
def test_a_write_ends_before_the_lease_does(now: float, seconds: float) -> None:
    assert Term(100.0, TIMING).seconds_for_write(now) == pytest.approx(seconds)


def test_a_renewal_prolongs_a_term_and_a_late_answer_does_not_shorten_it() -> None:
    term = Term(100.0, TIMING).renewed(105.0)
    assert term.ends_at == 115.0
    assert term.renewed(103.0).ends_at == 115.0


def test_no_observer_can_take_over_while_a_write_may_be_under_way() -> None:
    """At whatever moment the renewal became visible."""
    term = Term(100.0, TIMING)
    latest_end = max(
        now + term.seconds_for_write(now) for now in (100.0, 102.5, 107.0, 109.999, 110.0)
    )
    for visible_after in (0.0, 0.1, 3.0):
        seen = Sighting(a_lease("leader"), 100.0 + visible_after)
        assert seconds_until_free(seen, "me", latest_end) >= 0.5


@pytest.mark.parametrize(
    ("timing", "problem"),
    [
        (Timing(), ""),
        (Timing(4, 2.5, 0.5), ""),
        (Timing(15, 10, 0), "retry period"),
        (Timing(15, 2, 2), "renew deadline"),
        (Timing(10, 10, 2), "a second longer"),
        (Timing(10.5, 5, 2), "whole seconds"),
    ],
)
def test_times_that_make_no_sense_are_refused(timing: Timing, problem: str) -> None:
    assert problem in timing.problem
    assert bool(timing.problem) == bool(problem)
