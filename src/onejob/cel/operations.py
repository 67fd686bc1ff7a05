"""Evaluation steps of compiled expressions, apart from calls and loops.

A step takes the frame, a list: the cost spent, the cost limit, then the variables. Statically known
cost is charged at the start of a branch or a loop; only the rest is charged here.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from onejob.cel.costs import size_of, tenth
from onejob.cel.errors import CostLimitExceeded, EvaluationError
from onejob.cel.values import (
    INT_MAX,
    INT_MIN,
    NONE,
    LazyFields,
    ObjectValue,
    OptionalValue,
    compare,
    contains,
    equal,
    lookup,
    no_overload,
    type_name,
)

Frame: TypeAlias = list[Any]
Step: TypeAlias = Callable[[Frame], Any]

SPENT: Final = 0
LIMIT: Final = 1
FIRST_VARIABLE: Final = 2

_SCALARS = frozenset((bool, int, float, type(None)))


def charge(frame: Frame, cost: int) -> None:
    frame[0] += cost
    if frame[0] > frame[1]:
        raise CostLimitExceeded


def _counter(frame: Frame) -> Callable[[], None]:
    """Return a function that charges each pair compared inside containers.

    Repeated comparison of large values therefore ends at the cost limit.
    """

    def count() -> None:
        frame[0] += 1
        if frame[0] > frame[1]:
            raise CostLimitExceeded

    return count


def constant(value: Any) -> Step:
    return lambda frame: value


def variable(slot: int) -> Step:
    return lambda frame: frame[slot]


def converted(step: Step, convert: Callable[[Any], Any]) -> Step:
    return lambda frame: convert(step(frame))


def missing(key: Any) -> EvaluationError:
    shown = str(key).lower() if isinstance(key, bool) else key
    return EvaluationError(f"no such key: {shown}")


def select_path(slot: int, keys: list[str]) -> Step:
    """Return a single step for `variable.a.b`."""
    first = keys[0]
    if len(keys) == 1:

        def one(frame: Frame) -> Any:
            try:
                return frame[slot][first]
            except KeyError as error:
                raise missing(error.args[0]) from None
            except TypeError:
                return select_from(frame[slot], first)

        return one
    second = keys[1]
    if len(keys) == 2:

        def two(frame: Frame) -> Any:
            try:
                return frame[slot][first][second]
            except KeyError as error:
                raise missing(error.args[0]) from None
            except TypeError:
                return select_from(select_from(frame[slot], first), second)

        return two
    return select(select_path(slot, keys[:-1]), keys[-1])


def select(operand: Step, key: str) -> Step:
    def run(frame: Frame) -> Any:
        value = operand(frame)
        try:
            return value[key]
        except KeyError:
            raise missing(key) from None
        except TypeError:
            return select_from(value, key)

    return run


def select_from(value: Any, key: str) -> Any:
    if type(value) is dict:
        if key in value:
            return value[key]
        raise missing(key)
    if isinstance(value, OptionalValue):
        return optional_key(value, key)
    if isinstance(value, LazyFields) and key in value:
        return value[key]
    if isinstance(value, list):
        raise not_an_index(key)
    # As in cel-go, for values of all other types, too: `null.x`.
    raise missing(key)


def optional_key(value: Any, key: Any) -> OptionalValue:
    """Return the value of `value.?key` and `value[?key]`."""
    if isinstance(value, OptionalValue):
        if not value.present:
            return NONE
        value = value.content
    if type(value) is dict:
        found, content = lookup(value, key)
        return OptionalValue(True, content) if found else NONE
    if isinstance(value, list):
        index = list_index(key)
        return OptionalValue(True, value[index]) if 0 <= index < len(value) else NONE
    if isinstance(value, LazyFields):
        return OptionalValue(True, value[key]) if key in value else NONE
    return NONE


def select_optional(operand: Step, key: str) -> Step:
    return lambda frame: optional_key(operand(frame), key)


def has_field(operand: Step, key: str, null: bool) -> Step:
    """Return the step of `has(operand.key)`; `null` is whether a null field counts as present."""
    return lambda frame: has_key(operand(frame), key, null)


def variable_has_field(slot: int, key: str, null: bool) -> Step:
    def run(frame: Frame) -> bool:
        value = frame[slot]
        if type(value) is dict:
            return key in value and (null or value[key] is not None)
        return has_key(value, key, null)

    return run


def has_key(value: Any, key: str, null: bool) -> bool:
    if type(value) is dict:
        return key in value and (null or value[key] is not None)
    if isinstance(value, OptionalValue):
        return value.present and has_key(value.content, key, null)
    if isinstance(value, list):
        raise not_an_index(key)
    return isinstance(value, LazyFields) and key in value


def list_index(key: Any) -> int:
    if isinstance(key, int) and type(key) is not bool:
        return key
    if type(key) is float and key.is_integer():
        return int(key)
    raise not_an_index(key)


def not_an_index(key: Any) -> EvaluationError:
    return EvaluationError(f"unsupported index type '{type_name(key)}' in list")


def index(operand: Step, key: Step) -> Step:
    def run(frame: Frame) -> Any:
        value, at = operand(frame), key(frame)
        if isinstance(value, list):
            place = list_index(at)
            if not 0 <= place < len(value):
                raise EvaluationError(f"index out of bounds: {place}")
            return value[place]
        if type(value) is dict:
            found, content = lookup(value, at)
            if not found:
                raise missing(at)
            return content
        if isinstance(value, OptionalValue):
            return optional_key(value, at)
        raise missing(at)

    return run


def index_optional(operand: Step, key: Step) -> Step:
    return lambda frame: optional_key(operand(frame), key(frame))


def equals(left: Step, right: Step, wanted: bool) -> Step:
    def run(frame: Frame) -> bool:
        one, other = left(frame), right(frame)
        kind = type(one)
        if kind is str:
            if type(other) is not str:
                frame[0] += 1
                return not wanted
            frame[0] += tenth(min(len(one), len(other)))
            return (one == other) is wanted
        if kind in _SCALARS:
            frame[0] += 1
            return equal(one, other) is wanted
        charge(frame, tenth(min(size_of(one), size_of(other))))
        return equal(one, other, _counter(frame)) is wanted

    return run


def equals_text(operand: Step, text: str, wanted: bool) -> Step:
    """Return a step that compares with a constant string, the most common comparison."""

    def run(frame: Frame) -> bool:
        value = operand(frame)
        return (type(value) is str and value == text) is wanted

    return run


_ACCEPTED = {"_<_": (-1,), "_<=_": (-1, 0), "_>_": (1,), "_>=_": (0, 1)}


def order(name: str, left: Step, right: Step) -> Step:
    accepted = _ACCEPTED[name]

    def run(frame: Frame) -> bool:
        one, other = left(frame), right(frame)
        if type(one) is int and type(other) is int:
            frame[0] += 1
            return (-1 if one < other else int(one > other)) in accepted
        if isinstance(one, (str, bytes)) and isinstance(other, (str, bytes)):
            charge(frame, tenth(min(len(one), len(other))))
        else:
            frame[0] += 1
        return compare(one, other) in accepted

    return run


def add(left: Step, right: Step, general: Callable[[Any, Any], Any]) -> Step:
    def run(frame: Frame) -> Any:
        one, other = left(frame), right(frame)
        kind = type(one)
        if kind is int and type(other) is int:
            frame[0] += 1
            total = one + other
            if INT_MIN <= total <= INT_MAX:
                return total
            raise EvaluationError("integer overflow")
        if kind in (str, bytes) and type(other) is kind:
            charge(frame, tenth(len(one) + len(other)))
            return one + other
        if isinstance(one, list) and isinstance(other, list):
            # Upstream concatenates lists without copying them, at a cost of one.
            charge(frame, 1 + (len(one) + len(other)) // 10)
            return general(one, other)
        frame[0] += 1
        return general(one, other)

    return run


def is_in(wanted: Step, among: Step) -> Step:
    def run(frame: Frame) -> bool:
        value, values = wanted(frame), among(frame)
        if isinstance(values, list):
            charge(frame, len(values))
            return contains(values, value, _counter(frame))
        if type(values) is dict:
            frame[0] += 1
            return lookup(values, value)[0]
        raise no_overload()

    return run


def is_in_texts(wanted: Step, texts: frozenset[str]) -> Step:
    def run(frame: Frame) -> bool:
        value = wanted(frame)
        return bool(type(value) is str and value in texts)

    return run


def invert(operand: Step) -> Step:
    def run(frame: Frame) -> bool:
        value = operand(frame)
        if value is True:
            return False
        if value is False:
            return True
        raise no_overload()

    return run


def logical(terms: list[Step], costs: list[int], decisive: bool) -> Step:
    """Return the step of `&&` (False decides) or `||` (True decides).

    An error is raised only if no term decides.
    """
    other = not decisive
    pairs = list(zip(terms, costs, strict=True))

    def run(frame: Frame) -> bool:
        failure: EvaluationError | None = None
        for term, cost in pairs:
            frame[0] += cost
            try:
                value = term(frame)
            except EvaluationError as error:
                failure = failure or error
                continue
            if value is decisive:
                return not other
            if value is not other:
                failure = failure or no_overload()
        if failure is not None:
            raise failure
        return other

    return run


def conditional(
    condition: Step, then: Step, then_cost: int, otherwise: Step, otherwise_cost: int
) -> Step:
    def run(frame: Frame) -> Any:
        value = condition(frame)
        if value is True:
            frame[0] += then_cost
            return then(frame)
        if value is False:
            frame[0] += otherwise_cost
            return otherwise(frame)
        raise no_overload()

    return run


def or_else(optional: Step, other: Step, cost: int, unwrap: bool) -> Step:
    """Return the step of `optional.or(other)` or, with `unwrap`, `optional.orValue(other)`."""

    def run(frame: Frame) -> Any:
        value = optional(frame)
        if not isinstance(value, OptionalValue):
            raise no_overload()
        if value.present:
            return value.content if unwrap else value
        frame[0] += cost
        return other(frame)

    return run


def make_list(steps: list[tuple[Step, bool]]) -> Step:
    plain = [step for step, optional in steps if not optional]
    if len(plain) == len(steps):
        return lambda frame: [step(frame) for step in plain]

    def run(frame: Frame) -> list[Any]:
        result = []
        for step, optional in steps:
            value = step(frame)
            if not optional:
                result.append(value)
            elif not isinstance(value, OptionalValue):
                raise no_overload()
            elif value.present:
                result.append(value.content)
        return result

    return run


_KEYS = frozenset((str, bool, int))


def make_map(entries: list[tuple[Step, Step, bool]]) -> Step:
    def run(frame: Frame) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key_step, step, optional in entries:
            key, value = key_step(frame), step(frame)
            if optional:
                if not isinstance(value, OptionalValue):
                    raise no_overload()
                if not value.present:
                    continue
                value = value.content
            insert(result, key, value)
        return result

    return run


def make_object(type_name: str, fields: list[tuple[str, Step, bool]]) -> Step:
    def run(frame: Frame) -> ObjectValue:
        result: dict[str, Any] = {}
        for name, step, optional in fields:
            value = step(frame)
            if not optional:
                result[name] = value
            elif not isinstance(value, OptionalValue):
                raise no_overload()
            elif value.present:
                result[name] = value.content
        return ObjectValue(type_name, result)

    return run


def insert(result: dict[Any, Any], key: Any, value: Any) -> None:
    if type(key) not in _KEYS and not isinstance(key, int):
        raise EvaluationError(f"unsupported key type: {type(key).__name__}")
    if key in result:
        raise EvaluationError(f"Failed with repeated key: {key}")
    result[key] = value
