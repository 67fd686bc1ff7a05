"""Controllers of Deployments and ReplicaSets, imported with the first object of either kind."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from onejob.assembly.parts import Controller, Parts
from onejob.controllers.on_demand import OnDemand
from onejob.controllers.selection import DEPLOYMENT, REPLICA_SET
from onejob.informers.cache import IndexEntry
from onejob.node.runtimes import runtime_kind

if TYPE_CHECKING:
    from onejob.controllers.deployments.deployments import DeploymentController
    from onejob.controllers.deployments.replica_sets import ReplicaSetController
    from onejob.informers.informer import Informer
    from onejob.objects.deployment import Deployment, ReplicaSet

_DEPLOYMENTS: Final = "deployments.apps"
_REPLICA_SETS: Final = "replicasets.apps"


def deployment_controller(parts: Parts) -> Controller:
    context = parts.controller_context(DEPLOYMENT)
    deployments = parts.informers.viewed(_DEPLOYMENTS, _read_deployment)
    replica_sets = _replica_sets(parts)

    def make() -> "DeploymentController":
        from onejob.controllers.deployments.deployments import DeploymentController

        shares_network = runtime_kind(parts.settings.node.runtime).traits.on_host
        return DeploymentController(
            context, deployments, replica_sets, shares_network=shares_network
        )

    return OnDemand(deployments, make)


def replica_set_controller(parts: Parts) -> Controller:
    context = parts.controller_context(REPLICA_SET)
    replica_sets = _replica_sets(parts)

    def make() -> "ReplicaSetController":
        from onejob.controllers.deployments.replica_sets import ReplicaSetController

        return ReplicaSetController(context, replica_sets)

    return OnDemand(replica_sets, make)


def _replica_sets(parts: Parts) -> "Informer[ReplicaSet]":
    return parts.informers.viewed(_REPLICA_SETS, _read_replica_set, _index_by_namespace)


def _index_by_namespace(view: Any) -> Sequence[IndexEntry]:
    return (("namespace", view.metadata.namespace),)


# The views are imported with the first document: most servers have none.


def _read_deployment(document: bytes) -> "Deployment":
    from onejob.objects.deployment import read_deployment

    return read_deployment(document)


def _read_replica_set(document: bytes) -> "ReplicaSet":
    from onejob.objects.deployment import read_replica_set

    return read_replica_set(document)
