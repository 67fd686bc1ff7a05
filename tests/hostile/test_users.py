"""Two users with roles in one namespace, and their attempts to reach others."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from onejob.api.access.users import USERS_FILE, add_user
from onejob.api.audit.configuration import AuditSettings
from onejob.clock import SystemClock
from tests.api.http.raw_requests import Requests, a_server

TREASURE = "dHJlYXN1cmUtOTFi"
MINE = "bWluZS1hbG9uZS0zYw=="
RBAC = "/apis/rbac.authorization.k8s.io/v1"
A, B = "/api/v1/namespaces/a", "/api/v1/namespaces/b"
MERGE = "application/merge-patch+json"
ALL = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]


def binding(role: str, user: str) -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    return {
        "metadata": {"name": f"{user}-{role}"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }


@dataclass(frozen=True)
class Try:
    who: str
    method: str
    path: str
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


def reads() -> Iterator[Try]:
    secret = f"{B}/secrets/treasure"
    paths = [
        "/api/v1/secrets", f"{B}/secrets", secret, f"{B}/secrets?watch=true&timeoutSeconds=1",
        "/api/v1/secrets?fieldSelector=metadata.namespace=a",
        "/api/v1/secrets?fieldSelector=metadata.namespace=b",
        "/api/v1/secrets?watch=true&timeoutSeconds=1", "/api/v1/watch/secrets",
        "/api/v1/watch/namespaces/b/secrets", "/api/v1/watch/namespaces/b/secrets/treasure",
        f"{A}%2f..%2fb/secrets/treasure", f"{A}/secrets/..%2f..%2fb%2fsecrets%2ftreasure",
        "/api/v1//namespaces/b/secrets/treasure", f"{secret}/", f"{secret}/status",
        f"{B}/pods?watch=1&timeoutSeconds=1", f"{B}/configmaps", f"{B}/pods/p/log",
        "/apis/batch/v1/namespaces/b/jobs/j/pods", "/apis/metrics.k8s.io/v1beta1/pods",
        "/apis/metrics.k8s.io/v1beta1/namespaces/b/pods", "/api/v1/nodes", "/metrics",
        "/ui/api/jobs/b/j", "/ui/api/pods/b/p", "/ui/api/logs/b",
    ]  # fmt: skip
    for who in ("alice", "bob"):
        yield from (Try(who, "GET", path) for path in paths)
    for part in ("", "/mine", "?watch=1&timeoutSeconds=1"):
        yield Try("bob", "GET", f"{A}/secrets{part}")


def impersonations() -> Iterator[Try]:
    masters = {"Impersonate-Group": "system:masters"}
    account = "system:serviceaccount"
    for headers in (
        {"Impersonate-User": "onejob-admin"},
        {"Impersonate-User": "alice", **masters},
        {"Impersonate-User": f"{account}:a:default", **masters},
        {"Impersonate-User": f"{account}:a:default"},
        {"Impersonate-User": f"{account}:b:default"},
        {"Impersonate-User": f"{account}:a:x:default"},
        {"Impersonate-User": f"{account}:kube-system:generic-garbage-collector"},
        {"Impersonate-User": "system:kube-controller-manager"},
        {"Impersonate-User": "system:apiserver"},
        {"Impersonate-User": "system:node:node"},
        {"Impersonate-User": f"{account}:a:default", "Impersonate-Uid": "1"},
        {"Impersonate-User": f"{account}:a:default", "Impersonate-Extra-scopes": "x"},
        masters,
    ):
        yield Try("alice", "GET", f"{B}/secrets", headers=headers)
        yield Try("bob", "GET", f"{A}/secrets", headers=headers)


def writes() -> Iterator[Try]:
    for who in ("alice", "bob"):
        bound = f"{RBAC}/namespaces/a/rolebindings"
        yield Try(who, "POST", bound, binding("cluster-admin", who))
        yield Try(who, "POST", f"{RBAC}/clusterrolebindings", binding("cluster-admin", who))
        yield Try(who, "PATCH", f"{RBAC}/clusterroles/view", {"rules": ALL}, content_type=MERGE)
        yield Try(who, "PATCH", f"{bound}/{who}", {"subjects": []}, content_type=MERGE)
        yield Try(who, "POST", f"{RBAC}/namespaces/a/roles", {"metadata": {"name": "r"}})
        yield Try(who, "PATCH", A, {"metadata": {"annotations": {}}}, content_type=MERGE)
        yield Try(who, "PUT", f"{A}/finalize", {"metadata": {"name": "a"}})
        yield Try(who, "DELETE", f"{B}/secrets")
        yield Try(who, "POST", f"{B}/serviceaccounts/default/token", {"spec": {}})
        yield Try(who, "GET", f"{B}/pods/p/proxy/")
        yield Try(who, "GET", f"{B}/services/s/proxy/")
        system = "/api/v1/namespaces/kube-system"
        yield Try(who, "POST", f"{system}/serviceaccounts/job-controller/token", {"spec": {}})
        yield Try(who, "PATCH", f"{system}/configmaps/onejob-queues", {}, content_type=MERGE)
        phase = {"status": {"phase": "Succeeded"}}
        yield Try(who, "PATCH", f"{A}/pods/p/status", phase, content_type=MERGE)
        for sub in ("binding", "ephemeralcontainers", "resize", "token"):
            yield Try(who, "POST", f"{A}/pods/p/{sub}", {"target": {"name": "node"}})
        status = "/apis/batch/v1/namespaces/a/jobs/j/status"
        yield Try(who, "PATCH", status, {}, content_type=MERGE)
        review = {"spec": {"user": "onejob-admin", "token": "t"}}
        yield Try(who, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
        yield Try(who, "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    yield Try("alice", "POST", f"{A}/configmaps", {"metadata": {"name": "x", "namespace": "b"}})
    yield Try("bob", "POST", f"{A}/serviceaccounts/default/token", {"spec": {}})
    for sub in ("exec?command=id", "attach", "portforward", "eviction", "proxy/x"):
        yield Try("bob", "POST", f"{A}/pods/p/{sub}", {})


def forgeries() -> Iterator[Try]:
    """Yield attempts to forge the audit log, which has one event per line."""
    line = '"}\\n{"kind":"Event","forged":1}'
    yield Try("bob", "GET", f"{B}/secrets", headers={"User-Agent": line, "Audit-Id": line})
    yield Try("bob", "GET", f"{B}/pods/%0a%7b%22forged%22%3a1%7d")
    yield Try("bob", "GET", f"{B}/pods?x=%0d%0a%7b%22forged%22%3a1%7d")
    yield Try("bob", "POST", f"{B}/configmaps", {"metadata": {"name": 'x\n{"forged":1}'}})


TRIES = [*reads(), *impersonations(), *writes(), *forgeries()]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[tuple[int, str]], Path]:
    """Return the response to each try, and the audit log of all."""
    folder = tmp_path_factory.mktemp("users")
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Request"}]}
    (folder / "policy.yaml").write_text(json.dumps(policy))
    audit = AuditSettings(str(folder / "policy.yaml"), str(folder / "audit.log"))

    async def try_all() -> list[tuple[int, str]]:
        async with a_server(folder, audit=audit) as requests, asyncio.timeout(120):
            tokens = await prepared(requests, folder / "data")
            # They are authenticated, and may do what their roles allow.
            own = await tried(requests, Try("alice", "GET", f"{A}/secrets/mine"), tokens["alice"])
            assert (own[0], MINE in own[1]) == (200, True)
            assert (await tried(requests, Try("bob", "GET", f"{A}/pods"), tokens["bob"]))[0] == 200
            return [await tried(requests, one, tokens[one.who]) for one in TRIES]

    return asyncio.run(try_all()), folder / "audit.log"


async def prepared(requests: Requests, data: Path) -> dict[str, str]:
    """Return the tokens of alice, who may edit namespace a, and bob, who may view it."""
    for name, value in (("a", MINE), ("b", TREASURE)):
        await requests.ok("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        secret = {"metadata": {"name": "treasure" if name == "b" else "mine"}, "data": {"k": value}}
        await requests.ok("POST", f"/api/v1/namespaces/{name}/secrets", secret)
        spec = {"containers": [{"name": "c", "image": "i"}]}
        pod = {"metadata": {"name": "p"}, "spec": spec}
        await requests.ok("POST", f"/api/v1/namespaces/{name}/pods", pod)
    for user, role in (("alice", "edit"), ("bob", "view")):
        await requests.ok("POST", f"{RBAC}/namespaces/a/rolebindings", binding(role, user))
    now = SystemClock().now()
    path = data / USERS_FILE
    return {user: add_user(path, user, (), now, None) for user in ("alice", "bob")}


async def tried(requests: Requests, one: Try, token: str) -> tuple[int, str]:
    headers = {**one.headers, "Authorization": f"Bearer {token}"}
    code, answer = await requests(
        one.method, one.path, one.body, headers=headers, content_type=one.content_type
    )
    return code, json.dumps(answer)


def test_nothing_that_they_try_is_done_or_shown(
    answers: tuple[list[tuple[int, str]], Path],
) -> None:
    found = answers[0]
    done = [
        (one, code, text)
        for one, (code, text) in zip(TRIES, found, strict=True)
        if not 400 <= code < 500 or TREASURE in text or MINE in text or "Traceback" in text
    ]
    assert done == []
    assert len(TRIES) > 120


def test_no_line_of_the_audit_log_is_theirs(answers: tuple[list[tuple[int, str]], Path]) -> None:
    events = [json.loads(line) for line in answers[1].read_text().splitlines()]
    assert not [event for event in events if "forged" in event]
    refused = [event for event in events if event["user"].get("username") in ("alice", "bob")]
    assert len(refused) >= len(TRIES)
    assert all(len(event["auditID"]) == 36 for event in refused)
