"""Evaluation steps of macros that iterate over a list or a map."""

from collections.abc import Iterable
from typing import Any

from onejob.cel.errors import CostLimitExceeded, EvaluationError
from onejob.cel.library.lists import sort_by_keys
from onejob.cel.operations import Frame, Step, insert
from onejob.cel.values import NONE, OptionalValue, no_overload


class Loop:
    """A range and its iteration variables; `turn` is the cost charged per element."""

    def __init__(self, values: Step, first: int, second: int | None, turn: int) -> None:
        self._values = values
        self._first = first
        self._second = second
        self._turn = turn

    def over(self, frame: Frame) -> Iterable[Any]:
        """Bind the variables to each element in turn.

        Yields the value that a single variable would have.
        """
        values = self._values(frame)
        if type(values) is not dict and not isinstance(values, list):
            raise no_overload()
        first, second, turn = self._first, self._second, self._turn
        if second is None:
            for value in values:
                frame[0] += turn
                if frame[0] > frame[1]:
                    raise CostLimitExceeded
                frame[first] = value
                yield value
            return
        pairs = values.items() if type(values) is dict else enumerate(values)
        for key, value in pairs:
            frame[0] += turn
            if frame[0] > frame[1]:
                raise CostLimitExceeded
            frame[first] = key
            frame[second] = value
            yield key


def quantified(loop: Loop, body: Step, decisive: bool, stop: int) -> Step:
    """Return the step of `all` (False decides) or `exists` (True decides).

    Errors are absorbed as in `&&` and `||`. `stop` is upstream's cost of detecting that the
    remaining elements need no evaluation.
    """
    other = not decisive

    def run(frame: Frame) -> bool:
        failure: EvaluationError | None = None
        for _ in loop.over(frame):
            try:
                value = body(frame)
            except EvaluationError as error:
                failure = failure or error
                continue
            if value is decisive:
                frame[0] += stop
                return not other
            if value is not other:
                failure = failure or no_overload()
        if failure is not None:
            raise failure
        return other

    return run


def _truth(value: Any) -> bool:
    if type(value) is bool:
        return value
    raise no_overload()


def exists_one(loop: Loop, body: Step, hit: int) -> Step:
    def run(frame: Frame) -> bool:
        found = 0
        for _ in loop.over(frame):
            if _truth(body(frame)):
                frame[0] += hit
                found += 1
        return found == 1

    return run


def filtered(loop: Loop, condition: Step, hit: int) -> Step:
    def run(frame: Frame) -> list[Any]:
        result = []
        for value in loop.over(frame):
            if _truth(condition(frame)):
                frame[0] += hit
                result.append(value)
        return result

    return run


def mapped(loop: Loop, condition: Step | None, body: Step, hit: int) -> Step:
    def run(frame: Frame) -> list[Any]:
        result = []
        for _ in loop.over(frame):
            if condition is None or _truth(condition(frame)):
                frame[0] += hit
                result.append(body(frame))
        return result

    return run


def map_transformed(
    loop: Loop, condition: Step | None, body: Step, hit: int, entries: bool
) -> Step:
    """Return the step of `transformMap`, or of `transformMapEntry`, whose body returns a map."""

    def run(frame: Frame) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key in loop.over(frame):
            if condition is not None and not _truth(condition(frame)):
                continue
            frame[0] += hit
            value = body(frame)
            if not entries:
                insert(result, key, value)
                continue
            if type(value) is not dict:
                raise no_overload()
            for each, content in value.items():
                insert(result, each, content)
        return result

    return run


def sorted_by(loop: Loop, body: Step) -> Step:
    def run(frame: Frame) -> list[Any]:
        values, keys = [], []
        for value in loop.over(frame):
            values.append(value)
            keys.append(body(frame))
        return sort_by_keys(values, keys)

    return run


def optional_mapped(target: Step, slot: int, body: Step, cost: int, flat: bool) -> Step:
    def run(frame: Frame) -> OptionalValue:
        optional = target(frame)
        if not isinstance(optional, OptionalValue):
            raise no_overload()
        if not optional.present:
            return NONE
        frame[0] += cost
        frame[slot] = optional.content
        value = body(frame)
        if not flat:
            return OptionalValue(True, value)
        if not isinstance(value, OptionalValue):
            raise no_overload()
        return value

    return run
