"""Defaults and validation of admission policies and their bindings, as upstream."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from onejob.api.kinds.admission_rules import (
    check_conditions,
    check_rule,
    default_match,
    default_scopes,
)
from onejob.api.kinds.base import fill
from onejob.api.strategy import Document
from onejob.wire.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from onejob.wire.labels import validate_label_selector
from onejob.wire.names import (
    dns_1035_errors,
    path_segment_errors,
    qualified_name_errors,
    subdomain_errors,
)

_FAILURE_POLICIES: Final = ["Fail", "Ignore"]
_MATCH_POLICIES: Final = ["Equivalent", "Exact"]
_REINVOCATION_POLICIES: Final = ["IfNeeded", "Never"]
_REASONS: Final = ["Forbidden", "Invalid", "RequestEntityTooLarge"]
_ACTIONS: Final = ["Audit", "Deny", "Warn"]
_NOT_FOUND_ACTIONS: Final = ["Deny", "Allow"]
#: Operations that a mutating policy can match: all except deletions.
_MUTABLE_OPERATIONS: Final = ["*", "CONNECT", "CREATE", "UPDATE"]
#: Patch types of a mutation, and the field that holds the expression of each.
_PATCH_FIELDS: Final = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}
_MOST_ANNOTATIONS: Final = 20
_LONGEST_VALUE_EXPRESSION: Final = 5 * 1024
_is_identifier = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*").fullmatch


class _Compiler:
    """Compiler of the expressions of one policy, imported with the first policy."""

    def __init__(self, spec: Mapping[str, Any], *, composed: bool) -> None:
        from onejob.cel import admission

        self._cel = admission
        self._expressions = admission.Expressions(
            has_params=spec.get("paramKind") is not None, composed=composed
        )

    def add_variable(self, name: str, source: str, path: str) -> list[FieldError]:
        return self._tried(partial(self._expressions.add_variable, name), source, path)

    def condition(self, source: str, path: str) -> list[FieldError]:
        run = partial(self._expressions.compile, results=self._cel.BOOLEAN)
        return self._tried(run, source, path)

    def message(self, source: str, path: str) -> list[FieldError]:
        run = partial(self._expressions.compile, results=self._cel.TEXT, authorizer=False)
        return self._tried(run, source, path)

    def annotation(self, source: str, path: str) -> list[FieldError]:
        run = partial(self._expressions.compile, results=self._cel.OPTIONAL_TEXT)
        errors = self._tried(run, source.strip(), path)
        return [invalid(path, source, error.detail) for error in errors]

    def mutation(self, patch_type: str, source: str, path: str) -> list[FieldError]:
        results = self._cel.JSON_PATCHES if patch_type == "JSONPatch" else self._cel.OBJECT
        run = partial(self._expressions.compile, results=results, patches=True)
        return self._tried(run, source.strip(), path)

    def _tried(self, run: Callable[[str], object], source: str, path: str) -> list[FieldError]:
        from onejob.cel import CompileError

        try:
            run(source)
        except CompileError as error:
            return [invalid(path, source, str(error))]
        return []


def default_policy(doc: Document) -> None:
    spec = fill(doc.setdefault("spec", {}), failurePolicy="Fail")
    _default_match_resources(spec.get("matchConstraints"))


def default_policy_binding(doc: Document) -> None:
    _default_match_resources((doc.get("spec") or {}).get("matchResources"))


def _default_match_resources(match: dict[str, Any] | None) -> None:
    if match is None:
        return
    default_match(match)
    default_scopes(match.get("resourceRules"))
    default_scopes(match.get("excludeResourceRules"))


def check_validating_policy(doc: Document) -> list[FieldError]:
    spec = doc["spec"]
    compiler = _Compiler(spec, composed=bool(spec.get("variables")))
    errors = _check_policy(spec, compiler)
    validations, annotations = spec.get("validations") or (), spec.get("auditAnnotations") or ()
    if not validations and not annotations:
        text = "validations or auditAnnotations must contain at least one item"
        return [
            *errors,
            required("spec.validations", text),
            required("spec.auditAnnotations", text),
        ]
    for index, validation in enumerate(validations):
        errors += _check_validation(compiler, validation, f"spec.validations[{index}]")
    return errors + _check_annotations(compiler, annotations, doc["metadata"].get("name", ""))


def check_mutating_policy(doc: Document) -> list[FieldError]:
    spec = doc["spec"]
    compiler = _Compiler(spec, composed=True)
    errors = _check_policy(spec, compiler, mutating=True)
    mutations = spec.get("mutations") or ()
    if not mutations:
        errors.append(required("spec.mutations", "mutations must contain at least one item"))
    for index, mutation in enumerate(mutations):
        errors += _check_mutation(compiler, mutation, f"spec.mutations[{index}]")
    reinvocation = spec.get("reinvocationPolicy")
    if not reinvocation:
        errors.append(required("spec.reinvocationPolicy"))
    elif reinvocation not in _REINVOCATION_POLICIES:
        supported = _REINVOCATION_POLICIES
        errors.append(not_supported("spec.reinvocationPolicy", reinvocation, supported))
    return errors


def check_validating_policy_binding(doc: Document) -> list[FieldError]:
    spec = doc.get("spec") or {}
    return [
        *_check_binding(spec),
        *_check_actions(spec.get("validationActions") or (), "spec.validationActions"),
    ]


def check_mutating_policy_binding(doc: Document) -> list[FieldError]:
    spec = doc.get("spec") or {}
    match = spec.get("matchResources") or {}
    return [*_check_binding(spec), *_check_operations(match, "spec.matchResources")]


def _check_policy(
    spec: dict[str, Any], compiler: _Compiler, *, mutating: bool = False
) -> list[FieldError]:
    """Check what both kinds of policies have, in upstream's order."""
    errors: list[FieldError] = []
    if spec["failurePolicy"] not in _FAILURE_POLICIES:
        supported = _FAILURE_POLICIES
        errors.append(not_supported("spec.failurePolicy", spec["failurePolicy"], supported))
    if (param_kind := spec.get("paramKind")) is not None:
        errors += _check_param_kind(param_kind, "spec.paramKind")
    match = spec.get("matchConstraints")
    if match is None:
        errors.append(required("spec.matchConstraints"))
    else:
        errors += _check_match(match, "spec.matchConstraints")
        if not match.get("resourceRules"):
            errors.append(required("spec.matchConstraints.resourceRules"))
        if mutating:
            errors += _check_operations(match, "spec.matchConstraints")
    conditions = spec.get("matchConditions") or ()
    if conditions:
        # Unlike all other expressions, they must not use variables.
        alone = _Compiler(spec, composed=False)
        errors += check_conditions(conditions, "spec.matchConditions", alone.condition)
    for index, variable in enumerate(spec.get("variables") or ()):
        errors += _check_variable(compiler, variable, f"spec.variables[{index}]")
    return errors


def _check_param_kind(kind: dict[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    api_version, name = kind.get("apiVersion", ""), kind.get("kind", "")
    place = f"{path}.apiVersion"
    if not api_version:
        errors.append(required(place))
    elif api_version.count("/") > 1:
        text = f"unexpected GroupVersion string: {api_version}"
        errors.append(invalid(place, api_version, text))
    else:
        group, _, version = api_version.rpartition("/")
        if group and (texts := subdomain_errors(group)):
            errors.append(invalid(place, group, ",".join(texts)))
        if not version:
            errors.append(invalid(place, api_version, "version must be specified"))
        elif texts := dns_1035_errors(version):
            errors.append(invalid(place, version, ",".join(texts)))
    if not name:
        errors.append(required(f"{path}.kind"))
    elif texts := dns_1035_errors(name.lower()):
        text = f"may have mixed case, but should otherwise match: {','.join(texts)}"
        errors.append(invalid(f"{path}.kind", name, text))
    return errors


def _check_match(match: dict[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if match["matchPolicy"] not in _MATCH_POLICIES:
        errors.append(not_supported(f"{path}.matchPolicy", match["matchPolicy"], _MATCH_POLICIES))
    for field in ("namespaceSelector", "objectSelector"):
        errors += validate_label_selector(match[field], f"{path}.{field}")
    for field in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(match.get(field) or ()):
            errors += _check_named_rule(rule, f"{path}.{field}[{index}]")
    return errors


def _check_named_rule(rule: dict[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, name in enumerate(rule.get("resourceNames") or ()):
        place = f"{path}.resourceNames[{index}]"
        errors += [invalid(place, name, text) for text in path_segment_errors(name)]
        if name in seen:
            errors.append(duplicate(place, name))
        seen.add(name)
    return errors + check_rule(rule, path)


def _check_operations(match: dict[str, Any], path: str) -> list[FieldError]:
    return [
        not_supported(f"{path}.resourceRules.operations", operation, _MUTABLE_OPERATIONS)
        for rule in match.get("resourceRules") or ()
        for operation in rule.get("operations") or ()
        if operation not in _MUTABLE_OPERATIONS
    ]


def _check_variable(compiler: _Compiler, variable: dict[str, Any], path: str) -> list[FieldError]:
    from onejob.cel.schema import RESERVED

    name, source = variable.get("name", ""), variable.get("expression", "")
    errors: list[FieldError] = []
    if not name.strip():
        errors.append(required(f"{path}.name", "name is not specified"))
    elif not _is_identifier(name) or name in RESERVED:
        errors.append(invalid(f"{path}.name", name, "must be a valid CEL identifier"))
    if not source.strip():
        errors.append(required(f"{path}.expression", "expression is not specified"))
    else:
        errors += compiler.add_variable(name, source, f"{path}.expression")
    return errors


def _check_validation(
    compiler: _Compiler, validation: dict[str, Any], path: str
) -> list[FieldError]:
    errors: list[FieldError] = []
    source, message = validation.get("expression", ""), validation.get("message", "")
    message_source = validation.get("messageExpression", "")
    if not source.strip():
        errors.append(required(f"{path}.expression", "expression is not specified"))
    else:
        errors += compiler.condition(source, f"{path}.expression")
    place = f"{path}.messageExpression"
    if message_source and not message_source.strip():
        errors.append(invalid(place, message_source, "must be non-empty if specified"))
    elif message_source:
        errors += compiler.message(message_source, place)
    if message and not message.strip():
        errors.append(invalid(f"{path}.message", message, "must be non-empty if specified"))
    elif re.search(r"[\n\r]", message.strip()):
        errors.append(invalid(f"{path}.message", message, "must not contain line breaks"))
    reason = validation.get("reason")
    if reason is not None and reason not in _REASONS:
        errors.append(not_supported(f"{path}.reason", reason, _REASONS))
    return errors


def _check_annotations(compiler: _Compiler, annotations: Any, policy: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if len(annotations) > _MOST_ANNOTATIONS:
        text = f"must not have more than {_MOST_ANNOTATIONS} auditAnnotations"
        errors.append(invalid("spec.auditAnnotations", annotations, text))
    keys: set[str] = set()
    for index, annotation in enumerate(annotations):
        path = f"spec.auditAnnotations[{index}]"
        errors += _check_annotation(compiler, annotation, policy, path)
        key = annotation.get("key", "")
        if key in keys:
            errors.append(duplicate(f"{path}.key", key))
        keys.add(key)
    return errors


def _check_annotation(
    compiler: _Compiler, annotation: dict[str, Any], policy: str, path: str
) -> list[FieldError]:
    key = annotation.get("key", "")
    if policy:
        name = f"{policy}/{key}"
        errors = [invalid(f"{path}.key", name, text) for text in qualified_name_errors(name)]
    else:
        errors = [invalid(f"{path}.key", key, "requires metadata.name be non-empty")]
    source, place = annotation.get("valueExpression", ""), f"{path}.valueExpression"
    if not source.strip():
        errors.append(required(place, "valueExpression is not specified"))
    elif len(source.strip().encode()) > _LONGEST_VALUE_EXPRESSION:
        text = f"must not exceed {_LONGEST_VALUE_EXPRESSION} bytes in length"
        errors.append(required(place, text))
    else:
        errors += compiler.annotation(source, place)
    return errors


def _check_mutation(compiler: _Compiler, mutation: dict[str, Any], path: str) -> list[FieldError]:
    kind = mutation.get("patchType")
    if not kind:
        return [required(f"{path}.patchType")]
    if kind not in _PATCH_FIELDS:
        return [not_supported(f"{path}.patchType", kind, sorted(_PATCH_FIELDS))]
    field = _PATCH_FIELDS[kind]
    errors: list[FieldError] = []
    patch = mutation.get(field)
    if patch is None:
        errors.append(required(f"{path}.{field}", f"must be specified when patchType is {kind}"))
    elif not (source := patch.get("expression") or "").strip():
        errors.append(required(f"{path}.{field}.expression"))
    else:
        errors += compiler.mutation(kind, source, f"{path}.{field}.expression")
    for other in _PATCH_FIELDS.values():
        if other != field and mutation.get(other) is not None:
            text = f"must not be specified when patchType is {kind}"
            errors.append(invalid(f"{path}.{other}", f"{{{other}}}", text))
    return errors


def _check_binding(spec: dict[str, Any]) -> list[FieldError]:
    """Check what both kinds of bindings have, in upstream's order."""
    name = spec.get("policyName", "")
    if not name:
        errors = [required("spec.policyName")]
    else:
        errors = [invalid("spec.policyName", name, text) for text in subdomain_errors(name)]
    if (reference := spec.get("paramRef")) is not None:
        errors += _check_param_ref(reference, "spec.paramRef")
    if (match := spec.get("matchResources")) is not None:
        errors += _check_match(match, "spec.matchResources")
    return errors


def _check_param_ref(reference: dict[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    name, selector = reference.get("name", ""), reference.get("selector")
    both = "name and selector are mutually exclusive"
    if name:
        errors += [invalid(f"{path}.name", name, text) for text in path_segment_errors(name)]
        if selector is not None:
            errors.append(forbidden(f"{path}.name", both))
    if selector is not None:
        errors += validate_label_selector(selector, f"{path}.selector")
        if name:
            errors.append(forbidden(f"{path}.selector", both))
    elif not name:
        errors.append(required(path, "one of name or selector must be specified"))
    action, place = reference.get("parameterNotFoundAction"), f"{path}.parameterNotFoundAction"
    if not action:
        errors.append(required(place))
    elif action not in _NOT_FOUND_ACTIONS:
        errors.append(not_supported(place, action, _NOT_FOUND_ACTIONS))
    return errors


def _check_actions(actions: Any, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            errors.append(not_supported(f"{path}[{index}]", action, _ACTIONS))
        if action in seen:
            errors.append(duplicate(f"{path}[{index}]", action))
        seen.add(action)
    if {"Deny", "Warn"} <= seen:
        text = (
            "must not contain both Deny and Warn (repeating the same validation failure "
            "information in the API response and headers serves no purpose)"
        )
        errors.append(invalid(path, list(actions), text))
    if not seen:
        errors.append(required(path))
    return errors
