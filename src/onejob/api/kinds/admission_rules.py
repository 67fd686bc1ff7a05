"""Defaults and validation of webhook configurations and admission policies, as upstream.

Expressions of policies are not compiled, because nothing evaluates them.
"""

from typing import Any, Final
from urllib.parse import urlsplit

from onejob.api.kinds.base import fill
from onejob.api.strategy import Document
from onejob.wire.field_errors import (
    FieldError,
    duplicate,
    invalid,
    not_supported,
    required,
    too_many,
)
from onejob.wire.names import subdomain_errors

_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES: Final = ["*", "Cluster", "Namespaced"]
_CHOICES: Final = {
    "failurePolicy": ("Fail", "Ignore"),
    "matchPolicy": ("Equivalent", "Exact"),
    "reinvocationPolicy": ("IfNeeded", "Never"),
}
_LONGEST_SECONDS: Final = 30
_LARGEST_PORT: Final = 65535
_MOST_CONDITIONS: Final = 64
_ONLY_WILDCARD: Final = "if '*' is present, must not specify other {}"
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
    names: set[str] = set()
    for index, webhook in enumerate(doc.get("webhooks") or ()):
        path = f"webhooks[{index}]"
        errors += _check_webhook(webhook, path)
        if webhook["name"] in names:
            errors.append(duplicate(f"{path}.name", webhook["name"]))
        names.add(webhook["name"])
        if webhook["sideEffects"] not in ("None", "NoneOnDryRun"):
            supported = ["None", "NoneOnDryRun"]
            errors.append(not_supported(f"{path}.sideEffects", webhook["sideEffects"], supported))
        client = webhook["clientConfig"]
        if bool(client.get("url")) == bool(client.get("service")):
            text = "exactly one of url or service is required"
            errors.append(required(f"{path}.clientConfig", text))
    return errors


def _check_webhook(webhook: dict[str, Any], path: str) -> list[FieldError]:
    """Check one webhook, except for its sideEffects."""
    name = webhook["name"]
    errors = [invalid(f"{path}.name", name, text) for text in subdomain_errors(name)]
    if not errors and len(name.split(".")) < 3:
        text = "should be a domain with at least three segments separated by dots"
        errors.append(invalid(f"{path}.name", name, text))
    versions = webhook["admissionReviewVersions"]
    if not versions:
        text = "must specify one of v1, v1beta1"
        errors.append(required(f"{path}.admissionReviewVersions", text))
    elif not {"v1", "v1beta1"} & set(versions):
        text = "must include at least one of v1, v1beta1"
        errors.append(invalid(f"{path}.admissionReviewVersions", versions, text))
    for index, rule in enumerate(webhook.get("rules") or ()):
        errors += _check_rule(rule, f"{path}.rules[{index}]")
    for field, supported in _CHOICES.items():
        value = webhook.get(field)
        if value is not None and value not in supported:
            errors.append(not_supported(f"{path}.{field}", value, list(supported)))
    seconds = webhook.get("timeoutSeconds", 10)
    if not 1 <= seconds <= _LONGEST_SECONDS:
        text = f"the timeout value must be between 1 and {_LONGEST_SECONDS} seconds"
        errors.append(invalid(f"{path}.timeoutSeconds", seconds, text))
    errors += _check_client(webhook["clientConfig"], f"{path}.clientConfig")
    return errors + _check_conditions(webhook.get("matchConditions") or (), path)


def _check_rule(rule: dict[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for field, known in (("operations", _OPERATIONS), ("apiGroups", ()), ("apiVersions", ())):
        values = rule.get(field) or []
        if not values:
            errors.append(required(f"{path}.{field}"))
        if "*" in values and len(values) > 1:
            text = _ONLY_WILDCARD.format(field)
            errors.append(invalid(f"{path}.{field}", values, text))
        for index, value in enumerate(values):
            if known and value not in known:
                errors.append(not_supported(f"{path}.{field}[{index}]", value, list(known)))
            if not value and field == "apiVersions":
                errors.append(required(f"{path}.{field}[{index}]"))
    resources = rule.get("resources") or []
    if not resources:
        errors.append(required(f"{path}.resources"))
    for index, value in enumerate(resources):
        if not value:
            errors.append(required(f"{path}.resources[{index}]"))
    if "*/*" in resources and len(resources) > 1:
        text = "if '*/*' is present, must not specify other resources"
        errors.append(invalid(f"{path}.resources", resources, text))
    if rule.get("scope", "*") not in _SCOPES:
        errors.append(not_supported(f"{path}.scope", rule["scope"], _SCOPES))
    return errors


def _check_client(client: dict[str, Any], path: str) -> list[FieldError]:
    """Check the address of a webhook, of which exactly one form is given."""
    if url := client.get("url"):
        return [invalid(f"{path}.url", url, text) for text in _url_errors(url)]
    service = client.get("service") or {}
    errors: list[FieldError] = []
    if service:
        errors += [
            required(f"{path}.service.{field}")
            for field in ("name", "namespace")
            if not service.get(field)
        ]
        place = service.get("path", "")
        if place and not place.startswith("/"):
            errors.append(invalid(f"{path}.service.path", place, "must start with a '/'"))
        port = service.get("port", 443)
        if not 1 <= port <= _LARGEST_PORT:
            text = "port is not valid: must be between 1 and 65535, inclusive"
            errors.append(invalid(f"{path}.service.port", port, text))
    return errors


def _url_errors(url: str) -> list[str]:
    form = "; desired format: https://host[/path]"
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError as error:
        return [f"url must be a valid URL: {error}{form}"]
    errors = []
    if parts.scheme != "https":
        errors.append(f"'https' is the only allowed URL scheme{form}")
    if not host:
        errors.append(f"host must be specified{form}")
    if "@" in parts.netloc:
        errors.append("user information is not permitted in the URL")
    if parts.fragment:
        errors.append("fragments are not permitted in the URL")
    if parts.query:
        errors.append("query parameters are not permitted in the URL")
    return errors


def _check_conditions(conditions: Any, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if len(conditions) > _MOST_CONDITIONS:
        errors.append(too_many(f"{path}.matchConditions", len(conditions), _MOST_CONDITIONS))
    names: set[str] = set()
    for index, condition in enumerate(conditions):
        place = f"{path}.matchConditions[{index}]"
        name, expression = condition.get("name", ""), (condition.get("expression") or "").strip()
        if not name:
            errors.append(required(f"{place}.name"))
        elif name in names:
            errors.append(duplicate(f"{place}.name", name))
        names.add(name)
        if not expression:
            errors.append(required(f"{place}.expression"))
        else:
            errors += _check_expression(expression, f"{place}.expression")
    return errors


def _check_expression(expression: str, path: str) -> list[FieldError]:
    # Imported with the first condition: few servers have any.
    from onejob.cel import DYN, CompileError, compile_rule

    try:
        compile_rule(expression, dict.fromkeys(("object", "oldObject", "request"), DYN))
    except CompileError as error:
        return [invalid(path, expression, f"compilation failed: {error}")]
    return []


def default_policy(doc: Document) -> None:
    """Set the defaults of an admission policy in place."""
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
    """Set the defaults of match conditions in place."""
    fill(target, matchPolicy="Equivalent")
    target.setdefault("namespaceSelector", {})
    target.setdefault("objectSelector", {})


def _default_scopes(rules: Any) -> None:
    for rule in rules or ():
        fill(rule, scope="*")
