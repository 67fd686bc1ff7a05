"""API identities of the server's components under RBAC: each has its own user."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from onejob.client.acting import AllRights, AuthorizedClient, Rights
from onejob.client.local import LocalClient
from onejob.controllers.access import AccessPolicy, ControllerRights, NodeRights
from onejob.controllers.selection import (
    CERTIFICATES,
    CLAIMS,
    CLUSTER_ROLES,
    CRONJOB,
    CRONWORKFLOW,
    DEPLOYMENT,
    DISRUPTION,
    ENDPOINTS,
    GARBAGE,
    JOB,
    MIRROR,
    NAMESPACE,
    NOTIFICATION,
    PENDING,
    POD_GARBAGE,
    QUEUE,
    QUOTA,
    REPLICA_SET,
    TTL,
    WORKFLOW,
)
from onejob.metrics import Metrics
from onejob.planning.rbac.component_roles import (
    controller_user,
    manager_user,
    node_user,
    server_user,
)
from onejob.wire.registry import KindRegistry
from onejob.wire.requests import User

if TYPE_CHECKING:
    from onejob.api.audit.recorder import Auditor

#: Service account of each controller.
ACCOUNTS: Final[Mapping[str, str]] = {
    JOB: "job-controller",
    CRONJOB: "cronjob-controller",
    TTL: "ttl-after-finished-controller",
    GARBAGE: "generic-garbage-collector",
    POD_GARBAGE: "pod-garbage-collector",
    NAMESPACE: "namespace-controller",
    CLUSTER_ROLES: "clusterrole-aggregation-controller",
    QUOTA: "resourcequota-controller",
    DISRUPTION: "disruption-controller",
    QUEUE: "queue-controller",
    PENDING: "pending-deadline-controller",
    MIRROR: "mirror-controller",
    NOTIFICATION: "notification-controller",
    DEPLOYMENT: "deployment-controller",
    REPLICA_SET: "replicaset-controller",
    ENDPOINTS: "endpoint-controller",
    WORKFLOW: "workflow-controller",
    CRONWORKFLOW: "cronworkflow-controller",
    CLAIMS: "persistent-volume-binder",
    CERTIFICATES: "certificate-controller",
}


class Identities:
    """Factory of API clients for the server's components, each acting as its own RBAC user.

    Guarantees: requests are checked against the rights of the component's user; only `server` has
    all rights. A controller gets the same client at each call. With an auditor, all requests are
    audited.
    """

    def __init__(
        self,
        client: LocalClient,
        kinds: KindRegistry,
        metrics: Metrics,
        auditor: "Auditor | None" = None,
    ) -> None:
        self._client = client
        self._kinds = kinds
        self._metrics = metrics
        self._auditor = auditor
        self._clients: dict[str, AuthorizedClient] = {}
        #: The API server's own requests: roles, definitions, the expiry of Events.
        self.server = self._client_for(server_user(), AllRights())
        self.access = AccessPolicy(self.server)
        #: Fills the caches that all controllers share.
        self.informers = self._client_for(manager_user(), ControllerRights(self.access.policy))

    def controller(self, name: str) -> AuthorizedClient:
        """Return the client of a controller, given by its name in `selection`."""
        user = controller_user(ACCOUNTS[name])
        if user.name not in self._clients:
            self._clients[user.name] = self._client_for(user, ControllerRights(self.access.policy))
        return self._clients[user.name]

    def node(self, name: str) -> AuthorizedClient:
        """Return a client with the rights of a node."""
        return self._client_for(node_user(name), NodeRights(self.access.policy))

    def _client_for(self, user: User, rights: Rights) -> AuthorizedClient:
        if self._auditor is None:
            return AuthorizedClient(self._client, user, rights, self._kinds, self._metrics)
        from onejob.client.audited import AuditedClient

        return AuditedClient(self._client, user, rights, self._kinds, self._metrics, self._auditor)
