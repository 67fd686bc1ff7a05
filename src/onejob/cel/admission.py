"""Expressions of admission policies and webhooks: their variables, types and results."""

import base64
from collections.abc import Mapping
from typing import Any, Final

from onejob.cel.errors import CompileError, EvaluationError, Issue
from onejob.cel.library.conversions import string_of
from onejob.cel.program import Program, compile_expression
from onejob.cel.types import (
    BOOL,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    Field,
    Type,
    list_of,
    map_of,
    opaque,
)
from onejob.cel.values import Duration, ObjectValue, Opaque, Timestamp, UInt

#: Cost of all validations, or of all audit annotations, of a policy for one request.
POLICY_BUDGET: Final = 10_000_000
#: Cost of all match conditions of a policy or webhook for one request.
CONDITIONS_BUDGET: Final = 2_500_000

AUTHORIZER: Final = "authorizer"
REQUEST_RESOURCE: Final = "authorizer.requestResource"
_VARIABLES: Final = "variables"


def _object(type_name: str, /, **fields: Type) -> Type:
    declared = {each: Field(each, inner) for each, inner in fields.items()}
    return Type("object", name=f"kubernetes.{type_name}", fields=declared)


_KIND = _object("GroupVersionKind", group=STRING, version=STRING, kind=STRING)
_RESOURCE = _object("GroupVersionResource", group=STRING, version=STRING, resource=STRING)
_STRINGS = list_of(STRING)
_USER = _object(
    "UserInfo", username=STRING, uid=STRING, groups=_STRINGS, extra=map_of(STRING, _STRINGS)
)
_REQUEST: Final = _object(
    "AdmissionRequest",
    kind=_KIND,
    resource=_RESOURCE,
    subResource=STRING,
    requestKind=_KIND,
    requestResource=_RESOURCE,
    requestSubResource=STRING,
    name=STRING,
    namespace=STRING,
    operation=STRING,
    userInfo=_USER,
    dryRun=BOOL,
    options=DYN,
)
_CONDITION = _object(
    "NamespaceCondition",
    status=STRING,
    type=STRING,
    lastTransitionTime=TIMESTAMP,
    message=STRING,
    reason=STRING,
)
_NAMESPACE: Final = _object(
    "Namespace",
    metadata=_object(
        "NamespaceMetadata",
        name=STRING,
        generateName=STRING,
        namespace=STRING,
        labels=map_of(STRING, STRING),
        annotations=map_of(STRING, STRING),
        UID=STRING,
        creationTimestamp=TIMESTAMP,
        deletionGracePeriodSeconds=INT,
        deletionTimestamp=TIMESTAMP,
        generation=INT,
        resourceVersion=STRING,
        finalizers=_STRINGS,
    ),
    spec=_object("NamespaceSpec", finalizers=_STRINGS),
    status=_object("NamespaceStatus", conditions=list_of(_CONDITION), phase=STRING),
)

_AUTHORIZER: Final = opaque("kubernetes.authorization.Authorizer")
_RESOURCE_CHECK: Final = opaque("kubernetes.authorization.ResourceCheck")

#: Names of result types: see `Expressions.compile`.
BOOLEAN: Final = ("bool",)
TEXT: Final = ("string",)
OPTIONAL_TEXT: Final = ("string", "null_type")
OBJECT: Final = ("Object",)
JSON_PATCHES: Final = ("list(JSONPatch)",)

_TYPE_NAMES: Final = {
    "null": "null_type",
    "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
}


class Expressions:
    """Compiler of the expressions of one policy or webhook.

    Variables are declared one after the other; an expression may use all that precede it.
    """

    def __init__(
        self,
        *,
        has_params: bool = False,
        composed: bool = True,
        objects: Type = DYN,
        params: Type = DYN,
    ) -> None:
        """`composed` declares `variables`; `objects` is the type of object and oldObject."""
        self._fields: dict[str, Field] = {}
        self._declared: dict[str, Type] = {
            "object": objects,
            "oldObject": objects,
            "namespaceObject": _NAMESPACE,
            "request": _REQUEST,
        }
        if has_params:
            self._declared["params"] = params
        if composed:
            self._declared[_VARIABLES] = Type(
                "object", name="kubernetes.variables", fields=self._fields
            )

    def compile(
        self,
        source: str,
        results: tuple[str, ...] = (),
        *,
        authorizer: bool = True,
        patches: bool = False,
    ) -> Program:
        """Compile an expression whose result must have one of the types `results`; () for any.

        Raises CompileError with upstream's message.
        """
        declared = self._declared
        if authorizer:
            declared = {**declared, AUTHORIZER: _AUTHORIZER, REQUEST_RESOURCE: _RESOURCE_CHECK}
        try:
            program = compile_expression(source, declared, patches=patches)
        except CompileError as error:
            raise CompileError([Issue(f"compilation failed: {error}")]) from error
        found = _name_of(program.type)
        if results and found not in results:
            wanted = results[0] if len(results) == 1 else f"one of [{' '.join(results)}]"
            raise CompileError([Issue(f"must evaluate to {wanted} but got {found}")])
        return program

    def check(self, source: str) -> Program:
        """Compile an expression for a type check. Raises CompileError with the bare issues.

        As upstream, `authorizer.requestResource` is unknown to type checks.
        """
        return compile_expression(source, {**self._declared, AUTHORIZER: _AUTHORIZER})

    def add_variable(self, name: str, source: str, *, checking: bool = False) -> Program:
        """Compile and declare a variable; it is declared even if it does not compile.

        `checking` is true for type checks. Raises CompileError.
        """
        declared = DYN
        try:
            program = self.check(source) if checking else self.compile(source)
            declared = _composed(program.type)
        finally:
            self._fields[name] = Field(name, declared)
        return program


def _composed(declared: Type) -> Type:
    """Return the type of a variable by that of its expression: objects are dynamic."""
    if declared.kind in ("list", "map"):
        return Type(declared.kind, tuple(_composed(each) for each in declared.parameters))
    return DYN if declared.kind in ("object", "opaque", "optional", "type") else declared


def _name_of(declared: Type) -> str:
    """Return cel-go's name of a type, which differs from that in type errors."""
    if declared.parameters:
        inner = ", ".join(_name_of(each) for each in declared.parameters)
        kind = "optional_type" if declared.kind == "optional" else declared.kind
        return f"{kind}({inner})"
    return _TYPE_NAMES.get(declared.kind, str(declared))


def plain_json(value: Any) -> Any:
    """Return the JSON of a value. Raises EvaluationError for values without JSON form."""
    match value:
        case ObjectValue():
            return {name: plain_json(each) for name, each in value.fields.items()}
        case dict():
            for key in value:
                if type(key) is not str:
                    raise EvaluationError(f'map key "{key}" is not a string')
            return {key: plain_json(each) for key, each in value.items()}
        case list():
            return [plain_json(each) for each in value]
        case Timestamp() | Duration():
            return string_of(value)
        case bytes():
            return base64.b64encode(value).decode()
        case UInt():
            return int(value)
        case Opaque():
            raise EvaluationError(f"type conversion error from '{value.type_name}' to JSON")
        case _:
            return value


def misplaced_types(value: Any) -> list[str]:
    """Return an error for each object whose type does not match the path of its field."""
    found: list[str] = []
    _check_places(value, getattr(value, "type_name", ""), found)
    return found


def _check_places(value: Any, place: str, found: list[str]) -> None:
    if isinstance(value, ObjectValue):
        if value.type_name != place:
            found.append(
                f'unexpected type name "{value.type_name}", expected "{place}", which matches '
                "field name path from root Object type"
            )
        for name, inner in value.fields.items():
            _check_places(inner, f"{place}.{name}", found)
    elif isinstance(value, list):
        for inner in value:
            _check_places(inner, place, found)
    elif isinstance(value, Mapping):
        for inner in value.values():
            _check_places(inner, place, found)
