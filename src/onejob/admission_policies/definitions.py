"""Policies and bindings, parsed and compiled once per version."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec
from msgspec import Struct

from onejob.api.admission.dynamic.activation import Expression, MatchConditions, compiled
from onejob.api.admission.dynamic.attributes import GROUP
from onejob.api.admission.dynamic.matching import (
    MatchResources,
    read_match_resources,
    read_selector,
)
from onejob.cel.admission import (
    BOOLEAN,
    JSON_PATCHES,
    OBJECT,
    OPTIONAL_TEXT,
    TEXT,
    Expressions,
)
from onejob.objects.meta import LabelSelector

VALIDATING: Final = f"validatingadmissionpolicies.{GROUP}"
VALIDATING_BINDINGS: Final = f"validatingadmissionpolicybindings.{GROUP}"
MUTATING: Final = f"mutatingadmissionpolicies.{GROUP}"
MUTATING_BINDINGS: Final = f"mutatingadmissionpolicybindings.{GROUP}"


class ParamKind(Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""

    def __str__(self) -> str:
        group, _, version = self.api_version.rpartition("/")
        return f"{group}/{version}, Kind={self.kind}"


class ParamRef(Struct, frozen=True):
    """Choice of params: by name, or by selector if there is no name."""

    name: str
    namespace: str
    selector: LabelSelector
    #: Whether a request is denied if there are no params.
    denies_absence: bool


class Validation(Struct, frozen=True):
    condition: Expression
    message: str
    #: None without a messageExpression.
    message_expression: Expression | None
    reason: str


class Mutation(Struct, frozen=True):
    patch_type: Literal["ApplyConfiguration", "JSONPatch"]
    expression: Expression


class Policy(Struct, frozen=True):
    """What validating and mutating policies have in common."""

    name: str
    match: MatchResources
    conditions: MatchConditions
    variables: tuple[tuple[str, Expression], ...]
    fails_open: bool
    param_kind: ParamKind | None


class ValidatingPolicy(Policy, frozen=True, kw_only=True):
    validations: tuple[Validation, ...]
    #: Expressions by key.
    annotations: tuple[tuple[str, Expression], ...]


class MutatingPolicy(Policy, frozen=True, kw_only=True):
    mutations: tuple[Mutation, ...]
    reinvocable: bool


P = TypeVar("P", bound=Policy)


class Binding(Struct, frozen=True):
    name: str
    policy: str
    #: None matches all requests that match the policy.
    match: MatchResources | None
    param_ref: ParamRef | None
    actions: tuple[str, ...] = ()


class Bound(Struct, Generic[P], frozen=True):
    """A policy and its bindings; only policies with bindings are evaluated."""

    policy: P
    bindings: tuple[Binding, ...]


def read_validating_policy(value: bytes) -> ValidatingPolicy:
    document = msgspec.json.decode(value)
    spec = document["spec"]
    expressions = _expressions(spec)
    common = _common(document["metadata"]["name"], spec, expressions)
    condition = partial(expressions.compile, results=BOOLEAN)
    annotation = partial(expressions.compile, results=OPTIONAL_TEXT)
    return ValidatingPolicy(
        *common,
        validations=tuple(
            Validation(
                compiled(condition, raw["expression"]),
                raw.get("message") or "",
                _message(expressions, raw.get("messageExpression") or ""),
                raw.get("reason") or "Invalid",
            )
            for raw in spec.get("validations") or ()
        ),
        annotations=tuple(
            (raw["key"], compiled(annotation, raw["valueExpression"]))
            for raw in spec.get("auditAnnotations") or ()
        ),
    )


def read_mutating_policy(value: bytes) -> MutatingPolicy:
    document = msgspec.json.decode(value)
    spec = document["spec"]
    expressions = _expressions(spec)
    return MutatingPolicy(
        *_common(document["metadata"]["name"], spec, expressions),
        mutations=tuple(_mutation(expressions, raw) for raw in spec.get("mutations") or ()),
        reinvocable=spec.get("reinvocationPolicy") == "IfNeeded",
    )


def read_binding(value: bytes) -> Binding:
    document = msgspec.json.decode(value)
    spec = document["spec"]
    match, reference = spec.get("matchResources"), spec.get("paramRef")
    return Binding(
        document["metadata"]["name"],
        spec["policyName"],
        None if match is None else read_match_resources(match),
        None if reference is None else _param_ref(reference),
        tuple(spec.get("validationActions") or ()),
    )


def _expressions(spec: Mapping[str, Any]) -> Expressions:
    return Expressions(has_params=spec.get("paramKind") is not None)


def _common(
    name: str, spec: Mapping[str, Any], expressions: Expressions
) -> tuple[
    str,
    MatchResources,
    MatchConditions,
    tuple[tuple[str, Expression], ...],
    bool,
    ParamKind | None,
]:
    variables = tuple(
        (raw["name"], compiled(partial(expressions.add_variable, raw["name"]), raw["expression"]))
        for raw in spec.get("variables") or ()
    )
    condition = partial(expressions.compile, results=BOOLEAN)
    kind = spec.get("paramKind")
    return (
        name,
        read_match_resources(spec.get("matchConstraints") or {}),
        MatchConditions(
            tuple(
                compiled(condition, raw["expression"]) for raw in spec.get("matchConditions") or ()
            )
        ),
        variables,
        spec.get("failurePolicy") == "Ignore",
        None if kind is None else msgspec.convert(kind, ParamKind),
    )


def _message(expressions: Expressions, source: str) -> Expression | None:
    if not source:
        return None
    return compiled(partial(expressions.compile, results=TEXT, authorizer=False), source)


def _mutation(expressions: Expressions, raw: Mapping[str, Any]) -> Mutation:
    if raw["patchType"] == "JSONPatch":
        source = raw["jsonPatch"]["expression"]
        make = partial(expressions.compile, results=JSON_PATCHES, patches=True)
    else:
        source = raw["applyConfiguration"]["expression"]
        make = partial(expressions.compile, results=OBJECT, patches=True)
    return Mutation(raw["patchType"], compiled(make, source))


def _param_ref(raw: Mapping[str, Any]) -> ParamRef:
    return ParamRef(
        raw.get("name") or "",
        raw.get("namespace") or "",
        read_selector(raw.get("selector")),
        raw.get("parameterNotFoundAction") == "Deny",
    )
