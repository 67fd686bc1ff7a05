"""Admission webhooks: matching, mutation, rejection, and the text of errors."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.api.admission.dynamic.matching import Attempt
from onejob.api.audit_notes import begin_notes
from onejob.api.service import Service
from onejob.webhooks.configurations import read_webhooks
from onejob.wire.errors import ApiError, BadRequest, InternalError
from onejob.wire.kinds import Kind
from onejob.wire.requests import DeleteOptions, WriteOptions
from tests.api.service_support import CONFIGMAP, NAMESPACE, PERSON, POD, a_map, a_pod, read
from tests.webhooks.support import (
    Doc,
    a_calling_service,
    a_hook,
    a_raw_hook,
    a_webhook,
    configure,
    http_response,
    patch,
    review_response,
)

_MUTATING = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
_SERVICES = "services"
_SLICES = "endpointslices.discovery.k8s.io"


def _allow(request: Doc) -> Doc:
    return {}


async def _make(service: Service, name: str = "m", **metadata: Any) -> Doc:
    outcome = await service.create(CONFIGMAP, "default", a_map(name, **metadata), PERSON)
    return read(outcome.document)


async def test_a_webhook_gets_the_request_and_may_reject_it(tmp_path: Path) -> None:
    def respond(request: Doc) -> Doc:
        status = {"message": "not today", "code": 403, "reason": "Forbidden"}
        return {"allowed": request["operation"] != "DELETE", "status": status}

    async with a_hook(tmp_path, respond) as hook, a_calling_service(tmp_path) as service:
        await configure(service, a_webhook(hook))
        made = await _make(service)
        with pytest.raises(ApiError) as refusal:
            await service.delete(CONFIGMAP, "default", "m", DeleteOptions())
        assert refusal.value.status() == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": 'admission webhook "w.test.dev" denied the request: not today',
            "reason": "Forbidden",
            "code": 403,
        }
        first, second = (review["request"] for review in hook.reviews)
        assert first["object"] == made | {
            "metadata": {k: v for k, v in made["metadata"].items() if k != "resourceVersion"}
        }
        assert first["oldObject"] is None
        assert first["kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
        assert first["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
        assert (first["operation"], first["name"], first["namespace"]) == ("CREATE", "m", "default")
        assert first["userInfo"] == {"username": "somebody"}
        assert first["dryRun"] is False
        assert first["options"]["kind"] == "CreateOptions"
        assert (second["operation"], second["object"]) == ("DELETE", None)
        assert second["oldObject"]["metadata"]["uid"] == made["metadata"]["uid"]
        assert hook.connections == 1, "the connection is reused"


async def test_a_rejection_without_explanation_is_a_bad_request(tmp_path: Path) -> None:
    async with (
        a_hook(tmp_path, lambda _: {"allowed": False}) as hook,
        a_calling_service(tmp_path) as service,
    ):
        await configure(service, a_webhook(hook))
        with pytest.raises(ApiError) as refusal:
            await _make(service)
        assert refusal.value.code == 400
        text = 'admission webhook "w.test.dev" denied the request without explanation'
        assert refusal.value.message == text


async def test_mutating_webhooks_run_in_the_order_of_their_configurations(tmp_path: Path) -> None:
    def respond(request: Doc) -> Doc:
        number = len(request["object"]["data"])
        return patch({"op": "add", "path": f"/data/n{number}", "value": str(number)})

    async with a_hook(tmp_path, respond) as hook, a_calling_service(tmp_path) as service:
        await configure(service, a_webhook(hook, "b.test.dev"), name="b", mutating=True)
        await configure(service, a_webhook(hook, "a.test.dev"), name="a", mutating=True)
        made = await _make(service)
        assert made["data"] == {"k": "v", "n1": "1", "n2": "2"}


async def test_a_webhook_is_called_again_after_a_later_change_if_its_policy_is_if_needed(
    tmp_path: Path,
) -> None:
    def respond(request: Doc) -> Doc:
        data = request["object"]["data"]
        if "late" in data:
            return patch({"op": "add", "path": "/data/again", "value": "1"})
        if len(hook.reviews) == 2:
            return patch({"op": "add", "path": "/data/late", "value": "1"})
        return {}

    async with a_hook(tmp_path, respond) as hook, a_calling_service(tmp_path) as service:
        early = a_webhook(hook, "early.test.dev", reinvocationPolicy="IfNeeded")
        await configure(service, early, a_webhook(hook, "late.test.dev"), mutating=True)
        made = await _make(service)
        assert made["data"] == {"k": "v", "late": "1", "again": "1"}
        assert len(hook.reviews) == 3


async def test_selectors_and_conditions_choose_requests(tmp_path: Path) -> None:
    async with a_hook(tmp_path, _allow) as hook, a_calling_service(tmp_path) as service:
        labelled = {"matchLabels": {"call": "me"}}
        condition = {"name": "not-skipped", "expression": "object.metadata.name != 'skipped'"}
        await configure(
            service, a_webhook(hook, objectSelector=labelled, matchConditions=[condition])
        )
        await _make(service, "plain")
        await _make(service, "skipped", labels={"call": "me"})
        await _make(service, "called", labels={"call": "me"})
        assert [review["request"]["name"] for review in hook.reviews] == ["called"]


async def test_a_namespace_selector_reads_the_labels_of_the_namespace(tmp_path: Path) -> None:
    async with a_hook(tmp_path, _allow) as hook, a_calling_service(tmp_path) as service:
        namespace = {"metadata": {"name": "other", "labels": {"call": "me"}}}
        await service.create(NAMESPACE, "", namespace, PERSON)
        selector = {"matchLabels": {"call": "me"}}
        await configure(service, a_webhook(hook, namespaceSelector=selector))
        await _make(service)
        await service.create(CONFIGMAP, "other", a_map("m"), PERSON)
        assert [review["request"]["namespace"] for review in hook.reviews] == ["other"]


async def test_warnings_reach_the_client_and_dry_runs_are_marked(tmp_path: Path) -> None:
    async with (
        a_hook(tmp_path, lambda _: {"warnings": ["careful"]}) as hook,
        a_calling_service(tmp_path) as service,
    ):
        await configure(service, a_webhook(hook))
        options = WriteOptions(PERSON.user, dry_run=True)
        outcome = await service.create(CONFIGMAP, "default", a_map("m"), options)
        assert outcome.warnings == ("careful",)
        assert hook.reviews[0]["request"]["dryRun"] is True


async def test_rules_choose_subresources(tmp_path: Path) -> None:
    rule = {"operations": ["UPDATE"], "apiGroups": [""], "apiVersions": ["*"]}
    async with a_hook(tmp_path, _allow) as hook, a_calling_service(tmp_path) as service:
        rules = [{**rule, "resources": ["pods/status"]}]
        await configure(service, a_webhook(hook, rules=rules))
        await service.create(POD, "default", a_pod(), PERSON)
        labels = {"metadata": {"labels": {"a": "b"}}}
        await service.patch(POD, "default", "p", "merge", labels, PERSON)
        status = {"status": {"phase": "Running"}}
        await service.patch(POD, "default", "p", "merge", status, PERSON, subresource="status")
        assert [review["request"]["subResource"] for review in hook.reviews] == ["status"]


async def test_a_service_is_resolved_through_its_endpoint_slices(tmp_path: Path) -> None:
    async with a_hook(tmp_path, _allow) as hook, a_calling_service(tmp_path) as service:
        await configure(service, a_webhook(hook, clientConfig=hook.service_client()))
        missing = (
            'Internal error occurred: failed calling webhook "w.test.dev": failed to call webhook: '
            'Post "https://hook.default.svc:443/?timeout=10s": service "hook" not found'
        )
        with pytest.raises(InternalError) as failure:
            await _make(service)
        assert failure.value.message == missing
        kinds = service.kinds.by_resource
        body: Doc = {"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}]}}
        await service.create(kinds[_SERVICES], "default", body, PERSON)
        with pytest.raises(InternalError, match='no endpoints available for service "hook"'):
            await _make(service)
        labels = {"kubernetes.io/service-name": "hook"}
        ports = [{"name": "", "port": hook.port, "protocol": "TCP"}]
        body = {
            "metadata": {"name": "hook-1", "labels": labels},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["127.0.0.1"]}],
            "ports": ports,
        }
        await service.create(kinds[_SLICES], "default", body, PERSON)
        await _make(service)
        assert len(hook.reviews) == 1


async def test_a_service_may_name_the_address_of_its_webhooks(tmp_path: Path) -> None:
    async with a_hook(tmp_path, _allow) as hook, a_calling_service(tmp_path) as service:
        annotations = {"onejob.dev/webhook-address": f"127.0.0.1:{hook.port}"}
        body: Doc = {
            "metadata": {"name": "hook", "annotations": annotations},
            "spec": {"ports": [{"port": 443}]},
        }
        await service.create(service.kinds.by_resource[_SERVICES], "default", body, PERSON)
        await configure(service, a_webhook(hook, clientConfig=hook.service_client()))
        await _make(service)
        assert len(hook.reviews) == 1


async def test_a_host_stands_in_for_services_without_addresses(tmp_path: Path) -> None:
    async with (
        a_hook(tmp_path, _allow) as hook,
        a_calling_service(tmp_path, "127.0.0.1") as service,
    ):
        client = hook.service_client()
        client["service"]["port"] = hook.port
        await configure(service, a_webhook(hook, clientConfig=client))
        await _make(service)
        assert len(hook.reviews) == 1


async def test_a_webhook_that_changes_the_name_of_a_stored_object_is_refused(
    tmp_path: Path,
) -> None:
    def respond(request: Doc) -> Doc:
        return patch({"op": "replace", "path": "/metadata/name", "value": "other"})

    async with a_hook(tmp_path, respond) as hook, a_calling_service(tmp_path) as service:
        await _make(service)
        await configure(service, a_webhook(hook), mutating=True)
        with pytest.raises(BadRequest, match="does not match the name on the URL"):
            await service.patch(CONFIGMAP, "default", "m", "merge", {"data": {"a": "b"}}, PERSON)


async def test_a_configuration_as_envtest_writes_it_is_called(tmp_path: Path) -> None:
    """The bundle contains the certificate of the webhook itself, and the path has two slashes."""
    async with a_hook(tmp_path, _allow) as hook, a_calling_service(tmp_path) as service:
        client = {**hook.client("//validate"), "caBundle": hook.certificate}
        await configure(service, a_webhook(hook, clientConfig=client))
        await _make(service)
        assert hook.paths == ["/validate?timeout=10s"]


async def test_condition_errors_are_reported_together_as_upstream(tmp_path: Path) -> None:
    conditions = [
        {"name": "a", "expression": "object.nothing == 1"},
        {"name": "b", "expression": "oldObject.nothing == 2"},
    ]
    async with a_hook(tmp_path, _allow) as hook, a_calling_service(tmp_path) as service:
        await configure(service, a_webhook(hook, matchConditions=conditions))
        with pytest.raises(ApiError) as refusal:
            await _make(service)
        assert refusal.value.message == (
            "configmaps \"m\" is forbidden: [expression 'object.nothing == 1' resulted in error: "
            "no such key: nothing, expression 'oldObject.nothing == 2' resulted in error: "
            "no such key: nothing]"
        )
        assert hook.reviews == []


async def test_conditions_may_use_the_authorizer_and_typed_requests(tmp_path: Path) -> None:
    conditions = [
        {"name": "a", "expression": "authorizer.requestResource.check('create').allowed()"},
        {"name": "b", "expression": "namespaceObject == null && !has(request.subResource)"},
    ]
    async with a_hook(tmp_path, _allow) as hook, a_calling_service(tmp_path) as service:
        await configure(service, a_webhook(hook, matchConditions=conditions))
        await _make(service)
        assert len(hook.reviews) == 1
        unknown = [{"name": "a", "expression": "request.uid == ''"}]
        with pytest.raises(ApiError, match="undefined field 'uid'"):
            await configure(service, a_webhook(hook, matchConditions=unknown), name="d")


async def test_earlier_rules_choose_the_version_of_equivalent_requests(tmp_path: Path) -> None:
    def rule(version: str) -> Doc:
        return {
            "operations": ["*"],
            "apiGroups": ["x.dev"],
            "apiVersions": [version],
            "resources": ["things"],
        }

    kinds = [Kind("x.dev", version, "Thing", "things", "thing") for version in ("v1", "v2", "v3")]
    value = msgspec.json.encode(
        {
            "metadata": {"name": "c"},
            "webhooks": [
                {
                    "name": "w.test.dev",
                    "clientConfig": {"url": "https://x"},
                    "rules": [rule("v3"), rule("v2")],
                }
            ],
        }
    )
    (hook,) = read_webhooks(value)
    attempt = Attempt("CREATE", kinds[0], "", kinds[1:])
    assert hook.version_for(attempt) is kinds[2]


async def test_configurations_may_change_during_a_call(tmp_path: Path) -> None:
    """A request is evaluated with the webhooks that there were at its begin."""
    called, released = asyncio.Event(), asyncio.Event()

    async def wait(path: str, body: bytes) -> bytes:
        called.set()
        await released.wait()
        return http_response(review_response(msgspec.json.decode(body), {}))

    async with a_raw_hook(tmp_path, wait) as hook, a_calling_service(tmp_path) as service:
        await configure(service, a_webhook(hook, "a.test.dev"), name="a", mutating=True)
        await configure(service, a_webhook(hook, "b.test.dev"), name="b", mutating=True)
        making = asyncio.create_task(_make(service))
        await called.wait()
        kind = service.kinds.by_resource[_MUTATING]
        await service.delete(kind, "", "b", DeleteOptions())
        released.set()
        await making
        assert hook.paths == ["/?timeout=10s"] * 2


async def test_a_webhook_may_understand_only_old_reviews(tmp_path: Path) -> None:
    """Their responses are not verified, as upstream."""

    async def respond(path: str, body: bytes) -> bytes:
        versions.append(msgspec.json.decode(body)["apiVersion"])
        encoded = patch({"op": "add", "path": "/data/old", "value": "1"})["patch"]
        review = {
            "apiVersion": "admission.k8s.io/v1beta1",
            "kind": "AdmissionReview",
            "response": {"allowed": True, "patch": encoded},
        }
        return http_response(msgspec.json.encode(review))

    versions: list[str] = []
    async with a_raw_hook(tmp_path, respond) as hook, a_calling_service(tmp_path) as service:
        understood = ["v9", "v1beta1", "v1"]
        webhook = a_webhook(hook, admissionReviewVersions=understood)
        await configure(service, webhook, mutating=True)
        made = await _make(service)
        assert made["data"]["old"] == "1"
        assert versions == ["admission.k8s.io/v1beta1"]


async def test_a_rejection_keeps_the_warnings_before_it(tmp_path: Path) -> None:
    def respond(request: Doc) -> Doc:
        count = len(hook.reviews)
        return {"allowed": count < 2, "warnings": [f"warning {count}"]}

    async with a_hook(tmp_path, respond) as hook, a_calling_service(tmp_path) as service:
        await configure(service, a_webhook(hook), mutating=True)
        await configure(service, a_webhook(hook))
        with pytest.raises(ApiError) as refusal:
            await _make(service)
        assert refusal.value.warnings == ("warning 1", "warning 2")


async def test_an_event_is_sent_in_the_group_of_the_rule(tmp_path: Path) -> None:
    rule = {
        "operations": ["CREATE"],
        "apiGroups": ["events.k8s.io"],
        "apiVersions": ["v1"],
        "resources": ["events"],
    }
    async with a_hook(tmp_path, _allow) as hook, a_calling_service(tmp_path) as service:
        await configure(service, a_webhook(hook, rules=[rule]))
        event = {
            "metadata": {"name": "e"},
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
            "message": "hello",
            "reason": "Started",
            "type": "Normal",
        }
        await service.create(service.kinds.by_resource["events"], "default", event, PERSON)
        request = hook.reviews[0]["request"]
        assert request["object"]["note"] == "hello"
        assert request["object"]["apiVersion"] == "events.k8s.io/v1"
        assert (request["requestKind"]["group"], request["kind"]["group"]) == ("", "events.k8s.io")


async def test_pods_are_shown_with_what_admission_plugins_add(tmp_path: Path) -> None:
    """As upstream, which runs its plugins before webhooks."""
    rule = {
        "operations": ["CREATE"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["pods"],
    }
    async with a_hook(tmp_path, _allow) as hook, a_calling_service(tmp_path) as service:
        service.admission.enable(("Priority", "DefaultTolerationSeconds"))
        await configure(service, a_webhook(hook, rules=[rule]), mutating=True)
        priority_class = {"metadata": {"name": "high"}, "value": 7}
        kind = service.kinds.by_resource["priorityclasses.scheduling.k8s.io"]
        await service.create(kind, "", priority_class, PERSON)
        seconds = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for_ready = {"key": "node.kubernetes.io/not-ready", **seconds}
        for_reachable = {"key": "node.kubernetes.io/unreachable", **seconds}
        own = {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}
        cases: tuple[tuple[Doc, int, list[Doc]], ...] = (
            ({}, 0, [for_ready, for_reachable]),
            ({"priorityClassName": "high", "tolerations": [own]}, 7, [own, for_reachable]),
            ({"tolerations": [{"operator": "Exists"}]}, 0, [{"operator": "Exists"}]),
        )
        for index, (spec, priority, tolerations) in enumerate(cases):
            pod = a_pod(f"p{index}")
            pod["spec"] |= spec
            made = read((await service.create(POD, "default", pod, PERSON)).document)
            shown = hook.reviews[-1]["request"]["object"]
            for found in (made["spec"], shown["spec"]):
                assert (found["priority"], found["tolerations"]) == (priority, tolerations)
                assert found["preemptionPolicy"] == "PreemptLowerPriority"


async def test_ignored_failures_are_noted_for_the_audit_log(tmp_path: Path) -> None:
    async with a_hook(tmp_path, _allow) as hook, a_calling_service(tmp_path) as service:
        gone = {"url": "https://127.0.0.1:1/", "caBundle": hook.ca_bundle}
        broken = a_webhook(hook, clientConfig=gone, failurePolicy="Ignore")
        await configure(service, broken, mutating=True)
        await configure(service, broken)
        notes = begin_notes()
        await _make(service)
    prefix = "webhook.admission.k8s.io/round_0_index_0"
    assert notes[f"failed-open.mutation.{prefix}"] == "w.test.dev"
    assert notes[f"failed-open.validating.{prefix}"] == "w.test.dev"
    assert '"mutated":false' in notes[f"mutation.{prefix}"]
