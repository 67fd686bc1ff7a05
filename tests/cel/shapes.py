"""Test values for a rule, made from the fields and constants that the rule names."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from onejob.cel.ast import (
    Call,
    Comprehension,
    Has,
    Identifier,
    Index,
    ListLiteral,
    Literal,
    Node,
    Select,
    children,
)
from onejob.cel.parser import parse

_WORDS = ["", "a", "b", "node", "Never", "9x", "a" * 64, "s3://data", "resourcesDuration.x", "é"]
_WILD: list[Any] = [None, True, False, 0, -1, 3, 1.5, "x", [], {}, ["a"], {"a": 1}]


@dataclass(eq=False)
class Shape:
    fields: dict[str, "Shape"] = field(default_factory=dict)
    element: "Shape | None" = None
    constants: list[Any] = field(default_factory=list)
    sized: bool = False

    def field_named(self, name: str) -> "Shape":
        return self.fields.setdefault(name, Shape())

    def elements(self) -> "Shape":
        if self.element is None:
            self.element = Shape()
        return self.element


def shape_of(rule: str) -> Shape:
    root = Shape()
    _visit(parse(rule), {"self": root, "oldSelf": root})
    return root


def _visit(node: Node, scope: dict[str, Shape]) -> Shape | None:
    match node:
        case Identifier():
            return scope.get(node.name)
        case Select() | Has():
            operand = _visit(node.operand, scope)
            return operand.field_named(node.field_name) if operand else None
        case Index():
            _visit(node.key, scope)
            operand = _visit(node.operand, scope)
            return operand.elements() if operand else None
        case Comprehension():
            values = _visit(node.range, scope)
            inner = {**scope, node.first: values.elements() if values else Shape()}
            _visit(node.body, inner)
            return values if node.kind == "filter" else None
        case Call():
            _visit_call(node, scope)
            return None
        case _:
            for child in children(node):
                _visit(child, scope)
            return None


def _visit_call(node: Call, scope: dict[str, Shape]) -> None:
    parts = children(node)
    shapes = [_visit(part, scope) for part in parts]
    for shape in shapes:
        if shape is None:
            continue
        shape.sized = shape.sized or node.function == "size"
        for part in parts:
            if isinstance(part, Literal):
                shape.constants.append(part.value)
            elif isinstance(part, ListLiteral):
                shape.constants += [
                    each.value for each, _ in part.elements if isinstance(each, Literal)
                ]


def values_of(rule: str, count: int, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Yield the variables of a rule, `count` times; the same ones for equal seeds."""
    shape = shape_of(rule)
    source = random.Random(f"{seed} {rule}")
    for _ in range(count):
        value = _value(shape, source)
        # Half of the updates change nothing.
        old = value if source.random() < 0.5 else _value(shape, source)
        yield {"self": value, "oldSelf": old}


def _value(shape: Shape, source: random.Random) -> Any:
    if source.random() < 0.02:
        return source.choice(_WILD)
    if shape.fields:
        return {
            name: _value(inner, source)
            for name, inner in shape.fields.items()
            if source.random() < 0.7
        }
    if shape.element is not None:
        return [_value(shape.element, source) for _ in range(source.randrange(4))]
    if shape.constants and source.random() < 0.6:
        return source.choice(shape.constants)
    if any(type(each) is int for each in shape.constants):
        return source.choice([each for each in shape.constants if type(each) is int]) + (
            source.randrange(-1, 2)
        )
    if shape.sized:
        return [source.choice(_WORDS) for _ in range(source.randrange(4))]
    return source.choice([*_WORDS, 0, 1, 2, True, False])
