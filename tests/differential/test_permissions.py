"""Permissions of onejob's default roles, compared with the real Kubernetes."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.api.access.authorization import Attributes, RbacAuthorizer, require
from onejob.api.http.routing import ResourcePath, Router, verb_for
from onejob.planning.rbac import defaults
from onejob.planning.rbac.policy import (
    Binding,
    Policy,
    Role,
    aggregated_rules,
)
from onejob.wire.errors import Forbidden
from onejob.wire.registry import KindRegistry
from onejob.wire.requests import User
from tests.differential.permissions import BINDINGS, STATUS_ROLE, questions

RECORDED = Path(__file__).parent / "recorded" / "permissions"
TABLE = json.loads((RECORDED / "table.json").read_text())
ROLES = json.loads((RECORDED / "roles.json").read_text())

#: Resources of Kubernetes that onejob's roles need not name.
NOT_NAMED = ("extensions", "resource.k8s.io")


def authorizer() -> RbacAuthorizer:
    """Return an authorizer with every server's roles, and the bindings of the recording."""
    policy = Policy()
    roles = [msgspec.convert(document, Role) for document in defaults.CLUSTER_ROLES]
    for _ in range(3):
        # Roles aggregate roles that aggregate others.
        roles = [msgspec.structs.replace(r, rules=aggregated_rules(r, roles)) for r in roles]
    for role in roles:
        policy.put_role(role)
    for document in defaults.CLUSTER_ROLE_BINDINGS:
        policy.put_binding(msgspec.convert(document, Binding))
    status = {**STATUS_ROLE, "metadata": {"name": "status", "namespace": "a"}}
    policy.put_role(msgspec.convert(status, Role))
    for user, kind, name in BINDINGS:
        binding = {
            "metadata": {"name": user, "namespace": "a"},
            "subjects": [{"kind": "User", "name": user}],
            "roleRef": {"kind": kind, "name": name},
        }
        policy.put_binding(msgspec.convert(binding, Binding))
    return RbacAuthorizer(policy)


def attributes_of(asked: dict[str, Any]) -> Attributes:
    if path := asked.get("nonResourceAttributes"):
        return Attributes(path["verb"], path=path["path"])
    given = asked["resourceAttributes"]
    return Attributes(
        given["verb"],
        given["group"],
        "v1",
        given["resource"],
        given.get("subresource", ""),
        given["namespace"],
        given.get("name", ""),
    )


@pytest.mark.parametrize("identity", sorted(TABLE["identities"]))
def test_the_same_is_allowed(identity: str) -> None:
    rules = authorizer()
    user, groups = TABLE["identities"][identity]
    allowed: dict[str, list[str]] = {}
    for text, asked in questions():
        place, _, verb = text.rpartition(": ")
        if rules.authorize(User(user, groups=tuple(groups)), attributes_of(asked)).allowed:
            allowed.setdefault(place, []).append(verb)
    if identity == "job controller":
        # It patches where Kubernetes' own updates.
        for place in ("a", "b", "all"):
            allowed[f"jobs.batch/status in {place}"].remove("patch")
    assert allowed == TABLE["allowed"][identity]


@pytest.mark.parametrize(
    "refusal",
    [item for item in TABLE["refusals"] if isinstance(item["answer"], dict)],
    ids=lambda item: f"{item['as']}: {item['ask']}",
)
def test_the_same_words_refuse(refusal: dict[str, Any]) -> None:
    user, groups = TABLE["identities"][refusal["as"]]
    method, _, path = refusal["ask"].partition(" ")
    place = Router(KindRegistry()).locate(path)
    if isinstance(place, ResourcePath):
        kind = place.kind
        wanted = Attributes(
            verb_for(method, place),
            kind.group,
            kind.version,
            kind.plural,
            place.subresource,
            place.namespace,
            place.name,
        )
    else:
        wanted = Attributes(method.lower(), path=path)
    with pytest.raises(Forbidden) as refused:
        require(authorizer(), User(user, groups=tuple(groups)), wanted)
    answer = refusal["answer"]
    assert refused.value.message == answer["message"]
    assert (refused.value.details or {}) == answer["details"]


def _rules(role: dict[str, Any]) -> set[str]:
    """Return one line for each part of a rule, so that order and grouping do not matter."""
    return {
        f"{verb} {group}/{resource} {name} {url}".strip()
        for rule in role.get("rules") or ()
        for verb in rule["verbs"]
        for group in rule.get("apiGroups", [""])
        for resource in rule.get("resources", [""])
        for name in rule.get("resourceNames", [""])
        for url in rule.get("nonResourceURLs", [""])
        if group not in NOT_NAMED
    }


@pytest.mark.parametrize("ours", defaults.CLUSTER_ROLES, ids=lambda role: role["metadata"]["name"])
def test_default_roles_match_kubernetes(ours: dict[str, Any]) -> None:
    """Rules that onejob adds or omits are listed here, line by line."""
    name = ours["metadata"]["name"]
    if name in OWN:
        assert name not in {role["name"] for role in ROLES["clusterroles"]}
        return
    (theirs,) = [role for role in ROLES["clusterroles"] if role["name"] == name]
    assert ours.get("aggregationRule") == theirs.get("aggregationRule")
    assert ours["metadata"]["labels"] == theirs["labels"]
    if "aggregationRule" in ours:
        return
    added, left_out = _rules(ours) - _rules(theirs), _rules(theirs) - _rules(ours)
    match name:
        case "system:aggregate-to-view":
            own = (
                *(f"batch/jobs/{one}" for one in ("history", "outputs", "pods", "progress")),
                *OWN_RESOURCES,
                *(f"{one}/status" for one in OWN_RESOURCES),
            )
            assert added == {f"{verb} {one}" for verb in ("get", "list", "watch") for one in own}
            assert left_out == set()
        case "system:aggregate-to-edit":
            verbs = ("create", "delete", "deletecollection", "patch", "update")
            assert added == {f"{verb} {one}" for verb in verbs for one in OWN_RESOURCES}
            assert left_out == set()
        case "system:monitoring":
            assert added == set()
            assert left_out == {"get /  /flagz", "get /  /statusz", "get /nodes/metrics"}
        case "system:kube-controller-manager":
            # Here it only fills the shared caches.
            assert _rules(ours) == {"list */*", "watch */*"}
            assert added == set()
        case "system:node":
            assert added == {"create /pods/binding"}
            resources = {line.split()[1].partition("/")[2] for line in left_out}
            assert not {_plural(name) for name in resources} & {"pods", "nodes", "events", "leases"}
        case _ if name in ADDED:
            assert added == ADDED[name]
            assert left_out == LEFT_OUT.get(name, set())
        case _:
            assert (added, left_out) == (set(), set())


#: Resources that Kubernetes does not have.
OWN_RESOURCES = ("onejob.dev/workflows", "onejob.dev/cronworkflows")
#: Controllers that Kubernetes does not have.
OWN = {
    f"system:controller:{name}-controller"
    for name in ("queue", "pending-deadline", "mirror", "notification", "workflow", "cronworkflow")
}
#: Rules for actions that our controllers do differently from Kubernetes'.
ADDED = {
    "system:controller:job-controller": {"patch batch/jobs/status"},
    "system:controller:cronjob-controller": {"patch batch/cronjobs/status"},
    "system:controller:resourcequota-controller": {"patch /resourcequotas/status"},
    "system:controller:ttl-after-finished-controller": {
        f"{verb} */*" for verb in ("delete", "get", "list", "watch")
    },
    "system:controller:namespace-controller": {
        "create /serviceaccounts", "create /configmaps", "update /configmaps", "patch /configmaps",
        "patch /namespaces/finalize", "patch /namespaces/status",
    },
    "system:controller:deployment-controller": {
        "patch apps/deployments", "patch apps/deployments/status",
    },
    "system:controller:replicaset-controller": {"get /pods", "patch apps/replicasets/status"},
    "system:controller:certificate-controller": {
        "patch certificates.k8s.io/certificatesigningrequests/status",
    },
    # Our controller also writes EndpointSlices.
    "system:controller:endpoint-controller": {
        "update /services/finalizers",
        *(f"{verb} discovery.k8s.io/endpointslices"
          for verb in ("create", "delete", "get", "list", "update")),
    },
    # Our controller is also the provisioner, and that of claims of ephemeral volumes.
    "system:controller:persistent-volume-binder": {
        "create /persistentvolumeclaims", "create storage.k8s.io/storageclasses",
        "update /pods/finalizers",
        *(f"patch /{kind}{part}" for kind in ("persistentvolumeclaims", "persistentvolumes")
          for part in ("", "/status")),
    },
}  # fmt: skip
#: Rules of Kubernetes' roles for actions of which our controllers have no equivalent.
LEFT_OUT = {
    # Nothing is approved automatically, no signer serves kubelets, and no request is removed.
    "system:controller:certificate-controller": {
        "approve certificates.k8s.io/signers kubernetes.io/kube-apiserver-client-kubelet",
        "create authorization.k8s.io/subjectaccessreviews",
        "delete certificates.k8s.io/certificatesigningrequests",
        "sign certificates.k8s.io/signers kubernetes.io/kube-apiserver-client-kubelet",
        "sign certificates.k8s.io/signers kubernetes.io/legacy-unknown",
        "update certificates.k8s.io/certificatesigningrequests/approval",
    },
    "system:controller:endpoint-controller": {"create /endpoints/restricted", "watch /endpoints"},
    "system:controller:persistent-volume-binder": {
        "create /pods", "delete /pods", "list /nodes", "watch /nodes", "watch /events",
    },
}  # fmt: skip


def _plural(resource: str) -> str:
    return resource.partition("/")[0]
