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


def _resource_rule(groups: str, resources: str, verbs: Sequence[str]) -> Document:
    """Return a rule.

    `groups` and `resources` are separated by spaces; `core` is the unnamed group.
    """
    names = ["" if group == "core" else group for group in groups.split()]
    return {"apiGroups": names, "resources": resources.split(), "verbs": list(verbs)}


def _url_rule(*urls: str) -> Document:
    return {"nonResourceURLs": list(urls), "verbs": ["get"]}


_VIEW: Final = (
    _resource_rule(
        "core",
        "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods "
        "replicationcontrollers replicationcontrollers/scale serviceaccounts services "
        "services/status",
        _READ,
    ),
    _resource_rule(
        "core",
        "bindings limitranges namespaces/status pods/log pods/status "
        "replicationcontrollers/status resourcequotas resourcequotas/status",
        _READ,
    ),
    _resource_rule("core", "namespaces", _READ),
    _resource_rule("core events.k8s.io", "events", _READ),
    _resource_rule("discovery.k8s.io", "endpointslices", _READ),
    _resource_rule(
        "apps",
        "controllerrevisions daemonsets daemonsets/status deployments deployments/scale "
        "deployments/status replicasets replicasets/scale replicasets/status statefulsets "
        "statefulsets/scale statefulsets/status",
        _READ,
    ),
    _resource_rule(
        "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status", _READ
    ),
    # `jobs/pods`, `jobs/history`, `jobs/outputs` and `jobs/progress` are specific to onejob.
    _resource_rule(
        "batch",
        "cronjobs cronjobs/status jobs jobs/status jobs/history jobs/outputs jobs/pods "
        "jobs/progress",
        _READ,
    ),
    _resource_rule(
        "onejob.dev", "cronworkflows cronworkflows/status workflows workflows/status", _READ
    ),
    _resource_rule("policy", "poddisruptionbudgets poddisruptionbudgets/status", _READ),
    _resource_rule("networking.k8s.io", "ingresses ingresses/status networkpolicies", _READ),
)
_EDIT: Final = (
    _resource_rule(
        "core",
        "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy",
        _READ,
    ),
    _resource_rule("core", "serviceaccounts", ("impersonate",)),
    _resource_rule("core", "pods pods/attach pods/exec pods/portforward pods/proxy", _WRITE),
    _resource_rule("core", "pods/eviction", ("create",)),
    _resource_rule(
        "core",
        "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale "
        "secrets serviceaccounts services services/proxy",
        _WRITE,
    ),
    _resource_rule("core", "serviceaccounts/token", ("create",)),
    _resource_rule("core events.k8s.io", "events", _WRITE),
    _resource_rule(
        "apps",
        "daemonsets deployments deployments/rollback deployments/scale replicasets "
        "replicasets/scale statefulsets statefulsets/scale",
        _WRITE,
    ),
    _resource_rule("autoscaling", "horizontalpodautoscalers", _WRITE),
    _resource_rule("batch", "cronjobs jobs", _WRITE),
    _resource_rule("onejob.dev", "cronworkflows workflows", _WRITE),
    _resource_rule("policy", "poddisruptionbudgets", _WRITE),
    _resource_rule("networking.k8s.io", "ingresses networkpolicies", _WRITE),
    _resource_rule("coordination.k8s.io", "leases", _ALL),
)
_ADMIN: Final = (
    _resource_rule("authorization.k8s.io", "localsubjectaccessreviews", ("create",)),
    _resource_rule(GROUP, "rolebindings roles", _ALL),
)
_EVERYTHING: Final = (
    _resource_rule("*", "*", ("*",)),
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
)
_BASIC_USER: Final = (
    _resource_rule(
        "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews", ("create",)
    ),
    _resource_rule("authentication.k8s.io", "selfsubjectreviews", ("create",)),
)
_HEALTH: Final = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_DISCOVERY: Final = (
    _url_rule("/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*",
          "/readyz", "/version", "/version/"),
)  # fmt: skip
_MONITORING: Final = (
    _url_rule("/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/metrics/slis",
              "/readyz", "/readyz/*"),
)  # fmt: skip
_DELEGATOR: Final = (
    _resource_rule("authentication.k8s.io", "tokenreviews", ("create",)),
    _resource_rule("authorization.k8s.io", "subjectaccessreviews", ("create",)),
)
_ISSUER: Final = (
    _url_rule("/.well-known/openid-configuration", "/.well-known/openid-configuration/",
              "/openid/v1/jwks", "/openid/v1/jwks/"),
)  # fmt: skip


def _role(name: str, rules: Sequence[Document], *, aggregate_to: str = "") -> Document:
    """Return a default ClusterRole."""
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


def _aggregated_role(name: str, *, aggregate_to: str = "") -> Document:
    selector = {"matchLabels": {f"{GROUP}/aggregate-to-{name}": "true"}}
    role = _role(name, (), aggregate_to=aggregate_to)
    return {**role, "aggregationRule": {"clusterRoleSelectors": [selector]}}


def _group_binding(name: str, *groups: str) -> Document:
    return _binding_to(
        name, [{"apiGroup": GROUP, "kind": "Group", "name": group} for group in groups]
    )


def _controller_binding(role: str, account: str) -> Document:
    subject = {"kind": "ServiceAccount", "name": account, "namespace": "kube-system"}
    return _binding_to(f"system:controller:{role}", [subject])


def _binding_to(name: str, subjects: Sequence[Document]) -> Document:
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
    _aggregated_role("admin"),
    _aggregated_role("edit", aggregate_to="admin"),
    _aggregated_role("view", aggregate_to="edit"),
    _role("system:aggregate-to-admin", _ADMIN, aggregate_to="admin"),
    _role("system:aggregate-to-edit", _EDIT, aggregate_to="edit"),
    _role("system:aggregate-to-view", _VIEW, aggregate_to="view"),
    _role("system:auth-delegator", _DELEGATOR),
    _role("system:basic-user", _BASIC_USER),
    _role("system:discovery", _DISCOVERY),
    _role("system:monitoring", _MONITORING),
    _role("system:public-info-viewer", (_url_rule(*_HEALTH),)),
    _role("system:service-account-issuer-discovery", _ISSUER),
    _role(component_roles.NODE_ROLE, component_roles.NODE),
    _role(component_roles.CONTROLLER_MANAGER, component_roles.CONTROLLER_MANAGER_RULES),
    *(
        _role(f"system:controller:{name}", rules)
        for name, rules in component_roles.CONTROLLERS.values()
    ),
)
CLUSTER_ROLE_BINDINGS: Final[Sequence[Document]] = (
    _group_binding("cluster-admin", "system:masters"),
    _group_binding("system:basic-user", "system:authenticated"),
    _group_binding("system:discovery", "system:authenticated"),
    _group_binding("system:monitoring", "system:monitoring"),
    _group_binding("system:public-info-viewer", "system:authenticated", "system:unauthenticated"),
    _group_binding("system:service-account-issuer-discovery", "system:serviceaccounts"),
    # As upstream: the binding has no subjects. A node has these rights by its identity.
    _group_binding(component_roles.NODE_ROLE),
    _binding_to(
        component_roles.CONTROLLER_MANAGER,
        [{"apiGroup": GROUP, "kind": "User", "name": component_roles.CONTROLLER_MANAGER}],
    ),
    *(
        _controller_binding(name, account)
        for account, (name, _) in component_roles.CONTROLLERS.items()
    ),
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
    """Return the rules of a role."""
    return msgspec.convert(document.get("rules") or [], list[PolicyRule])
