"""Webhook configurations, parsed once per version."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from onejob.api.admission.dynamic.activation import MatchConditions, compiled
from onejob.api.admission.dynamic.attributes import GROUP
from onejob.api.admission.dynamic.matching import (
    Attempt,
    Rule,
    Selectors,
    matching_version,
    read_rules,
    read_selectors,
)
from onejob.cel.admission import BOOLEAN, Expressions
from onejob.webhooks.reviews import REVIEW_VERSIONS
from onejob.wire.kinds import Kind

MUTATING: Final = f"mutatingwebhookconfigurations.{GROUP}"
VALIDATING: Final = f"validatingwebhookconfigurations.{GROUP}"


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
    conditions: MatchConditions
    fails_open: bool
    exact: bool
    reinvocable: bool
    seconds: float
    #: Version of its reviews.
    review_version: str

    def version_for(self, attempt: Attempt) -> Kind | None:
        """Return the version in which the webhook gets a request; None if no rule matches."""
        return matching_version(self.rules, attempt, exact=self.exact)


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
        read_selectors(raw),
        _conditions(raw.get("matchConditions") or ()),
        raw.get("failurePolicy") == "Ignore",
        raw.get("matchPolicy") == "Exact",
        raw.get("reinvocationPolicy") == "IfNeeded",
        float(raw.get("timeoutSeconds") or 10),
        _review_version(raw.get("admissionReviewVersions") or ()),
    )


def _review_version(versions: Sequence[str]) -> str:
    """Return the first version of reviews that we know, too."""
    return next((version for version in versions if version in REVIEW_VERSIONS), "v1")


def _conditions(entries: Sequence[Mapping[str, Any]]) -> MatchConditions:
    if not entries:
        return MatchConditions()
    expressions = Expressions(composed=False)
    return MatchConditions(
        tuple(
            compiled(lambda source: expressions.compile(source, BOOLEAN), entry["expression"])
            for entry in entries
        )
    )
