"""Strategies of small kinds: namespaces, config maps, secrets, services, nodes, leases, events."""

import copy
from typing import Any

import pytest

from onejob.api.kinds.events import from_core, to_core
from onejob.api.strategy import Document
from onejob.virtual_time import NOON
from onejob.wire.kinds import KINDS
from tests.api.kinds.build import create, created, strategy, update_to

NAMESPACE = strategy("namespaces")
CONFIG_MAP = strategy("configmaps")
SECRET = strategy("secrets")
EVENT = strategy("events")
NODE = strategy("nodes")


def a_doc(name: str = "x", namespace: str = "default", **fields: Any) -> Document:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"metadata": metadata, **fields}


def changed(kind: Any, old: Document, **fields: Any) -> list[str]:
    new = {**copy.deepcopy(old), **fields}
    return update_to(kind, old, new)[1]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.resource))
def test_every_kind_has_a_strategy_whose_cells_fit_its_columns(kind: Any) -> None:
    served = strategy(kind.resource)
    doc = a_doc(namespace="default" if kind.namespaced else "")
    served.default(doc)
    served.prepare_create(doc)
    assert len(served.cells(doc, NOON)) == len(served.columns())
    assert served.field_label_error("metadata.name") is None
    assert served.field_label_error("no.such.field") is not None


# --- namespaces -------------------------------------------------------------------------------


def test_a_new_namespace_is_active_and_knows_its_name() -> None:
    stored = created(NAMESPACE, a_doc("n", ""))
    assert stored["spec"] == {"finalizers": ["kubernetes"]}
    assert stored["status"] == {"phase": "Active"}
    assert stored["metadata"]["labels"] == {"kubernetes.io/metadata.name": "n"}


def test_the_name_of_a_namespace_is_a_label() -> None:
    assert create(NAMESPACE, a_doc("a.b", ""))[1] == [
        'metadata.name: Invalid value: "a.b": must not contain dots'
    ]


def test_an_update_of_a_namespace_cannot_touch_its_finalizers() -> None:
    stored = created(NAMESPACE, a_doc("n", ""))
    new, _ = update_to(NAMESPACE, stored, {**stored, "spec": {}})
    assert new["spec"] == {"finalizers": ["kubernetes"]}


# --- config maps and secrets ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "errors"),
    [
        ({"data": {"a.b-c_D": "x"}}, []),
        (
            {"data": {"a b": "x"}},
            [
                'data[a b]: Invalid value: "a b": a valid config key must consist of alphanumeric '
                "characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', "
                "regex used for validation is '[-._a-zA-Z0-9]+')"
            ],
        ),
        ({"data": {"..": "x"}}, ["data[..]: Invalid value: \"..\": must not be '..'"]),
        (
            {"data": {"k": "x"}, "binaryData": {"k": "eA=="}},
            ['data[k]: Invalid value: "k": duplicate of key present in binaryData'],
        ),
        ({"data": {"k": "x" * 1024 * 1024}}, []),
        (
            {"data": {"k": "x" * 1024 * 1024, "l": "x"}},
            ["data: Too long: may not be more than 1048576 bytes"],
        ),
    ],
)
def test_config_maps_are_validated(fields: dict[str, Any], errors: list[str]) -> None:
    assert create(CONFIG_MAP, a_doc(**fields))[1] == errors


@pytest.mark.parametrize("kind", [CONFIG_MAP, SECRET])
def test_an_immutable_object_stays_as_it_is(kind: Any) -> None:
    old = created(kind, a_doc(data={"k": "eA=="}, immutable=True))
    why = "Forbidden: field is immutable when `immutable` is set"
    assert changed(kind, old, data={"k": "eQ=="}) == [f"data: {why}"]
    assert changed(kind, old, immutable=False) == [f"immutable: {why}"]
    assert changed(kind, old) == []


def test_secret_type_defaults_to_opaque_and_is_immutable() -> None:
    stored = created(SECRET, a_doc(stringData={"k": "hello"}))
    assert stored["type"] == "Opaque"
    assert stored["data"] == {"k": "aGVsbG8="}
    assert "stringData" not in stored
    assert changed(SECRET, stored, type="other") == [
        'type: Invalid value: "other": field is immutable'
    ]
    assert SECRET.selectable_fields(stored) == {"type": "Opaque"}


def test_typed_secrets_need_their_keys() -> None:
    assert create(SECRET, a_doc(type="kubernetes.io/tls", data={"tls.crt": ""}))[1] == [
        "data[tls.key]: Required value"
    ]


# --- nodes, services, leases ------------------------------------------------------------------


def test_node_registration_keeps_status_and_defaults_to_schedulable() -> None:
    stored = created(NODE, a_doc("n", "", status={"phase": "x"}))
    assert stored["status"] == {"phase": "x"}
    assert NODE.selectable_fields(stored) == {"spec.unschedulable": "false"}
    stored["spec"] = {"unschedulable": True}
    assert NODE.selectable_fields(stored) == {"spec.unschedulable": "true"}


def test_services_are_defaulted_and_validated() -> None:
    service = strategy("services")
    stored = created(service, a_doc(spec={"clusterIP": "10.0.0.1", "ports": [{"port": 443}]}))
    assert stored["spec"]["type"] == "ClusterIP"
    assert stored["spec"]["clusterIPs"] == ["10.0.0.1"]
    assert stored["spec"]["ports"] == [{"port": 443, "protocol": "TCP", "targetPort": 443}]
    assert create(service, a_doc(spec={}))[1] == ["spec.ports: Required value"]
    assert create(service, a_doc(spec={"ports": [{"port": 0}]}))[1] == [
        "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"
    ]


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (
            {"type": "Magic", "ports": [{"port": 1}]},
            'type: Unsupported value: "Magic": supported values: "ClusterIP", "ExternalName", '
            '"LoadBalancer", "NodePort"',
        ),
        ({"type": "ExternalName"}, "externalName: Required value"),
        ({"ports": [{"port": 1}, {"port": 2, "name": "b"}]}, "ports[0].name: Required value"),
        (
            {"ports": [{"port": 1, "name": "b"}, {"port": 2, "name": "b"}]},
            'ports[1].name: Duplicate value: "b"',
        ),
        (
            {"ports": [{"port": 1, "targetPort": "8-"}]},
            'ports[0].targetPort: Invalid value: "8-": must contain at least one letter (a-z)',
        ),
    ],
)
def test_rules_of_services(spec: dict[str, Any], error: str) -> None:
    assert create(strategy("services"), a_doc(spec=spec))[1][0] == f"spec.{error}"


def test_a_headless_service_needs_no_ports() -> None:
    service = strategy("services")
    stored = created(service, a_doc(spec={"clusterIP": "None"}))
    assert changed(service, stored, spec={"type": "Magic", "clusterIP": "None"}) != []
    assert service.selectable_fields(stored) == {
        "spec.clusterIP": "None",
        "spec.type": "ClusterIP",
    }


def test_taints_have_known_effects() -> None:
    node = created(NODE, a_doc("n", ""))
    taints = {"taints": [{"key": "a", "effect": "Scare"}]}
    assert changed(NODE, node, spec=taints) == [
        'metadata.taints[0].effect: Unsupported value: "Scare": supported values: "NoSchedule", '
        '"PreferNoSchedule", "NoExecute"'
    ]


def test_large_secrets_are_refused() -> None:
    secret = a_doc(data={"k": "A" * (4 * (1024 * 1024 // 3 + 1))})
    assert create(SECRET, secret)[1] == ["data: Too long: may not be more than 1048576 bytes"]


@pytest.mark.parametrize("resource", ["nodes", "leases.coordination.k8s.io"])
def test_missing_spec_defaults_to_empty_object(resource: str) -> None:
    namespace = "default" if resource.startswith("leases") else ""
    assert created(strategy(resource), a_doc(namespace=namespace))["spec"] == {}


def test_leases_last() -> None:
    lease = strategy("leases.coordination.k8s.io")
    assert create(lease, a_doc(spec={"leaseDurationSeconds": 15}))[1] == []
    assert create(lease, a_doc(spec={"leaseDurationSeconds": 0}))[1] == [
        "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"
    ]
    stored = created(lease, a_doc(spec={}))
    assert changed(lease, stored, spec={"leaseTransitions": -1}) == [
        "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"
    ]
    assert not lease.unconditional_update


def test_metadata_of_every_kind_is_checked_on_updates_too() -> None:
    stored = created(CONFIG_MAP, a_doc())
    metadata = {**stored["metadata"], "name": "y", "finalizers": ["orphan", "foregroundDeletion"]}
    assert changed(CONFIG_MAP, stored, metadata=metadata) == [
        'metadata.name: Invalid value: "y": field is immutable',
        'metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: '
        "finalizer orphan and foregroundDeletion cannot be both set",
    ]


def test_generate_name_prefix_is_validated() -> None:
    doc = a_doc()
    doc["metadata"]["generateName"] = "UP-"
    errors = create(CONFIG_MAP, doc)[1]
    assert [error.split(": ")[0] for error in errors] == ["metadata.generateName"]


def test_objects_belong_into_namespaces_or_not() -> None:
    assert create(CONFIG_MAP, a_doc(namespace=""))[1] == ["metadata.namespace: Required value"]
    assert create(NODE, a_doc("n", "default"))[1] == [
        "metadata.namespace: Forbidden: not allowed on this type"
    ]


def test_reviews_need_no_name() -> None:
    review = strategy("selfsubjectaccessreviews.authorization.k8s.io")
    assert create(review, {"metadata": {}})[1] == []


# --- events -----------------------------------------------------------------------------------

INVOLVED = {"kind": "Job", "name": "j", "namespace": "default", "uid": "u"}


@pytest.mark.parametrize(
    ("namespace", "involved", "accepted"),
    [
        ("default", "default", True),
        ("default", "other", False),
        ("default", "", True),
        ("other", "", False),
    ],
)
def test_event_namespace_must_match_involved_object(
    namespace: str, involved: str, accepted: bool
) -> None:
    event = a_doc(namespace=namespace, involvedObject={**INVOLVED, "namespace": involved})
    errors = create(EVENT, event)[1]
    assert errors == (
        []
        if accepted
        else [
            f'involvedObject.namespace: Invalid value: "{involved}": does not match event.namespace'
        ]
    )


def test_events_support_involved_object_field_selectors() -> None:
    event = a_doc(
        involvedObject=INVOLVED,
        reason="Completed",
        type="Normal",
        reportingComponent="job-controller",
    )
    fields = EVENT.selectable_fields(event)
    assert fields["involvedObject.kind"] == "Job"
    assert fields["involvedObject.fieldPath"] == ""
    assert fields["reason"] == "Completed"
    assert fields["source"] == "job-controller"
    assert all(EVENT.field_label_error(field) is None for field in fields)


def test_events_translate_both_ways_without_loss() -> None:
    core = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "involvedObject": INVOLVED,
        "message": "m",
        "reportingComponent": "c",
        "source": {"component": "c"},
        "firstTimestamp": "2026-01-01T12:00:00Z",
        "lastTimestamp": "2026-01-01T12:00:01Z",
        "count": 2,
        "reason": "r",
    }
    other = from_core(core)
    assert other["apiVersion"] == "events.k8s.io/v1"
    assert other["regarding"] == INVOLVED
    assert other["note"] == "m"
    assert other["deprecatedCount"] == 2
    assert to_core(other) == core


def test_new_style_events_are_selected_by_their_own_words() -> None:
    new_style = strategy("events.events.k8s.io")
    fields = new_style.selectable_fields(a_doc(regarding=INVOLVED, reportingController="c"))
    assert fields["regarding.name"] == "j"
    assert fields["reportingController"] == "c"
    assert new_style.field_label_error("regarding.name") is None
    assert new_style.field_label_error("involvedObject.name") is not None


def test_events_v1_requires_controller_and_time() -> None:
    event = a_doc(regarding=INVOLVED, type="Odd")
    assert create(strategy("events.events.k8s.io"), event)[1] == [
        "eventTime: Required value",
        "reportingController: Required value",
        "reportingInstance: Required value",
        "action: Required value",
        "reason: Required value",
        'type: Invalid value: "": has invalid value: Odd',
    ]
