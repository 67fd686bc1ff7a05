"""Default roles and bindings of a server, and their reconciliation.

Names and rules are those of Kubernetes, as far as onejob serves the resources. The reconciliation
follows Kubernetes, too: at every start missing rules and subjects are added, additions by users
stay, and the annotation `rbac.authorization.kubernetes.io/autoupdate: "false"` exempts an object.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from onejob.planning.rbac import component_roles
from onejob.planning.rbac.policy import GROUP
from onejob.planning.rbac.rules import PolicyRule, not_covered

AUTO_UPDATE: Final = "rbac.authorization.kubernetes.io/autoupdate"
_LABEL: Final = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_API_VERSION: Final = f"{GROUP}/v1"

Document = dict[str, Any]

_READ: Final = ("get", "list", "watch")
_WRITE: Final = ("create", "delete", "deletecollection", "patch", "update")
_ALL: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


def _on(groups: str, resources: str, verbs: Sequence[str]) -> Document:
    """Return a rule.

    `groups` and `resources` are separated by spaces; `core` is the unnamed group.
    """
    names = ["" if group == "core" else group for group in groups.split()]
    return {"apiGroups": names, "resources": resources.split(), "verbs": list(verbs)}


def _urls(*urls: str) -> Document:
    return {"nonResourceURLs": list(urls), "verbs": ["get"]}


_VIEW: Final = (
    _on(
        "core",
        "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods "
        "replicationcontrollers replicationcontrollers/scale serviceaccounts services "
        "services/status",
        _READ,
    ),
    _on(
        "core",
        "bindings limitranges namespaces/status pods/log pods/status "
        "replicationcontrollers/status resourcequotas resourcequotas/status",
        _READ,
    ),
    _on("core", "namespaces", _READ),
    _on("core events.k8s.io", "events", _READ),
    _on("discovery.k8s.io", "endpointslices", _READ),
    _on(
        "apps",
        "controllerrevisions daemonsets daemonsets/status deployments deployments/scale "
        "deployments/status replicasets replicasets/scale replicasets/status statefulsets "
        "statefulsets/scale statefulsets/status",
        _READ,
    ),
    _on("autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status", _READ),
    # `jobs/pods`, the Pods of a Job in one request, is specific to onejob.
    _on("batch", "cronjobs cronjobs/status jobs jobs/status jobs/pods", _READ),
    _on("onejob.dev", "cronworkflows cronworkflows/status workflows workflows/status", _READ),
    _on("policy", "poddisruptionbudgets poddisruptionbudgets/status", _READ),
    _on("networking.k8s.io", "ingresses ingresses/status networkpolicies", _READ),
)
_EDIT: Final = (
    _on(
        "core",
        "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy",
        _READ,
    ),
    _on("core", "serviceaccounts", ("impersonate",)),
    _on("core", "pods pods/attach pods/exec pods/portforward pods/proxy", _WRITE),
    _on("core", "pods/eviction", ("create",)),
    _on(
        "core",
        "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale "
        "secrets serviceaccounts services services/proxy",
        _WRITE,
    ),
    _on("core", "serviceaccounts/token", ("create",)),
    _on("core events.k8s.io", "events", _WRITE),
    _on(
        "apps",
        "daemonsets deployments deployments/rollback deployments/scale replicasets "
        "replicasets/scale statefulsets statefulsets/scale",
        _WRITE,
    ),
    _on("autoscaling", "horizontalpodautoscalers", _WRITE),
    _on("batch", "cronjobs jobs", _WRITE),
    _on("onejob.dev", "cronworkflows workflows", _WRITE),
    _on("policy", "poddisruptionbudgets", _WRITE),
    _on("networking.k8s.io", "ingresses networkpolicies", _WRITE),
    _on("coordination.k8s.io", "leases", _ALL),
)
_ADMIN: Final = (
    _on("authorization.k8s.io", "localsubjectaccessreviews", ("create",)),
    _on(GROUP, "rolebindings roles", _ALL),
)
_EVERYTHING: Final = (
    _on("*", "*", ("*",)),
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
)
_BASIC_USER: Final = (
    _on("authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews", ("create",)),
    _on("authentication.k8s.io", "selfsubjectreviews", ("create",)),
)
_HEALTH: Final = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_DISCOVERY: Final = (
    _urls("/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*",
          "/readyz", "/version", "/version/"),
)  # fmt: skip
_MONITORING: Final = (
    _urls("/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/metrics/slis", "/readyz",
          "/readyz/*"),
)  # fmt: skip
_DELEGATOR: Final = (
    _on("authentication.k8s.io", "tokenreviews", ("create",)),
    _on("authorization.k8s.io", "subjectaccessreviews", ("create",)),
)
_ISSUER: Final = (_urls("/.well-known/openid-configuration", "/.well-known/openid-configuration/",
                        "/openid/v1/jwks", "/openid/v1/jwks/"),)  # fmt: skip


def _role(name: str, rules: Sequence[Document], *, aggregate_to: str = "") -> Document:
    labels = dict(_LABEL)
    if aggregate_to:
        labels[f"{GROUP}/aggregate-to-{aggregate_to}"] = "true"
    metadata = {"name": name, "labels": labels, "annotations": {AUTO_UPDATE: "true"}}
    return {
        "apiVersion": _API_VERSION,
        "kind": "ClusterRole",
        "metadata": metadata,
        "rules": list(rules),
    }


def _aggregate(name: str, *, aggregate_to: str = "") -> Document:
    selector = {"matchLabels": {f"{GROUP}/aggregate-to-{name}": "true"}}
    role = _role(name, (), aggregate_to=aggregate_to)
    return {**role, "aggregationRule": {"clusterRoleSelectors": [selector]}}


def _binding(name: str, *groups: str) -> Document:
    return _bound(name, [{"apiGroup": GROUP, "kind": "Group", "name": group} for group in groups])


def _to_controller(role: str, account: str) -> Document:
    subject = {"kind": "ServiceAccount", "name": account, "namespace": "kube-system"}
    return _bound(f"system:controller:{role}", [subject])


def _bound(name: str, subjects: Sequence[Document]) -> Document:
    metadata = {"name": name, "labels": dict(_LABEL), "annotations": {AUTO_UPDATE: "true"}}
    return {
        "apiVersion": _API_VERSION,
        "kind": "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
        **({"subjects": list(subjects)} if subjects else {}),
    }


CLUSTER_ROLES: Final[Sequence[Document]] = (
    _role("cluster-admin", _EVERYTHING),
    _aggregate("admin"),
    _aggregate("edit", aggregate_to="admin"),
    _aggregate("view", aggregate_to="edit"),
    _role("system:aggregate-to-admin", _ADMIN, aggregate_to="admin"),
    _role("system:aggregate-to-edit", _EDIT, aggregate_to="edit"),
    _role("system:aggregate-to-view", _VIEW, aggregate_to="view"),
    _role("system:auth-delegator", _DELEGATOR),
    _role("system:basic-user", _BASIC_USER),
    _role("system:discovery", _DISCOVERY),
    _role("system:monitoring", _MONITORING),
    _role("system:public-info-viewer", (_urls(*_HEALTH),)),
    _role("system:service-account-issuer-discovery", _ISSUER),
    _role(component_roles.NODE_ROLE, component_roles.NODE),
    _role(component_roles.CONTROLLER_MANAGER, component_roles.CONTROLLER_MANAGER_RULES),
    *(
        _role(f"system:controller:{name}", rules)
        for name, rules in component_roles.CONTROLLERS.values()
    ),
)
CLUSTER_ROLE_BINDINGS: Final[Sequence[Document]] = (
    _binding("cluster-admin", "system:masters"),
    _binding("system:basic-user", "system:authenticated"),
    _binding("system:discovery", "system:authenticated"),
    _binding("system:monitoring", "system:monitoring"),
    _binding("system:public-info-viewer", "system:authenticated", "system:unauthenticated"),
    _binding("system:service-account-issuer-discovery", "system:serviceaccounts"),
    # As upstream: the binding has no subjects. A node has these rights by its identity.
    _binding(component_roles.NODE_ROLE),
    _bound(
        component_roles.CONTROLLER_MANAGER,
        [{"apiGroup": GROUP, "kind": "User", "name": component_roles.CONTROLLER_MANAGER}],
    ),
    *(_to_controller(name, account) for account, (name, _) in component_roles.CONTROLLERS.items()),
)


def reconciled(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Document | None:
    """Return the updated default object; None if it needs no change.

    Additions by users are never removed.
    """
    annotations = found["metadata"].get("annotations", {})
    if annotations.get(AUTO_UPDATE) == "false":
        return None
    changed: Document = {}
    if "aggregationRule" in wanted:
        if found.get("aggregationRule") != wanted["aggregationRule"]:
            changed["aggregationRule"] = wanted["aggregationRule"]
    elif missing := not_covered(_rules(found), _rules(wanted)):
        changed["rules"] = [*found.get("rules", ()), *map(msgspec.to_builtins, missing)]
    subjects = found.get("subjects", [])
    absent = [subject for subject in wanted.get("subjects", ()) if subject not in subjects]
    if absent:
        changed["subjects"] = [*subjects, *absent]
    metadata = {
        field: {**found["metadata"].get(field, {}), **wanted["metadata"][field]}
        for field in ("labels", "annotations")
    }
    if any(found["metadata"].get(field) != metadata[field] for field in metadata):
        changed["metadata"] = {**found["metadata"], **metadata}
    return {**found, **changed} if changed else None


def _rules(document: Mapping[str, Any]) -> list[PolicyRule]:
    return msgspec.convert(document.get("rules") or [], list[PolicyRule])
