"""Static cost estimation: worst-case cost of an expression by the sizes that the schema allows."""

from collections.abc import Callable, Mapping
from math import ceil
from typing import Final, NamedTuple

from onejob.cel.ast import (
    And,
    Call,
    Comprehension,
    Conditional,
    Has,
    Identifier,
    Index,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    ObjectLiteral,
    OptionalMap,
    Or,
    Select,
)
from onejob.cel.costs import (
    AUTHORIZATION_CHECK,
    LIST_BASE,
    MAP_BASE,
    OBJECT_BASE,
    regex_cost,
    size_of,
    tenth,
)
from onejob.cel.functions import Cost, FunctionKey
from onejob.cel.library import FUNCTIONS
from onejob.cel.types import Type

#: Upstream's maximum (uint64).
UNBOUNDED: Final = (1 << 64) - 1

_SIZED = frozenset(("string", "bytes", "list", "map", "dyn", "param"))
_FORMAT_PATTERN: Final = 128


class Estimate(NamedTuple):
    cost: int
    size: int


def estimate_cost(root: Node, variables: Mapping[str, Type]) -> int:
    return min(_Estimator(variables).visit(root).cost, UNBOUNDED)


class _Estimator:
    def __init__(self, variables: Mapping[str, Type]) -> None:
        #: Maximum size of each variable's value, if its type does not determine it.
        self._sizes: dict[str, int] = {}
        self._variables = variables

    def visit(self, node: Node) -> Estimate:
        cost, size = self._estimate(node)
        return Estimate(min(cost, UNBOUNDED), min(size, UNBOUNDED))

    def _estimate(self, node: Node) -> Estimate:
        match node:
            case Literal():
                return Estimate(0, size_of(node.value))
            case Identifier():
                return Estimate(1, self._sizes.get(node.name, _declared_size(node.type)))
            case Select():
                return Estimate(self.visit(node.operand).cost + 1, _declared_size(node.type))
            case Has():
                return Estimate(self.visit(node.operand).cost, 1)
            case Index():
                cost = self.visit(node.operand).cost + self.visit(node.key).cost + 1
                return Estimate(cost, _declared_size(node.type))
            case Call():
                return self._call(node)
            case And() | Or():
                return Estimate(sum(self.visit(term).cost for term in node.terms), 1)
            case Conditional():
                then, otherwise = self.visit(node.then), self.visit(node.otherwise)
                cost = self.visit(node.condition).cost + max(then.cost, otherwise.cost)
                return Estimate(cost, max(then.size, otherwise.size))
            case ListLiteral():
                parts = [self.visit(element).cost for element, _ in node.elements]
                return Estimate(LIST_BASE + sum(parts), len(parts))
            case MapLiteral():
                costs = [
                    self.visit(key).cost + self.visit(value).cost for key, value, _ in node.entries
                ]
                return Estimate(MAP_BASE + sum(costs), len(costs))
            case ObjectLiteral():
                costs = [self.visit(entry.value).cost for entry in node.entries]
                return Estimate(OBJECT_BASE + sum(costs), 1)
            case Comprehension():
                return self._comprehension(node)
            case OptionalMap():
                return self._optional_map(node)

    def _comprehension(self, node: Comprehension) -> Estimate:
        values = self.visit(node.range)
        test = 0
        if node.condition is not None and node.condition is not node.body:
            test = self.visit(node.condition).cost
        body = self.visit(node.body).cost
        per_turn = _PER_TURN.get(node.kind, 2 + LIST_BASE) + test + body
        start = MAP_BASE if node.kind.startswith("transformMap") else LIST_BASE
        if node.kind in ("all", "exists", "existsOne"):
            start = 1 if node.kind == "existsOne" else 0
        return Estimate(values.cost + start + 1 + values.size * per_turn, values.size)

    def _optional_map(self, node: OptionalMap) -> Estimate:
        body = self.visit(node.body)
        return Estimate(self.visit(node.target).cost + 2 + body.cost, body.size)

    def _call(self, node: Call) -> Estimate:
        arguments = [*([node.target] if node.target else []), *node.arguments]
        parts = [self.visit(argument) for argument in arguments]
        known = sum(part.cost for part in parts)
        sizes = [part.size for part in parts]
        operator = _OPERATORS.get(node.function)
        if operator is not None:
            own, size = operator(sizes, arguments[-1].type)
            return Estimate(known + own, size)
        overloads = FUNCTIONS[FunctionKey(node.function, node.target is not None)]
        first = arguments[0].type.kind if arguments else ""
        costs = {
            each.cost
            for each in overloads
            if len(each.parameters) == len(arguments)
            and (first in _OPEN or not arguments or each.parameters[0].kind in (first, *_OPEN))
        }
        element = _element_size(arguments[0].type) if arguments else 1
        own = max((_call_cost(cost, sizes, element) for cost in costs), default=1)
        return Estimate(known + own, _result_size(node, sizes))


#: Cost per iteration of the macros as upstream expands them, without the rule's own parts.
_PER_TURN = {"all": 3, "exists": 4, "existsOne": 2, "filter": 3 + LIST_BASE}


def _declared_size(declared: Type) -> int:
    if declared.kind == "optional":
        return _declared_size(declared.parameters[0])
    if declared.max_size is not None:
        return declared.max_size
    # Upstream assigns no size to numbers, booleans and objects.
    return UNBOUNDED if declared.kind in _SIZED else 0


def _compared(sizes: list[int], declared: Type) -> tuple[int, int]:
    return tenth(min(sizes)), 1


def _ordered(sizes: list[int], declared: Type) -> tuple[int, int]:
    return (tenth(min(sizes)) if declared.kind in ("string", "bytes") else 1), 1


def _added(sizes: list[int], declared: Type) -> tuple[int, int]:
    together = sum(sizes)
    if declared.kind in ("string", "bytes", "dyn"):
        return tenth(together), together
    return 1, together


def _unit(sizes: list[int], declared: Type) -> tuple[int, int]:
    return 1, 1


_OPERATORS: Mapping[str, Callable[[list[int], Type], tuple[int, int]]] = {
    **dict.fromkeys(("_==_", "_!=_"), _compared),
    **dict.fromkeys(("_<_", "_<=_", "_>_", "_>=_"), _ordered),
    **dict.fromkeys(("!_", "-_", "_-_", "_*_", "_/_", "_%_", "size"), _unit),
    "_+_": _added,
    "@in": lambda sizes, declared: (1 if declared.kind == "map" else max(sizes[1], 1), 1),
}


_OPEN = ("dyn", "param", "error")


def _element_size(declared: Type) -> int:
    """Return the element size of a list of strings or bytes; 1 for other types."""
    if declared.kind == "list" and declared.parameters[0].kind in ("string", "bytes"):
        return _declared_size(declared.parameters[0])
    return 1


def _call_cost(cost: Cost, sizes: list[int], element: int) -> int:
    match cost:
        case Cost.TRAVERSE:
            return tenth(sizes[0])
        case Cost.TRAVERSE_TWICE:
            return ceil(sizes[0] / 5)
        case Cost.SECOND:
            return tenth(sizes[1])
        case Cost.PRODUCT:
            return tenth(sizes[0]) * tenth(sizes[1])
        case Cost.REGEX:
            return regex_cost(sizes[0], sizes[1])
        case Cost.FORMAT:
            return regex_cost(sizes[1], _FORMAT_PATTERN)
        case Cost.LIST:
            return sizes[0] * (1 + tenth(element)) if element > 1 else sizes[0]
        case Cost.RESULT:
            return tenth(sizes[0] * (element + (sizes[1] if len(sizes) > 1 else 0)))
        case Cost.OUTPUT:
            return sizes[0] + LIST_BASE + 1
        case Cost.SQUARE:
            return sizes[0] ** 2 + 1
        case Cost.MEMBERS:
            return sizes[0] * sizes[1] + 1
        case Cost.AUTHORIZE:
            return AUTHORIZATION_CHECK
        case Cost.UNIT:
            return 1


def _result_size(node: Call, sizes: list[int]) -> int:
    """Return the maximum result size.

    A function returns at most the size of its largest argument; replace, join and format are the
    exceptions.
    """
    if node.type.kind not in _SIZED:
        return 1
    if node.function == "replace":
        return (sizes[0] + 1) * max(sizes[2], 1) + sizes[0]
    if node.function == "join":
        separator = sizes[1] if len(sizes) > 1 else 0
        element = _element_size(node.target.type) if node.target else 1
        return sizes[0] * (element + separator)
    if node.function == "format":
        return UNBOUNDED
    return max(sizes, default=UNBOUNDED)
