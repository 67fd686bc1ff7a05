"""Users with few permissions, and attempts to extend them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.api.access.certificate_requests_support import a_request
from tests.api.http.raw_requests import Requests, a_server
from tests.build import container, template

A = "/api/v1/namespaces/a"
JOBS = "/apis/batch/v1/namespaces/a/jobs"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/a"
APPLY = "application/apply-patch+yaml"
CLUSTER = "/apis/rbac.authorization.k8s.io/v1"
CSR_GROUP, CSR = "certificates.k8s.io", "certificatesigningrequests"
SECRET_TEXT = "treasure-91b"


class Somebody:
    """A user with few rules in namespace `a`."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def __call__(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        headers = {"Impersonate-User": "somebody"}
        return await self._requests(method, path, body, headers=headers, **more)


Test: TypeAlias = Callable[[Requests, Somebody], Awaitable[None]]


async def with_rule(folder: Path, rule: dict[str, Any], test: Test) -> None:
    await with_rules(folder, [rule], test)


async def with_rules(folder: Path, rules: list[dict[str, Any]], test: Test) -> None:
    async with a_server(folder) as requests, asyncio.timeout(60):
        await requests.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "a"}})
        role = {"metadata": {"name": "little"}, "rules": rules}
        await requests.ok("POST", f"{RBAC}/roles", role)
        binding = {
            "metadata": {"name": "little"},
            "roleRef": {"kind": "Role", "name": "little"},
            "subjects": [{"kind": "User", "name": "somebody"}],
        }
        await requests.ok("POST", f"{RBAC}/rolebindings", binding)
        await test(requests, Somebody(requests))


def rule(group: str, resource: str, *verbs: str, **more: Any) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs), **more}


def config_map(name: str, rows: str = f"export a={SECRET_TEXT}") -> dict[str, Any]:
    data = {"rows-0": rows}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def job(*, command: Sequence[str] = ("true",), **metadata: Any) -> dict[str, Any]:
    only = container(command=list(command), env=[{"name": "x", "value": "y"}])
    return {"metadata": metadata, "spec": {"suspend": True, "template": template(only)}}


@pytest.mark.parametrize("query", ["", "&force=true", "&dryRun=All"])
async def test_to_patch_is_not_to_create_by_applying(tmp_path: Path, query: str) -> None:
    async def test(requests: Requests, somebody: Somebody) -> None:
        await requests.ok("POST", f"{A}/configmaps", config_map("there"))
        for name, code in (("there", 200), ("new", 403)):
            path = f"{A}/configmaps/{name}?fieldManager=x{query}"
            applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
            found, answer = await somebody("PATCH", path, applied, content_type=APPLY)
            assert found == code, answer
        assert answer["message"] == (
            'configmaps "new" is forbidden: User "somebody" cannot create resource "configmaps" '
            'in API group "" in the namespace "a"'
        )
        assert (await requests("GET", f"{A}/configmaps/new"))[0] == 404

    await with_rule(tmp_path, rule("", "configmaps", "get", "patch", "update"), test)


async def test_create_permission_allows_apply_of_missing_object(tmp_path: Path) -> None:
    async def test(requests: Requests, somebody: Somebody) -> None:
        path = f"{A}/configmaps/new?fieldManager=x"
        applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}}
        assert (await somebody("PATCH", path, applied, content_type=APPLY))[0] == 201

    await with_rule(tmp_path, rule("", "configmaps", "create", "patch"), test)


async def test_a_large_object_is_not_created_by_applying_either(tmp_path: Path) -> None:
    """Large objects are decided in another thread."""

    async def test(requests: Requests, somebody: Somebody) -> None:
        path = f"{A}/configmaps/new?fieldManager=x"
        applied = {**config_map("new"), "data": {"a": "x" * 500_000}}
        assert (await somebody("PATCH", path, applied, content_type=APPLY))[0] == 403
        assert (await requests("GET", f"{A}/configmaps/new"))[0] == 404

    await with_rule(tmp_path, rule("", "configmaps", "patch"), test)


async def test_a_job_that_names_a_config_map_does_not_show_it(tmp_path: Path) -> None:
    """A rerun copies its parameters: only for users who may read them."""

    async def test(requests: Requests, somebody: Somebody) -> None:
        await requests.ok("POST", f"{A}/configmaps", config_map("private"))
        named = job(name="j", annotations={"onejob.dev/params": "private"})
        assert (await somebody("POST", JOBS, named))[0] == 201
        assert (await somebody("POST", JOBS, job(name="plain")))[0] == 201
        assert (await somebody("GET", f"{A}/configmaps/private"))[0] == 403
        code, answer = await somebody("GET", "/ui/api/jobs/a/j/rerun")
        assert (code, SECRET_TEXT in str(answer)) == (403, False)
        assert (await somebody("GET", "/ui/api/jobs/a/plain/rerun"))[0] == 200
        code, answer = await requests("GET", "/ui/api/jobs/a/j/rerun")
        assert (code, SECRET_TEXT in str(answer)) == (200, True)

    await with_rule(tmp_path, rule("batch", "jobs", "get", "create"), test)


async def test_a_job_that_cannot_be_repeated_is_an_answer_and_no_error_of_the_server(
    tmp_path: Path,
) -> None:
    """Annotations and numbers of a Job are chosen by its creator."""
    endless = job(name="endless")
    endless["spec"] |= {"completionMode": "Indexed", "completions": 2**31 - 1, "parallelism": 1}
    far = job(name="far", annotations={"onejob.dev/rerun-indexes": "0-2147483646"})
    far["spec"] |= {"completionMode": "Indexed", "completions": 3}
    strange = {"onejob.dev/params": "strange"}
    tries = [
        (endless, "?failedOnly=true", 400),
        (far, "?failedOnly=true", 200),
        (job(name="quoted", annotations=strange), "", 400),
        (job(name="silent", command=(), annotations={"onejob.dev/params": "good"}), "", 400),
        (job(name="absent", annotations={"onejob.dev/params": "../../x"}), "", 200),
    ]

    async def test(requests: Requests, somebody: Somebody) -> None:
        await requests.ok("POST", f"{A}/configmaps", config_map("strange", "export a='b"))
        await requests.ok("POST", f"{A}/configmaps", config_map("good"))
        for document, query, wanted in tries:
            name = document["metadata"]["name"]
            code, answer = await somebody("POST", JOBS, document)
            assert code == 201, answer
            code, answer = await somebody("GET", f"/ui/api/jobs/a/{name}/rerun{query}")
            assert code == wanted, (name, answer)

    allowed = rule("", "configmaps", "get")
    await with_rules(tmp_path, [rule("batch", "jobs", "get", "create"), allowed], test)


#: Field selectors, and whether they select the one object that the rule names.
SELECTORS = {
    "metadata.name=mine": True,
    "metadata.name==mine": True,
    "metadata.name=mine,metadata.namespace=a": True,
    "metadata.name=mine,metadata.name=other": True,
    "metadata.name!=mine": False,
    "metadata.name=other": False,
    "metadata.name=other,metadata.name=mine": False,
    "metadata.namespace=a": False,
    "metadata.name=": False,
    "": False,
}


async def test_list_and_watch_of_single_name_follow_resource_names(tmp_path: Path) -> None:
    async def test(requests: Requests, somebody: Somebody) -> None:
        for name in ("mine", "other"):
            await requests.ok("POST", f"{A}/configmaps", config_map(name))
        for selector, allowed in SELECTORS.items():
            query = f"fieldSelector={selector.replace('=', '%3D')}"
            code, answer = await somebody("GET", f"{A}/configmaps?{query}")
            assert code == (200 if allowed else 403), selector
            names = {item["metadata"]["name"] for item in answer.get("items", ())}
            assert names <= {"mine"}
            watch = f"{A}/configmaps?{query}&watch=true&resourceVersion=1&timeoutSeconds=0"
            if not allowed:
                assert (await somebody("GET", watch))[0] == 403, selector
            assert (await somebody("DELETE", f"{A}/configmaps?{query}"))[0] == 403, selector

    named = rule(
        "", "configmaps", "get", "list", "watch", "deletecollection", resourceNames=["mine"]
    )
    await with_rule(tmp_path, named, test)


@pytest.mark.parametrize("ended", [False, True])
async def test_only_who_may_do_everything_has_a_role_gather_or_end_that(
    tmp_path: Path, ended: bool
) -> None:
    """A role that no longer aggregates keeps rules that are later removed from its sources."""
    group = "rbac.authorization.k8s.io"
    gathering = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    change = {"aggregationRule": None if ended else gathering}

    async def test(requests: Requests, somebody: Somebody) -> None:
        may = {
            "metadata": {"name": "changes-roles"},
            "rules": [rule(group, "clusterroles", "get", "patch")],
        }
        binding = {
            "metadata": {"name": "changes-roles"},
            "roleRef": {"kind": "ClusterRole", "name": "changes-roles"},
            "subjects": [{"kind": "User", "name": "somebody"}],
        }
        await requests.ok("POST", f"{CLUSTER}/clusterroles", may)
        await requests.ok("POST", f"{CLUSTER}/clusterrolebindings", binding)
        gathers = {"aggregationRule": gathering} if ended else {}
        made = {"metadata": {"name": "g"}, "rules": [], **gathers}
        await requests.ok("POST", f"{CLUSTER}/clusterroles", made)
        merge = "application/merge-patch+json"
        path = f"{CLUSTER}/clusterroles/g"
        code, answer = await somebody("PATCH", path, change, content_type=merge)
        assert code == 403, answer
        assert "must have cluster-admin privileges to use the aggregationRule" in answer["message"]
        await requests.ok("PATCH", path, change, content_type=merge)

    await with_rules(tmp_path, [], test)


WEB_SOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "MTIzNDU2Nzg5MDEyMzQ1Ng==",
    "Sec-WebSocket-Protocol": "v4.channel.k8s.io",
}


@pytest.mark.parametrize("upgrade", [{}, WEB_SOCKET])
@pytest.mark.parametrize("subresource", ["exec", "attach", "portforward"])
async def test_to_read_is_not_to_run_commands(
    tmp_path: Path, subresource: str, upgrade: dict[str, str]
) -> None:
    """WebSockets begin with a GET, and many roles grant `get` on everything."""

    async def test(requests: Requests, somebody: Somebody) -> None:
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        await requests.ok("POST", f"{A}/pods", pod)
        headers = {"Impersonate-User": "somebody", **upgrade}
        path = f"{A}/pods/p/{subresource}?command=id&stdout=true"
        code, answer = await requests("GET", path, headers=headers)
        assert (code, answer["message"]) == (
            403,
            f'pods "p" is forbidden: User "somebody" cannot create resource "pods/{subresource}" '
            'in API group "" in the namespace "a"',
        )

    await with_rule(tmp_path, rule("*", "*", "get", "list", "watch"), test)


CERTIFICATES = f"/apis/{CSR_GROUP}/v1/{CSR}"


@pytest.mark.parametrize("applied", [False, True])
async def test_certificate_request_records_its_user(tmp_path: Path, applied: bool) -> None:
    """Signers of such requests rely on it."""
    asked = a_request(signerName="example.com/a")["spec"]
    claimed = {"username": "onejob-admin", "groups": ["system:masters"], "extra": {"a": ["b"]}}
    document = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "mine"},
        "spec": {**asked, **claimed, "uid": "1"},
    }
    headers = {"Impersonate-User": "somebody", "Impersonate-Group": "team"}
    wanted = {**asked, "username": "somebody", "groups": ["team", "system:authenticated"]}

    async def test(requests: Requests, somebody: Somebody) -> None:
        role = {"metadata": {"name": "asks"}, "rules": [rule(CSR_GROUP, CSR, "*")]}
        await requests.ok("POST", f"{CLUSTER}/clusterroles", role)
        binding = {
            "metadata": {"name": "asks"},
            "roleRef": {"kind": "ClusterRole", "name": "asks"},
            "subjects": [{"kind": "User", "name": "somebody"}],
        }
        await requests.ok("POST", f"{CLUSTER}/clusterrolebindings", binding)
        if applied:
            path = f"{CERTIFICATES}/mine?fieldManager=x"
            more = {"content_type": APPLY}
            made = await requests.ok("PATCH", path, document, headers=headers, **more)
        else:
            made = await requests.ok("POST", CERTIFICATES, document, headers=headers)
        assert made["spec"] == wanted
        assert "conditions" not in made.get("status", {})
        for body in (document, {**document, "spec": asked}):
            changed = await requests.ok("PUT", f"{CERTIFICATES}/mine", body)
            assert changed["spec"] == wanted

    await with_rules(tmp_path, [], test)
