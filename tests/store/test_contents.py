"""Names in order, however they come and go."""

import random
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from onejob.store.base import Stored
from onejob.store.contents import Contents, SortedNames
from tests.store.support import pod


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abcdefgh"), st.booleans())))
def test_names_are_in_order_after_any_additions_and_removals(
    steps: list[tuple[bool, str, bool]],
) -> None:
    names, expected = SortedNames(), set[str]()
    for adds, name, looks in steps:
        if adds and name not in expected:
            names.add(name)
            expected.add(name)
        elif not adds and name in expected:
            names.remove(name)
            expected.discard(name)
        if looks:
            assert list(names.ordered()) == sorted(expected)
    assert list(names.ordered()) == sorted(expected)


def test_many_names_are_merged_and_many_removals_filtered() -> None:
    rng = random.Random(1)
    names, expected = SortedNames(), set[str]()
    for _ in range(30_000):
        name = f"{rng.randrange(8_000):05}"
        if name in expected:
            names.remove(name)
            expected.discard(name)
        else:
            names.add(name)
            expected.add(name)
    assert list(names.ordered()) == sorted(expected)
    assert list(names.after("04000")) == sorted(name for name in expected if name > "04000")


def test_an_unchanged_order_is_not_made_again() -> None:
    names = SortedNames()
    for number in range(1_000):
        names.add(f"{number * 7919 % 1_000}")
    assert names.ordered() is names.ordered()


def test_a_name_costs_the_same_however_many_there_are() -> None:
    class Counting(SortedNames):
        looked_at = 0

        def ordered(self) -> Sequence[str]:
            self.looked_at += self.held
            return super().ordered()

    count = 100_000
    names = Counting()
    for number in range(count):
        names.add(f"{number * 7919 % count:05}")
    assert names.looked_at < 12 * count
    names.looked_at = 0
    for number in range(count // 2):
        names.remove(f"{number:05}")
    assert names.looked_at < 12 * count
    assert list(names.ordered()) == [f"{number:05}" for number in range(count // 2, count)]


def test_names_that_come_and_go_leave_nothing_behind() -> None:
    """Churn that nobody lists must not pile up."""
    contents = Contents()
    contents.put(pod("stays"), 1)
    for number in range(20_000):
        contents.put(pod(f"p{number}"), Stored(pod(f"p{number}"), number, b""))
        contents.remove(pod(f"p{number}"))
    bucket = contents.bucket("pods", "default")
    assert bucket is not None
    assert bucket.names.held <= 4_096
    contents.remove(pod("stays"))
    assert contents.bucket("pods", "default") is None
    assert list(contents.namespaces("pods")) == []
