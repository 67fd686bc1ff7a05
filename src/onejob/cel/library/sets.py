"""Set operations on lists."""

from typing import Any

from onejob.cel.functions import Cost, Library
from onejob.cel.values import bounded_count, contains

LIBRARY = Library()


@LIBRARY.add("sets.contains(list<T>, list<T>) -> bool", cost=Cost.MEMBERS)
def sets_contains(whole: list[Any], part: list[Any]) -> bool:
    count = bounded_count()
    return all(contains(whole, each, count) for each in part)


@LIBRARY.add("sets.equivalent(list<T>, list<T>) -> bool", cost=Cost.MEMBERS)
def sets_equivalent(left: list[Any], right: list[Any]) -> bool:
    return sets_contains(left, right) and sets_contains(right, left)


@LIBRARY.add("sets.intersects(list<T>, list<T>) -> bool", cost=Cost.MEMBERS)
def sets_intersects(left: list[Any], right: list[Any]) -> bool:
    count = bounded_count()
    return any(contains(right, each, count) for each in left)
