"""HTTP request of each operation."""

import json
from typing import Any

import pytest

from onejob.client.base import Bind, Create, Delete, Evict, Op, Patch, Replace, Selection
from onejob.client.requests import (
    HttpRequest,
    get_request,
    list_request,
    watch_request,
    write_request,
)
from onejob.objects.meta import Key

JOB = Key("jobs.batch", "ns", "a")
POD = Key("pods", "ns", "p")


@pytest.mark.parametrize(
    ("request_", "target"),
    [
        (get_request(JOB), "/apis/batch/v1/namespaces/ns/jobs/a"),
        (get_request(Key("nodes", "", "n")), "/api/v1/nodes/n"),
        (get_request(Key("pods", "ns", "a/b?c")), "/api/v1/namespaces/ns/pods/a%2Fb%3Fc"),
        (list_request(Selection("pods"), 0, ""), "/api/v1/pods"),
        (
            list_request(Selection("pods", "ns", "a=b,c!=d", "x=y"), 5, "tok="),
            "/api/v1/namespaces/ns/pods?labelSelector=a%3Db%2Cc%21%3Dd&fieldSelector=x%3Dy"
            "&limit=5&continue=tok%3D",
        ),
        (
            watch_request(Selection("jobs.batch", "ns"), 7, 300),
            "/apis/batch/v1/namespaces/ns/jobs?watch=true&resourceVersion=7"
            "&allowWatchBookmarks=true&timeoutSeconds=300",
        ),
    ],
)
def test_reads_are_gets(request_: HttpRequest, target: str) -> None:
    assert request_ == HttpRequest("GET", target)


@pytest.mark.parametrize(
    ("op", "method", "target", "content_type"),
    [
        (
            Create("jobs.batch", "ns", b"{}"),
            "POST",
            "/apis/batch/v1/namespaces/ns/jobs?fieldManager=onejob",
            "application/json",
        ),
        (
            Create("namespaces", "", b"{}"),
            "POST",
            "/api/v1/namespaces?fieldManager=onejob",
            "application/json",
        ),
        (
            Replace(JOB, b"{}", "status"),
            "PUT",
            "/apis/batch/v1/namespaces/ns/jobs/a/status?fieldManager=onejob",
            "application/json",
        ),
        (
            Patch(POD, b"{}"),
            "PATCH",
            "/api/v1/namespaces/ns/pods/p?fieldManager=onejob",
            "application/strategic-merge-patch+json",
        ),
        (
            Patch(POD, b"[]", "json", "status"),
            "PATCH",
            "/api/v1/namespaces/ns/pods/p/status?fieldManager=onejob",
            "application/json-patch+json",
        ),
        (
            Patch(POD, b"{}", "apply"),
            "PATCH",
            "/api/v1/namespaces/ns/pods/p?fieldManager=onejob",
            "application/apply-patch+yaml",
        ),
    ],
)
def test_documents_are_sent_as_they_are(
    op: Op, method: str, target: str, content_type: str
) -> None:
    sent = write_request(op)
    assert (sent.method, sent.target, sent.content_type) == (method, target, content_type)
    assert sent.body in (b"{}", b"[]")


@pytest.mark.parametrize(
    ("op", "target", "body"),
    [
        (
            Delete(JOB),
            "/apis/batch/v1/namespaces/ns/jobs/a",
            {"kind": "DeleteOptions", "apiVersion": "v1"},
        ),
        (
            Delete(JOB, "Foreground", 0, "u", "5"),
            "/apis/batch/v1/namespaces/ns/jobs/a",
            {
                "kind": "DeleteOptions",
                "apiVersion": "v1",
                "propagationPolicy": "Foreground",
                "gracePeriodSeconds": 0,
                "preconditions": {"uid": "u", "resourceVersion": "5"},
            },
        ),
        (
            Bind(POD, "n", "u"),
            "/api/v1/namespaces/ns/pods/p/binding",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
                "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
            },
        ),
        (
            Evict(POD, 3),
            "/api/v1/namespaces/ns/pods/p/eviction",
            {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": "p", "namespace": "ns"},
                "deleteOptions": {"gracePeriodSeconds": 3},
            },
        ),
    ],
)
def test_other_writes_have_bodies_of_their_own(op: Op, target: str, body: Any) -> None:
    sent = write_request(op)
    assert (sent.target, json.loads(sent.body)) == (target, body)
