"""Paths and methods, one row each."""

import pytest

from onejob.api.http.routing import (
    GroupPath,
    PageNotFound,
    Place,
    Router,
    ServerPath,
    Target,
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
        ("/apis/batch/v1/jobs", Target(JOB)),
        ("/apis/batch/v1/namespaces/a/jobs", Target(JOB, "a")),
        ("/apis/batch/v1/namespaces/a/jobs/b", Target(JOB, "a", "b")),
        ("/apis/batch/v1/namespaces/a/jobs/b/status", Target(JOB, "a", "b", "status")),
        ("/api/v1/namespaces/a/pods/b%2Dc/log", Target(POD, "a", "b-c", "log")),
        ("/api/v1/namespaces", Target(NAMESPACE)),
        ("/api/v1/namespaces/a", Target(NAMESPACE, "", "a")),
        ("/api/v1/namespaces/a/finalize", Target(NAMESPACE, "", "a", "finalize")),
        ("/api/v1/nodes/n/status", Target(NODE, "", "n", "status")),
        ("/api/v1/namespaces/status/pods", Target(POD, "status")),
        ("/api/v1/watch/pods", Target(POD, watch=True)),
        ("/api/v1/watch/namespaces", Target(NAMESPACE, watch=True)),
        ("/api/v1/watch/namespaces/a", Target(NAMESPACE, "", "a", watch=True)),
        ("/api/v1/watch/namespaces/a/pods/b", Target(POD, "a", "b", watch=True)),
        ("/apis/batch/v1/watch/namespaces/a/jobs", Target(JOB, "a", watch=True)),
        ("/api/v1/namespaces/watch/pods", Target(POD, "watch")),
    ],
)
def test_a_path_names_a_place(path: str, expected: Place) -> None:
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
        "/api/v1/namespaces/a/pods/b/proxy",
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


COLLECTION = Target(JOB, "a")
ITEM = Target(JOB, "a", "b")
STATUS = Target(JOB, "a", "b", "status")


@pytest.mark.parametrize(
    ("method", "target", "verb"),
    [
        ("GET", COLLECTION, "list"),
        ("HEAD", COLLECTION, "list"),
        ("POST", COLLECTION, "create"),
        ("DELETE", COLLECTION, "deletecollection"),
        ("GET", Target(JOB), "list"),
        ("GET", ITEM, "get"),
        ("PUT", ITEM, "update"),
        ("PATCH", ITEM, "patch"),
        ("DELETE", ITEM, "delete"),
        ("PATCH", STATUS, "patch"),
        ("POST", Target(POD, "a", "b", "eviction"), "create"),
        ("POST", Target(NAMESPACE), "create"),
        ("GET", Target(JOB, "a", watch=True), "watch"),
        ("GET", Target(JOB, "a", "b", watch=True), "watch"),
        ("POST", Target(BY_RESOURCE["selfsubjectreviews.authentication.k8s.io"]), "create"),
    ],
)
def test_method_and_place_give_the_verb(method: str, target: Target, verb: str) -> None:
    assert verb_for(method, target) == verb


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("PUT", COLLECTION),
        ("PATCH", COLLECTION),
        ("POST", ITEM),
        ("POST", Target(JOB)),
        ("DELETE", Target(JOB)),
        ("DELETE", STATUS),
        ("DELETE", Target(NAMESPACE)),
        ("BREW", ITEM),
        ("POST", Target(JOB, "a", watch=True)),
        ("DELETE", Target(JOB, "a", "b", watch=True)),
        ("GET", Target(BY_RESOURCE["bindings"], "a")),
        ("GET", Target(BY_RESOURCE["bindings"])),
        ("PUT", Target(POD, "a", "b", "log")),
        ("POST", Target(BY_RESOURCE["replicasets.apps"], "a")),
    ],
)
def test_other_methods_are_not_allowed(method: str, target: Target) -> None:
    with pytest.raises(MethodNotAllowed) as raised:
        verb_for(method, target)
    error: ApiError = raised.value
    assert error.message == "the server does not allow this method on the requested resource"
