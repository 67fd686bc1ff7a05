"""Fuzzing with random requests, well-formed and not: never a 500, a traceback or a hang."""

import asyncio
import json
import logging
import os
import ssl
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest

from onejob.client.base import Create
from onejob.wire.kinds import BY_RESOURCE, KINDS, Kind
from tests.api.http.wire import closed, read_head, request_bytes
from tests.harness import HttpPlane, running_http

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
NAMES = ["a", "b", "default", "no.such", "x" * 300, "%00", "%2e%2e", "..", "ü", "%ff", "A B", ""]
NAMESPACES = ["default", "default", "nowhere", "%20"]
BODY_TYPES = [
    "application/json",
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
]
PATCH_TYPES = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
]
COMMON = [BY_RESOURCE[name] for name in ("jobs.batch", "cronjobs.batch", "pods", "configmaps")]
ACCEPTS = [
    "",
    "application/json",
    "application/yaml",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/vnd.kubernetes.protobuf",
    "*/*;q=x",
    ",,;=",
]
QUERIES = [
    "limit", "continue", "resourceVersion", "resourceVersionMatch", "labelSelector",
    "fieldSelector", "dryRun", "fieldManager", "fieldValidation", "force", "propagationPolicy",
    "gracePeriodSeconds", "orphanDependents", "includeObject", "timeoutSeconds", "container",
    "tailLines", "sinceTime", "sinceSeconds", "sendInitialEvents", "allowWatchBookmarks",
]  # fmt: skip
VALUES = [
    "", "0", "1", "-1", "x", "true", "All", "Strict", "9" * 40, "a=b", "a in (b", "!x", ",", "%00",
    "metadata.name=a", "Orphan", "Exact", "NotOlderThan", "Object", "%F0%9F%92%A9", "1e9", "eyJ9",
]  # fmt: skip
LEAVES: list[Any] = [
    None, 0, -1, 2**63, 1.5, True, "", "a", "x" * 5000, [], {}, [None], {"": None}, "\u0000", "1Gi",
    "2026-01-01T00:00:00Z", "$patch", 1e300, "\ud800",
]  # fmt: skip
FIELDS = [
    "apiVersion", "kind", "metadata", "spec", "status", "name", "namespace", "labels",
    "annotations", "finalizers", "ownerReferences", "template", "containers", "parallelism",
    "completions", "selector", "uid", "resourceVersion", "generateName", "managedFields",
    "creationTimestamp", "deletionTimestamp", "data", "target", "deleteOptions", "preconditions",
    "$patch", "$setElementOrder/containers", "op", "path", "value", "conditions", "type",
    "schedule", "jobTemplate", "podFailurePolicy", "rules", "involvedObject", "items",
]  # fmt: skip
OPERATIONS = ["add", "remove", "replace", "move", "copy", "test", "nope"]


def value(rng: Random, depth: int = 0) -> Any:
    dice = rng.random()
    if depth > 5 or dice < 0.3:
        return deepcopy(rng.choice(LEAVES))
    if dice < 0.45:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(FIELDS): value(rng, depth + 1) for _ in range(rng.randrange(6))}


def document(rng: Random, kind: Kind, mistakes: int) -> Any:
    """Return a document like an object of that kind, with up to `mistakes` errors."""
    container = {"name": "c", "image": "i", "command": ["true"]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {"template": template, "parallelism": 1}
    spec: Any = {
        "Job": job,
        "CronJob": {"schedule": "* * * * *", "jobTemplate": {"spec": job}},
        "Pod": template["spec"],
    }.get(kind.kind, {})
    made: Any = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": rng.choice(["a", "b"])},
        "spec": spec,
    }
    made = json.loads(json.dumps(made))
    for _ in range(mistakes):
        place = made
        while isinstance(place, dict) and place and rng.random() < 0.7:
            key = rng.choice(list(place))
            if not isinstance(place[key], dict | list) or rng.random() < 0.2:
                place[key] = value(rng, 3)
                break
            place = place[key]
        if isinstance(place, dict):
            place[rng.choice(FIELDS)] = value(rng, 3)
        elif isinstance(place, list):
            place.append(value(rng, 3))
    return made


def json_patch(rng: Random) -> Any:
    paths = [
        "/metadata/labels/a",
        "/spec",
        "/",
        "",
        "/spec/template/spec/containers/0",
        "/x/-",
        "x",
    ]
    return [
        {
            "op": rng.choice(OPERATIONS),
            "path": rng.choice(paths),
            "from": rng.choice(paths),
            "value": value(rng, 3),
        }
        for _ in range(rng.randrange(4))
    ]


def body(rng: Random, content_type: str, kind: Kind) -> bytes:
    dice = rng.random()
    if dice < 0.1:
        return rng.randbytes(rng.randrange(200))
    if "json-patch" in content_type and dice < 0.8:
        encoded = json.dumps(json_patch(rng)).encode()
    elif dice < 0.2:
        encoded = b"[" * rng.randrange(5000) + b'{"a":' * rng.randrange(3000)
    elif dice < 0.4:
        encoded = json.dumps(value(rng)).encode()
    else:
        encoded = json.dumps(document(rng, kind, rng.randrange(4))).encode()
    if "protobuf" in content_type:
        encoded = b"k8s\x00" + encoded
    if rng.random() < 0.15 and encoded:
        broken = bytearray(encoded)
        broken[rng.randrange(len(broken))] = rng.randrange(256)
        return bytes(broken)
    return encoded


def path(rng: Random, kind: Kind, *, collection: bool) -> str:
    if rng.random() < 0.05:
        return "/" + "/".join(rng.choice(["api", "apis", "v1", "batch", *NAMES]) for _ in range(5))
    made = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    if kind.namespaced and rng.random() < 0.95:
        made += f"/namespaces/{rng.choice(NAMESPACES)}"
    made += f"/{kind.plural}"
    if collection:
        return made
    made += f"/{rng.choice(NAMES[:2] if rng.random() < 0.8 else NAMES)}"
    if rng.random() < 0.3:
        made += "/" + rng.choice([sub.name for sub in kind.subresources] or ["status"])
    return made


def random_request(rng: Random, token: str) -> bytes:
    """Return a random request, more often valid than not."""
    # Few kinds, so that names collide.
    kind = rng.choice(COMMON) if rng.random() < 0.8 else rng.choice(KINDS)
    method = rng.choice(METHODS)
    collection = method == "POST" or (method in ("GET", "DELETE") and rng.random() < 0.3)
    if rng.random() < 0.1:
        collection = not collection
    content_type = rng.choice(PATCH_TYPES if method == "PATCH" else BODY_TYPES)
    if rng.random() < 0.1:
        content_type = rng.choice(["text/plain", "", ";;;", *PATCH_TYPES, *BODY_TYPES])
    target = path(rng, kind, collection=collection)
    terms = [f"{rng.choice(QUERIES)}={rng.choice(VALUES)}" for _ in range(rng.choice([0, 0, 1, 2]))]
    if rng.random() < 0.1:
        terms += ["watch=true", "timeoutSeconds=1"]
    if content_type == "application/apply-patch+yaml":
        terms.append("fieldManager=m")
    if terms:
        target += "?" + "&".join(terms)
    has_body = method in ("POST", "PUT", "PATCH") or (method == "DELETE" and rng.random() < 0.3)
    sent = body(rng, content_type, kind) if has_body else b""
    accept = rng.choice(ACCEPTS) if rng.random() < 0.3 else "application/json"
    headers = {"accept": accept, "connection": "close"}
    if content_type:
        headers["content_type"] = content_type
    return request_bytes(method, target.replace(" ", "%20"), sent, token=token, **headers)


async def fill(plane: HttpPlane) -> None:
    """Create objects to read, change and delete."""
    for kind in COMMON:
        for name in NAMES[:2]:
            made = document(Random(1), kind, 0)
            made["metadata"]["name"] = name
            await plane.client.write(Create(kind.resource, "default", json.dumps(made).encode()))


@pytest.mark.parametrize("seed", range(int(os.environ.get("ONEJOB_FUZZ_SEEDS", "4"))))
async def test_random_requests_never_break_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    rng = Random(seed)

    async def one(plane: HttpPlane) -> None:
        raw = random_request(rng, plane.token)
        reader, writer = await connect(plane)
        writer.write(raw)
        async with asyncio.timeout(60):
            code, _ = await read_head(reader)
            await reader.read()
        writer.close()
        await closed(writer)
        assert code != 500, raw
        assert code < 600

    with caplog.at_level(logging.ERROR):
        async with running_http(tmp_path) as plane:
            await fill(plane)
            for _ in range(15):
                await asyncio.gather(*(one(plane) for _ in range(10)))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def connect(plane: HttpPlane) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.create_default_context(cafile=str(plane.certificates.authority))
    return await asyncio.open_connection("127.0.0.1", plane.server.port, ssl=context)
