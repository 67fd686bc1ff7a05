"""What each kind decides about its own documents: see `onejob.api.strategy`."""

from onejob.api.strategies.base import BaseStrategy, UnnamedStrategy
from onejob.api.strategies.core import (
    ConfigMapStrategy,
    LeaseStrategy,
    NamespaceStrategy,
    NodeStrategy,
    SecretStrategy,
    ServiceAccountStrategy,
    ServiceStrategy,
)
from onejob.api.strategies.cronjob import CronJobStrategy
from onejob.api.strategies.events import EventStrategy, EventsV1Strategy
from onejob.api.strategies.job.strategy import JobStrategy
from onejob.api.strategies.pod.strategy import PodStrategy
from onejob.api.strategies.rbac import BindingStrategy, RoleStrategy
from onejob.api.strategies.stored import StoredStrategy
from onejob.api.strategy import Strategy
from onejob.gates import FeatureGates
from onejob.planning.names import TRACKING
from onejob.planning.rbac.policy import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
)
from onejob.wire.kinds import Kind

__all__ = ["strategy_for"]


def strategy_for(kind: Kind, gates: FeatureGates, *, tracking: str = TRACKING) -> Strategy:
    """The gates are read here, once; a strategy does not change its mind later. `tracking` is
    the annotation that Jobs get which are tracked, where they get one."""
    match kind.resource:
        case "jobs.batch":
            return JobStrategy(kind, gates, tracking)
        case "cronjobs.batch":
            return CronJobStrategy(kind, gates)
        case "pods":
            return PodStrategy(kind, gates)
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
        case resource if resource in (ROLES, CLUSTER_ROLES):
            return RoleStrategy(kind)
        case resource if resource in (ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS):
            return BindingStrategy(kind)
        case _ if kind.stored_only:
            return StoredStrategy(kind)
        case _:
            return UnnamedStrategy(kind) if kind.verbs == ("create",) else BaseStrategy(kind)
