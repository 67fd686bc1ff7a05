"""Compiler: turns a checked tree into closures, with the statically known part of their costs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from onejob.cel import loops, operations
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
    qualified_name,
)
from onejob.cel.check import TYPE_NAMES, find_field
from onejob.cel.convert import converter, is_scalar
from onejob.cel.costs import COST_OF_CALL, LIST_BASE, MAP_BASE, OBJECT_BASE, tenth
from onejob.cel.functions import Cost, FunctionKey, Overload
from onejob.cel.library import FUNCTIONS
from onejob.cel.library.operators import add
from onejob.cel.operations import FIRST_VARIABLE, Frame, Step, charge
from onejob.cel.types import Type
from onejob.cel.values import Duration, OptionalValue, Timestamp, TypeValue, UInt, no_overload


class Compiled(NamedTuple):
    step: Step
    cost: int


class Code(NamedTuple):
    step: Step
    cost: int
    #: Required length of a frame.
    frame_size: int


def compile_tree(root: Node, variables: Sequence[str]) -> Code:
    compiler = _Compiler(variables)
    step, cost = compiler.value(root)
    return Code(step, cost, compiler.frame_size)


class _Compiler:
    def __init__(self, variables: Sequence[str]) -> None:
        self._slots = {name: FIRST_VARIABLE + index for index, name in enumerate(variables)}
        self.frame_size = FIRST_VARIABLE + len(variables)

    def value(self, node: Node) -> Compiled:
        """Compile a node to a step that returns fully converted values."""
        step, cost = self._raw(node)
        if isinstance(node, (Identifier, Select, Index, Comprehension)):
            convert = converter(node.type)
            if convert is not None and not is_scalar(node.type):
                return Compiled(operations.converted(step, convert), cost)
        return Compiled(step, cost)

    def _raw(self, node: Node) -> Compiled:
        """Compile a node to a step that may return objects, lists and maps as plain JSON.

        For steps that only look inside the value.
        """
        compiled = self._compile(node)
        if isinstance(node, (Identifier, Select, Index)) and is_scalar(node.type):
            convert = converter(node.type)
            if convert is not None:
                return Compiled(operations.converted(compiled.step, convert), compiled.cost)
        return compiled

    def _compile(self, node: Node) -> Compiled:
        match node:
            case Literal():
                return Compiled(operations.constant(node.value), 0)
            case Identifier():
                return self._identifier(node)
            case Select():
                return self._select(node)
            case Has():
                return self._has(node)
            case Index():
                return self._index(node)
            case Call():
                return self._call(node)
            case And():
                return self._logical(node.terms, decisive=False)
            case Or():
                return self._logical(node.terms, decisive=True)
            case Conditional():
                return self._conditional(node)
            case ListLiteral():
                return self._list(node)
            case MapLiteral():
                return self._map(node)
            case ObjectLiteral():
                return self._object(node)
            case Comprehension():
                return self._comprehension(node)
            case OptionalMap():
                return self._optional_map(node)

    # Names and members.

    def _identifier(self, node: Identifier) -> Compiled:
        slot = self._slots.get(node.name)
        if slot is None:
            return Compiled(operations.constant(TypeValue(TYPE_NAMES[node.name])), 0)
        return Compiled(operations.variable(slot), 1)

    def _select(self, node: Select) -> Compiled:
        name = qualified_name(node)
        if name is not None and name in self._slots:
            return Compiled(operations.variable(self._slots[name]), 1)
        if name in TYPE_NAMES and name is not None and name.partition(".")[0] not in self._slots:
            return Compiled(operations.constant(TypeValue(name)), 0)
        key = _property_name(node)
        if node.optional:
            operand = self._raw(node.operand)
            return Compiled(operations.select_optional(operand.step, key), operand.cost + 1)
        keys = [key]
        inner = node.operand
        while isinstance(inner, Select) and not inner.optional and inner.type.kind != "optional":
            keys.insert(0, _property_name(inner))
            inner = inner.operand
        if isinstance(inner, Identifier) and inner.name in self._slots:
            path = operations.select_path(self._slots[inner.name], keys)
            return Compiled(path, 1 + len(keys))
        operand = self._raw(node.operand)
        return Compiled(operations.select(operand.step, key), operand.cost + 1)

    def _has(self, node: Has) -> Compiled:
        key = _property_name(node)
        operand = self._raw(node.operand)
        # The test itself is free.
        cost = operand.cost
        # In an object, null means that the field is absent; in a map it is a value.
        null = not _is_object(node.operand.type)
        if isinstance(node.operand, Identifier) and node.operand.name in self._slots:
            slot = self._slots[node.operand.name]
            return Compiled(operations.variable_has_field(slot, key, null), cost)
        return Compiled(operations.has_field(operand.step, key, null), cost)

    def _index(self, node: Index) -> Compiled:
        operand, key = self._raw(node.operand), self.value(node.key)
        make = operations.index_optional if node.optional else operations.index
        return Compiled(make(operand.step, key.step), operand.cost + key.cost + 1)

    # Operators and functions.

    def _logical(self, terms: list[Node], decisive: bool) -> Compiled:
        compiled = [self.value(term) for term in terms]
        costs = [0, *(each.cost for each in compiled[1:])]
        step = operations.logical([each.step for each in compiled], costs, decisive)
        return Compiled(step, compiled[0].cost)

    def _conditional(self, node: Conditional) -> Compiled:
        condition = self.value(node.condition)
        then, otherwise = self.value(node.then), self.value(node.otherwise)
        step = operations.conditional(
            condition.step, then.step, then.cost, otherwise.step, otherwise.cost
        )
        return Compiled(step, condition.cost)

    def _call(self, node: Call) -> Compiled:
        operator = self._operator(node)
        if operator is not None:
            return operator
        if node.target is not None and node.function in ("or", "orValue"):
            optional, other = self.value(node.target), self.value(node.arguments[0])
            unwrap = node.function == "orValue"
            step = operations.or_else(optional.step, other.step, other.cost, unwrap)
            return Compiled(step, optional.cost)
        if node.function == "size":
            operand = node.target or node.arguments[0]
            inner = self._raw(operand)
            return Compiled(_size(inner.step), inner.cost + 1)
        arguments = [*([node.target] if node.target else []), *node.arguments]
        compiled = [self.value(argument) for argument in arguments]
        key = FunctionKey(node.function, node.target is not None)
        if node.function == "sum" and node.type.kind in _ZEROS:
            compiled[0] = Compiled(_or_zero(compiled[0].step, node.type.kind), compiled[0].cost)
        overloads = [each for each in FUNCTIONS[key] if len(each.parameters) == len(arguments)]
        known = sum(each.cost for each in compiled)
        fixed = {each.cost for each in overloads} == {Cost.UNIT}
        step = _invoke(overloads, [each.step for each in compiled], fixed)
        return Compiled(step, known + (1 if fixed else 0))

    def _operator(self, node: Call) -> Compiled | None:
        name = node.function
        if name == "!_":
            operand = self.value(node.arguments[0])
            return Compiled(operations.invert(operand.step), operand.cost + 1)
        if name not in _BINARY:
            return None
        left, right = node.arguments
        if name in ("_==_", "_!=_"):
            return self._equals(left, right, name == "_==_")
        if name == "@in":
            return self._in(left, right)
        one, other = self.value(left), self.value(right)
        if name == "_+_":
            step = operations.add(one.step, other.step, _dispatched(name))
        else:
            step = operations.order(name, one.step, other.step)
        return Compiled(step, one.cost + other.cost)

    def _equals(self, left: Node, right: Node, wanted: bool) -> Compiled:
        for text, operand in ((right, left), (left, right)):
            if isinstance(text, Literal) and type(text.value) is str:
                inner = self.value(operand)
                step = operations.equals_text(inner.step, text.value, wanted)
                return Compiled(step, inner.cost + tenth(len(text.value)))
        one, other = self.value(left), self.value(right)
        return Compiled(operations.equals(one.step, other.step, wanted), one.cost + other.cost)

    def _in(self, left: Node, right: Node) -> Compiled:
        wanted = self.value(left)
        texts = _constant_list(right)
        if texts and all(type(each) is str for each in texts):
            step = operations.is_in_texts(wanted.step, frozenset(texts))
            # Free upstream, too.
            return Compiled(step, wanted.cost)
        among = self.value(right)
        return Compiled(operations.is_in(wanted.step, among.step), wanted.cost + among.cost)

    # Literals.

    def _list(self, node: ListLiteral) -> Compiled:
        values = _constant_list(node)
        if values is not None:
            return Compiled(operations.constant(values), 0)
        compiled = [(self.value(element), optional) for element, optional in node.elements]
        step = operations.make_list([(each.step, optional) for each, optional in compiled])
        return Compiled(step, LIST_BASE + sum(each.cost for each, _ in compiled))

    def _map(self, node: MapLiteral) -> Compiled:
        compiled = [
            (self.value(key), self.value(value), optional) for key, value, optional in node.entries
        ]
        step = operations.make_map([(key.step, value.step, o) for key, value, o in compiled])
        return Compiled(step, MAP_BASE + sum(key.cost + value.cost for key, value, _ in compiled))

    def _object(self, node: ObjectLiteral) -> Compiled:
        compiled = [(entry, self.value(entry.value)) for entry in node.entries]
        fields = [(entry.name, each.step, entry.optional) for entry, each in compiled]
        step = operations.make_object(node.type_name, fields)
        return Compiled(step, OBJECT_BASE + sum(each.cost for _, each in compiled))

    # Macros.

    def _bind(self, name: str) -> int:
        slot = self.frame_size
        self.frame_size += 1
        self._slots[name] = slot
        return slot

    def _comprehension(self, node: Comprehension) -> Compiled:
        values = self._raw(node.range)
        outer = dict(self._slots)
        first = self._bind(node.first)
        second = self._bind(node.second) if node.second is not None else None
        condition = self.value(node.condition) if node.condition is not None else None
        body = condition if node.condition is node.body else self.value(node.body)
        self._slots = outer
        assert body is not None
        base, make = _loop_of(node.kind, condition, body)
        loop = loops.Loop(values.step, first, second, base)
        return Compiled(make(loop), values.cost + 1)

    def _optional_map(self, node: OptionalMap) -> Compiled:
        target = self.value(node.target)
        outer = dict(self._slots)
        slot = self._bind(node.variable)
        body = self.value(node.body)
        self._slots = outer
        step = loops.optional_mapped(target.step, slot, body.step, body.cost, node.flat)
        return Compiled(step, target.cost + 1)


_ZEROS = {"uint": UInt(0), "double": 0.0, "duration": Duration(0)}


def _or_zero(values: Step, kind: str) -> Step:
    """Return a step with a zero for an empty list.

    The sum of no elements is a zero of the elements' type, which is known only statically.
    """
    zero = [_ZEROS[kind]]
    return lambda frame: values(frame) or zero


_BINARY = frozenset(("_==_", "_!=_", "@in", "_+_", "_<_", "_<=_", "_>_", "_>=_"))


def _loop_of(
    kind: str, condition: Compiled | None, body: Compiled
) -> tuple[int, Callable[[loops.Loop], Step]]:
    """Return the cost per iteration and the step factory of a macro.

    The cost is counted as upstream expands the macro.
    """
    test = condition.cost if condition is not None else 0
    test_step = condition.step if condition is not None else None
    match kind:
        case "all":
            return 3 + body.cost, lambda loop: loops.quantified(loop, body.step, False, 2)
        case "exists":
            return 4 + body.cost, lambda loop: loops.quantified(loop, body.step, True, 3)
        case "existsOne":
            return 1 + body.cost, lambda loop: loops.exists_one(loop, body.step, 1)
        case "filter":
            return 1 + body.cost, lambda loop: loops.filtered(loop, body.step, LIST_BASE + 2)
        case "transformMap" | "transformMapEntry":
            entries = kind == "transformMapEntry"
            hit = body.cost + 2
            return 1 + test, lambda loop: loops.map_transformed(
                loop, test_step, body.step, hit, entries
            )
        case "sortBy":
            return 2 + LIST_BASE + body.cost, lambda loop: loops.sorted_by(loop, body.step)
        case _:
            hit = body.cost + LIST_BASE + 1
            return 1 + test, lambda loop: loops.mapped(loop, test_step, body.step, hit)


def _is_object(declared: Type) -> bool:
    if declared.kind == "optional":
        declared = declared.parameters[0]
    return declared.kind == "object"


def _property_name(node: Select | Has) -> str:
    """Return the key in JSON: unescaped, if the operand's type is an object."""
    declared = node.operand.type
    if declared.kind == "optional":
        declared = declared.parameters[0]
    if declared.kind == "object":
        key = find_field(declared, node.field_name)
        if key is not None:
            return declared.fields[key].property_name
    return node.field_name


def _constant_list(node: Node) -> list[Any] | None:
    if not isinstance(node, ListLiteral):
        return None
    values = []
    for element, optional in node.elements:
        if optional or not isinstance(element, Literal):
            return None
        values.append(element.value)
    return values


def _size(operand: Step) -> Step:
    def run(frame: Frame) -> int:
        value = operand(frame)
        if isinstance(value, (list, dict, str, bytes)):
            return len(value)
        raise no_overload()

    return run


# Calls: the overload is selected by the runtime types of the arguments.

_KINDS: Mapping[str, type] = {
    "bool": bool,
    "int": int,
    "uint": UInt,
    "double": float,
    "string": str,
    "bytes": bytes,
    "null": type(None),
    "list": list,
    "map": dict,
    "timestamp": Timestamp,
    "duration": Duration,
    "optional": OptionalValue,
    "type": TypeValue,
}


def _accepts(overload: Overload, kinds: tuple[type, ...]) -> bool:
    for parameter, kind in zip(overload.parameters, kinds, strict=True):
        if parameter.kind in ("dyn", "param"):
            continue
        if parameter.kind == "opaque":
            if getattr(kind, "type_name", "") != parameter.name:
                return False
        elif kind is not _KINDS[parameter.kind] and not (
            parameter.kind == "list" and issubclass(kind, list)
        ):
            return False
    return True


def _choose(overloads: Sequence[Overload], kinds: tuple[type, ...]) -> Overload:
    for overload in overloads:
        if _accepts(overload, kinds):
            return overload
    raise no_overload()


def _dispatched(name: str) -> Callable[[Any, Any], Any]:
    overloads = FUNCTIONS[FunctionKey(name, False)]

    def call(left: Any, right: Any) -> Any:
        _choose(overloads, (type(left), type(right)))
        return add(left, right)

    return call


def _invoke(overloads: Sequence[Overload], steps: list[Step], fixed: bool) -> Step:
    chosen: dict[tuple[type, ...], Overload] = {}

    def run(frame: Frame) -> Any:
        arguments = tuple([step(frame) for step in steps])
        kinds = tuple([type(argument) for argument in arguments])
        overload = chosen.get(kinds)
        if overload is None:
            overload = chosen[kinds] = _choose(overloads, kinds)
        result = overload.implementation(*arguments)
        if not fixed:
            cost = COST_OF_CALL.get(overload.cost)
            charge(frame, 1 if cost is None else cost(arguments, result))
        return result

    return run
