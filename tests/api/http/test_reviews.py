"""Access reviews: answered by the authorizer, never stored."""

from typing import Any

import pytest

from onejob.api.access.authentication import ADMIN
from onejob.api.access.authorization import AllowAuthenticated, Attributes, Decision, require
from onejob.api.access.reviews import review
from onejob.planning.rbac.rules import PolicyRule
from onejob.wire.errors import BadRequest, Forbidden, Invalid
from onejob.wire.kinds import BY_RESOURCE
from onejob.wire.requests import User

SELF_ACCESS = BY_RESOURCE["selfsubjectaccessreviews.authorization.k8s.io"]
ACCESS = BY_RESOURCE["subjectaccessreviews.authorization.k8s.io"]
LOCAL = BY_RESOURCE["localsubjectaccessreviews.authorization.k8s.io"]
RULES = BY_RESOURCE["selfsubjectrulesreviews.authorization.k8s.io"]
WHO = BY_RESOURCE["selfsubjectreviews.authentication.k8s.io"]


class OnlyReading:
    """Authorizer that lets all users read Jobs."""

    def authorize(self, user: User, attributes: Attributes) -> Decision:
        allowed = attributes.verb == "get" and attributes.resource == "jobs"
        return Decision(allowed, "" if allowed else "only reading Jobs")

    def rules(self, user: User, namespace: str) -> list[PolicyRule]:
        return [PolicyRule(("get",), ("batch",), ("jobs",))]


def test_an_operator_may_do_everything() -> None:
    spec = {"resourceAttributes": {"verb": "create", "resource": "jobs", "group": "batch"}}
    answer = review(SELF_ACCESS, "", {"spec": spec}, ADMIN, AllowAuthenticated())
    assert answer["kind"] == "SelfSubjectAccessReview"
    assert answer["spec"] == spec
    assert answer["status"] == {"allowed": True}


def test_access_review_returns_reason_for_denial() -> None:
    spec = {"resourceAttributes": {"verb": "delete", "resource": "jobs"}}
    answer = review(SELF_ACCESS, "", {"spec": spec}, ADMIN, OnlyReading())
    assert answer["status"] == {"allowed": False, "reason": "only reading Jobs"}


def test_subject_access_review_evaluates_another_user() -> None:
    spec = {"user": "eve", "nonResourceAttributes": {"verb": "get", "path": "/metrics"}}
    answer = review(ACCESS, "", {"spec": spec}, ADMIN, AllowAuthenticated())
    assert answer["status"] == {"allowed": False}


def test_rules_are_listed() -> None:
    body = {"spec": {"namespace": "default"}}
    assert review(RULES, "", body, ADMIN, AllowAuthenticated())["status"] == {
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        "incomplete": False,
    }
    assert review(RULES, "", body, ADMIN, OnlyReading())["status"] == {
        "resourceRules": [{"verbs": ["get"], "apiGroups": ["batch"], "resources": ["jobs"]}],
        "nonResourceRules": [],
        "incomplete": False,
    }
    with pytest.raises(BadRequest, match="no namespace on request"):
        review(RULES, "", {"spec": {}}, ADMIN, OnlyReading())


def test_self_subject_review_returns_user() -> None:
    user = User("me", "u1", ("g",), {"scopes": ("a",)})
    assert review(WHO, "", {}, user, OnlyReading())["status"]["userInfo"] == {
        "username": "me",
        "uid": "u1",
        "groups": ["g"],
        "extra": {"scopes": ["a"]},
    }


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({}, Invalid),
        ({"spec": {"resourceAttributes": {}, "nonResourceAttributes": {}}}, Invalid),
        ({"spec": []}, BadRequest),
        ({"spec": {"resourceAttributes": {"verb": 1}}}, BadRequest),
        ({"kind": "Job"}, BadRequest),
    ],
)
def test_a_question_must_be_one(body: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        review(SELF_ACCESS, "", body, ADMIN, AllowAuthenticated())


def test_an_access_review_needs_a_subject() -> None:
    with pytest.raises(Invalid, match="at least one of user or group"):
        review(ACCESS, "", {"spec": {"resourceAttributes": {}}}, ADMIN, AllowAuthenticated())


def test_a_local_review_stays_in_its_namespace() -> None:
    spec = {"user": "a", "resourceAttributes": {"namespace": "other"}}
    with pytest.raises(Invalid, match=r"must match metadata\.namespace"):
        review(LOCAL, "here", {"spec": spec}, ADMIN, AllowAuthenticated())


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (
            Attributes("create", "batch", "v1", "jobs", "", "ns", ""),
            'jobs.batch is forbidden: User "eve" cannot create resource "jobs" in API group '
            '"batch" in the namespace "ns"',
        ),
        (
            Attributes("update", "batch", "v1", "jobs", "status", "ns", "x"),
            'jobs.batch "x" is forbidden: User "eve" cannot update resource "jobs/status" in API '
            'group "batch" in the namespace "ns"',
        ),
        (
            Attributes("list", "", "v1", "nodes"),
            'nodes is forbidden: User "eve" cannot list resource "nodes" in API group "" at the '
            "cluster scope",
        ),
        (
            Attributes("get", path="/metrics"),
            'forbidden: User "eve" cannot get path "/metrics"',
        ),
    ],
)
def test_forbidden_error_names_missing_permission(wanted: Attributes, message: str) -> None:
    with pytest.raises(Forbidden) as raised:
        require(AllowAuthenticated(), User("eve"), wanted)
    assert raised.value.message == message
