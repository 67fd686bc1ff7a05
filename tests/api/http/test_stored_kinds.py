"""Kinds without a controller, over HTTP."""

from pathlib import Path
from typing import Any

import pytest

from onejob.api.kinds.stored import WITHOUT_EFFECT
from onejob.wire.kinds import BY_RESOURCE, STORED_KINDS, Kind
from tests.api.http.raw_requests import TABLE, Requests, with_requests

MERGE = "application/merge-patch+json"
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "a"}},
    "spec": {"containers": [{"name": "c", "image": "x"}]},
}
WITH_TTL = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "ttlSecondsAfterFinished": 60}}
WORKLOADS = ["deployments.apps", "statefulsets.apps", "replicasets.apps", "daemonsets.apps"]
WORKLOAD = {"spec": {"selector": {"matchLabels": {"app": "a"}}, "template": TEMPLATE}}
WEBHOOK = {
    "name": "a.example.com",
    "clientConfig": {"service": {"namespace": "default", "name": "hook"}},
    "rules": [
        {
            "operations": ["CREATE"],
            "apiGroups": ["batch"],
            "apiVersions": ["v1"],
            "resources": ["jobs"],
        }
    ],
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}
MUTATING_POLICY: dict[str, Any] = {
    "matchConstraints": {
        "resourceRules": [
            {
                "apiGroups": ["batch"],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["jobs"],
            }
        ]
    },
    "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{}]"}}],
    "reinvocationPolicy": "Never",
}
#: Minimal content with which an object is accepted.
CONTENT: dict[str, dict[str, Any]] = {
    "deployments.apps": WORKLOAD,
    "replicasets.apps": WORKLOAD,
    "statefulsets.apps": WORKLOAD,
    "daemonsets.apps": WORKLOAD,
    "controllerrevisions.apps": {"revision": 1, "data": {"any": ["thing"]}},
    "horizontalpodautoscalers.autoscaling": {
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "a"}}
    },
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": {"webhooks": [WEBHOOK]},
    "validatingwebhookconfigurations.admissionregistration.k8s.io": {"webhooks": [WEBHOOK]},
    "mutatingadmissionpolicies.admissionregistration.k8s.io": {"spec": MUTATING_POLICY},
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io": {"spec": {"policyName": "a"}},
    "validatingadmissionpolicies.admissionregistration.k8s.io": {
        "spec": {
            "matchConstraints": MUTATING_POLICY["matchConstraints"],
            "validations": [{"expression": "true"}],
        }
    },
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": {
        "spec": {"policyName": "a", "validationActions": ["Deny"]}
    },
    "apiservices.apiregistration.k8s.io": {
        "metadata": {"name": "v1.example.com"},
        "spec": {
            "group": "example.com",
            "version": "v1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": {"namespace": "default", "name": "a"},
        },
    },
    "flowschemas.flowcontrol.apiserver.k8s.io": {
        "spec": {"priorityLevelConfiguration": {"name": "a"}}
    },
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": {"spec": {"type": "Exempt"}},
    "resourceslices.resource.k8s.io": {
        "spec": {
            "driver": "d.example.com",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "allNodes": True,
        }
    },
    "runtimeclasses.node.k8s.io": {"handler": "runc"},
    "storageclasses.storage.k8s.io": {"provisioner": "example.com/a"},
    "persistentvolumes": {
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    },
    "persistentvolumeclaims": {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
    },
    "endpointslices.discovery.k8s.io": {"addressType": "IPv4", "endpoints": []},
    "ingresses.networking.k8s.io": {
        "spec": {
            "rules": [{"http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": {}}]}}]
        }
    },
    "limitranges": {"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}},
    "resourcequotas": {"spec": {"hard": {"pods": "3"}}},
    "podtemplates": {"template": TEMPLATE},
}


def an_object(kind: Kind) -> dict[str, Any]:
    content = CONTENT.get(kind.resource, {})
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": "a"},
        **content,
    }


def path_of(resource: str) -> str:
    kind = BY_RESOURCE[resource]
    group = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    return f"{group}/namespaces/default/{kind.plural}" if kind.namespaced else (
        f"{group}/{kind.plural}"
    )  # fmt: skip


@pytest.mark.parametrize(
    "kind", [kind for kind in STORED_KINDS if kind.stored_only], ids=lambda kind: kind.resource
)
def test_every_stored_kind_is_created_changed_and_deleted(tmp_path: Path, kind: Kind) -> None:
    async def test(ask: Requests) -> None:
        path, document = path_of(kind.resource), an_object(kind)
        made = await ask.ok("POST", f"{path}?fieldValidation=Strict", document)
        warned = [text for text in ask.warnings if "stored, but has no effect here" in text]
        assert bool(warned) == (kind.resource in WITHOUT_EFFECT)
        item = f"{path}/{made['metadata']['name']}"
        labels = {"metadata": {"labels": {"b": "c"}}}
        changed = await ask.ok("PATCH", item, labels, content_type=MERGE)
        assert changed["metadata"]["labels"] == {"b": "c"}
        generation = made["metadata"].get("generation")
        assert changed["metadata"].get("generation") == generation, "only metadata changed"
        if kind.subresource("status"):
            await ask.ok("GET", f"{item}/status")
        assert len((await ask.get(path))["items"]) == 1
        await ask.ok("DELETE", item)
        assert (await ask.get(path))["items"] == []

    with_requests(tmp_path, test)


def test_creating_a_kind_without_effect_returns_warning(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        document = an_object(BY_RESOURCE["networkpolicies.networking.k8s.io"])
        await ask.ok("POST", path_of("networkpolicies.networking.k8s.io"), document)
        text = "NetworkPolicy is stored, but has no effect here: traffic is not restricted"
        assert ask.warnings == [f'299 - "{text}"']

    with_requests(tmp_path, test)


def test_every_warning_is_about_a_kind_that_is_stored() -> None:
    assert WITHOUT_EFFECT.keys() <= {kind.resource for kind in STORED_KINDS}


def test_webhook_configurations_are_defaulted_and_validated(tmp_path: Path) -> None:
    resource = "mutatingwebhookconfigurations.admissionregistration.k8s.io"

    async def test(ask: Requests) -> None:
        path, document = path_of(resource), an_object(BY_RESOURCE[resource])
        made = (await ask.ok("POST", path, document))["webhooks"][0]
        assert made["clientConfig"]["service"]["port"] == 443
        assert made["rules"][0]["scope"] == "*"
        assert (made["failurePolicy"], made["timeoutSeconds"]) == ("Fail", 10)
        assert (made["reinvocationPolicy"], made["objectSelector"]) == ("Never", {})
        document["metadata"] = {"name": "b"}
        document["webhooks"] = [{"name": "a.example.com", "clientConfig": {"url": "https://x"}}]
        code, answer = await ask("POST", path, document)
        assert code == 422
        assert [cause["field"] for cause in answer["details"]["causes"]] == [
            "webhooks[0].admissionReviewVersions",
            "webhooks[0].sideEffects",
        ]

    with_requests(tmp_path, test)


def test_mutating_admission_policies_are_defaulted(tmp_path: Path) -> None:
    policies = path_of("mutatingadmissionpolicies.admissionregistration.k8s.io")
    bindings = path_of("mutatingadmissionpolicybindings.admissionregistration.k8s.io")
    defaults = {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}

    async def test(ask: Requests) -> None:
        made = await ask.ok("POST", policies, {"metadata": {"name": "a"}, "spec": MUTATING_POLICY})
        rules = [{**MUTATING_POLICY["matchConstraints"]["resourceRules"][0], "scope": "*"}]
        assert made["spec"]["failurePolicy"] == "Fail"
        assert made["spec"]["matchConstraints"] == {**defaults, "resourceRules": rules}
        assert made["metadata"]["generation"] == 1
        spec = {"policyName": "a", "matchResources": {}}
        bound = await ask.ok("POST", bindings, {"metadata": {"name": "a"}, "spec": spec})
        assert bound["spec"]["matchResources"] == defaults

    with_requests(tmp_path, test)


_DELETIONS: dict[str, Any] = {
    "resourceRules": [
        {**MUTATING_POLICY["matchConstraints"]["resourceRules"][0], "operations": ["DELETE"]}
    ]
}
REFUSED = [
    ("mutatingadmissionpolicies.admissionregistration.k8s.io",
     {"spec": {"failurePolicy": "Never", "reinvocationPolicy": "Often"}},
     ["spec.failurePolicy", "spec.matchConstraints", "spec.mutations", "spec.reinvocationPolicy"]),
    ("mutatingadmissionpolicies.admissionregistration.k8s.io",
     {"spec": {"matchConstraints": {}, "mutations": [
         {}, {"patchType": "Merge"}, {"patchType": "JSONPatch"},
         {"patchType": "JSONPatch", "jsonPatch": {"expression": " "},
          "applyConfiguration": {"expression": "Object{}"}},
     ]}},
     ["spec.matchConstraints.resourceRules", "spec.mutations[0].patchType",
      "spec.mutations[1].patchType", "spec.mutations[2].jsonPatch",
      "spec.mutations[3].jsonPatch.expression", "spec.mutations[3].applyConfiguration",
      "spec.reinvocationPolicy"]),
    ("mutatingadmissionpolicies.admissionregistration.k8s.io",
     {"spec": {**MUTATING_POLICY, "matchConstraints": _DELETIONS}},
     ["spec.matchConstraints.resourceRules.operations"]),
    ("mutatingadmissionpolicybindings.admissionregistration.k8s.io",
     {"spec": {"policyName": "A_", "matchResources": _DELETIONS}},
     ["spec.policyName", "spec.matchResources.resourceRules.operations"]),
    ("deployments.apps", {"spec": {}}, ["spec.selector", "spec.template"]),
    ("deployments.apps", {"spec": {"selector": {"matchLabels": {"app": "b"}},
                                   "template": TEMPLATE}}, ["spec.template.metadata.labels"]),
    ("replicasets.apps", {"spec": {**WORKLOAD["spec"], "replicas": -1}}, ["spec.replicas"]),
    *((resource, {"spec": {**WORKLOAD["spec"], "template": WITH_TTL}},
       ["spec.template.spec.ttlSecondsAfterFinished"]) for resource in WORKLOADS),
    ("podtemplates", {"template": WITH_TTL}, ["template.spec.ttlSecondsAfterFinished"]),
    ("horizontalpodautoscalers.autoscaling",
     {"spec": {"minReplicas": 4, "maxReplicas": 3, "scaleTargetRef": {"kind": "A", "name": "a"}}},
     ["spec.maxReplicas"]),
    ("poddisruptionbudgets.policy", {"spec": {"minAvailable": 1, "maxUnavailable": 1}}, ["spec"]),
    ("poddisruptionbudgets.policy", {"spec": {"minAvailable": -1}}, ["spec.minAvailable"]),
    ("poddisruptionbudgets.policy", {"spec": {"minAvailable": "a"}}, ["spec.minAvailable"]),
    ("poddisruptionbudgets.policy", {"spec": {"maxUnavailable": "101%"}}, ["spec.maxUnavailable"]),
    ("poddisruptionbudgets.policy", {"spec": {"unhealthyPodEvictionPolicy": "Never"}},
     ["spec.unhealthyPodEvictionPolicy"]),
    ("priorityclasses.scheduling.k8s.io", {"value": 1_000_000_001}, ["value"]),
    ("runtimeclasses.node.k8s.io", {"handler": "No"}, ["handler"]),
    ("apiservices.apiregistration.k8s.io",
     {"spec": {"version": "v1", "group": "b", "groupPriorityMinimum": 1, "versionPriority": 1}},
     ["metadata.name"]),
    ("runtimeclasses.node.k8s.io", {"overhead": {"podFixed": {"cpu": "-1"}}},
     ["overhead.limits[cpu]"]),
    ("persistentvolumes", {"spec": {"accessModes": ["A"], "capacity": {"storage": "0"}}},
     ["spec.accessModes", "spec.capacity[storage]", "spec"]),
    ("persistentvolumes",
     {"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"cpu": "1"},
               "persistentVolumeReclaimPolicy": "Keep", "volumeMode": "Tape",
               "local": {"path": "/a/../b"}, "hostPath": {"path": "../c", "type": "Disk"}}},
     ["spec.capacity", "spec.persistentVolumeReclaimPolicy", "spec.hostPath.path",
      "spec.hostPath.type", "spec.local.path", "spec.nodeAffinity", "spec.volumeMode"]),
    ("storageclasses.storage.k8s.io",
     {"provisioner": "a", "reclaimPolicy": "Keep", "volumeBindingMode": "Late"},
     ["reclaimPolicy", "volumeBindingMode"]),
    ("persistentvolumeclaims",
     {"spec": {"accessModes": ["ReadWriteOncePod", "ReadWriteMany"], "volumeMode": "Tape",
               "storageClassName": "A_B", "selector": {"matchExpressions": [{"key": "a"}]},
               "resources": {"requests": {"storage": "1Gi"}}}},
     ["spec.selector.matchExpressions[0].operator", "spec.accessModes", "spec.storageClassName",
      "spec.volumeMode"]),
    ("persistentvolumeclaims", {"spec": {"accessModes": ["ReadWriteOnce"]}},
     ["spec.resources[storage]"]),
    ("persistentvolumeclaims", {"spec": {"accessModes": ["ReadWriteOnce"],
                                         "resources": {"requests": {"storage": "-1Gi"}}}},
     ["spec.resources[storage]"]),
    ("endpointslices.discovery.k8s.io", {"addressType": "IPX"}, ["addressType"]),
    ("ingresses.networking.k8s.io", {"spec": {"rules": [{"http": {"paths": [{"path": "/"}]}}]}},
     ["spec.rules[0].http.paths[0].pathType"]),
]  # fmt: skip


@pytest.mark.parametrize(("resource", "content", "fields"), REFUSED)
def test_invalid_object_is_rejected_with_field_causes(
    tmp_path: Path, resource: str, content: dict[str, Any], fields: list[str]
) -> None:
    async def test(ask: Requests) -> None:
        document = {**an_object(BY_RESOURCE[resource]), "metadata": {"name": "x"}, **content}
        code, answer = await ask("POST", path_of(resource), document)
        assert code == 422
        found = [cause["field"] for cause in answer["details"]["causes"]]
        assert found[: len(fields)] == fields

    with_requests(tmp_path, test)


def test_a_deployment_counts_its_changes_and_keeps_its_selector(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        path = path_of("deployments.apps")
        made = await ask.ok("POST", path, an_object(BY_RESOURCE["deployments.apps"]))
        assert made["spec"]["strategy"]["rollingUpdate"] == {
            "maxSurge": "25%", "maxUnavailable": "25%",
        }  # fmt: skip
        assert made["spec"]["template"]["spec"]["restartPolicy"] == "Always"
        patch = {"spec": {"replicas": 3}, "status": {"replicas": 9}}
        changed = await ask.ok("PATCH", f"{path}/a", patch, content_type=MERGE)
        assert (changed["metadata"]["generation"], changed["status"]) == (2, {})
        other = {"spec": {"selector": {"matchLabels": {"app": "b"}}}}
        code, answer = await ask("PATCH", f"{path}/a", other, content_type=MERGE)
        assert code == 422
        assert "spec.selector" in {cause["field"] for cause in answer["details"]["causes"]}

    with_requests(tmp_path, test)


def test_kinds_that_act_have_tables_of_their_own(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        classes = path_of("priorityclasses.scheduling.k8s.io")
        await ask.ok("POST", classes, {"metadata": {"name": "high"}, "value": 7})
        table = await ask.get(classes, accept=TABLE)
        assert [column["name"] for column in table["columnDefinitions"]] == [
            "Name", "Value", "Global-Default", "Age", "PreemptionPolicy",
        ]  # fmt: skip
        name, value, is_default, _, policy = table["rows"][0]["cells"]
        assert (name, value, is_default, policy) == ("high", 7, False, "PreemptLowerPriority")

    with_requests(tmp_path, test)
