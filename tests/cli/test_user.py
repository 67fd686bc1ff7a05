"""Several users of one server: their permissions, over real TLS."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onejob.api.access.authentication import Credentials
from onejob.api.access.users import BadUsers, UserTokenAuthenticator, add_user, read_users
from onejob.cli.sources.base import ApiRequest
from onejob.cli.sources.http_api import HttpApi, open_http_api
from onejob.clock import SystemClock
from onejob.wire.errors import ApiError, Forbidden, Unauthorized
from tests.cli.command_line import CommandLine

RBAC = "/apis/rbac.authorization.k8s.io/v1"
NOW = SystemClock().now()


@pytest.fixture(scope="module")
def people(served: CommandLine) -> Iterator[dict[str, HttpApi]]:
    """Yield five identities, each with its own kubeconfig."""
    for name in ("team-a", "team-b"):
        assert served.run("create", "namespace", name).returncode == 0
    for name, *words in (
        ("nobody",),
        ("viewer", "--role", "view", "-n", "team-a"),
        ("editor", "--role", "edit", "-n", "team-a"),
        ("owner", "--role", "admin", "-n", "team-a"),
        ("auditor", "--role", "view", "--cluster"),
    ):
        done = served.run("user", "add", name, *words)
        assert done.returncode == 0, done.stderr
    apis = {
        name: open_http_api(served.home / f"{name}.kubeconfig", "")
        for name in ("nobody", "viewer", "editor", "owner", "auditor")
    }
    apis["admin"] = open_http_api(served.data_dir / "kubeconfig", "")
    try:
        yield apis
    finally:
        for api in apis.values():
            api.close()


def send(api: HttpApi, method: str, path: str, body: Any = None) -> Any:
    return api.send(
        ApiRequest(method, path, body=json.dumps(body).encode() if body else b"")
    ).document


def may(api: HttpApi, verb: str, what: str, namespace: str) -> bool:
    resource, _, subresource = what.partition("/")
    plural, _, group = resource.partition(".")
    attributes = {
        "verb": verb, "group": group, "resource": plural, "subresource": subresource,
        "namespace": namespace, "name": "x",
    }  # fmt: skip
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    allowed: bool = send(api, "POST", path, review)["status"]["allowed"]
    return allowed


#: Resource -> verbs that viewer, editor and owner have in their namespace.
TABLE = {
    "jobs.batch": ("get list watch", "get list watch create update patch delete", "= editor"),
    "jobs.batch/status": ("get", "get", "= editor"),
    "cronjobs.batch": ("get list", "get list create delete deletecollection", "= editor"),
    "pods": ("get list watch", "get list create delete patch", "= editor"),
    "pods/log": ("get", "get", "= editor"),
    "pods/exec": ("", "get create", "= editor"),
    "pods/eviction": ("", "create", "= editor"),
    "pods/binding": ("", "", ""),
    "pods/status": ("get", "get", "= editor"),
    "secrets": ("", "get list watch create update delete", "= editor"),
    "configmaps": ("get list", "get list create update", "= editor"),
    "serviceaccounts/token": ("", "create", "= editor"),
    "serviceaccounts": ("get", "get create impersonate", "= editor"),
    "events": ("get list", "get list create", "= editor"),
    "roles.rbac.authorization.k8s.io": ("", "", "get list create update patch delete"),
    "rolebindings.rbac.authorization.k8s.io": ("", "", "get create delete"),
    "leases.coordination.k8s.io": ("", "get create update", "= editor"),
    "namespaces": ("get", "get", "get"),
    "nodes": ("", "", ""),
}
READ_AND_WRITE = (
    "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection",
    "impersonate",
)  # fmt: skip
VERBS = (*READ_AND_WRITE, "escalate", "bind")


@pytest.mark.parametrize("what", TABLE)
def test_default_roles_allow_same_as_kubernetes(people: dict[str, HttpApi], what: str) -> None:
    viewer, editor, owner = TABLE[what]
    owner = editor if owner == "= editor" else owner
    for name, allowed in (("viewer", viewer), ("editor", editor), ("owner", owner)):
        api = people[name]
        for verb in allowed.split():
            assert may(api, verb, what, "team-a"), f"{name} may not {verb} {what}"
            assert not may(api, verb, what, "team-b"), f"{name} may {verb} {what} elsewhere"
        for verb in ("escalate", "bind", *(() if allowed else READ_AND_WRITE)):
            assert not may(api, verb, what, "team-a"), f"{name} may {verb} {what}"
    for verb in VERBS:
        assert not may(people["nobody"], verb, what, "team-a")
        assert may(people["admin"], verb, what, "team-b")
    for verb in viewer.split():
        assert may(people["auditor"], verb, what, "team-b")


def test_requests_are_refused_as_upstream_refuses_them(people: dict[str, HttpApi]) -> None:
    jobs = "/apis/batch/v1/namespaces/team-b/jobs"
    with pytest.raises(Forbidden) as refused:
        send(people["editor"], "GET", jobs)
    assert refused.value.message == (
        'jobs.batch is forbidden: User "editor" cannot list resource "jobs" in API group "batch" '
        'in the namespace "team-b"'
    )
    with pytest.raises(Forbidden) as refused:
        send(people["editor"], "GET", "/metrics")
    assert refused.value.message == 'forbidden: User "editor" cannot get path "/metrics"'
    assert send(people["nobody"], "GET", "/apis/batch/v1")["kind"] == "APIResourceList"
    assert send(people["viewer"], "GET", jobs.replace("team-b", "team-a"))["items"] == []


def role(name: str, **rule: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "rules": [rule]}


def binding(name: str, kind: str, role_name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "roleRef": {"kind": kind, "name": role_name},
        "subjects": [{"kind": "User", "name": "mallory"}],
    }


HELD = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get"]}
NOT_HELD = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]}


def test_granting_missing_permissions_is_denied(people: dict[str, HttpApi]) -> None:
    owner, place = people["owner"], f"{RBAC}/namespaces/team-a"
    send(owner, "POST", f"{place}/roles", role("held", **HELD))
    with pytest.raises(Forbidden) as refused:
        send(owner, "POST", f"{place}/roles", role("more", **NOT_HELD))
    assert refused.value.message == (
        'roles.rbac.authorization.k8s.io "more" is forbidden: user "owner" '
        '(groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently '
        'held:\n{APIGroups:[""], Resources:["nodes"], Verbs:["get" "list"]}'
    )
    with pytest.raises(Forbidden):
        send(owner, "PUT", f"{place}/roles/held", role("held", **NOT_HELD))
    patch = ApiRequest(
        "PATCH",
        f"{place}/roles/held",
        body=json.dumps({"rules": [NOT_HELD]}).encode(),
        content_type="application/merge-patch+json",
    )
    with pytest.raises(Forbidden):
        owner.send(patch)
    assert send(owner, "GET", f"{place}/roles/held")["rules"] == [HELD]


def test_binding_stronger_roles_is_denied(people: dict[str, HttpApi]) -> None:
    owner, place = people["owner"], f"{RBAC}/namespaces/team-a/rolebindings"
    for name in ("view", "edit", "admin"):
        send(owner, "POST", place, binding(f"as-{name}", "ClusterRole", name))
    with pytest.raises(Forbidden, match="not currently held"):
        send(owner, "POST", place, binding("root", "ClusterRole", "cluster-admin"))
    with pytest.raises(ApiError, match="not found"):
        send(owner, "POST", place, binding("later", "Role", "yet-to-come"))
    with pytest.raises(Forbidden):
        send(owner, "POST", f"{RBAC}/clusterrolebindings", binding("x", "ClusterRole", "view"))
    with pytest.raises(Forbidden):
        send(people["editor"], "POST", place, binding("x", "ClusterRole", "view"))
    # A user with the permission to bind a role may do so without having its permissions.
    grant = {
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["clusterroles"],
        "verbs": ["bind"],
        "resourceNames": ["cluster-admin"],
    }
    admin = people["admin"]
    send(admin, "POST", f"{RBAC}/clusterroles", role("binder", **grant))
    bound = binding("binder", "ClusterRole", "binder")
    bound["subjects"] = [{"kind": "User", "name": "owner"}]
    send(admin, "POST", f"{RBAC}/clusterrolebindings", bound)
    _until(lambda: may_bind(owner))
    send(owner, "POST", place, binding("root", "ClusterRole", "cluster-admin"))


def may_bind(api: HttpApi) -> bool:
    attributes = {
        "verb": "bind", "group": "rbac.authorization.k8s.io", "resource": "clusterroles",
        "name": "cluster-admin", "namespace": "team-a",
    }  # fmt: skip
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    allowed: bool = send(api, "POST", path, {"spec": {"resourceAttributes": attributes}})["status"][
        "allowed"
    ]
    return allowed


def _until(holds: Callable[[], bool]) -> None:
    for _ in range(200):
        if holds():
            return
    pytest.fail("it never held")


@pytest.mark.parametrize(
    ("resource", "document", "field"),
    [
        ("clusterroles", {"rules": [{"verbs": ["get"]}]}, "rules[0].apiGroups"),
        ("clusterroles", {"rules": [{**HELD, "verbs": []}]}, "rules[0].verbs"),
        ("clusterroles", {"rules": [{**HELD, "nonResourceURLs": ["/x"]}]},
         "rules[0].nonResourceURLs"),
        ("clusterroles", {"aggregationRule": {}}, "aggregationRule.clusterRoleSelectors"),
        ("clusterroles", {"metadata": {"name": "a/b"}}, "metadata.name"),
        ("clusterrolebindings", {"roleRef": {"kind": "Role", "name": "x"}}, "roleRef.kind"),
        ("clusterrolebindings", {"roleRef": {"kind": "ClusterRole"}}, "roleRef.name"),
        ("clusterrolebindings", {"subjects": [{"kind": "ServiceAccount", "name": "x"}]},
         "subjects[0].namespace"),
        ("clusterrolebindings", {"subjects": [{"kind": "Robot", "name": "x"}]},
         "subjects[0].kind"),
    ],
)  # fmt: skip
def test_bad_roles_are_refused(
    people: dict[str, HttpApi], resource: str, document: dict[str, Any], field: str
) -> None:
    base = {"metadata": {"name": "bad"}}
    if resource == "clusterrolebindings":
        base |= {"roleRef": {"kind": "ClusterRole", "name": "view"}}
    with pytest.raises(ApiError) as refused:
        send(people["admin"], "POST", f"{RBAC}/{resource}", {**base, **document})
    assert refused.value.code == 422
    assert field in [cause["field"] for cause in refused.value.details["causes"]]


def test_a_binding_keeps_its_role(people: dict[str, HttpApi]) -> None:
    path = f"{RBAC}/clusterrolebindings"
    made = send(people["admin"], "POST", path, binding("kept", "ClusterRole", "view"))
    made["roleRef"]["name"] = "admin"
    with pytest.raises(ApiError, match="field is immutable"):
        send(people["admin"], "PUT", f"{path}/kept", made)


def test_revoked_users_are_out_at_once(served: CommandLine) -> None:
    assert served.run("user", "add", "temp", "--role", "view").returncode == 0
    path = served.home / "temp.kubeconfig"
    assert path.stat().st_mode & 0o777 == 0o600
    api = open_http_api(path, "")
    try:
        assert send(api, "GET", "/api/v1/namespaces/default/pods")["kind"] == "PodList"
        assert "temp" in served.run("user", "list").stdout
        assert served.run("user", "revoke", "temp").returncode == 0
        with pytest.raises(Unauthorized):
            send(api, "GET", "/api/v1/namespaces/default/pods")
    finally:
        api.close()
    again = served.run("user", "revoke", "temp")
    assert again.returncode == 2
    assert "user temp not found" in again.stderr


def test_user_create_prints_permissions(served: CommandLine) -> None:
    plain = served.run("user", "add", "plain")
    assert plain.stdout.splitlines()[1:] == [
        "the user has no permissions yet: kubectl create rolebinding plain --clusterrole edit "
        "--user plain"
    ]
    here = served.run("user", "add", "here", "--role", "edit")
    assert here.stdout.splitlines()[1:] == ["role edit in namespace default"]
    everywhere = served.run("user", "add", "everywhere", "--role", "view", "--cluster")
    assert everywhere.stdout.splitlines()[1:] == ["role view in all namespaces"]


def test_a_revoked_user_can_be_added_again_with_the_same_role(served: CommandLine) -> None:
    for words in ((), ("--cluster",)):
        assert served.run("user", "add", "back", "--role", "view", *words).returncode == 0
        assert served.run("user", "revoke", "back").returncode == 0
        (served.home / "back.kubeconfig").unlink()
        again = served.run("user", "add", "back", "--role", "view", *words)
        assert again.returncode == 0, again.stderr
        api = open_http_api(served.home / "back.kubeconfig", "")
        try:
            assert may(api, "list", "pods", "default")
        finally:
            api.close()
        assert served.run("user", "revoke", "back").returncode == 0
        (served.home / "back.kubeconfig").unlink()


def test_roles_that_a_user_of_this_name_had_before_are_named(served: CommandLine) -> None:
    assert served.run("user", "add", "heir", "--role", "edit").returncode == 0
    revoked = served.run("user", "revoke", "heir")
    assert revoked.returncode == 0
    (served.home / "heir.kubeconfig").unlink()
    again = served.run("user", "add", "heir")
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines()[1:] == [
        "role edit in namespace default (existing rolebinding onejob:heir:edit)"
    ]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("system:admin",), "cannot be the name of a user"),
        (("x", "--group", "system:nodes"), "it is Kubernetes' own"),
        (("x", "--role", "wizard"), "ClusterRole not found"),
        (
            ("x", "--role", "edit", "-n", "nowhere"),
            "(create it with onejob create namespace nowhere)",
        ),
        (("x", "--cluster"), "--cluster requires --role"),
        (("x", "--expires", "0s"), "--expires must be positive"),
        (
            ("twice",),
            "user twice already exists (to replace the token, run onejob user",
        ),
    ],
)
def test_bad_users_are_refused(served: CommandLine, words: tuple[str, ...], problem: str) -> None:
    if "twice" in words:
        assert served.run("user", "add", "twice").returncode == 0
    done = served.run("user", "add", *words, "--kubeconfig-out", "bad.kubeconfig")
    assert done.returncode == 2
    assert problem in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "x" not in [
        user["name"] for user in json.loads(served.run("user", "list", "-o", "json").stdout)
    ]
    assert not (served.home / "bad.kubeconfig").exists()


def test_tokens_end_and_are_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    clock = SystemClock()
    token = add_user(file, "alice", ("team",), NOW, NOW)
    lasting = add_user(file, "bob", (), NOW, None)
    assert token not in file.read_text()
    assert lasting not in file.read_text()
    authenticator = UserTokenAuthenticator(file, clock)
    assert authenticator.authenticate(Credentials(token)) is None
    bob = authenticator.authenticate(Credentials(lasting))
    assert bob is not None
    assert (bob.name, bob.groups) == ("bob", ("system:authenticated",))
    assert authenticator.authenticate(Credentials(lasting[:-1])) is None
    with pytest.raises(BadUsers, match="user bob already exists"):
        add_user(file, "bob", (), NOW, None)
    assert [user.name for user in read_users(file)] == ["alice", "bob"]


def test_users_file_of_other_owner_is_not_trusted(tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    token = add_user(file, "bob", (), NOW, None)
    authenticator = UserTokenAuthenticator(file, SystemClock())
    assert authenticator.authenticate(Credentials(token)) is not None
    os.replace(file, tmp_path / "moved")
    (tmp_path / "moved").chmod(0o666)
    file.symlink_to(tmp_path / "moved")
    assert authenticator.authenticate(Credentials(token)) is None
    file.unlink()
    file.write_text("{")
    assert authenticator.authenticate(Credentials(token)) is None
