"""Sets of indexes: set operations, and upstream's text format."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onejob.planning.job.indexes import (
    NO_INDEXES,
    IndexFormatError,
    IndexSet,
    check_no_overlap,
    first_pending,
    parse_indexes,
    validate_indexes,
)

small_sets = st.sets(st.integers(0, 40))


def of(indexes: set[int]) -> IndexSet:
    return NO_INDEXES.with_indexes(indexes)


@given(small_sets)
def test_a_text_reads_back_as_the_same_set(indexes: set[int]) -> None:
    text = str(of(indexes))
    assert set(parse_indexes(text, 41)) == indexes
    assert validate_indexes(text, 41) == len(indexes) == len(of(indexes))


@given(small_sets, small_sets, st.integers(0, 45))
def test_it_agrees_with_sets(first: set[int], second: set[int], end: int) -> None:
    union = of(first).with_indexes(second)
    assert set(union) == first | second
    assert len(union) == len(first | second)
    assert union == of(first | second)
    assert hash(union) == hash(of(first | second))
    assert all((index in union) == (index in first | second) for index in range(45))
    assert of(first).without(of(second)) == of(first - second)
    assert of(first).common_with(of(second)) == len(first & second)
    assert of(first).first_common(of(second)) == min(first & second, default=None)
    gaps = {index for gap in of(first).gaps(end) for index in gap}
    assert gaps == set(range(end)) - first


@given(small_sets, small_sets, st.integers(0, 40), st.integers(0, 10))
def test_pending_are_the_lowest_free_ones(
    done: set[int], busy: set[int], completions: int, count: int
) -> None:
    free = [index for index in range(completions) if index not in done | busy]
    assert first_pending(count, completions, of(done), busy.__contains__) == free[:count]


@given(small_sets, small_sets)
def test_adding_leaves_the_original_alone(first: set[int], second: set[int]) -> None:
    original = of(first)
    original.with_indexes(second)
    assert set(original) == first


@pytest.mark.parametrize(
    ("text", "completions", "expected"),
    [
        ("", 5, ""),
        ("0-2,x,4", 9, "0-2,4"),
        ("1-foo,3", 9, "3"),
        ("5-3,1", 9, "1"),
        ("0,1,2", 9, "0-2"),
        ("0-5,8-10", 8, "0-5"),
        ("0-5,8-10", 10, "0-5,8,9"),
        ("7,1", 5, ""),
        ("1-2-3,4", 9, "4"),
        (",,2", 9, "2"),
    ],
)
def test_the_forgiving_reader(text: str, completions: int, expected: str) -> None:
    assert str(parse_indexes(text, completions)) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1--3", "the fragment \"1--3\" violates the requirement that an index interval can have"
         " at most two parts separated by '-'"),
        ("x", 'cannot convert string to integer for index: "x"'),
        ("-1", 'cannot convert string to integer for index: ""'),
        ("1-", 'cannot convert string to integer for index: ""'),
        ("1,,2", 'cannot convert string to integer for index: ""'),
        ("5", 'too large index: "5"'),
        ("3,1", "non-increasing order, previous: 3, current: 1"),
        ("3-3", "non-increasing order, previous: 3, current: 3"),
        # A piece is parsed completely before it is compared with the previous one.
        ("4,3-2", "non-increasing order, previous: 3, current: 2"),
        ("4,3-x", 'cannot convert string to integer for index: "x"'),
        ("4,3-5", 'too large index: "5"'),
        ("2-3,3-4", "non-increasing order, previous: 3, current: 3"),
    ],
)  # fmt: skip
def test_strict_index_parser_returns_reason(text: str, why: str) -> None:
    with pytest.raises(IndexFormatError) as error:
        validate_indexes(text, 5)
    assert str(error.value) == why


def test_overlap_names_the_first_common_index() -> None:
    check_no_overlap("0-3", "4,5", 9)
    with pytest.raises(IndexFormatError, match=r"overlap at index: 2$"):
        check_no_overlap("0-3", "2,3", 9)


@pytest.mark.parametrize(("completed", "failed"), [("0-9", "3"), ("3", "0-9"), ("x,3--3", "3")])
def test_pieces_with_errors_of_their_own_overlap_with_nothing(completed: str, failed: str) -> None:
    """A writer of one of the texts must not be refused because of the other.

    The other may be from before the Job was scaled down.
    """
    check_no_overlap(completed, failed, 5)


def test_overlap_is_found_in_what_follows_a_piece_that_is_out_of_bounds() -> None:
    with pytest.raises(IndexFormatError, match=r"overlap at index: 3$"):
        check_no_overlap("7,3", "3", 5)


def test_a_set_of_a_hundred_thousand_costs_what_changes() -> None:
    """Nothing iterates over the indexes: only intervals are touched."""
    half_done = IndexSet([(0, 49_999)])
    assert len(half_done.with_indexes([50_001]).intervals) == 2
    looked_at: list[int] = []

    def taken(index: int) -> bool:
        looked_at.append(index)
        return False

    assert first_pending(2, 100_000, half_done, taken) == [50_000, 50_001]
    assert len(looked_at) == 2
