"""Webhook configurations, parsed once per version."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct

from onejob.api.admission.dynamic.attributes import (
    GROUP,
    AdmissionRequest,
    Operation,
)
from onejob.api.admission.dynamic.matching import Rule, Selectors, read_rules, read_selector
from onejob.cel import DYN, CompileError, CostLimitExceeded, EvaluationError, Program, compile_rule
from onejob.webhooks.reviews import user_info
from onejob.wire.kinds import Kind

MUTATING: Final = f"mutatingwebhookconfigurations.{GROUP}"
VALIDATING: Final = f"validatingwebhookconfigurations.{GROUP}"

_VARIABLES: Final = {"object": DYN, "oldObject": DYN, "request": DYN}


class ClientConfig(Struct, frozen=True):
    """Address of a webhook: a URL, or a Service."""

    url: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    port: int = 443
    #: Base64 of PEM certificates; empty for the system's authorities.
    ca_bundle: str = ""


class Webhook(Struct, frozen=True):
    """One webhook of a configuration."""

    configuration: str
    #: Unique among all webhooks, for reinvocation.
    uid: str
    name: str
    client: ClientConfig
    rules: tuple[Rule, ...]
    selectors: Selectors
    conditions: tuple[tuple[str, Program | str], ...]
    fails_open: bool
    exact: bool
    reinvocable: bool
    seconds: float

    def version_for(
        self, operation: Operation, kind: Kind, subresource: str, others: Iterator[Kind]
    ) -> Kind | None:
        """Return the version in which the webhook gets a request; None if no rule matches.

        `others` are further versions of the same resource, which match unless the policy is Exact.
        """
        if self._has_rule(operation, kind, subresource):
            return kind
        if self.exact:
            return None
        return next(
            (other for other in others if self._has_rule(operation, other, subresource)), None
        )

    def _has_rule(self, operation: Operation, kind: Kind, subresource: str) -> bool:
        return any(rule.matches(operation, kind, subresource) for rule in self.rules)

    def condition_holds(self, request: AdmissionRequest) -> bool:
        """Return whether all match conditions hold. Raises EvaluationError."""
        if not self.conditions:
            return True
        values = {
            "object": request.object,
            "oldObject": request.old_object,
            "request": _request_value(request),
        }
        problem = ""
        for name, program in self.conditions:
            if isinstance(program, str):
                problem = problem or f"{name}: {program}"
                continue
            try:
                if program.evaluate(values) is not True:
                    return False
            except (EvaluationError, CostLimitExceeded) as error:
                problem = problem or f"{name}: {error}"
        if problem:
            raise EvaluationError(problem)
        return True


def read_webhooks(value: bytes) -> tuple[Webhook, ...]:
    """Return the webhooks of an encoded configuration, in order."""
    document = msgspec.json.decode(value)
    name = document["metadata"]["name"]
    return tuple(
        _webhook(name, index, raw) for index, raw in enumerate(document.get("webhooks") or ())
    )


def read_client(raw: dict[str, Any]) -> ClientConfig:
    service = raw.get("service") or {}
    return ClientConfig(
        raw.get("url") or "",
        service.get("namespace") or "",
        service.get("name") or "",
        service.get("path") or "",
        service.get("port") or 443,
        raw.get("caBundle") or "",
    )


def _webhook(configuration: str, index: int, raw: dict[str, Any]) -> Webhook:
    return Webhook(
        configuration,
        f"{configuration}/{raw['name']}/{index}",
        raw["name"],
        read_client(raw["clientConfig"]),
        read_rules(raw.get("rules")),
        Selectors(
            read_selector(raw.get("namespaceSelector")), read_selector(raw.get("objectSelector"))
        ),
        tuple(
            (entry["name"], _compiled(entry["expression"]))
            for entry in raw.get("matchConditions") or ()
        ),
        raw.get("failurePolicy") == "Ignore",
        raw.get("matchPolicy") == "Exact",
        raw.get("reinvocationPolicy") == "IfNeeded",
        float(raw.get("timeoutSeconds") or 10),
    )


def _compiled(expression: str) -> Program | str:
    try:
        return compile_rule(expression, _VARIABLES)
    except CompileError as error:
        return f"compilation failed: {error}"


def _request_value(request: AdmissionRequest) -> dict[str, Any]:
    group, version, kind = request.body_kind
    resource = request.kind
    kinds = {"group": group, "version": version, "kind": kind}
    resources = {
        "group": resource.group,
        "version": resource.version,
        "resource": resource.plural,
    }
    return {
        "kind": kinds,
        "resource": resources,
        "requestKind": kinds,
        "requestResource": resources,
        "subResource": request.subresource,
        "requestSubResource": request.subresource,
        "name": request.name,
        "namespace": request.namespace,
        "operation": request.operation,
        "userInfo": {"uid": "", "groups": [], "extra": {}, **user_info(request.user)},
        "dryRun": request.dry_run,
        "options": request.options,
    }
