"""Other served kinds: defaults, refusals and stored form."""

from typing import Any

from tests.differential.documents import CONTAINER, job, pod
from tests.differential.registry import scenario
from tests.differential.side import Document, Side


def _object(kind: str, name: str, **fields: Any) -> Document:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}


@scenario
async def config_maps(it: Side) -> None:
    for document in (
        _object("ConfigMap", "c", data={"k": "v"}, binaryData={"b": "AAEC"}),
        _object("ConfigMap", "bad", data={"a/b": "v"}),
        _object("ConfigMap", "bad", data={"..": "v", "": "w"}),
        _object("ConfigMap", "bad", data={"k": "v"}, binaryData={"k": "AAEC"}),
        _object("ConfigMap", "bad", binaryData={"k": "not base64!"}),
        _object("ConfigMap", "bad", data={"k": 1}),
        _object("ConfigMap", "Bad_Name"),
    ):
        await it.create("configmaps", document, whole=True)


@scenario
async def what_is_immutable_stays(it: Side) -> None:
    await it.create("configmaps", _object("ConfigMap", "c", data={"k": "v"}, immutable=True))
    await it.patch("configmaps", "c", {"data": {"k": "w"}})
    await it.patch("configmaps", "c", {"immutable": False})
    await it.patch("configmaps", "c", {"metadata": {"labels": {"a": "b"}}}, whole=True)
    await it.create("secrets", _object("Secret", "s", stringData={"k": "v"}, immutable=True))
    await it.patch("secrets", "s", {"data": {"k": "dw=="}})


@scenario
async def secrets(it: Side) -> None:
    for document in (
        _object("Secret", "s", stringData={"k": "v"}, data={"k": "b3RoZXI=", "l": "bA=="}),
        _object("Secret", "bad", data={"k": "not base64!"}),
        _object("Secret", "bad", type="kubernetes.io/tls", data={"tls.crt": ""}),
        _object("Secret", "bad", type="kubernetes.io/dockerconfigjson", data={}),
        _object("Secret", "bad", type="kubernetes.io/basic-auth", data={}),
        _object("Secret", "bad", type="kubernetes.io/ssh-auth", data={}),
        _object("Secret", "bad", data={"a b": "bA=="}),
    ):
        await it.create("secrets", document, whole=True)
    await it.patch("secrets", "s", {"type": "other"})


@scenario
async def pods_by_themselves(it: Side) -> None:
    await it.create("pods", pod("plain", labels={"a": "b"}), whole=True)
    await it.show_table("pods")


@scenario
async def bad_pods(it: Side) -> None:
    specs: list[Document] = [
        {"restartPolicy": "Perhaps"},
        {"activeDeadlineSeconds": 0},
        {"terminationGracePeriodSeconds": -5},
        {"dnsPolicy": "Own"},
        {"hostname": "a.b"},
        {"nodeSelector": {"bad key": "x"}},
        {"initContainers": [CONTAINER]},
        {"initContainers": [{**CONTAINER, "name": "i", "restartPolicy": "Never"}]},
        {"volumes": [{"name": "v"}, {"name": "v", "emptyDir": {}}]},
        {"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]},
        {"volumes": [{"name": "v", "configMap": {}}]},
        {"tolerations": [{"key": "k", "operator": "Equal", "effect": "Sometimes"}]},
        {"containers": [{**CONTAINER, "ports": [{"containerPort": 0}]}]},
        {"containers": [{**CONTAINER, "env": [{"name": "", "value": "x"}]}]},
        {"containers": [{**CONTAINER, "livenessProbe": {}}]},
        {"containers": [{**CONTAINER, "livenessProbe": {"exec": {"command": []}}}]},
        {"containers": [{**CONTAINER, "securityContext": {"runAsUser": -1}}]},
        {"containers": [{**CONTAINER, "terminationMessagePolicy": "Never"}]},
    ]
    for spec in specs:
        document = pod("bad")
        document["spec"] |= spec
        await it.create("pods", document)


@scenario
async def what_of_a_pod_may_change(it: Side) -> None:
    await it.create("pods", pod("p"))
    for change in (
        {"activeDeadlineSeconds": 100},
        {"activeDeadlineSeconds": 200},
        {"activeDeadlineSeconds": None},
        {"containers": [{**CONTAINER, "image": "other"}]},
        {"containers": [{**CONTAINER, "command": ["false"]}]},
        {"restartPolicy": "Always"},
        {"nodeName": "ghost"},
        {"terminationGracePeriodSeconds": 1},
        {"tolerations": [{"key": "k", "operator": "Exists"}]},
    ):
        await it.patch("pods", "p", {"spec": change}, kind="strategic")


@scenario
async def namespaces(it: Side) -> None:
    path = it.path("namespaces")
    await it.ask("POST", path, _object("Namespace", "another-space"), whole=True)
    await it.ask("POST", path, _object("Namespace", "another-space"))
    await it.ask("POST", path, _object("Namespace", "a.b"))
    await it.ask("POST", path, _object("Namespace", "n" * 64))
    await it.ask("DELETE", path)


@scenario
async def nodes(it: Side) -> None:
    path = it.path("nodes")
    node = _object("Node", "phantom", spec={"unschedulable": True})
    await it.ask("POST", path, node, whole=True)
    taint = {"key": "k", "effect": "Now"}
    await it.ask("POST", path, _object("Node", "bad", spec={"taints": [taint]}))
    await it.patch("nodes", "phantom", {"spec": {"unschedulable": None}}, whole=True)


@scenario
async def an_event_of_ones_own(it: Side) -> None:
    about = {"kind": "Job", "name": "j", "namespace": it.namespace, "apiVersion": "batch/v1"}
    event = _object("Event", "e.1", involvedObject=about, reason="R", message="m", type="Normal")
    await it.create("events", event, whole=True)
    for query in ("involvedObject.name=j", "reason=R,type=Normal", "type=Warning", "nope=1"):
        answer = await it.ask("GET", it.path("events"), query={"fieldSelector": query})
        it.show(query, [item["metadata"]["name"] for item in answer.get("items", ())])
    elsewhere = {**about, "namespace": "elsewhere"}
    await it.create("events", {**event, "involvedObject": elsewhere})


@scenario
async def leases(it: Side) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{it.namespace}/leases"
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l"},
        "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15},
    }
    created = await it.ask("POST", path, lease, whole=True)
    await it.ask("PUT", f"{path}/l", created)
    await it.ask("PUT", f"{path}/l", created)
    for spec in ({"leaseDurationSeconds": 0}, {"leaseTransitions": -1}, {"strategy": "Best"}):
        bad = {**lease, "metadata": {"name": "bad"}, "spec": spec}
        await it.ask("POST", path, bad)


@scenario
async def who_wrote_what(it: Side) -> None:
    """managedFields, without their times."""
    query = {"fieldManager": "first"}
    created = await it.ask("POST", it.path("jobs"), job(managedBy="example.com/x"), query=query)
    it.show("created", _managers(created))
    labels = {"metadata": {"labels": {"a": "b"}}}
    changed = await it.patch("jobs", "j", labels, query={"fieldManager": "second"})
    it.show("labelled", _managers(changed))
    applied = await it.patch(
        "jobs",
        "j",
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "j", "annotations": {"c": "d"}},
        },
        kind="apply",
        query={"fieldManager": "third"},
    )
    it.show("applied", _managers(applied))
    status = await it.patch("jobs", "j", {"status": {"active": 1}}, subresource="status",
                            query={"fieldManager": "fourth"})  # fmt: skip
    it.show("status", _managers(status))


def _managers(document: Document) -> list[Document]:
    return [
        {key: value for key, value in entry.items() if key != "time"}
        for entry in document["metadata"].get("managedFields", ())
    ]


@scenario
async def discovery_of_batch(it: Side) -> None:
    await it.ask("GET", "/apis/batch", whole=True)
    answer = await it.ask("GET", "/apis/batch/v1")
    for resource in answer["resources"]:
        resource.pop("storageVersionHash", None)
    resources = {resource["name"]: resource for resource in answer["resources"]}
    it.show("resources", resources)


@scenario
async def metadata_that_is_refused(it: Side) -> None:
    for metadata in (
        {"name": "m", "resourceVersion": "5"},
        {"name": "m", "finalizers": ["bad"]},
        {"name": "m", "finalizers": ["example.com/ok"], "generation": 9},
        {"name": "m", "annotations": {"a": "x" * 300_000}},
        {"name": "m", "labels": {"a": "x" * 64}},
        {"name": "m", "ownerReferences": [{"apiVersion": "v1", "kind": "Event",
                                           "name": "e", "uid": "u"}]},
    ):  # fmt: skip
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        answer = await it.ask("POST", it.path("configmaps"), document)
        it.show("generation", answer.get("metadata", {}).get("generation"))


@scenario
async def empty_values(it: Side) -> None:
    """Empty lists and maps that Go omits when it writes a document."""
    empty: Document = {"data": {}, "binaryData": {}}
    metadata: Document = {"labels": {}, "annotations": {}, "finalizers": [], "ownerReferences": []}
    for resource, kind, fields in (
        ("configmaps", "ConfigMap", empty),
        ("configmaps", "ConfigMap", {"immutable": False}),
        ("secrets", "Secret", {"data": {}, "stringData": {}, "type": ""}),
        ("resourcequotas", "ResourceQuota", {"spec": {"hard": {}, "scopes": []}}),
    ):
        document = _object(kind, f"o{len(it.steps)}", **fields)
        document["metadata"] |= metadata
        await it.create(resource, document, whole=True)
    filled = _object("ConfigMap", "filled", data={"k": "v"})
    await it.create("configmaps", filled)
    await it.patch("configmaps", "filled", {"data": {"k": None}}, whole=True)
    only = {
        **CONTAINER, "args": [], "env": [], "envFrom": [], "ports": [], "volumeMounts": [],
        "resources": {"limits": {}, "requests": {}}, "securityContext": {},
    }  # fmt: skip
    made = pod("p")
    made["metadata"] |= metadata
    made["spec"] |= {
        "containers": [only], "nodeSelector": {}, "tolerations": [], "volumes": [
            {"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "c", "items": []}},
        ], "affinity": {}, "initContainers": [], "imagePullSecrets": [], "hostAliases": [],
        "schedulingGates": [],
    }  # fmt: skip
    spec = (await it.create("pods", made))["spec"]
    # Whether Pods get a service account depends on how the server was started.
    it.show("spec", {name: spec[name] for name in spec if not name.startswith("serviceAccount")})
    one = job("j")
    one["metadata"] |= metadata
    one["spec"]["template"]["metadata"] = {"labels": {}, "annotations": {}}
    one["spec"]["template"]["spec"]["containers"] = [only]
    await it.create("jobs", one, whole=True)
