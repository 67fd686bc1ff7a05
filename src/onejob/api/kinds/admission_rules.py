"""Defaults and validation of webhook configurations and admission policies, as upstream.

Expressions are not compiled, because nothing evaluates them.
"""

from typing import Any, Final

from onejob.api.kinds.base import fill
from onejob.api.strategy import Document
from onejob.wire.field_errors import FieldError, invalid, not_supported, required
from onejob.wire.names import subdomain_errors

_FAILURE_POLICIES: Final = ["Fail", "Ignore"]
_REINVOCATION_POLICIES: Final = ["IfNeeded", "Never"]
#: Operations that a mutating policy can match: all except deletions.
_MUTABLE_OPERATIONS: Final = ["*", "CONNECT", "CREATE", "UPDATE"]
#: Patch types of a mutation, and the field that holds the expression of each.
_PATCH_FIELDS: Final = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}


def default_service_port(client: Any) -> None:
    if isinstance(client, dict) and client.get("service"):
        fill(client["service"], port=443)


def default_webhooks(doc: Document) -> None:
    for webhook in doc.get("webhooks") or ():
        fill(webhook, failurePolicy="Fail", timeoutSeconds=10)
        _default_match(webhook)
        if doc.get("kind") == "MutatingWebhookConfiguration":
            fill(webhook, reinvocationPolicy="Never")
        default_service_port(webhook.get("clientConfig"))
        _default_scopes(webhook.get("rules"))


def check_webhooks(doc: Document) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, webhook in enumerate(doc.get("webhooks") or ()):
        path = f"webhooks[{index}]"
        if webhook["sideEffects"] not in ("None", "NoneOnDryRun"):
            supported = ["None", "NoneOnDryRun"]
            errors.append(not_supported(f"{path}.sideEffects", webhook["sideEffects"], supported))
        client = webhook["clientConfig"]
        if bool(client.get("url")) == bool(client.get("service")):
            text = "exactly one of url or service is required"
            errors.append(required(f"{path}.clientConfig", text))
    return errors


def default_policy(doc: Document) -> None:
    spec = fill(doc.setdefault("spec", {}), failurePolicy="Fail")
    _default_match_resources(spec.get("matchConstraints"))


def default_policy_binding(doc: Document) -> None:
    _default_match_resources((doc.get("spec") or {}).get("matchResources"))


def check_mutating_policy(doc: Document) -> list[FieldError]:
    spec = doc["spec"]
    errors: list[FieldError] = []
    if spec["failurePolicy"] not in _FAILURE_POLICIES:
        supported = _FAILURE_POLICIES
        errors.append(not_supported("spec.failurePolicy", spec["failurePolicy"], supported))
    match = spec.get("matchConstraints")
    if match is None:
        errors.append(required("spec.matchConstraints"))
    else:
        if not match.get("resourceRules"):
            errors.append(required("spec.matchConstraints.resourceRules"))
        errors += _check_operations(match, "spec.matchConstraints")
    errors += _check_mutations(spec.get("mutations") or ())
    reinvocation = spec.get("reinvocationPolicy")
    if not reinvocation:
        errors.append(required("spec.reinvocationPolicy"))
    elif reinvocation not in _REINVOCATION_POLICIES:
        supported = _REINVOCATION_POLICIES
        errors.append(not_supported("spec.reinvocationPolicy", reinvocation, supported))
    return errors


def check_mutating_policy_binding(doc: Document) -> list[FieldError]:
    spec = doc["spec"]
    name = spec["policyName"]
    errors = [invalid("spec.policyName", name, text) for text in subdomain_errors(name)]
    return errors + _check_operations(spec.get("matchResources") or {}, "spec.matchResources")


def _check_mutations(mutations: Any) -> list[FieldError]:
    if not mutations:
        return [required("spec.mutations", "mutations must contain at least one item")]
    return [
        error
        for index, mutation in enumerate(mutations)
        for error in _check_mutation(mutation, f"spec.mutations[{index}]")
    ]


def _check_mutation(mutation: dict[str, Any], path: str) -> list[FieldError]:
    kind = mutation.get("patchType")
    if not kind:
        return [required(f"{path}.patchType")]
    if kind not in _PATCH_FIELDS:
        return [not_supported(f"{path}.patchType", kind, sorted(_PATCH_FIELDS))]
    field = _PATCH_FIELDS[kind]
    errors: list[FieldError] = []
    if mutation.get(field) is None:
        errors.append(required(f"{path}.{field}", f"must be specified when patchType is {kind}"))
    elif not (mutation[field].get("expression") or "").strip():
        errors.append(required(f"{path}.{field}.expression"))
    for other in _PATCH_FIELDS.values():
        if other != field and mutation.get(other) is not None:
            text = f"must not be specified when patchType is {kind}"
            errors.append(invalid(f"{path}.{other}", f"{{{other}}}", text))
    return errors


def _check_operations(match: dict[str, Any], path: str) -> list[FieldError]:
    return [
        not_supported(f"{path}.resourceRules.operations", operation, _MUTABLE_OPERATIONS)
        for rule in match.get("resourceRules") or ()
        for operation in rule.get("operations") or ()
        if operation not in _MUTABLE_OPERATIONS
    ]


def _default_match_resources(match: dict[str, Any] | None) -> None:
    if match is None:
        return
    _default_match(match)
    _default_scopes(match.get("resourceRules"))
    _default_scopes(match.get("excludeResourceRules"))


def _default_match(target: dict[str, Any]) -> None:
    fill(target, matchPolicy="Equivalent")
    target.setdefault("namespaceSelector", {})
    target.setdefault("objectSelector", {})


def _default_scopes(rules: Any) -> None:
    for rule in rules or ():
        fill(rule, scope="*")
