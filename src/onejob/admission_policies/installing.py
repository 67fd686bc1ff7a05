"""Construction of the policy plugins of a server."""

from onejob.admission_policies.definitions import read_mutating_policy, read_validating_policy
from onejob.admission_policies.mutating import MutatingPolicies
from onejob.admission_policies.validating import ValidatingPolicies
from onejob.api.admission.dynamic.activation import Authorize
from onejob.api.service import Service
from onejob.metrics import Metrics


def policy_plugins(
    service: Service, metrics: Metrics, authorize: Authorize
) -> tuple[MutatingPolicies, ValidatingPolicies]:
    """Return the plugins of the mutating and of the validating phase."""
    shared = (service.store, service.kinds, metrics, service.converted, authorize)
    return (
        MutatingPolicies(*shared, read_mutating_policy, service.schema),
        ValidatingPolicies(*shared, read_validating_policy),
    )
