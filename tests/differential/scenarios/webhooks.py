"""Admission webhooks: calls, order, decisions, failures, mutations, and validation."""

import asyncio
import base64
import json
from functools import partial
from typing import Any

from tests.differential.hooks import ROOT, Hooks, hooks, rule
from tests.differential.registry import scenario
from tests.differential.side import Document, Side
from tests.webhooks.support import http_response, patch

_CLOSED = "https://127.0.0.1:1/"


def _map(name: str = "m", data: Any = None, **metadata: Any) -> Document:
    return {"metadata": {"name": name, **metadata}, "data": data or {"a": "1"}}


def _pod(name: str = "p") -> Document:
    containers = [{"name": "c", "image": "i"}]
    return {"metadata": {"name": name}, "spec": {"containers": containers}}


def _append(path: str, request: Document) -> Document:
    """Add an entry that shows how many there were."""
    count = len(request["object"]["data"])
    return patch({"op": "add", "path": f"/data/{path}", "value": str(count)})


def _refuse(**status: Any) -> Document:
    return {"allowed": False, "status": status}


# --- calls ----------------------------------------------------------------------------------


@scenario
async def what_a_webhook_gets(it: Side) -> None:
    async with hooks(it) as running:
        await running.configure("validating", running.webhook("w"))
        await it.create("configmaps", _map())
        await it.patch("configmaps", "m", {"data": {"b": "2"}}, query={"fieldManager": "me"})
        applied = {"apiVersion": "v1", "kind": "ConfigMap", **_map(data={"c": "3"})}
        force = {"fieldManager": "me", "force": "true"}
        await it.patch("configmaps", "m", applied, kind="apply", query=force)
        await it.patch("configmaps", "n", _named(applied, "n"), kind="apply", query=force)
        await it.delete("configmaps", "m", gracePeriodSeconds=0, propagationPolicy="Background")
        running.show_reviews()


def _named(document: Document, name: str) -> Document:
    return {**document, "metadata": {**document["metadata"], "name": name}}


@scenario
async def generated_names(it: Side) -> None:
    async with hooks(it) as running:
        await running.configure("mutating", running.webhook("m"))
        await running.configure("validating", running.webhook("v"))
        await it.create("configmaps", {"metadata": {"generateName": "m-"}})
        it.show("names", [bool(body["request"].get("name")) for _, body in running.calls])
        objects = [body["request"]["object"]["metadata"] for _, body in running.calls]
        it.show("named objects", [bool(each.get("name")) for each in objects])


@scenario
async def a_collection_is_deleted(it: Side) -> None:
    async with hooks(it) as running:
        await it.create("configmaps", _map("m"))
        await it.create("configmaps", _map("n"))
        await running.configure(
            "validating", running.webhook("w", rules=[rule(operations=["DELETE"])])
        )
        await it.ask("DELETE", it.path("configmaps"), query={"fieldSelector": "metadata.name=m"})
        running.show_reviews()


@scenario
async def an_object_with_finalizers_is_deleted(it: Side) -> None:
    async with hooks(it) as running:
        await it.create("configmaps", _map(finalizers=["example.com/wait"]))
        await running.configure("validating", running.webhook("w"))
        await it.delete("configmaps", "m")
        await it.delete("configmaps", "m")
        await it.patch("configmaps", "m", {"metadata": {"finalizers": None}})
        operations = [body["request"]["operation"] for _, body in running.calls]
        it.show("operations", operations)


@scenario
async def subresources(it: Side) -> None:
    async with hooks(it) as running:
        rules = [rule("pods/status", "pods/binding", "pods/eviction")]
        await running.configure("validating", running.webhook("w", rules=rules))
        for name in ("p", "q"):
            await it.create("pods", _pod(name))
        target = {"apiVersion": "v1", "kind": "Node", "name": "ghost"}
        binding = {"metadata": {"name": "p"}, "target": target}
        await it.ask("POST", it.path("pods", "p", "binding"), binding)
        await it.patch("pods", "p", {"status": {"phase": "Running"}}, subresource="status")
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "q", "namespace": it.namespace},
        }
        await it.ask("POST", it.path("pods", "q", "eviction"), eviction)
        keys = ("kind", "resource", "subResource", "requestSubResource", "operation", "name")
        shown = [{key: body["request"].get(key) for key in keys} for _, body in running.calls]
        it.show("requests", shown)


@scenario
async def rules(it: Side) -> None:
    async with hooks(it) as running:
        labelled = {"matchLabels": {"scenario": it.namespace}}
        own = partial(running.webhook, objectSelector=labelled)
        await running.configure(
            "validating",
            own("all", rules=[rule("*")]),
            own("both", rules=[rule("*/*")]),
            own("subresources", rules=[rule("pods/*")]),
            own("status", rules=[rule("*/status")]),
            own("created", rules=[rule("pods", operations=["CREATE"])]),
            own("wide", rules=[rule("*", scope="Cluster")]),
            own("narrow", rules=[rule("*", scope="Namespaced")]),
            own("group", rules=[rule("*", group="batch")]),
            own("groups", rules=[rule("pods", group="*", version="*")]),
            own("version", rules=[rule("*", version="v2")]),
        )
        pod = _pod()
        pod["metadata"]["labels"] = {"scenario": it.namespace}
        await it.create("pods", pod)
        running.show_calls("pod created", in_order=False)
        await it.patch("pods", "p", {"metadata": {"labels": {"a": "b"}}})
        running.show_calls("pod updated", in_order=False)
        await it.patch("pods", "p", {"status": {"phase": "Running"}}, subresource="status")
        running.show_calls("status updated", in_order=False)


@scenario
async def objects_outside_of_namespaces(it: Side) -> None:
    """The selector of namespaces applies to Namespaces by their own labels, and to no other."""
    async with hooks(it) as running:
        chosen = {"matchLabels": {"scenario": it.namespace}}
        labels = {"scenario": it.namespace}
        everywhere = {"objectSelector": chosen}
        await running.configure(
            "validating",
            running.webhook("nodes", rules=[rule("nodes")], **everywhere),
            running.webhook("spaces", rules=[rule("namespaces")], namespaceSelector=chosen),
            running.webhook("cluster", rules=[rule("*", scope="Cluster")], **everywhere),
        )
        name = f"{it.namespace}-x"
        await it.create("nodes", {"metadata": {"name": name, "labels": labels}})
        running.show_calls("node", in_order=False)
        await it.create("namespaces", {"metadata": {"name": name, "labels": labels}})
        running.show_calls("namespace", in_order=False)
        await it.delete("nodes", name)
        running.show_calls("node deleted", in_order=False)


@scenario
async def object_selectors(it: Side) -> None:
    """The labels of the new or of the old object match."""
    async with hooks(it) as running:
        chosen = {"matchLabels": {"guard": "on"}}
        await running.configure("validating", running.webhook("w", objectSelector=chosen))
        await it.create("configmaps", _map("free"))
        running.show_calls("free")
        await it.patch("configmaps", "free", {"metadata": {"labels": {"guard": "on"}}})
        running.show_calls("labelled")
        await it.patch("configmaps", "free", {"metadata": {"labels": {"guard": None}}})
        running.show_calls("label removed")
        await it.delete("configmaps", "free")
        running.show_calls("deleted")


@scenario
async def match_conditions(it: Side) -> None:
    def conditions(*expressions: str) -> Document:
        named = [{"name": f"c{i}", "expression": each} for i, each in enumerate(expressions)]
        return {"matchConditions": named}

    async with hooks(it) as running:
        await running.configure(
            "validating",
            running.webhook("yes", **conditions("object.data.a == '1'", "true")),
            running.webhook("no", **conditions("true", "object.metadata.name == 'other'")),
            running.webhook("false-wins", **conditions("object.nothing == 1", "false")),
            running.webhook(
                "user", **conditions("request.userInfo.username != '' && !request.dryRun")
            ),
            running.webhook("ignored", failurePolicy="Ignore", **conditions("object.nothing == 1")),
            running.webhook(
                "authorizer",
                **conditions("authorizer.requestResource.check('create').allowed()"),
            ),
        )
        await it.create("configmaps", _map())
        running.show_calls(in_order=False)


@scenario
async def a_match_condition_with_an_error(it: Side) -> None:
    async with hooks(it) as running:
        condition = {"name": "c", "expression": "object.nothing == 1"}
        webhook = running.webhook("w", matchConditions=[condition])
        await running.configure("mutating", webhook)
        await it.create("configmaps", _map())
        running.show_calls()


# --- order and decisions --------------------------------------------------------------------


@scenario
async def mutating_webhooks_are_called_in_order(it: Side) -> None:
    async with hooks(it) as running:
        running.respond = _append
        await running.configure("mutating", running.webhook("z"), name="b")
        await running.configure("mutating", running.webhook("y"), running.webhook("x"), name="a")
        await it.create("configmaps", _map(), whole=True)
        running.show_calls()


@scenario
async def a_mutating_webhook_rejects(it: Side) -> None:
    """No later webhook is called."""

    def respond(path: str, request: Document) -> Document:
        return _refuse(message="no") if path == "second" else {}

    async with hooks(it) as running:
        running.respond = respond
        await running.configure("validating", running.webhook("last"))
        first, second, third = (running.webhook(each) for each in ("first", "second", "third"))
        await running.configure("mutating", first, second, third)
        await it.create("configmaps", _map())
        running.show_calls()


@scenario
async def a_validating_webhook_rejects(it: Side) -> None:
    """All others are called."""

    def respond(path: str, request: Document) -> Document:
        return _refuse(message="no") if path == "second" else {}

    async with hooks(it) as running:
        running.respond = respond
        await running.configure("validating", *(running.webhook(p) for p in ("first", "second")))
        await running.configure("validating", running.webhook("third"), name="other")
        await it.create("configmaps", _map())
        await asyncio.sleep(0.5)
        running.show_calls(in_order=False)


@scenario
async def invalid_objects_are_not_shown_to_validating_webhooks(it: Side) -> None:
    async with hooks(it) as running:
        await running.configure("validating", running.webhook("v", rules=[rule("pods")]))
        await running.configure("mutating", running.webhook("m", rules=[rule("pods")]))
        await it.create("pods", {"metadata": {"name": "p"}, "spec": {"containers": []}})
        running.show_calls()


@scenario
async def validating_webhooks_see_mutations_and_defaults(it: Side) -> None:
    def respond(path: str, request: Document) -> Document:
        container = {"name": "d", "image": "j"}
        add = {"op": "add", "path": "/spec/containers/-", "value": container}
        return patch(add) if path == "m" else {}

    async with hooks(it) as running:
        running.respond = respond
        await running.configure("validating", running.webhook("v", rules=[rule("pods")]))
        await running.configure("mutating", running.webhook("m", rules=[rule("pods")]))
        await it.create("pods", _pod())
        seen = [body["request"]["object"]["spec"]["containers"] for _, body in running.calls]
        it.show("containers", [[_without_mounts(each) for each in part] for part in seen])


def _without_mounts(container: Document) -> Document:
    return {key: value for key, value in container.items() if key != "volumeMounts"}


@scenario
async def rejections(it: Side) -> None:
    statuses: dict[str, Document] = {
        "plain": {"allowed": False},
        "message": _refuse(message="words"),
        "reason": _refuse(reason="Conflict"),
        "both": _refuse(message="words", reason="AlreadyExists", code=409),
        "code": _refuse(code=403),
        "teapot": _refuse(code=418, message="short and stout"),
        "success": _refuse(code=200, message="fine", status="Success"),
        "details": _refuse(
            message="words",
            code=422,
            reason="Invalid",
            details={"name": "x", "kind": "y", "causes": [{"field": "f", "message": "m"}]},
        ),
        "patched": {"allowed": False, **patch({"op": "add", "path": "/data/x", "value": "y"})},
    }
    async with hooks(it) as running:
        running.respond = lambda path, request: statuses[request["name"]]
        await running.configure("mutating", running.webhook("w"))
        for name in statuses:
            await it.create("configmaps", _map(name))


# --- failures -------------------------------------------------------------------------------


def _review(response: Any, **fields: Any) -> bytes:
    whole = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    return http_response(json.dumps({**whole, **fields}).encode())


_BROKEN: dict[str, bytes] = {
    "no-json": http_response(b"\xff{["),
    "empty": http_response(b""),
    "not-an-object": http_response(b"[]"),
    "no-kind": http_response(b"{}"),
    "other-kind": http_response(b'{"apiVersion":"v1","kind":"Pod"}'),
    "old-version": _review(None, apiVersion="admission.k8s.io/v1beta1"),
    "no-response": _review(None),
    "other-uid": _review({"uid": "other", "allowed": True}),
    "no-uid": _review({"allowed": True}),
    "wrong-types": _review({"uid": 1, "allowed": "yes"}),
    "error": http_response(b"oh no", "500 Internal Server Error"),
    "not-found": http_response(b"", "404 Not Found"),
    "redirect": http_response(b"", "302 Found", "Location: https://127.0.0.1:1/\r\n"),
    "no-content": http_response(b"", "204 No Content"),
    "too-many": http_response(b"later", "429 Too Many Requests", "Retry-After: 5\r\n"),
}


@scenario
async def broken_responses(it: Side) -> None:
    async with hooks(it) as running:
        running.raw = _BROKEN
        for name in _BROKEN:
            condition = {"name": "c", "expression": f"object.metadata.name == '{name}'"}
            webhook = running.webhook(name, matchConditions=[condition], timeoutSeconds=2)
            await running.configure("validating", webhook, name=name)
        for name in _BROKEN:
            await it.create("configmaps", _map(name))


@scenario
async def broken_responses_that_are_ignored(it: Side) -> None:
    async with hooks(it) as running:
        running.raw = _BROKEN
        webhooks = [
            running.webhook(name, failurePolicy="Ignore", timeoutSeconds=2) for name in _BROKEN
        ]
        closed = running.webhook("closed", failurePolicy="Ignore", clientConfig={"url": _CLOSED})
        await running.configure("mutating", *webhooks, closed)
        await it.create("configmaps", _map(), whole=True)
        running.show_calls()


@scenario
async def a_webhook_that_is_down(it: Side) -> None:
    async with hooks(it) as running:
        client = {**running.client(), "url": _CLOSED}
        await running.configure("validating", running.webhook("w", clientConfig=client))
        await it.create("configmaps", _map())


@scenario
async def a_webhook_of_an_absent_service(it: Side) -> None:
    async with hooks(it) as running:
        service = {"namespace": it.namespace, "name": "absent"}
        client = {"service": service, "caBundle": running.client()["caBundle"]}
        await running.configure("validating", running.webhook("w", clientConfig=client))
        await it.create("configmaps", _map())


@scenario
async def a_webhook_that_is_not_trusted(it: Side) -> None:
    async with hooks(it) as running:
        client = {"url": running.client()["url"]}
        await running.configure("validating", running.webhook("w", clientConfig=client))
        await it.create("configmaps", _map())
        running.show_calls()


@scenario
async def a_slow_webhook(it: Side) -> None:
    async with hooks(it) as running:
        running.hanging = ("slow", "ignored")
        await running.configure(
            "mutating",
            running.webhook("slow", timeoutSeconds=1, rules=[rule("secrets")]),
            running.webhook("ignored", timeoutSeconds=1, failurePolicy="Ignore"),
        )
        await it.create("secrets", {"metadata": {"name": "s"}})
        await it.create("configmaps", _map())
        running.show_calls()


@scenario
async def patches_that_do_not_apply(it: Side) -> None:
    def encoded(text: bytes) -> Document:
        return {"patchType": "JSONPatch", "patch": base64.b64encode(text).decode()}

    answers: dict[str, Document] = {
        "no-type": {"patch": patch()["patch"]},
        "no-patch": {"patchType": "JSONPatch"},
        "no-operations": {**patch(), "patchType": "Merge"},
        "other-type": {
            **patch({"op": "add", "path": "/data/x", "value": "y"}),
            "patchType": "Merge",
        },
        "null": encoded(b"null"),
        "no-base64": {"patchType": "JSONPatch", "patch": "%"},
        "no-json": encoded(b"{["),
        "no-list": encoded(b'{"op":"add"}'),
        "no-operation": patch({"op": "change", "path": "/data/a"}),
        "absent": patch({"op": "remove", "path": "/data/absent"}),
        "failed-test": patch({"op": "test", "path": "/data/a", "value": "2"}),
        "no-value": patch({"op": "add", "path": "/data/b"}),
        "wrong-type": patch({"op": "replace", "path": "/data", "value": [1]}),
        "unknown-field": patch({"op": "add", "path": "/wrong", "value": 1}),
        "other-name": patch({"op": "replace", "path": "/metadata/name", "value": "x"}),
        "other-kind": patch({"op": "replace", "path": "/kind", "value": "Secret"}),
        "other-version": patch({"op": "replace", "path": "/apiVersion", "value": "v2"}),
        "other-namespace": patch(
            {"op": "replace", "path": "/metadata/namespace", "value": "default"}
        ),
        "invalid": patch({"op": "add", "path": "/data/a b", "value": "x"}),
        "whole": patch({"op": "replace", "path": "", "value": None}),
    }
    async with hooks(it) as running:
        running.respond = lambda path, request: answers[request["name"]]
        await running.configure("mutating", running.webhook("w"))
        for name in answers:
            await it.create("configmaps", _map(name))


@scenario
async def a_patch_that_does_not_apply_is_not_ignored(it: Side) -> None:
    async with hooks(it) as running:
        running.respond = lambda path, request: patch({"op": "remove", "path": "/data/absent"})
        await running.configure("mutating", running.webhook("w", failurePolicy="Ignore"))
        await it.create("configmaps", _map())


@scenario
async def validating_webhooks_may_not_patch(it: Side) -> None:
    async with hooks(it) as running:
        running.respond = _append
        await running.configure("validating", running.webhook("w"))
        await it.create("configmaps", _map())


# --- mutations ------------------------------------------------------------------------------


@scenario
async def mutations_of_updates(it: Side) -> None:
    def respond(path: str, request: Document) -> Document:
        if request["operation"] == "DELETE":
            return patch({"op": "add", "path": "/data/gone", "value": "1"})
        return _append(path, request)

    async with hooks(it) as running:
        running.respond = respond
        await it.create("configmaps", _map())
        await running.configure("mutating", running.webhook("w"))
        await it.patch("configmaps", "m", {"data": {"b": "2"}}, whole=True)
        await it.patch("configmaps", "m", {"data": {"b": "2"}}, whole=True)
        await it.delete("configmaps", "m")


@scenario
async def a_mutated_pod_gets_its_defaults(it: Side) -> None:
    def respond(path: str, request: Document) -> Document:
        container = {"name": "side", "image": "j", "ports": [{"containerPort": 80}]}
        return patch(
            {"op": "add", "path": "/spec/containers/-", "value": container},
            {"op": "add", "path": "/metadata/labels", "value": {"injected": "yes"}},
        )

    async with hooks(it) as running:
        running.respond = respond
        await running.configure("mutating", running.webhook("w", rules=[rule("pods")]))
        pod = await it.send("POST", it.path("pods"), _pod())
        made = pod.json()
        it.show("containers", [_without_mounts(each) for each in made["spec"]["containers"]])
        it.show("labels", made["metadata"]["labels"])


@scenario
async def reinvocation(it: Side) -> None:
    async with hooks(it) as running:
        running.respond = _append
        await running.configure(
            "mutating",
            running.webhook("first", reinvocationPolicy="IfNeeded"),
            running.webhook("second"),
            running.webhook("third", reinvocationPolicy="IfNeeded"),
        )
        await it.create("configmaps", _map(), whole=True)
        running.show_calls()


@scenario
async def reinvocation_without_a_change(it: Side) -> None:
    def respond(path: str, request: Document) -> Document:
        return patch({"op": "add", "path": "/data/a", "value": "1"})

    async with hooks(it) as running:
        running.respond = respond
        webhooks = [running.webhook(p, reinvocationPolicy="IfNeeded") for p in ("one", "two")]
        await running.configure("mutating", *webhooks)
        await it.create("configmaps", _map())
        running.show_calls()


@scenario
async def reinvocation_after_a_policy(it: Side) -> None:
    """Mutating policies come before webhooks; a webhook's change has them evaluated again."""
    async with hooks(it) as running:
        running.respond = _append
        policy = {
            "matchConstraints": {
                "resourceRules": [rule(operations=["CREATE"])],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": it.namespace}},
                "objectSelector": {
                    "matchExpressions": [{"key": "canary", "operator": "DoesNotExist"}]
                },
            },
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {
                        "expression": "Object{data: {'seen': string(object.data.size())}}"
                    },
                }
            ],
            "reinvocationPolicy": "IfNeeded",
        }
        metadata = {"name": it.namespace}
        for plural, spec in (
            ("mutatingadmissionpolicies", policy),
            ("mutatingadmissionpolicybindings", {"policyName": it.namespace}),
        ):
            await it.ask("POST", f"{ROOT}/{plural}", {"metadata": metadata, "spec": spec})
        # Kubernetes reads policies once a second.
        for _ in range(150):
            answer = await it.send(
                "POST", it.path("configmaps"), _map("probe"), query={"dryRun": "All"}
            )
            if b'"seen"' in answer.body:
                break
            await asyncio.sleep(0.2)
        await running.configure("mutating", running.webhook("w", reinvocationPolicy="IfNeeded"))
        await it.create("configmaps", _map(), whole=True)
        running.show_calls()


# --- versions -------------------------------------------------------------------------------


def _definition(it: Side) -> Document:
    group = f"{it.namespace}.dev"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"served": True, "schema": {"openAPIV3Schema": schema}}
    status = {"subresources": {"status": {}, "scale": _SCALE}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [
                {**version, **status, "name": "v1", "storage": True},
                {**version, **status, "name": "v2", "storage": False},
            ],
        },
    }


_SCALE = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}


async def _define(it: Side) -> str:
    """Create a kind with two versions; return the path of its objects, with {} for the version."""
    definition = _definition(it)
    await it.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    path = f"/apis/{it.namespace}.dev/{{}}/namespaces/{it.namespace}/things"
    for version in ("v1", "v2"):
        for _ in range(150):
            if (await it.send("GET", path.format(version))).code == 200:
                break
            await asyncio.sleep(0.2)
    return path


def _thing(it: Side, version: str, name: str, **fields: Any) -> Document:
    return {
        "apiVersion": f"{it.namespace}.dev/{version}",
        "kind": "Thing",
        "metadata": {"name": name},
        **fields,
    }


def _of_version(it: Side, version: str, *resources: str) -> Document:
    return rule(*(resources or ("things",)), group=f"{it.namespace}.dev", version=version)


@scenario
async def match_policies(it: Side) -> None:
    async with hooks(it) as running:
        path = await _define(it)
        await running.configure(
            "validating",
            running.webhook("equivalent", rules=[_of_version(it, "v1")]),
            running.webhook("exact", rules=[_of_version(it, "v1")], matchPolicy="Exact"),
            running.webhook("other", rules=[_of_version(it, "v2")]),
        )
        await it.ask("POST", path.format("v2"), _thing(it, "v2", "t", spec={"x": 1}))
        running.calls.sort(key=lambda call: call[0])
        running.show_reviews()
        await it.ask("POST", path.format("v1"), _thing(it, "v1", "u"))
        running.show_calls(in_order=False)


@scenario
async def mutations_in_another_version(it: Side) -> None:
    async with hooks(it) as running:
        running.respond = lambda path, request: patch(
            {"op": "add", "path": "/spec/y", "value": request["object"]["apiVersion"]}
        )
        path = await _define(it)
        await running.configure("mutating", running.webhook("w", rules=[_of_version(it, "v1")]))
        thing = _thing(it, "v2", "t", spec={"x": 1})
        await it.ask("POST", path.format("v2"), thing, whole=True)


@scenario
async def a_webhook_for_the_scale_of_things(it: Side) -> None:
    async with hooks(it) as running:
        path = await _define(it)
        rules = [_of_version(it, "v1", "things/scale", "things/status")]
        await running.configure("validating", running.webhook("w", rules=rules))
        await it.ask("POST", path.format("v1"), _thing(it, "v1", "t", spec={"replicas": 1}))
        headers = {"Content-Type": "application/merge-patch+json"}
        scale = {"spec": {"replicas": 2}}
        thing = path.format("v1") + "/t"
        await it.ask("PATCH", f"{thing}/scale", scale, headers=headers, whole=True)
        # Kubernetes reviews the update again if its cache was behind.
        await asyncio.sleep(1)
        await it.ask("PATCH", f"{thing}/status", {"status": {"a": 1}}, headers=headers)
        running.show_reviews()


# --- dry run, warnings, audit, metrics ------------------------------------------------------


@scenario
async def dry_runs(it: Side) -> None:
    async with hooks(it) as running:
        running.respond = lambda path, request: _append(path, request) if path != "v" else {}
        await running.configure(
            "mutating", running.webhook("none"), running.webhook("some", sideEffects="NoneOnDryRun")
        )
        await running.configure("validating", running.webhook("v"))
        dry = {"dryRun": "All"}
        await it.ask("POST", it.path("configmaps"), _map(), query=dry, whole=True)
        it.show("dry runs", [body["request"]["dryRun"] for _, body in running.calls])
        await it.ask("GET", it.path("configmaps", "m"))


@scenario
async def warnings(it: Side) -> None:
    texts = ["plain", 'with "quotes" and \\', "ünïcödé", "x" * 300, ""]

    def respond(path: str, request: Document) -> Document:
        refused = path == "v" and request["name"] == "refused"
        return {"allowed": not refused, "warnings": [f"{path}: {text}" for text in texts]}

    async with hooks(it) as running:
        running.respond = respond
        await running.configure("mutating", running.webhook("m"))
        await running.configure("validating", running.webhook("v"))
        await it.create("configmaps", _map())
        await it.create("configmaps", _map("refused"))


@scenario
async def warnings_of_two_lines(it: Side) -> None:
    async with hooks(it) as running:
        running.respond = lambda path, request: {"warnings": ["two\nlines"]}
        await running.configure("mutating", running.webhook("m"))
        await it.create("configmaps", _map())


@scenario
async def many_warnings(it: Side) -> None:
    async with hooks(it) as running:
        running.respond = lambda path, request: {
            "warnings": [f"{number} " + "y" * 200 for number in range(40)] * 2
        }
        await running.configure("mutating", running.webhook("m"))
        await it.create("configmaps", _map())


@scenario
async def audit_annotations(it: Side) -> None:
    def respond(path: str, request: Document) -> Document:
        notes = {"auditAnnotations": {"key": path, "bad key": "x"}}
        if path == "m":
            return {**_append(path, request), **notes}
        return notes

    async with hooks(it) as running:
        running.respond = respond
        gone = {"url": _CLOSED}
        await running.configure(
            "mutating",
            running.webhook("m"),
            running.webhook("n"),
            running.webhook("gone", clientConfig=gone, failurePolicy="Ignore"),
        )
        await running.configure(
            "validating",
            running.webhook("v"),
            running.webhook("gone", clientConfig=gone, failurePolicy="Ignore"),
        )
        await it.ask_audited("POST", it.path("configmaps"), _map())


@scenario
async def metrics(it: Side) -> None:
    def respond(path: str, request: Document) -> Document:
        return _refuse(message="no", code=403) if request["name"] == "refused" else {}

    async with hooks(it) as running:
        running.respond = respond
        running.raw = {"broken": http_response(b"{}")}
        secrets = [rule("secrets")]
        gone = {"url": _CLOSED}
        await running.configure(
            "mutating",
            running.webhook("m", rules=secrets),
            running.webhook("broken", failurePolicy="Ignore", rules=secrets),
            running.webhook("gone", clientConfig=gone, failurePolicy="Ignore", rules=secrets),
        )
        await running.configure(
            "validating",
            running.webhook("v", rules=secrets),
            running.webhook("fails", clientConfig=gone, rules=[rule("pods")]),
        )
        await it.create("secrets", {"metadata": {"name": "s"}})
        await it.create("secrets", {"metadata": {"name": "refused"}})
        await it.create("pods", _pod())
        page = (await it.send("GET", "/metrics")).body.decode()
        chosen = [
            line
            for line in page.splitlines()
            if line.startswith("apiserver_admission_webhook")
            and f".{it.namespace}.dev" in line
            and "_duration_seconds_bucket" not in line
            and "_duration_seconds_sum" not in line
        ]
        it.show("series", sorted(_sorted_labels(line) for line in chosen if '"canary' not in line))


def _sorted_labels(line: str) -> str:
    name, _, rest = line.partition("{")
    labels, _, value = rest.rpartition("} ")
    return f"{name}{{{','.join(sorted(labels.split(',')))}}} {value}"


# --- configurations -------------------------------------------------------------------------


async def _try(it: Side, running: Hooks, **fields: Any) -> None:
    body = {"metadata": {"name": f"{it.namespace}-x"}, "webhooks": [running.webhook("w", **fields)]}
    path = f"{ROOT}/validatingwebhookconfigurations"
    await it.ask("POST", path, body, query={"dryRun": "All"})


@scenario
async def faulty_configurations(it: Side) -> None:
    async with hooks(it) as running:
        client = running.client()
        service = {"namespace": "n", "name": "s"}
        cases: tuple[Document, ...] = (
            {"name": "short"},
            {"name": "Upper.case.dev"},
            {"sideEffects": None},
            {"sideEffects": "Some"},
            {"sideEffects": "Unknown"},
            {"sideEffects": "Maybe"},
            {"admissionReviewVersions": []},
            {"admissionReviewVersions": ["v2"]},
            {"admissionReviewVersions": ["v1", "v1"]},
            {"admissionReviewVersions": ["", "V_1"]},
            {"timeoutSeconds": 0},
            {"timeoutSeconds": 31},
            {"failurePolicy": "Maybe"},
            {"matchPolicy": "Maybe"},
            {"clientConfig": {}},
            {"clientConfig": {"url": client["url"], "service": service}},
            {"clientConfig": {"url": "http://x.dev"}},
            {"clientConfig": {"url": "https://"}},
            {"clientConfig": {"url": "https://user@x.dev/a?b=c#d"}},
            {"clientConfig": {"service": {"namespace": "", "name": ""}}},
            {"clientConfig": {"service": {**service, "path": "a//b", "port": 70000}}},
            {"clientConfig": {"service": {**service, "path": "/a b"}}},
            {"clientConfig": {"url": client["url"], "caBundle": "bm90IGEgY2VydGlmaWNhdGU="}},
            {"rules": [rule(operations=[])]},
            {"rules": [rule(operations=["*", "CREATE"])]},
            {"rules": [rule(operations=["READ"], scope="Galaxy")]},
            {"rules": [rule("pods/*", "pods/status")]},
            {"rules": [rule("*/*", "pods")]},
            {"rules": [{"operations": ["CREATE"]}]},
            {"namespaceSelector": {"matchLabels": {"a b": "c d"}}},
            {"objectSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}},
            {"matchConditions": [{"name": "", "expression": ""}]},
            {"matchConditions": [{"name": "a b", "expression": "1"}]},
            {"matchConditions": [{"name": "a", "expression": "object."}]},
            {"matchConditions": [{"name": "a", "expression": "variables.x == 1"}]},
            {"matchConditions": [{"name": "a", "expression": "true"}] * 2},
            {
                "matchConditions": [
                    {"name": f"c{number}", "expression": "true"} for number in range(65)
                ]
            },
        )
        for fields in cases:
            await _try(it, running, **fields)
        same = [running.webhook("w"), running.webhook("w")]
        body = {"metadata": {"name": f"{it.namespace}-x"}, "webhooks": same}
        for kind in ("mutating", "validating"):
            await it.ask(
                "POST", f"{ROOT}/{kind}webhookconfigurations", body, query={"dryRun": "All"}
            )
        reinvoked = running.webhook("w", reinvocationPolicy="Often")
        body = {"metadata": {"name": f"{it.namespace}-x"}, "webhooks": [reinvoked]}
        path = f"{ROOT}/mutatingwebhookconfigurations"
        await it.ask("POST", path, body, query={"dryRun": "All"})


@scenario
async def defaults_of_configurations(it: Side) -> None:
    async with hooks(it) as running:
        webhook = {
            "name": "w.example.dev",
            "clientConfig": {"service": {"namespace": "n", "name": "s"}},
            "rules": [{key: value for key, value in rule().items() if key != "scope"}],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1", "v9"],
        }
        for kind in ("mutating", "validating"):
            body = {"metadata": {"name": f"{it.namespace}-x"}, "webhooks": [webhook]}
            path = f"{ROOT}/{kind}webhookconfigurations"
            await it.ask("POST", path, body, query={"dryRun": "All"}, whole=True)
        assert not running.calls


# --- our own writes -------------------------------------------------------------------------


@scenario
async def pods_of_jobs(it: Side) -> None:
    """The controller's writes are admitted like those of others."""

    def respond(path: str, request: Document) -> Document:
        return patch({"op": "add", "path": "/metadata/annotations/seen", "value": "yes"})

    async with hooks(it) as running:
        running.respond = respond
        rules = [rule("pods", operations=["CREATE"])]
        await running.configure("mutating", running.webhook("w", rules=rules))
        pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
        annotations = {"annotations": {"a": "b"}}
        spec = {"template": {"metadata": annotations, "spec": pod}}
        await it.create("jobs", {"metadata": {"name": "j"}, "spec": spec})
        (made,) = await it.pods("j", 1)
        it.show("annotations", made["metadata"]["annotations"])
        running.show_calls()


@scenario
async def pods_of_jobs_that_are_refused(it: Side) -> None:
    def respond(path: str, request: Document) -> Document:
        return _refuse(message="no Pods today", code=403) if len(running.calls) <= 2 else {}

    async with hooks(it) as running:
        running.respond = respond
        rules = [rule("pods", operations=["CREATE"])]
        await running.configure("validating", running.webhook("w", rules=rules))
        pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
        await it.create("jobs", {"metadata": {"name": "j"}, "spec": {"template": {"spec": pod}}})
        await it.pods("j", 1)
        event = await it.first_event("FailedCreate")
        it.show("event", event["message"])


@scenario
async def sessions(it: Side) -> None:
    """The parameters of exec, attach and portforward are the reviewed object."""
    async with hooks(it) as running:
        running.respond = lambda path, request: _refuse(message=request["subResource"], code=403)
        rules = [rule("pods/*", operations=["CONNECT"])]
        await it.create("pods", _pod())
        anything: Document = {}
        await running.configure(
            "validating", running.webhook("w", rules=rules, objectSelector=anything)
        )
        never = {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}
        await running.configure(
            "mutating", running.webhook("labelled", rules=rules, objectSelector=never), name="m"
        )
        for subresource, query in (
            ("exec", {"command": "true", "container": "c", "stdout": "true", "tty": "1"}),
            ("exec", {}),
            ("attach", {"stdin": "true", "stderr": "false"}),
            ("portforward", {"ports": "80"}),
        ):
            await it.ask("POST", it.path("pods", "p", subresource), query=query)
        await it.ask("GET", it.path("pods", "absent", "attach"), query={"stdin": "true"})
        running.show_reviews()
