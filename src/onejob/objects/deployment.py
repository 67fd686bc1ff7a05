"""Deployment and ReplicaSet views of their controllers."""

from datetime import datetime
from typing import Final, TypeAlias

import msgspec

from onejob.objects.meta import Key, LabelSelector, Meta, View

API_VERSION: Final = "apps/v1"
DEPLOYMENTS: Final = "deployments.apps"
REPLICA_SETS: Final = "replicasets.apps"

#: Number of Pods, or percentage of the replicas, `25%`.
Share: TypeAlias = int | str


class WorkloadCondition(View, frozen=True):
    """A condition of a Deployment or of a ReplicaSet; only the former have an update time."""

    type: str = ""
    status: str = ""
    last_update_time: datetime | None = None
    last_transition_time: datetime | None = None
    reason: str = ""
    message: str = ""


class RollingUpdate(View, frozen=True):
    max_unavailable: Share = "25%"
    max_surge: Share = "25%"


class Strategy(View, frozen=True):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdate = RollingUpdate()


class DeploymentSpec(View, frozen=True):
    replicas: int = 1
    selector: LabelSelector = LabelSelector()
    #: Raw stored bytes; `onejob.planning.deployment.documents` makes ReplicaSets from them.
    template: msgspec.Raw = msgspec.Raw(b"{}")
    strategy: Strategy = Strategy()
    min_ready_seconds: int = 0
    revision_history_limit: int = 10
    paused: bool = False
    progress_deadline_seconds: int | None = None


class DeploymentStatus(View, frozen=True):
    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    terminating_replicas: int = 0
    conditions: tuple[WorkloadCondition, ...] = ()
    #: Number of ReplicaSets whose name was taken by a foreign object.
    collision_count: int | None = None


class Deployment(View, frozen=True):
    metadata: Meta = Meta()
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()

    @property
    def key(self) -> Key:
        return Key(DEPLOYMENTS, self.metadata.namespace, self.metadata.name)


class ReplicaSetSpec(View, frozen=True):
    replicas: int = 1
    selector: LabelSelector = LabelSelector()
    template: msgspec.Raw = msgspec.Raw(b"{}")
    min_ready_seconds: int = 0


class ReplicaSetStatus(View, frozen=True):
    replicas: int = 0
    fully_labeled_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    terminating_replicas: int = 0
    observed_generation: int = 0
    conditions: tuple[WorkloadCondition, ...] = ()


class ReplicaSet(View, frozen=True):
    metadata: Meta = Meta()
    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()

    @property
    def key(self) -> Key:
        return Key(REPLICA_SETS, self.metadata.namespace, self.metadata.name)


read_deployment = msgspec.json.Decoder(Deployment).decode
read_replica_set = msgspec.json.Decoder(ReplicaSet).decode
