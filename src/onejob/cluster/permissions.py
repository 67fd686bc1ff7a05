"""Permissions that the controllers need: verified at start, granted by the manifests."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Need:
    """Permission on a resource."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    subresource: str = ""

    @property
    def path(self) -> str:
        """Resource in RBAC notation: `jobs/status`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


@dataclass(frozen=True, slots=True)
class AccessReview:
    """Access check: one verb on one resource in one namespace ("" for all)."""

    need: Need
    verb: str
    namespace: str

    def __str__(self) -> str:
        resource = f"{self.need.path}.{self.need.group}" if self.need.group else self.need.path
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {resource}{where}"

    def review(self) -> dict[str, Any]:
        """Return the SelfSubjectAccessReview that asks for the permission."""
        attributes = {
            "verb": self.verb,
            "group": self.need.group,
            "resource": self.need.resource,
            "subresource": self.need.subresource,
            "namespace": self.namespace,
        }
        return {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {k: v for k, v in attributes.items() if v}},
        }


#: In every namespace with Jobs.
NEEDS: Sequence[Need] = (
    # `patch` is for Jobs that wait for others: they are suspended meanwhile.
    Need("batch", "jobs", ("get", "list", "watch", "patch")),
    Need("batch", "jobs", ("patch",), "status"),
    # Creating a Pod that blocks the deletion of its Job requires the permission to update the Job's
    # finalizers.
    Need("batch", "jobs", ("update",), "finalizers"),
    Need("", "pods", ("get", "list", "watch", "create", "patch", "delete")),
    Need("", "events", ("create", "patch")),
)
#: In the namespace of the controller itself. A Job is created there as a dry run only.
OWN_NAMESPACE_PERMISSIONS: Sequence[Need] = (Need("batch", "jobs", ("create",)),)
#: With `--mirror`: for the status of the copies, for the targets, and for copied objects.
MIRROR_NEEDS: Sequence[Need] = (
    Need("batch", "jobs", ("update",), "status"),
    Need("", "secrets", ("get",)),
    Need("", "configmaps", ("get",)),
)
#: With `--workflows`: their kinds, and the Jobs of their tasks.
WORKFLOW_NEEDS: Sequence[Need] = (
    Need("onejob.dev", "workflows", ("get", "list", "watch", "create", "delete")),
    Need("onejob.dev", "workflows", ("patch",), "status"),
    Need("onejob.dev", "workflows", ("update",), "finalizers"),
    Need("onejob.dev", "cronworkflows", ("get", "list", "watch")),
    Need("onejob.dev", "cronworkflows", ("patch",), "status"),
    Need("onejob.dev", "cronworkflows", ("update",), "finalizers"),
    Need("batch", "jobs", ("create", "patch", "delete")),
)
ELECTION_NEEDS: Sequence[Need] = (
    Need("coordination.k8s.io", "leases", ("get", "create", "update")),
)


def questions(
    namespaces: Sequence[str],
    own_namespace: str,
    *,
    leader_elect: bool,
    mirror: bool = False,
    workflows: bool = False,
) -> Sequence[AccessReview]:
    """Return the permissions that the controllers need, as access reviews."""
    own = (*OWN_NAMESPACE_PERMISSIONS, *(ELECTION_NEEDS if leader_elect else ()))
    needs = (
        *NEEDS,
        *(MIRROR_NEEDS if mirror else ()),
        *(WORKFLOW_NEEDS if workflows else ()),
    )
    wanted = [(need, namespace) for namespace in namespaces or ("",) for need in needs]
    wanted += [(need, own_namespace) for need in own]
    return [
        AccessReview(need, verb, namespace) for need, namespace in wanted for verb in need.verbs
    ]
