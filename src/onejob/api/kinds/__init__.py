"""Strategies of the built-in kinds: implementations of `onejob.api.strategy`."""

from collections.abc import Callable, Mapping

from onejob.api.kinds.base import BaseStrategy, UnnamedStrategy
from onejob.api.kinds.core import (
    ConfigMapStrategy,
    LeaseStrategy,
    NamespaceStrategy,
    NodeStrategy,
    SecretStrategy,
    ServiceAccountStrategy,
    ServiceStrategy,
)
from onejob.api.kinds.events import EventStrategy, EventsV1Strategy
from onejob.api.kinds.job.strategy import JobStrategy
from onejob.api.kinds.pod.strategy import PodStrategy
from onejob.api.strategy import Strategy
from onejob.gates import FeatureGates
from onejob.planning.names import TRACKING
from onejob.wire.kinds import Kind

__all__ = ["Strategies", "strategy_for"]


class Strategies(dict[str, Strategy]):
    """Strategies by resource name, created on first access.

    A run uses few of the existing kinds, so the rules of the others are never imported.
    """

    def __init__(self, makers: Mapping[str, Callable[[], Strategy]]) -> None:
        super().__init__()
        self._makers = makers

    def __missing__(self, resource: str) -> Strategy:
        made = self[resource] = self._makers[resource]()
        return made


def strategy_for(kind: Kind, gates: FeatureGates, *, tracking: str = TRACKING) -> Strategy:
    """Return the strategy of a kind.

    The feature gates are read once, here; later changes have no effect. `tracking` is the name of
    the annotation on tracked Jobs, in the mode that uses one.
    """
    match kind.resource:
        case "jobs.batch":
            return JobStrategy(kind, gates, tracking)
        case "cronjobs.batch":
            from onejob.api.kinds.cronjob import CronJobStrategy

            return CronJobStrategy(kind, gates)
        case "pods":
            return PodStrategy(kind, gates)
        case "workflows.onejob.dev":
            from onejob.api.kinds.workflow.strategy import WorkflowStrategy

            return WorkflowStrategy(kind)
        case "cronworkflows.onejob.dev":
            from onejob.api.kinds.workflow.cron import CronWorkflowStrategy

            return CronWorkflowStrategy(kind)
        case "namespaces":
            return NamespaceStrategy(kind)
        case "configmaps":
            return ConfigMapStrategy(kind)
        case "secrets":
            return SecretStrategy(kind)
        case "serviceaccounts":
            return ServiceAccountStrategy(kind)
        case "services":
            return ServiceStrategy(kind)
        case "nodes":
            return NodeStrategy(kind)
        case "leases.coordination.k8s.io":
            return LeaseStrategy(kind)
        case "events":
            return EventStrategy(kind)
        case "events.events.k8s.io":
            return EventsV1Strategy(kind)
        case "roles.rbac.authorization.k8s.io" | "clusterroles.rbac.authorization.k8s.io":
            from onejob.api.kinds.rbac import RoleStrategy

            return RoleStrategy(kind)
        case (
            "rolebindings.rbac.authorization.k8s.io"
            | "clusterrolebindings.rbac.authorization.k8s.io"
        ):
            from onejob.api.kinds.rbac import BindingStrategy

            return BindingStrategy(kind)
        case "persistentvolumeclaims":
            from onejob.api.kinds.claims import ClaimStrategy

            return ClaimStrategy(kind)
        case "persistentvolumes":
            from onejob.api.kinds.claims import VolumeStrategy

            return VolumeStrategy(kind)
        case "certificatesigningrequests.certificates.k8s.io":
            from onejob.api.kinds.certificates.strategy import CertificateRequestStrategy

            return CertificateRequestStrategy(kind)
        case "storageclasses.storage.k8s.io":
            from onejob.api.kinds.stored import StoredStrategy

            return StoredStrategy(kind)
        case _ if kind.stored_only:
            from onejob.api.kinds.stored import StoredStrategy

            return StoredStrategy(kind)
        case _:
            return UnnamedStrategy(kind) if kind.verbs == ("create",) else BaseStrategy(kind)
