"""Sorted set of names under insertions and removals."""

import random

from hypothesis import given
from hypothesis import strategies as st

from onejob.store.sorted_names import SortedNames


def assert_pages(names: SortedNames, expected: set[str], start: str) -> None:
    """Check that pages of any size return their names and the number of the remaining ones."""
    for place in (None, start):
        wanted = sorted(name for name in expected if place is None or name > place)
        for most in (0, 1, 2, 3, 500, 10_000):
            assert names.page(place, most) == (wanted[:most], len(wanted[most:]))
        assert names.page(place, None) == (wanted, 0)
        # Callers may change the returned list.
        names.page(place, None)[0].clear()
        assert names.page(place, None) == (wanted, 0)


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from("abcdefgh"), st.sampled_from("abcdefghz")))
)
def test_names_are_in_order_after_any_additions_and_removals(
    steps: list[tuple[bool, str, str]],
) -> None:
    names, expected = SortedNames(), set[str]()
    for adds, name, start in steps:
        if adds and name not in expected:
            names.add(name)
            expected.add(name)
        elif not adds and name in expected:
            names.remove(name)
            expected.discard(name)
        assert list(names.after(None)) == sorted(expected)
        assert list(names.after(start)) == sorted(name for name in expected if name > start)
        assert_pages(names, expected, start)
    assert len(names) == len(expected)


@given(st.sets(st.text(alphabet="abc", min_size=1)), st.text(alphabet="abc", min_size=1))
def test_names_that_were_there_at_first_are_in_order(first: set[str], more: str) -> None:
    names = SortedNames(first)
    assert list(names.after(None)) == sorted(first)
    if more not in first:
        names.add(more)
    assert list(names.after(None)) == sorted(first | {more})
    for name in sorted(first | {more}):
        names.remove(name)
    assert len(names) == 0


def test_many_that_were_there_at_first_can_be_added_to() -> None:
    numbers = [f"{number:05}" for number in range(0, 10_000, 2)]
    names = SortedNames(reversed(numbers))
    for number in range(1, 10_000, 2):
        names.add(f"{number:05}")
    assert list(names.after(None)) == [f"{number:05}" for number in range(10_000)]
    assert list(names.after("09997")) == ["09998", "09999"]


def test_so_are_many() -> None:
    rng = random.Random(1)
    names, expected = SortedNames(), set[str]()
    for _ in range(60_000):
        name = f"{rng.randrange(8_000):05}"
        if name in expected:
            names.remove(name)
            expected.discard(name)
        else:
            names.add(name)
            expected.add(name)
    assert list(names.after(None)) == sorted(expected)
    for start in ("", "00000", "04000", "99999", min(expected), max(expected)):
        assert list(names.after(start)) == sorted(name for name in expected if name > start)
        assert_pages(names, expected, start)


def test_names_that_all_come_at_one_end_stay_in_small_chunks() -> None:
    names = SortedNames()
    for number in range(10_000):
        names.add(f"{number:05}")
    for number in range(10_000, 0, -1):
        names.add(f"-{number:05}")
    assert max(map(len, names._chunks)) < 512
    assert len(names) == 20_000


def test_names_that_are_gone_leave_nothing_behind() -> None:
    names = SortedNames()
    for number in range(5_000):
        names.add(f"{number * 7919 % 5_000:05}")
    for number in range(5_000):
        names.remove(f"{number:05}")
    assert (len(names), names._chunks, names._firsts) == (0, [], [])
