"""Conversion webhooks of CustomResourceDefinitions, and kinds with several served versions."""

import asyncio
import copy
from collections.abc import Callable
from typing import Any, Final

from tests.differential.hooks import Hooks, hooks
from tests.differential.registry import scenario
from tests.differential.side import Document, NotReached, Side
from tests.webhooks.support import http_response

_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_MERGE: Final = {"Content-Type": "application/merge-patch+json"}
_JSON: Final = {"Content-Type": "application/json-patch+json"}
_TEXT: Final = {"type": "string"}
_POLLS: Final = 150
_POLL_SECONDS: Final = 0.2


def _group(it: Side) -> str:
    return f"{it.namespace}.dev"


def _version(name: str, field: str, **more: Any) -> Document:
    spec = {"type": "object", "properties": {field: _TEXT, "kept": _TEXT}}
    schema = {"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}}
    return {
        "name": name,
        "served": True,
        "storage": name == "v1",
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        **more,
    }


def _definition(it: Side, running: Hooks, **conversion: Any) -> Document:
    webhook = {"clientConfig": running.client("convert"), "conversionReviewVersions": ["v1"]}
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{_group(it)}"},
        "spec": {
            "group": _group(it),
            "scope": "Namespaced",
            "names": names,
            "versions": [_version("v1", "host"), _version("v2", "address")],
            "conversion": {"strategy": "Webhook", "webhook": webhook, **conversion},
        },
    }


async def _define(it: Side, running: Hooks) -> Callable[[str, str], str]:
    """Define a kind; return a function from version and name to the path of an object."""
    await it.ask("POST", _DEFINITIONS, _definition(it, running))

    def path(version: str, name: str = "") -> str:
        root = f"/apis/{_group(it)}/{version}/namespaces/{it.namespace}/things"
        return f"{root}/{name}" if name else root

    for version in ("v1", "v2"):
        for _ in range(_POLLS):
            answer = await it.send("GET", path(version))
            if answer.code == 200:
                break
            await asyncio.sleep(_POLL_SECONDS)
        else:
            raise NotReached(f"things are not served: {answer.body!r}")
    running.convert = _convert
    running.calls.clear()
    return path


def _thing(it: Side, version: str, name: str = "t", **metadata: Any) -> Document:
    field = "host" if version == "v1" else "address"
    return {
        "apiVersion": f"{_group(it)}/{version}",
        "kind": "Thing",
        "metadata": {"name": name, **metadata},
        "spec": {field: "h", "kept": "k"},
    }


def _converted(request: Document) -> list[Document]:
    wanted = request["desiredAPIVersion"]
    results = []
    for given in request["objects"]:
        made = copy.deepcopy(given)
        made["apiVersion"] = wanted
        spec = made.get("spec") or {}
        before, after = ("address", "host") if wanted.endswith("/v1") else ("host", "address")
        if before in spec:
            spec[after] = spec.pop(before)
        results.append(made)
    return results


def _response(request: Document, objects: list[Document], **result: Any) -> Document:
    response = {
        "uid": request["uid"],
        "convertedObjects": objects,
        "result": result or {"status": "Success"},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "response": response,
    }


def _convert(review: Document) -> Document:
    return _response(review["request"], _converted(review["request"]))


@scenario
async def reads_and_writes_in_two_versions(it: Side) -> None:
    async with hooks(it) as running:
        path = await _define(it, running)
        await it.ask("POST", path("v1", ""), _thing(it, "v1", "one"), whole=True)
        await it.ask("GET", path("v2", "one"), whole=True)
        await it.ask("POST", path("v2", ""), _thing(it, "v2", "two"), whole=True)
        await it.ask("GET", path("v1", "two"), whole=True)
        await it.ask("GET", path("v2", "two"), whole=True)
        changed = {"spec": {"address": "changed"}}
        await it.ask("PATCH", path("v2", "one"), changed, headers=_MERGE, whole=True)
        operations = [{"op": "remove", "path": "/spec/address"}]
        await it.ask("PATCH", path("v2", "one"), operations, headers=_JSON, whole=True)
        status: Document = {"status": {}}
        await it.ask("PATCH", path("v2", "one") + "/status", status, headers=_MERGE, whole=True)
        listed = (await it.send("GET", path("v2", ""))).json()
        it.show("list", [[each["apiVersion"], each["spec"]] for each in listed["items"]])
        await it.ask("DELETE", path("v2", "two"))
        await it.ask("GET", path("v1", "two"))


@scenario
async def what_a_conversion_webhook_gets(it: Side) -> None:
    async with hooks(it) as running:
        path = await _define(it, running)
        made = _thing(it, "v1", labels={"a": "b"}, annotations={"c": "d"})
        await it.ask("POST", path("v1", ""), made)
        running.calls.clear()
        await it.ask("GET", path("v2", "t"))
        # Kubernetes calls it again for its cache.
        del running.calls[1:]
        it.show("request", running.calls[0][1]["request"])


@scenario
async def unknown_fields_of_another_version(it: Side) -> None:
    async with hooks(it) as running:
        path = await _define(it, running)
        thing = _thing(it, "v2")
        thing["spec"] = {"address": 1}
        await it.ask("POST", path("v2", ""), thing)
        thing["spec"] = {"host": "of the other version", "address": "a"}
        strict = {"fieldValidation": "Strict"}
        await it.ask("POST", path("v2", ""), thing, query=strict)
        await it.ask("POST", path("v2", ""), thing, whole=True)


@scenario
async def a_watch_in_another_version(it: Side) -> None:
    async with hooks(it) as running:
        path = await _define(it, running)
        await it.ask("POST", path("v1", ""), _thing(it, "v1", "one"))
        await it.ask("POST", path("v2", ""), _thing(it, "v2", "two"))
        seen = await it.watch_path(path("v2", ""), events=2)
        it.show("events", [[each["type"], each["object"]["spec"]] for each in seen])


_Change = Callable[[Document, list[Document]], Any]


def _without(document: Document, name: str) -> Document:
    return {key: value for key, value in document.items() if key != name}


def _with_metadata(objects: list[Document], **changes: Any) -> list[Document]:
    return [{**each, "metadata": {**each["metadata"], **changes}} for each in objects]


_CHANGES: Final[dict[str, _Change]] = {
    "refused": lambda request, made: _response(request, [], status="Failure", message="no way"),
    "refused silently": lambda request, made: _response(request, [], status="Failure"),
    "no status": lambda request, made: _response(request, made, message="fine"),
    "none": lambda request, made: _response(request, []),
    "too many": lambda request, made: _response(request, made * 2),
    "wrong version": lambda request, made: _response(
        request, [{**each, "apiVersion": "x.dev/v1"} for each in made]
    ),
    "wrong kind": lambda request, made: _response(
        request, [{**each, "kind": "Other"} for each in made]
    ),
    "another name": lambda request, made: _response(request, _with_metadata(made, name="x")),
    "another namespace": lambda request, made: _response(
        request, _with_metadata(made, namespace="x")
    ),
    "another UID": lambda request, made: _response(request, _with_metadata(made, uid="x")),
    "no metadata": lambda request, made: _response(
        request, [_without(each, "metadata") for each in made]
    ),
    "other request": lambda request, made: _response({**request, "uid": "other"}, made),
    "no response": lambda request, made: _without(_response(request, made), "response"),
    "old review": lambda request, made: {
        **_response(request, made),
        "apiVersion": "apiextensions.k8s.io/v1beta1",
    },
}


async def _fail(it: Side, case: str, method: str, path: str, body: Any = None) -> None:
    """Record the code and the part of the message without Kubernetes' errors of its storage."""
    answer = await it.send(method, path, body)
    message = answer.json()["message"]
    it.show(case, [answer.code, message[message.index("conversion webhook for") :]])


@scenario
async def conversions_that_fail(it: Side) -> None:
    async with hooks(it) as running:
        path = await _define(it, running)
        await it.ask("POST", path("v1", ""), _thing(it, "v1"))
        for name, change in _CHANGES.items():

            def respond(review: Document, change: _Change = change) -> Any:
                return change(review["request"], _converted(review["request"]))

            running.convert = respond
            await _fail(it, name, "GET", path("v2", "t"))
        running.convert = _convert
        running.raw = {"convert": http_response(b"no", "500 Internal Server Error")}
        await _fail(it, "get", "GET", path("v2", "t"))
        await _fail(it, "list", "GET", path("v2", ""))
        await _fail(it, "create", "POST", path("v2", ""), _thing(it, "v2", "u"))
        await it.ask("DELETE", path("v1", "t"))


@scenario
async def metadata_that_a_conversion_may_change(it: Side) -> None:
    def respond(review: Document) -> Document:
        request = review["request"]
        made = _with_metadata(
            _converted(request), labels={"new": "label"}, annotations={}, finalizers=["x.dev/y"]
        )
        return _response(request, made)

    async with hooks(it) as running:
        path = await _define(it, running)
        thing = _thing(it, "v1", labels={"a": "b"}, annotations={"c": "d"})
        await it.ask("POST", path("v1", ""), thing)
        running.convert = respond
        await it.ask("GET", path("v2", "t"), whole=True)
        await it.ask("GET", path("v1", "t"), whole=True)


@scenario
async def conversion_webhooks_that_cannot_be(it: Side) -> None:
    async with hooks(it) as running:
        client = running.client("convert")
        versions = {"conversionReviewVersions": ["v1"]}
        service = {"namespace": "n", "name": "s"}
        cases: tuple[Document, ...] = (
            {"webhook": None},
            {"webhook": {}},
            {"webhook": {"clientConfig": client}},
            {"webhook": {"clientConfig": client, "conversionReviewVersions": []}},
            {"webhook": {"clientConfig": client, "conversionReviewVersions": ["v9"]}},
            {"webhook": {"clientConfig": client, "conversionReviewVersions": ["v1", "v1"]}},
            {"webhook": {"clientConfig": {}, **versions}},
            {"webhook": {"clientConfig": {**client, "service": service}, **versions}},
            {"webhook": {"clientConfig": {"url": "http://x.dev?a=b"}, **versions}},
            {"webhook": {"clientConfig": {"service": {"namespace": "", "name": ""}}, **versions}},
            {"webhook": {"clientConfig": {"service": {**service, "port": 0}}, **versions}},
            {"webhook": {"clientConfig": {"service": {**service, "path": "a b"}}, **versions}},
            {"strategy": "None"},
            {"strategy": "Magic"},
        )
        for conversion in cases:
            definition = _definition(it, running, **conversion)
            await it.ask("POST", _DEFINITIONS, definition, query={"dryRun": "All"})
