"""Type checker: infers the static type of each node and reports type errors."""

import itertools
from collections.abc import Mapping, Sequence

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
from onejob.cel.errors import CompileError, Issue, issue_at
from onejob.cel.functions import FunctionKey, Overload
from onejob.cel.library import FUNCTIONS
from onejob.cel.literals import check_literal_argument
from onejob.cel.schema import RESERVED
from onejob.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    ERROR,
    INT,
    NULL,
    STRING,
    UINT,
    AnyFields,
    Field,
    Substitution,
    Type,
    list_of,
    map_of,
    optional_of,
    parameter,
    type_of,
)
from onejob.cel.values import UInt

_LITERALS: Mapping[type, Type] = {
    bool: BOOL,
    int: INT,
    UInt: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
}
#: Type names that are also values: `type(x) == string`.
TYPE_NAMES: Mapping[str, str] = {
    **{name: name for name in ("bool", "int", "uint", "double", "string", "bytes", "list", "map")},
    **{name: name for name in ("type", "null_type", "optional_type", "net.IP", "net.CIDR")},
    "google.protobuf.Timestamp": "google.protobuf.Timestamp",
    "google.protobuf.Duration": "google.protobuf.Duration",
    "kubernetes.URL": "kubernetes.URL",
    "kubernetes.Quantity": "kubernetes.Quantity",
    "kubernetes.Semver": "kubernetes.Semver",
    "kubernetes.NamedFormat": "kubernetes.NamedFormat",
}


#: Functions of expressions that build patches.
_PATCH_FUNCTIONS = frozenset(("jsonpatch.escapeKey",))
_OBJECT = "Object"
_ANY_FIELDS = AnyFields()
_JSON_PATCH = Type(
    "object",
    name="JSONPatch",
    fields={
        "op": Field("op", STRING),
        "from": Field("from", STRING),
        "path": Field("path", STRING),
        "value": Field("value", DYN),
    },
)


def check(source: str, root: Node, variables: Mapping[str, Type], *, patches: bool = False) -> Type:
    """Set `type` on all nodes of the tree and return the type of the root.

    `patches` declares the types `Object` and `JSONPatch`. Raises CompileError with all issues,
    ordered by position.
    """
    checker = _Checker(source, variables, patches)
    checker.visit(root)
    checker.finish(root)
    if checker.issues:
        raise CompileError(sorted(checker.issues, key=lambda issue: (issue.line, issue.column)))
    return root.type


def find_field(declared: Type, name: str) -> str | None:
    """Return the key of a field, or None. The field may be a keyword written without escaping."""
    if name in declared.fields:
        return name
    if name in RESERVED and f"__{name}__" in declared.fields:
        return f"__{name}__"
    return None


class _Checker:
    def __init__(self, source: str, variables: Mapping[str, Type], patches: bool) -> None:
        self._patches = patches
        self.issues: list[Issue] = []
        self._source = source
        self._scope = dict(variables)
        self._known = Substitution()
        self._fresh = itertools.count()
        self._visited: list[Node] = []
        #: Whether the current list literal may mix element types.
        self._mixed = False

    def finish(self, root: Node) -> None:
        """Substitute the inferred type parameters in all nodes; unresolved ones become dyn."""
        for node in self._visited:
            node.type = _close(self._known.resolve(node.type))

    def visit(self, node: Node) -> Type:
        node.type = self._infer(node)
        self._visited.append(node)
        return node.type

    def _infer(self, node: Node) -> Type:
        match node:
            case Literal():
                return _LITERALS[type(node.value)]
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
            case And() | Or():
                return self._logical(node)
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

    def _report(self, position: int, message: str) -> Type:
        self.issues.append(issue_at(self._source, position, message))
        return ERROR

    def _fresh_parameter(self) -> Type:
        return parameter(f"_var#{next(self._fresh)}")

    def _resolve(self, given: Type) -> Type:
        return self._known.resolve(given)

    # Names and members.

    def _identifier(self, node: Identifier) -> Type:
        if node.name in self._scope:
            return self._scope[node.name]
        if node.name in TYPE_NAMES:
            return type_of(DYN)
        return self._report(node.position, _undeclared(node.name))

    def _select(self, node: Select) -> Type:
        name = qualified_name(node)
        if name is not None and name in self._scope:
            return self._scope[name]
        if name in TYPE_NAMES and name is not None and name.partition(".")[0] not in self._scope:
            return type_of(DYN)
        return self._field(node, test=False)

    def _has(self, node: Has) -> Type:
        self._field(node, test=True)
        return BOOL

    def _field(self, node: Select | Has, test: bool) -> Type:
        operand = self._resolve(self.visit(node.operand))
        optional = node.optional or operand.kind == "optional"
        if operand.kind == "optional":
            operand = self._resolve(operand.parameters[0])
        result = self._field_of(node, operand, test)
        return optional_of(result) if optional and result is not ERROR else result

    def _field_of(self, node: Select | Has, operand: Type, test: bool) -> Type:
        match operand.kind:
            case "map":
                return operand.parameters[1]
            case "object":
                key = find_field(operand, node.field_name)
                if key is not None:
                    return operand.fields[key].type
                position = node.position
                return self._report(position, f"undefined field '{node.field_name}'")
            case "dyn" | "error":
                return DYN
            case "param":
                return DYN
            case _:
                pass
        message = f"type '{operand}' does not support field selection"
        return self._report(node.position, message)

    def _index(self, node: Index) -> Type:
        operand = self._resolve(self.visit(node.operand))
        key = self._resolve(self.visit(node.key))
        inner = operand
        optional = node.optional
        if operand.kind == "optional":
            optional, inner = True, self._resolve(operand.parameters[0])
        result: Type | None = None
        if inner.kind == "list" and self._known.assign(INT, key):
            result = inner.parameters[0]
        elif inner.kind == "map" and self._known.assign(inner.parameters[0], key):
            result = inner.parameters[1]
        elif inner.kind in ("dyn", "error", "param"):
            result = DYN
        if result is None:
            name = "_[?_]" if node.optional else "_[_]"
            return self._report(node.position, _no_overload(name, [operand, key], False))
        return optional_of(result) if optional else result

    # Operators and functions.

    def _logical(self, node: And | Or) -> Type:
        for term in node.terms:
            self._expect_bool(term, self.visit(term))
        return BOOL

    def _expect_bool(self, node: Node, found: Type) -> None:
        if not self._known.assign(BOOL, found):
            shown = self._resolve(found)
            self._report(node.position, f"expected type 'bool' but found '{shown}'")

    def _conditional(self, node: Conditional) -> Type:
        condition = self.visit(node.condition)
        then, otherwise = self.visit(node.then), self.visit(node.otherwise)
        trial = self._known.copy()
        shared = self._fresh_parameter()
        fits = trial.assign(BOOL, condition)
        if fits and trial.assign(shared, then) and trial.assign(shared, otherwise):
            self._known.take(trial)
            then, otherwise = self._resolve(then), self._resolve(otherwise)
            return _most_general(then, otherwise)
        shown = [self._resolve(each) for each in (condition, then, otherwise)]
        return self._report(node.position, _no_overload("_?_:_", shown, False))

    def _call(self, node: Call) -> Type:
        arguments = [*([node.target] if node.target else []), *node.arguments]
        key = FunctionKey(node.function, node.target is not None)
        overloads = FUNCTIONS.get(key)
        # The argument of `format` is a list of values of any types.
        outer, self._mixed = self._mixed, node.function == "format"
        found = [self.visit(argument) for argument in arguments]
        self._mixed = outer
        if overloads is None or (node.function in _PATCH_FUNCTIONS and not self._patches):
            return self._report(node.position, _undeclared(node.function))
        if any(self._resolve(each) is ERROR for each in found):
            return ERROR
        result = self._choose(overloads, found)
        if result is None:
            shown = [_close(self._resolve(each)) for each in found]
            text = _no_overload(node.function, shown, key.is_method)
            return self._report(node.position, text)
        fault = check_literal_argument(node)
        if fault:
            return self._report(fault[0], fault[1])
        return result

    def _choose(self, overloads: Sequence[Overload], found: list[Type]) -> Type | None:
        """Return the result type, or None if no overload fits.

        Returns dyn if several overloads fit and their result types differ.
        """
        result: Type | None = None
        accepted: Substitution | None = None
        found = [self._resolve(each) for each in found]
        for overload in overloads:
            if len(overload.parameters) != len(found):
                continue
            if any(map(_cannot_fit, overload.parameters, found)):
                continue
            trial = self._known.copy()
            renamed = self._rename(overload)
            wanted = renamed[:-1]
            pairs = zip(wanted, found, strict=True)
            if not all(trial.assign(each, given) for each, given in pairs):
                continue
            answer = trial.resolve(renamed[-1])
            if result is None:
                result, accepted = answer, trial
            elif not _same(result, answer):
                result = DYN
        if accepted is not None:
            self._known.take(accepted)
        return result

    def _rename(self, overload: Overload) -> list[Type]:
        """Return the parameter types and the result type, with fresh type parameters."""
        if not overload.generic:
            return [*overload.parameters, overload.result]
        own = Substitution()
        suffix = next(self._fresh)
        for name in "ABKVT":
            own.assign(parameter(name), parameter(f"{name}#{suffix}"))
        return [own.resolve(each) for each in (*overload.parameters, overload.result)]

    # Literals.

    def _list(self, node: ListLiteral) -> Type:
        shared: Type | None = None
        mixed, self._mixed = self._mixed, False
        for element, optional in node.elements:
            found = self._unwrapped(element, optional)
            faults = len(self.issues)
            shared = DYN if mixed else self._join(element.position, shared, found)
            # Report only the first element of another type.
            mixed = mixed or len(self.issues) > faults
        return list_of(shared or self._fresh_parameter())

    def _map(self, node: MapLiteral) -> Type:
        keys: Type | None = None
        values: Type | None = None
        for key, value, optional in node.entries:
            keys = self._join(key.position, keys, self.visit(key))
            values = self._join(value.position, values, self._unwrapped(value, optional))
        return map_of(keys or self._fresh_parameter(), values or self._fresh_parameter())

    def _object(self, node: ObjectLiteral) -> Type:
        declared = self._object_type(node.type_name)
        if declared is None:
            for entry in node.entries:
                self.visit(entry.value)
            return self._report(node.position, _undeclared(node.type_name))
        for entry in node.entries:
            found = self._unwrapped(entry.value, entry.optional)
            field = declared.fields.get(entry.name)
            if field is None or not self._known.assign(field.type, found):
                # As upstream, which knows fields of any names, but of no type.
                wanted = "" if field is None else str(field.type)
                self._report(
                    entry.position,
                    f"expected type of field '{entry.name}' is '{wanted}' but provided type "
                    f"is '{self._resolve(found)}'",
                )
        return declared

    def _object_type(self, name: str) -> Type | None:
        if not self._patches:
            return None
        if name == _JSON_PATCH.name:
            return _JSON_PATCH
        if name == _OBJECT or name.startswith(f"{_OBJECT}."):
            return Type("object", name=name, fields=_ANY_FIELDS)
        return None

    def _unwrapped(self, node: Node, optional: bool) -> Type:
        found = self._resolve(self.visit(node))
        if not optional:
            return found
        if found.kind == "optional":
            return found.parameters[0]
        if found.kind not in ("dyn", "error"):
            expected = optional_of(found)
            self._report(node.position, f"expected type '{expected}' but found '{found}'")
        return DYN

    def _join(self, position: int, before: Type | None, found: Type) -> Type:
        """Return the common type of a literal's elements; the first element determines it."""
        if before is None:
            return found
        before, found = self._resolve(before), self._resolve(found)
        mixed = (before.kind == "dyn") is not (found.kind == "dyn")
        if "error" in (before.kind, found.kind) or (
            not mixed and self._known.assign(before, found)
        ):
            return _most_general(before, self._resolve(found))
        shown = self._resolve(found)
        self._report(position, f"expected type '{before}' but found '{shown}'")
        return before

    # Macros.

    def _comprehension(self, node: Comprehension) -> Type:
        given = self._resolve(self.visit(node.range))
        key, value = self._range_types(node, given)
        if node.second is None:
            bound = {node.first: key if given.kind == "map" else value}
        else:
            bound = {node.first: key, node.second: value}
        outer = self._scope
        self._scope = {**outer, **bound}
        condition = BOOL
        if node.condition is not None:
            condition = self.visit(node.condition)
        body = condition if node.condition is node.body else self.visit(node.body)
        self._scope = outer
        return self._comprehension_result(node, given, key, value, condition, body)

    def _range_types(self, node: Comprehension, given: Type) -> tuple[Type, Type]:
        if given.kind == "list":
            return INT, given.parameters[0]
        if given.kind == "map":
            return given.parameters[0], given.parameters[1]
        if given.kind not in ("dyn", "error", "param"):
            message = (
                f"expression of type '{given}' cannot be range of a comprehension "
                "(must be list, map, or dynamic)"
            )
            self._report(node.range.position, message)
        return DYN, DYN

    def _comprehension_result(
        self,
        node: Comprehension,
        given: Type,
        key: Type,
        value: Type,
        condition: Type,
        body: Type,
    ) -> Type:
        if node.kind in ("all", "exists"):
            self._expect_bool(node.body, body)
            return BOOL
        tested = body if node.kind == "existsOne" else condition
        if not self._known.assign(BOOL, tested):
            # The macro expands to a conditional whose branches are the accumulated result.
            gathered = INT if node.kind == "existsOne" else list_of(value)
            shown = [self._resolve(each) for each in (tested, gathered, gathered)]
            return self._report(node.position, _no_overload("_?_:_", shown, False))
        match node.kind:
            case "existsOne":
                return BOOL
            case "filter":
                return list_of(key if given.kind == "map" else value)
            case "transformMap":
                return map_of(key, body)
            case "transformMapEntry":
                return self._entry(node, body)
            case "sortBy":
                return list_of(value)
            case _:
                return list_of(body)

    def _entry(self, node: Comprehension, body: Type) -> Type:
        body = self._resolve(body)
        if body.kind in ("map", "dyn", "error"):
            return body
        shown = [map_of(DYN, DYN), body]
        return self._report(node.position, _no_overload("cel.@mapInsert", shown, False))

    def _optional_map(self, node: OptionalMap) -> Type:
        target = self._resolve(self.visit(node.target))
        if target.kind not in ("optional", "dyn", "error"):
            return self._report(node.position, _no_overload("hasValue", [target], True))
        inner = target.parameters[0] if target.kind == "optional" else DYN
        outer = self._scope
        self._scope = {**outer, node.variable: inner}
        body = self._resolve(self.visit(node.body))
        self._scope = outer
        if not node.flat:
            return optional_of(body)
        if body.kind not in ("optional", "dyn", "error"):
            shown = [BOOL, body, optional_of(DYN)]
            return self._report(node.position, _no_overload("_?_:_", shown, False))
        return body


_OPEN = frozenset(("dyn", "error", "param", "null"))


def _cannot_fit(wanted: Type, given: Type) -> bool:
    """Return True if the types certainly do not match: a fast rejection of most operator overloads.

    False means only that the overload needs the full comparison.
    """
    return wanted.kind != given.kind and wanted.kind not in _OPEN and given.kind not in _OPEN


def _same(left: Type, right: Type) -> bool:
    return (
        left.kind == right.kind
        and left.name.partition("#")[0] == right.name.partition("#")[0]
        and len(left.parameters) == len(right.parameters)
        and all(_same(a, b) for a, b in zip(left.parameters, right.parameters, strict=True))
    )


def _most_general(left: Type, right: Type) -> Type:
    """Return the less specific of two compatible types."""
    if "dyn" in (left.kind, right.kind):
        return DYN
    if left.kind == "null":
        return right
    return left


def _close(given: Type) -> Type:
    if given.kind == "param":
        return DYN
    if not given.parameters:
        return given
    inner = tuple(_close(each) for each in given.parameters)
    return Type(
        given.kind,
        inner,
        given.name,
        given.max_size,
        given.min_bytes,
        given.fields,
        given.list_type,
        given.list_keys,
    )


def _undeclared(name: str) -> str:
    return f"undeclared reference to '{name}' (in container '')"


def _no_overload(name: str, found: Sequence[Type], is_method: bool) -> str:
    shown = [str(each) for each in found]
    target = f"{shown.pop(0)}." if is_method else ""
    signature = f"{target}({', '.join(shown)})"
    return f"found no matching overload for '{name}' applied to '{signature}'"
