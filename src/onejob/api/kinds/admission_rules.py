"""Defaults and validation of webhook configurations, as upstream; shared with policies."""

from collections.abc import Callable, Mapping, Sequence
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
from onejob.wire.names import qualified_name_errors, subdomain_errors

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
        errors += check_rule(rule, f"{path}.rules[{index}]")
    for field, supported in _CHOICES.items():
        value = webhook.get(field)
        if value is not None and value not in supported:
            errors.append(not_supported(f"{path}.{field}", value, list(supported)))
    seconds = webhook.get("timeoutSeconds", 10)
    if not 1 <= seconds <= _LONGEST_SECONDS:
        text = f"the timeout value must be between 1 and {_LONGEST_SECONDS} seconds"
        errors.append(invalid(f"{path}.timeoutSeconds", seconds, text))
    errors += _check_client(webhook["clientConfig"], f"{path}.clientConfig")
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
    """Return what is wrong with a webhook's URL."""
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
