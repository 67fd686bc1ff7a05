"""Defaults and validation of webhook configurations, as upstream; shared with policies."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from onejob.api.kinds.base import fill
from onejob.api.kinds.webhook_addresses import client_errors, review_version_errors
from onejob.api.strategy import Document
from onejob.wire.field_errors import (
    FieldError,
    duplicate,
    invalid,
    not_supported,
    required,
    too_many,
)
from onejob.wire.labels import validate_label_selector
from onejob.wire.names import qualified_name_errors, subdomain_errors

_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES: Final = ["*", "Cluster", "Namespaced"]
_CHOICES: Final = {
    "failurePolicy": ("Fail", "Ignore"),
    "matchPolicy": ("Equivalent", "Exact"),
    "reinvocationPolicy": ("IfNeeded", "Never"),
}
_NO_SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")
_LONGEST_SECONDS: Final = 30
_MOST_CONDITIONS: Final = 64
_ONLY_WILDCARD: Final = "if '*' is present, must not specify other {}"


def default_service_port(client: Any) -> None:
    if isinstance(client, dict) and client.get("service"):
        fill(client["service"], port=443)


def default_webhooks(doc: Document) -> None:
    """Set the defaults of a webhook configuration in place."""
    for webhook in doc.get("webhooks") or ():
        fill(webhook, failurePolicy="Fail", timeoutSeconds=10)
        default_match(webhook)
        if doc.get("kind") == "MutatingWebhookConfiguration":
            fill(webhook, reinvocationPolicy="Never")
        default_service_port(webhook.get("clientConfig"))
        default_scopes(webhook.get("rules"))


def check_webhooks(doc: Document) -> list[FieldError]:
    errors: list[FieldError] = []
    names: set[str] = set()
    for index, webhook in enumerate(doc.get("webhooks") or ()):
        path = f"webhooks[{index}]"
        errors += _check_webhook(webhook, path)
        if webhook["name"] in names:
            errors.append(duplicate(f"{path}.name", webhook["name"]))
        names.add(webhook["name"])
        effects = webhook.get("sideEffects")
        if effects is None:
            text = f"must specify one of {', '.join(_NO_SIDE_EFFECTS)}"
            errors.append(required(f"{path}.sideEffects", text))
        elif effects not in _NO_SIDE_EFFECTS:
            errors.append(not_supported(f"{path}.sideEffects", effects, list(_NO_SIDE_EFFECTS)))
    return errors


def _check_webhook(webhook: dict[str, Any], path: str) -> list[FieldError]:
    """Check one webhook, except for its sideEffects."""
    name = webhook["name"]
    errors = [invalid(f"{path}.name", name, text) for text in subdomain_errors(name)]
    if not errors and len(name.split(".")) < 3:
        text = "should be a domain with at least three segments separated by dots"
        errors.append(invalid(f"{path}.name", name, text))
    versions = webhook.get("admissionReviewVersions") or []
    errors += review_version_errors(
        versions, f"{path}.admissionReviewVersions", "must specify one of v1, v1beta1"
    )
    for field in ("namespaceSelector", "objectSelector"):
        errors += validate_label_selector(webhook.get(field) or {}, f"{path}.{field}")
    for index, rule in enumerate(webhook.get("rules") or ()):
        errors += check_rule(rule, f"{path}.rules[{index}]")
    for field, supported in _CHOICES.items():
        value = webhook.get(field)
        if value is not None and value not in supported:
            errors.append(not_supported(f"{path}.{field}", value, list(supported)))
    seconds = webhook.get("timeoutSeconds", 10)
    if not 1 <= seconds <= _LONGEST_SECONDS:
        text = f"the timeout value must be between 1 and {_LONGEST_SECONDS} seconds"
        errors.append(invalid(f"{path}.timeoutSeconds", seconds, text))
    errors += client_errors(webhook.get("clientConfig") or {}, f"{path}.clientConfig")
    conditions = webhook.get("matchConditions") or ()
    return errors + check_conditions(conditions, f"{path}.matchConditions", _check_expression)


def check_rule(rule: dict[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for field, what, known in (
        ("operations", "operations", _OPERATIONS),
        ("apiGroups", "API groups", ()),
        ("apiVersions", "API versions", ()),
    ):
        values = rule.get(field) or []
        if not values:
            errors.append(required(f"{path}.{field}"))
        if "*" in values and len(values) > 1:
            text = _ONLY_WILDCARD.format(what)
            errors.append(invalid(f"{path}.{field}", values, text))
        for index, value in enumerate(values):
            if known and value not in known:
                errors.append(not_supported(f"{path}.{field}[{index}]", value, list(known)))
            if not value and field == "apiVersions":
                errors.append(required(f"{path}.{field}[{index}]"))
    errors += _check_resources(rule.get("resources") or [], f"{path}.resources")
    if rule.get("scope", "*") not in _SCOPES:
        errors.append(not_supported(f"{path}.scope", rule["scope"], _SCOPES))
    return errors


def _check_resources(resources: Sequence[str], path: str) -> list[FieldError]:
    errors = [] if resources else [required(path)]
    whole: set[str] = set()
    everywhere: set[str] = set()
    for index, resource in enumerate(resources):
        place = f"{path}[{index}]"
        if not resource:
            errors.append(required(place))
            continue
        name, slash, subresource = resource.partition("/")
        if not slash:
            continue
        for wildcard, covered in (
            (f"{name}/*", name in whole),
            (f"*/{subresource}", subresource in everywhere),
        ):
            if covered:
                text = f"if '{wildcard}' is present, must not specify {resource}"
                errors.append(invalid(place, resource, text))
        if subresource == "*":
            whole.add(name)
        if name == "*":
            everywhere.add(subresource)
    if "*/*" in resources and len(resources) > 1:
        text = "if '*/*' is present, must not specify other resources"
        errors.append(invalid(path, list(resources), text))
    plain = [resource for resource in resources if resource and "/" not in resource]
    # As upstream, whose check depends on the order.
    if "*" in plain and plain[-1] != "*":
        text = "if '*' is present, must not specify other resources without subresources"
        errors.append(invalid(path, list(resources), text))
    return errors


def check_conditions(
    conditions: Sequence[Mapping[str, Any]],
    path: str,
    check_expression: Callable[[str, str], list[FieldError]],
) -> list[FieldError]:
    """Check matchConditions. `check_expression` gets an expression and its path."""
    errors: list[FieldError] = []
    if len(conditions) > _MOST_CONDITIONS:
        errors.append(too_many(path, len(conditions), _MOST_CONDITIONS))
    names: set[str] = set()
    for index, condition in enumerate(conditions):
        place = f"{path}[{index}]"
        name, expression = condition.get("name", ""), (condition.get("expression") or "").strip()
        if not expression:
            errors.append(required(f"{place}.expression"))
        else:
            errors += check_expression(expression, f"{place}.expression")
        if not name:
            errors.append(required(f"{place}.name"))
        else:
            errors += [invalid(f"{place}.name", name, text) for text in qualified_name_errors(name)]
            if name in names:
                errors.append(duplicate(f"{place}.name", name))
        names.add(name)
    return errors


def _check_expression(expression: str, path: str) -> list[FieldError]:
    # Imported with the first condition: few servers have any.
    from onejob.cel import CompileError
    from onejob.cel.admission import BOOLEAN, Expressions

    try:
        Expressions(composed=False).compile(expression, BOOLEAN)
    except CompileError as error:
        return [invalid(path, expression, str(error))]
    return []


def default_match(target: dict[str, Any]) -> None:
    """Set the defaults of match conditions in place."""
    fill(target, matchPolicy="Equivalent")
    target.setdefault("namespaceSelector", {})
    target.setdefault("objectSelector", {})


def default_scopes(rules: Any) -> None:
    for rule in rules or ():
        fill(rule, scope="*")
