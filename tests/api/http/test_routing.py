"""Routing of paths and methods, one row each."""

import pytest

from onejob.api.http.routing import (
    GroupPath,
    PageNotFound,
    RequestPath,
    ResourcePath,
    Router,
    ServerPath,
    verb_for,
)
from onejob.wire.errors import ApiError, MethodNotAllowed, NotFound
from onejob.wire.kinds import BY_RESOURCE
from onejob.wire.registry import KindRegistry

locate = Router(KindRegistry()).locate
JOB = BY_RESOURCE["jobs.batch"]
POD = BY_RESOURCE["pods"]
NAMESPACE = BY_RESOURCE["namespaces"]
NODE = BY_RESOURCE["nodes"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api", GroupPath(None, legacy_root=True)),
        ("/api/", GroupPath(None, legacy_root=True)),
        ("/apis", GroupPath(None)),
        ("/api/v1", GroupPath("", "v1")),
        ("/apis/batch", GroupPath("batch")),
        ("/apis/batch/v1", GroupPath("batch", "v1")),
        ("/version", ServerPath("version")),
        ("/readyz/ping", ServerPath("readyz", ("ping",))),
        ("/openapi/v3/apis/batch/v1", ServerPath("openapi", ("v3", "apis", "batch", "v1"))),
        ("/apis/batch/v1/jobs", ResourcePath(JOB)),
        ("/apis/batch/v1/namespaces/a/jobs", ResourcePath(JOB, "a")),
        ("/apis/batch/v1/namespaces/a/jobs/b", ResourcePath(JOB, "a", "b")),
        ("/apis/batch/v1/namespaces/a/jobs/b/status", ResourcePath(JOB, "a", "b", "status")),
        ("/api/v1/namespaces/a/pods/b%2Dc/log", ResourcePath(POD, "a", "b-c", "log")),
        ("/api/v1/namespaces", ResourcePath(NAMESPACE)),
        ("/api/v1/namespaces/a", ResourcePath(NAMESPACE, "", "a")),
        ("/api/v1/namespaces/a/finalize", ResourcePath(NAMESPACE, "", "a", "finalize")),
        ("/api/v1/nodes/n/status", ResourcePath(NODE, "", "n", "status")),
        ("/api/v1/namespaces/status/pods", ResourcePath(POD, "status")),
        ("/api/v1/watch/pods", ResourcePath(POD, watch=True)),
        ("/api/v1/watch/namespaces", ResourcePath(NAMESPACE, watch=True)),
        ("/api/v1/watch/namespaces/a", ResourcePath(NAMESPACE, "", "a", watch=True)),
        ("/api/v1/watch/namespaces/a/pods/b", ResourcePath(POD, "a", "b", watch=True)),
        ("/apis/batch/v1/watch/namespaces/a/jobs", ResourcePath(JOB, "a", watch=True)),
        ("/api/v1/namespaces/watch/pods", ResourcePath(POD, "watch")),
    ],
)
def test_a_path_names_a_place(path: str, expected: RequestPath) -> None:
    assert locate(path) == expected


@pytest.mark.parametrize("path", ["/", "", "/nope", "/apis/nope", "/apis/nope/v1/jobs"])
def test_a_path_outside_every_group_is_no_page(path: str) -> None:
    with pytest.raises(PageNotFound):
        locate(path)


@pytest.mark.parametrize(
    "path",
    [
        "/apis/batch/v1/nope",
        "/apis/batch/v2",
        "/apis/batch/v2/jobs",
        "/api/v2",
        "/apis/batch/v1/jobs/x",
        "/apis/batch/v1/namespaces/a/jobs/b/scale",
        "/apis/batch/v1/namespaces/a/jobs/b/status/deeper",
        "/apis/batch/v1/namespaces/a",
        "/api/v1/namespaces/a/nodes",
        "/api/v1/namespaces//pods",
        "/api/v1/namespaces/a/pods//log",
        "/api/v1/namespaces/a/pods//proxy",
        "/api/v1/namespaces/a/configmaps/b/proxy/c",
        "/apis/batch/v1/namespaces/a/jobs/b/proxy/c",
        "/api/v1/watch",
        "/api/v1/watch/bindings",
        "/api/v1/watch/namespaces/a/pods/b/log",
        "/api/v1/watch/watch/pods",
        "/apis/batch/v1/watch/nope",
    ],
)
def test_an_unknown_resource_in_a_known_group_is_not_found(path: str) -> None:
    with pytest.raises(NotFound, match="could not find the requested resource"):
        locate(path)


COLLECTION = ResourcePath(JOB, "a")
ITEM = ResourcePath(JOB, "a", "b")
STATUS = ResourcePath(JOB, "a", "b", "status")


@pytest.mark.parametrize(
    ("method", "target", "verb"),
    [
        ("GET", COLLECTION, "list"),
        ("HEAD", COLLECTION, "list"),
        ("POST", COLLECTION, "create"),
        ("DELETE", COLLECTION, "deletecollection"),
        ("GET", ResourcePath(JOB), "list"),
        ("GET", ITEM, "get"),
        ("PUT", ITEM, "update"),
        ("PATCH", ITEM, "patch"),
        ("DELETE", ITEM, "delete"),
        ("PATCH", STATUS, "patch"),
        ("POST", ResourcePath(POD, "a", "b", "eviction"), "create"),
        ("POST", ResourcePath(NAMESPACE), "create"),
        ("GET", ResourcePath(JOB, "a", watch=True), "watch"),
        ("GET", ResourcePath(JOB, "a", "b", watch=True), "watch"),
        ("POST", ResourcePath(BY_RESOURCE["selfsubjectreviews.authentication.k8s.io"]), "create"),
    ],
)
def test_method_and_place_give_the_verb(method: str, target: ResourcePath, verb: str) -> None:
    assert verb_for(method, target) == verb


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("PUT", COLLECTION),
        ("PATCH", COLLECTION),
        ("POST", ITEM),
        ("POST", ResourcePath(JOB)),
        ("DELETE", ResourcePath(JOB)),
        ("DELETE", STATUS),
        ("DELETE", ResourcePath(NAMESPACE)),
        ("BREW", ITEM),
        ("POST", ResourcePath(JOB, "a", watch=True)),
        ("DELETE", ResourcePath(JOB, "a", "b", watch=True)),
        ("GET", ResourcePath(BY_RESOURCE["bindings"], "a")),
        ("GET", ResourcePath(BY_RESOURCE["bindings"])),
        ("PUT", ResourcePath(POD, "a", "b", "log")),
        ("POST", ResourcePath(BY_RESOURCE["replicationcontrollers"], "a")),
    ],
)
def test_other_methods_are_not_allowed(method: str, target: ResourcePath) -> None:
    with pytest.raises(MethodNotAllowed) as raised:
        verb_for(method, target)
    error: ApiError = raised.value
    assert error.message == "the server does not allow this method on the requested resource"


@pytest.mark.parametrize("tail", ["", "/", "/a/../b%2Fc/", "/proxy/d"])
def test_the_path_behind_a_proxy_is_kept_as_sent(tail: str) -> None:
    found = locate(f"/api/v1/namespaces/a/pods/http%3Ab%3A80/proxy{tail}")
    assert isinstance(found, ResourcePath)
    assert (found.name, found.subresource, found.tail) == ("http:b:80", "proxy", tail)
