"""Recorder of the permissions of the real Kubernetes: default roles and access reviews.

`python -m tests.differential.permissions` queries a fresh kube-apiserver and stores the responses
in `recorded/permissions`: `roles.json` has the roles and bindings that it creates at its start,
with aggregated ones filled in; `table.json` has the permissions of a few identities, and the
messages of some refusals.
"""

import asyncio
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.differential.transports import Answer, HttpTransport, Request, over_https
from tests.upstream.building import pinned
from tests.upstream.cluster import Upstream

_FOLDER: Final = Path(__file__).parent / "recorded" / "permissions"
_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
_VERBS: Final = (
    "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection",
)  # fmt: skip

#: Identity -> user and groups.
IDENTITIES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "operator": ("root", ("system:masters", "system:authenticated")),
    "admin of a": ("ada", ("system:authenticated",)),
    "editor in a": ("eddie", ("system:authenticated",)),
    "viewer in a": ("vera", ("system:authenticated",)),
    "status writer in a": ("sam", ("system:authenticated",)),
    "service account in a": (
        "system:serviceaccount:a:default",
        ("system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"),
    ),
    "node": ("system:node:ghost", ("system:nodes", "system:authenticated")),
    "job controller": (
        "system:serviceaccount:kube-system:job-controller",
        ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"),
    ),
    "nobody": ("system:anonymous", ("system:unauthenticated",)),
}

#: Resource, with its group and perhaps a subresource -> whether it is namespaced.
RESOURCES: Final[dict[str, bool]] = {
    "jobs.batch": True,
    "jobs.batch/status": True,
    "cronjobs.batch": True,
    "cronjobs.batch/status": True,
    "pods": True,
    "pods/status": True,
    "pods/log": True,
    "pods/exec": True,
    "pods/attach": True,
    "pods/portforward": True,
    "pods/binding": True,
    "pods/eviction": True,
    "configmaps": True,
    "secrets": True,
    "serviceaccounts": True,
    "serviceaccounts/token": True,
    "services": True,
    "events": True,
    "events.events.k8s.io": True,
    "leases.coordination.k8s.io": True,
    "resourcequotas": True,
    "limitranges": True,
    "roles.rbac.authorization.k8s.io": True,
    "rolebindings.rbac.authorization.k8s.io": True,
    "pods.metrics.k8s.io": True,
    "namespaces": False,
    "namespaces/finalize": False,
    "nodes": False,
    "nodes/status": False,
    "clusterroles.rbac.authorization.k8s.io": False,
    "clusterrolebindings.rbac.authorization.k8s.io": False,
    "customresourcedefinitions.apiextensions.k8s.io": False,
    "selfsubjectreviews.authentication.k8s.io": False,
    "selfsubjectaccessreviews.authorization.k8s.io": False,
    "subjectaccessreviews.authorization.k8s.io": False,
    "tokenreviews.authentication.k8s.io": False,
    "certificatesigningrequests.certificates.k8s.io": False,
}

#: Verb and resource in addition to the verbs that every resource has.
_SPECIAL: Final = (
    ("escalate", "roles.rbac.authorization.k8s.io"),
    ("bind", "clusterroles.rbac.authorization.k8s.io"),
    ("impersonate", "users"),
    ("impersonate", "groups"),
    ("impersonate", "serviceaccounts"),
)

_PATHS: Final = (
    "/api", "/apis", "/version", "/healthz", "/readyz", "/livez", "/metrics", "/openapi/v2",
    "/openapi/v3", "/.well-known/openid-configuration", "/openid/v1/jwks", "/logs",
)  # fmt: skip

STATUS_ROLE: Final[dict[str, Any]] = {
    "metadata": {"name": "status"},
    "rules": [
        {"apiGroups": ["batch"], "resources": ["jobs/status"], "verbs": ["update", "patch"]},
        {
            "apiGroups": ["batch"],
            "resources": ["jobs"],
            "resourceNames": ["mine"],
            "verbs": ["get", "list", "delete"],
        },
    ],
}
#: User, kind and name of the role that is bound to them in namespace `a`.
BINDINGS: Final = (
    ("ada", "ClusterRole", "admin"),
    ("eddie", "ClusterRole", "edit"),
    ("vera", "ClusterRole", "view"),
    ("sam", "Role", "status"),
)


async def record(transport: HttpTransport) -> None:
    await _prepare(transport)
    _save("roles.json", await _roles(transport))
    _save(
        "table.json",
        {
            "identities": {name: list(who) for name, who in IDENTITIES.items()},
            "allowed": await _table(transport),
            "refusals": await _refusals(transport),
        },
    )


async def _prepare(transport: HttpTransport) -> None:
    await _post(transport, "/api/v1/namespaces", {"metadata": {"name": "a"}})
    await _post(transport, "/api/v1/namespaces", {"metadata": {"name": "b"}})
    path = f"{_RBAC}/namespaces/a"
    await _post(transport, f"{path}/roles", STATUS_ROLE)
    for user, kind, name in BINDINGS:
        binding = {
            "metadata": {"name": user},
            "subjects": [{"kind": "User", "name": user}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        }
        await _post(transport, f"{path}/rolebindings", binding)
    await _at_rest(transport)


async def _at_rest(transport: HttpTransport) -> None:
    """Wait until aggregated roles are filled in and bindings take effect."""
    before, unchanged = await _roles(transport), 0
    for _ in range(300):
        await asyncio.sleep(0.2)
        seen = await _roles(transport)
        viewer = await _is_allowed(transport, "viewer in a", _attributes("get", "pods", "a"))
        unchanged = unchanged + 1 if seen == before and viewer else 0
        if unchanged == 10:
            return
        before = seen
    raise AssertionError("the roles do not come to rest")


async def _roles(transport: HttpTransport) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for plural in ("clusterroles", "clusterrolebindings", "roles", "rolebindings"):
        items = (await _get(transport, f"{_RBAC}/{plural}"))["items"]
        found[plural] = sorted(
            (_facts(item) for item in items if item["metadata"].get("namespace") != "a"),
            key=lambda item: (item.get("namespace", ""), item["name"]),
        )
    return found


def _facts(item: dict[str, Any]) -> dict[str, Any]:
    metadata = item["metadata"]
    kept = {key: metadata[key] for key in ("namespace", "name") if key in metadata}
    for key in ("labels", "annotations"):
        if key in metadata:
            kept[key] = metadata[key]
    for key in ("rules", "aggregationRule", "subjects", "roleRef"):
        if key in item:
            kept[key] = item[key]
    return kept


def questions() -> Iterator[tuple[str, dict[str, Any]]]:
    for resource, namespaced in RESOURCES.items():
        for namespace in ("a", "b", "") if namespaced else ("",):
            for verb in _VERBS:
                place = f"{resource} in {namespace or 'all'}" if namespaced else resource
                yield f"{place}: {verb}", _attributes(verb, resource, namespace)
    for verb, resource in _SPECIAL:
        yield f"{resource}: {verb}", _attributes(verb, resource, "")
    for name in ("mine", "other"):
        for verb in ("get", "list", "delete", "patch"):
            attributes = _attributes(verb, "jobs.batch", "a")
            attributes["resourceAttributes"]["name"] = name
            yield f"jobs.batch {name} in a: {verb}", attributes
    for path in _PATHS:
        yield f"{path}: get", {"nonResourceAttributes": {"path": path, "verb": "get"}}


def _attributes(verb: str, resource: str, namespace: str) -> dict[str, Any]:
    full, _, subresource = resource.partition("/")
    plural, _, group = full.partition(".")
    attributes = {"verb": verb, "group": group, "resource": plural, "namespace": namespace}
    if subresource:
        attributes["subresource"] = subresource
    return {"resourceAttributes": attributes}


async def _table(transport: HttpTransport) -> dict[str, dict[str, list[str]]]:
    """Return identity -> place -> allowed verbs; places without any are omitted."""
    table: dict[str, dict[str, list[str]]] = {}
    for identity in IDENTITIES:
        allowed: dict[str, list[str]] = {}
        for text, attributes in questions():
            place, _, verb = text.rpartition(": ")
            if await _is_allowed(transport, identity, attributes):
                allowed.setdefault(place, []).append(verb)
        table[identity] = allowed
    return table


async def _is_allowed(transport: HttpTransport, identity: str, attributes: dict[str, Any]) -> bool:
    user, groups = IDENTITIES[identity]
    review = {"spec": {"user": user, "groups": list(groups), **attributes}}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    status = (await _post(transport, path, review))["status"]
    allowed: bool = status["allowed"]
    return allowed


async def _refusals(transport: HttpTransport) -> list[dict[str, Any]]:
    """Return refused requests with their responses."""
    asked = (
        ("viewer in a", "DELETE", "/apis/batch/v1/namespaces/a/jobs/x"),
        ("viewer in a", "GET", "/apis/batch/v1/namespaces/b/jobs"),
        ("viewer in a", "GET", "/apis/batch/v1/jobs"),
        ("viewer in a", "GET", "/api/v1/namespaces/a/secrets/x"),
        ("viewer in a", "GET", "/api/v1/nodes"),
        ("viewer in a", "GET", "/metrics"),
        ("status writer in a", "PUT", "/apis/batch/v1/namespaces/a/jobs/x"),
        ("status writer in a", "GET", "/apis/batch/v1/namespaces/a/jobs/other"),
        ("service account in a", "POST", "/api/v1/namespaces/a/pods"),
        ("nobody", "GET", "/api/v1/namespaces"),
    )
    answers = []
    for identity, method, path in asked:
        user, groups = IDENTITIES[identity]
        answer = await _send(
            transport,
            method,
            path,
            None,
            {"Impersonate-User": user, "Impersonate-Group": groups[0]},
        )
        body = answer.json() if answer.body.startswith(b"{") else answer.body.decode()
        answers.append({"as": identity, "ask": f"{method} {path}", "answer": body})
    return answers


async def _get(transport: HttpTransport, path: str) -> dict[str, Any]:
    answer = await _send(transport, "GET", path, None)
    assert answer.code == 200, answer
    return answer.json()


async def _post(transport: HttpTransport, path: str, document: dict[str, Any]) -> dict[str, Any]:
    answer = await _send(transport, "POST", path, document)
    assert answer.code == 201, answer
    return answer.json()


async def _send(
    transport: HttpTransport,
    method: str,
    path: str,
    document: dict[str, Any] | None,
    headers: dict[str, str] | None = None,
) -> Answer:
    body = b"" if document is None else json.dumps(document).encode()
    sent = {"Accept": "application/json", "Content-Type": "application/json", **(headers or {})}
    return await transport.send(Request(method, path, {}, body, sent))


def _save(name: str, facts: dict[str, Any]) -> None:
    """Write one line per entry."""
    _FOLDER.mkdir(exist_ok=True)
    lines = [f'{{"release":{json.dumps(pinned("kubernetes"))}']
    for key, entries in facts.items():
        if isinstance(entries, dict):
            rows = [f" {json.dumps(k)}:{_compact(v)}" for k, v in entries.items()]
            lines.append(f"{json.dumps(key)}:{{\n" + ",\n".join(rows) + "\n}")
        else:
            rows = [f" {_compact(entry)}" for entry in entries]
            lines.append(f"{json.dumps(key)}:[\n" + ",\n".join(rows) + "\n]")
    (_FOLDER / name).write_text(",\n".join(lines) + "\n}\n")


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


async def main(kubeconfig: Path) -> None:
    async with over_https(kubeconfig) as transport:
        await record(transport)


if __name__ == "__main__":
    if why := Upstream.missing():
        raise SystemExit(why)
    with (
        tempfile.TemporaryDirectory(prefix="permissions-") as place,
        Upstream(Path(place)) as server,
    ):
        server.start_controller_manager("clusterrole-aggregation-controller")
        asyncio.run(main(server.kubeconfig))
