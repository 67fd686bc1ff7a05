"""Function registry: signatures with their implementations and cost models."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias, TypeVar

from onejob.cel.types import SIMPLE, Type, list_of, map_of, opaque, optional_of, parameter, type_of

Implementation: TypeAlias = Callable[..., Any]
F = TypeVar("F", bound=Implementation)


class Cost(Enum):
    """Cost model of a call, by the sizes of its arguments; see costs.py."""

    UNIT = "one"
    TRAVERSE = "a tenth of the first argument's size"
    TRAVERSE_TWICE = "a fifth of the first argument's size"
    SECOND = "a tenth of the second argument's size"
    PRODUCT = "the product of a tenth of both sizes"
    REGEX = "string by pattern"
    LIST = "a walk through the list"
    RESULT = "a fifth of the result's size"
    OUTPUT = "the result's size"
    SQUARE = "the square of the list's size"
    MEMBERS = "the product of both lists' sizes"
    FORMAT = "string by the pattern of a format"
    AUTHORIZE = "an authorization check"


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a CEL function, with its implementation and cost model.

    For a method, the first parameter is the target.
    """

    parameters: tuple[Type, ...]
    result: Type
    implementation: Implementation
    cost: Cost
    #: Whether the signature has type parameters, like the A of `list<A>`.
    generic: bool


@dataclass(frozen=True, slots=True)
class FunctionKey:
    name: str
    is_method: bool


class Library:
    """Group of related function overloads."""

    def __init__(self) -> None:
        self.overloads: dict[FunctionKey, list[Overload]] = {}

    def add(self, *signatures: str, cost: Cost = Cost.UNIT) -> Callable[[F], F]:
        """Return a decorator that registers one implementation for signatures.

        A signature reads like `string..charAt(int) -> string`.
        """

        def register(implementation: F) -> F:
            for signature in signatures:
                key, parameters, result = parse_signature(signature)
                generic = any(_is_generic(each) for each in (*parameters, result))
                overload = Overload(parameters, result, implementation, cost, generic)
                self.overloads.setdefault(key, []).append(overload)
            return implementation

        return register

    def include(self, others: Sequence["Library"]) -> None:
        for other in others:
            for key, overloads in other.overloads.items():
                self.overloads.setdefault(key, []).extend(overloads)


_SIGNATURE = re.compile(r"^(?:(?P<target>.+)\.\.)?(?P<name>[^(]+)\((?P<args>.*)\) -> (?P<to>.+)$")

_OPAQUE = {
    name: opaque(full)
    for name, full in {
        "IP": "net.IP",
        "CIDR": "net.CIDR",
        "URL": "kubernetes.URL",
        "Quantity": "kubernetes.Quantity",
        "Semver": "kubernetes.Semver",
        "Format": "kubernetes.NamedFormat",
        **{
            name: f"kubernetes.authorization.{name}"
            for name in ("Authorizer", "PathCheck", "GroupCheck", "ResourceCheck", "Decision")
        },
    }.items()
}


def parse_signature(text: str) -> tuple[FunctionKey, tuple[Type, ...], Type]:
    """Parse `target..name(arg, arg) -> result`; two dots, because names may contain one."""
    match = _SIGNATURE.match(text)
    assert match, text
    parameters = [parse_type(each) for each in _split(match["args"])]
    if match["target"]:
        parameters.insert(0, parse_type(match["target"]))
    key = FunctionKey(match["name"], bool(match["target"]))
    return key, tuple(parameters), parse_type(match["to"])


def _is_generic(given: Type) -> bool:
    return given.kind == "param" or any(_is_generic(each) for each in given.parameters)


def parse_type(text: str) -> Type:
    text = text.strip()
    if text in SIMPLE:
        return SIMPLE[text]
    if text in _OPAQUE:
        return _OPAQUE[text]
    if len(text) == 1 and text.isupper():
        return parameter(text)
    head, _, rest = text.partition("<")
    inner = [parse_type(each) for each in _split(rest[:-1])]
    makers: dict[str, Callable[..., Type]] = {
        "list": list_of,
        "map": map_of,
        "optional": optional_of,
        "type": type_of,
    }
    return makers[head](*inner)


def _split(text: str) -> list[str]:
    """Split at commas outside angle brackets."""
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        depth += (char == "<") - (char == ">")
        if char == "," and not depth:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]] if text.strip() else []
