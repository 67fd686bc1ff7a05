"""Abstract syntax tree. The checker sets the static type of each node in `type`."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from onejob.cel.types import DYN, Type


@dataclass(slots=True, eq=False)
class _Node:
    #: Source offset of the character that errors point at.
    position: int
    type: Type = field(default=DYN, init=False)


@dataclass(slots=True, eq=False)
class Literal(_Node):
    value: Any


@dataclass(slots=True, eq=False)
class Identifier(_Node):
    name: str


@dataclass(slots=True, eq=False)
class Select(_Node):
    operand: "Node"
    field_name: str
    optional: bool = False


@dataclass(slots=True, eq=False)
class Has(_Node):
    """`has(operand.field_name)`."""

    operand: "Node"
    field_name: str
    optional: bool = False


@dataclass(slots=True, eq=False)
class Index(_Node):
    operand: "Node"
    key: "Node"
    optional: bool = False


@dataclass(slots=True, eq=False)
class Call(_Node):
    """Call of a function, a method (with a target) or an operator like `_+_`."""

    function: str
    target: "Node | None"
    arguments: list["Node"]


@dataclass(slots=True, eq=False)
class And(_Node):
    terms: list["Node"]
    #: Source offset of each operator; one fewer than terms.
    operators: list[int]


@dataclass(slots=True, eq=False)
class Or(_Node):
    terms: list["Node"]
    operators: list[int]


@dataclass(slots=True, eq=False)
class Conditional(_Node):
    condition: "Node"
    then: "Node"
    otherwise: "Node"


@dataclass(slots=True, eq=False)
class ListLiteral(_Node):
    #: Each element, and whether it is optional (`?x`).
    elements: list[tuple["Node", bool]]


@dataclass(slots=True, eq=False)
class MapLiteral(_Node):
    entries: list[tuple["Node", "Node", bool]]


class FieldEntry(NamedTuple):
    """`name: value` in an object literal."""

    #: Source offset of the colon.
    position: int
    name: str
    value: "Node"
    #: Whether it is written as `?name: value`.
    optional: bool


@dataclass(slots=True, eq=False)
class ObjectLiteral(_Node):
    """`type_name{name: value}`."""

    type_name: str
    entries: list[FieldEntry]


@dataclass(slots=True, eq=False)
class Comprehension(_Node):
    """`range.kind(first, [second,] [condition,] body)`."""

    kind: str
    range: "Node"
    first: str
    second: str | None
    condition: "Node | None"
    body: "Node"


@dataclass(slots=True, eq=False)
class OptionalMap(_Node):
    """`target.optMap(variable, body)`, or optFlatMap if `flat`."""

    target: "Node"
    variable: str
    body: "Node"
    flat: bool


Node: TypeAlias = (
    Literal
    | Identifier
    | Select
    | Has
    | Index
    | Call
    | And
    | Or
    | Conditional
    | ListLiteral
    | MapLiteral
    | ObjectLiteral
    | Comprehension
    | OptionalMap
)


def children(node: Node) -> list[Node]:
    match node:
        case Literal() | Identifier():
            return []
        case Select() | Has():
            return [node.operand]
        case Index():
            return [node.operand, node.key]
        case Call():
            return [*([node.target] if node.target else []), *node.arguments]
        case And() | Or():
            return node.terms
        case Conditional():
            return [node.condition, node.then, node.otherwise]
        case ListLiteral():
            return [element for element, _ in node.elements]
        case MapLiteral():
            return [part for key, value, _ in node.entries for part in (key, value)]
        case ObjectLiteral():
            return [entry.value for entry in node.entries]
        case Comprehension():
            parts = [node.range, node.body]
            if node.condition is not None and node.condition is not node.body:
                parts.append(node.condition)
            return parts
        case OptionalMap():
            return [node.target, node.body]


def qualified_name(node: Node) -> str | None:
    """Return `a.b.c` if the node is a chain of plain selections, else None."""
    names = []
    while isinstance(node, Select) and not node.optional:
        names.append(node.field_name)
        node = node.operand
    if not isinstance(node, Identifier):
        return None
    return ".".join([node.name, *reversed(names)])
