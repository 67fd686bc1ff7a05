import pytest

from onejob.informers.cache import Cache
from onejob.objects.meta import Key

A, B = Key("pods", "ns", "a"), Key("pods", "ns", "b")


def words() -> Cache[str]:
    return Cache(
        keep=lambda view: not view.startswith("-"),
        index_entries=lambda view: [("letter", letter) for letter in sorted(set(view))],
    )


def test_views_are_found_by_key_and_by_index() -> None:
    cache = words()
    cache.put(A, "xy")
    cache.put(B, "yz")
    assert cache.get(A) == "xy"
    assert sorted(cache.find("letter", "y")) == ["xy", "yz"]
    assert list(cache.find("letter", "q")) == []


def test_an_update_moves_a_view_between_index_entries() -> None:
    cache = words()
    cache.put(A, "x")
    delta = cache.put(A, "z")
    assert (delta.old, delta.new) == ("x", "z")
    assert list(cache.find("letter", "x")) == []
    assert list(cache.find("letter", "z")) == ["z"]


def test_uncached_objects_are_reported_but_not_held() -> None:
    cache = words()
    cache.put(A, "x")
    delta = cache.put(A, "-x")
    assert (delta.old, delta.new) == ("x", "-x")
    assert len(cache) == 0
    assert list(cache.find("letter", "x")) == []
    assert cache.put(B, "-y").old is None


def test_removing_reports_the_last_state_even_of_something_never_held() -> None:
    cache = words()
    cache.put(A, "x")
    assert cache.remove(A, "xx").old == "xx"
    assert cache.remove(B, "-y").old == "-y"
    assert cache.remove(B).old is None
    assert list(cache.find("letter", "x")) == []


def test_put_rejects_an_event_that_the_last_list_includes() -> None:
    cache = words()
    cache.listed_revision = 7
    cache.put(A, "x")
    with pytest.raises(AssertionError, match="stale event for"):
        cache.put(A, "z", revision=7)
    assert cache.get(A) == "x"
    cache.put(A, "z", revision=8)
    assert cache.get(A) == "z"
