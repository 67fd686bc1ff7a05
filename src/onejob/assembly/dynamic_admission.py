"""Webhooks, admission policies and conversion, installed with their first configuration."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from onejob.api.admission.dynamic.attributes import CONFIGURATIONS
from onejob.assembly.parts import Parts
from onejob.wire.kinds import Kind

if TYPE_CHECKING:
    from onejob.api.admission.dynamic.activation import Authorize
    from onejob.webhooks.calling import WebhookCaller


def add_dynamic_admission(parts: Parts) -> None:
    """Let the service install dynamic admission when it first needs it."""
    capability = _DynamicAdmission(parts)
    parts.service.converter = capability.convert
    parts.service.admission.dynamic.provide(capability.install)


def install_if_configured(parts: Parts) -> None:
    """Install dynamic admission now if a configuration is stored."""
    if any(parts.store.count(resource, "") for resource in CONFIGURATIONS):
        parts.service.admission.dynamic.install_now()


class _DynamicAdmission:
    """Nothing of it is imported before its first use."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._webhooks: WebhookCaller | None = None

    async def convert(
        self, documents: Sequence[dict[str, Any]], kind: Kind
    ) -> Sequence[dict[str, Any]]:
        from onejob.webhooks.conversion import WebhookConverter

        configuration = self._parts.service.definitions.conversion
        converter = WebhookConverter(self._caller(), configuration, self._parts.rng)
        return await converter.convert(documents, kind)

    def install(self) -> None:
        from onejob.admission_policies.installing import policy_plugins
        from onejob.controllers.policy_status import PolicyStatus
        from onejob.webhooks.plugins import MutatingWebhooks, ValidatingWebhooks

        parts, service, caller = self._parts, self._parts.service, self._caller()
        authorize = self._authorize()
        shared = (
            parts.store, service.kinds, caller, parts.rng, parts.metrics, service.converted,
            authorize,
        )  # fmt: skip
        mutating, validating = policy_plugins(service, parts.metrics, authorize)
        statuses = PolicyStatus(
            lambda: parts.own_client, service.settled, service.kinds, service.schema
        )
        validating.on_policy = statuses.changed
        parts.controllers.add(statuses.run())
        service.admission.dynamic.install(
            (mutating, MutatingWebhooks(*shared)), (validating, ValidatingWebhooks(*shared))
        )

    def _authorize(self) -> "Authorize":
        """Return the authorizer of admission expressions; without RBAC, it allows everything."""
        from onejob.admission_policies.authorizing import allow_all, authorize_with
        from onejob.api.access.authorization import RbacAuthorizer

        access = self._parts.access
        return allow_all if access is None else authorize_with(RbacAuthorizer(access.policy))

    def _caller(self) -> "WebhookCaller":
        if self._webhooks is None:
            from onejob.webhooks.calling import WebhookCaller

            self._webhooks = WebhookCaller(self._parts.store, self._parts.settings.webhook_host)
            self._parts.on_stop(self._webhooks.close)
        return self._webhooks
