"""Matching of requests to the rules of an audit policy."""

from typing import Any

import pytest

from onejob.planning.audit import AuditAttributes, BadPolicy, read_policy, recording_of


def _policy(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": list(rules), **more}


def _level(rule: dict[str, Any], **question: Any) -> int:
    asked = {"user": "alice", "groups": ("dev",), "verb": "get", **question}
    policy = read_policy(_policy({"level": "Request", **rule}))
    return recording_of(policy, AuditAttributes(**asked)).level


_JOB = {"resource": "jobs", "group": "batch", "namespace": "a", "name": "j"}
_PAGE = {"path": "/healthz/ping"}


@pytest.mark.parametrize(
    ("rule", "question", "matches"),
    [
        ({}, _JOB, True),
        ({}, _PAGE, True),
        ({"users": ["bob"]}, _JOB, False),
        ({"users": ["alice"]}, _JOB, True),
        ({"userGroups": ["ops", "dev"]}, _JOB, True),
        ({"userGroups": ["ops"]}, _JOB, False),
        ({"verbs": ["create"]}, _JOB, False),
        ({"verbs": ["get"]}, _JOB, True),
        ({"namespaces": ["a"]}, _JOB, True),
        ({"namespaces": [""]}, _JOB, False),
        ({"namespaces": [""]}, {"resource": "nodes"}, True),
        ({"namespaces": [""]}, _PAGE, False),
        ({"resources": [{"group": "batch"}]}, _JOB, True),
        ({"resources": [{"group": ""}]}, _JOB, False),
        ({"resources": [{"group": "*", "resources": ["jobs"]}]}, _JOB, True),
        ({"resources": [{"group": "batch", "resources": ["jobs"]}]}, _JOB, True),
        (
            {"resources": [{"group": "batch", "resources": ["jobs"]}]},
            {**_JOB, "subresource": "status"},
            False,
        ),
        (
            {"resources": [{"group": "batch", "resources": ["jobs/*"]}]},
            {**_JOB, "subresource": "status"},
            True,
        ),
        (
            {"resources": [{"group": "batch", "resources": ["*/status"]}]},
            {**_JOB, "subresource": "status"},
            True,
        ),
        ({"resources": [{"group": "batch", "resources": ["*"]}]}, _JOB, True),
        (
            {"resources": [{"group": "batch", "resources": ["jobs"], "resourceNames": ["k"]}]},
            _JOB,
            False,
        ),
        ({"nonResourceURLs": ["/healthz*"]}, _PAGE, True),
        ({"nonResourceURLs": ["/healthz"]}, _PAGE, False),
        ({"nonResourceURLs": ["*"]}, _JOB, False),
    ],
)
def test_rules_match_as_upstream(
    rule: dict[str, Any], question: dict[str, Any], matches: bool
) -> None:
    assert bool(_level(rule, **question)) is matches


def test_the_first_rule_that_matches_decides() -> None:
    policy = read_policy(
        _policy(
            {"level": "None", "users": ["alice"]},
            {"level": "RequestResponse", "omitStages": ["ResponseStarted"]},
            omitStages=["RequestReceived"],
            omitManagedFields=True,
        )
    )
    assert recording_of(policy, AuditAttributes("alice", (), "get")).level == 0
    found = recording_of(policy, AuditAttributes("bob", (), "get"))
    assert found.level == 3
    assert found.omit_stages == {"RequestReceived", "ResponseStarted"}
    assert found.omit_managed_fields


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "Expected `object`"),
        ({"kind": "Policy"}, "apiVersion: audit.k8s.io/v1"),
        (_policy(), "no rules"),
        (_policy({}), "rules[0].level: Required value"),
        (_policy({"level": "All"}), 'rules[0].level: Unsupported value: "All"'),
        (_policy({"level": "None", "omitStages": ["x"]}), "allowed stages are"),
        (_policy({"level": "None", "nonResourceURLs": ["a"]}), "must begin with a '/'"),
        (_policy({"level": "None", "nonResourceURLs": ["/*/a"]}), "must be the final character"),
        (
            _policy({"level": "None", "nonResourceURLs": ["/a"], "namespaces": ["b"]}),
            "cannot apply to both",
        ),
        (
            _policy({"level": "None", "resources": [{"resourceNames": ["b"]}]}),
            "requires at least one resource",
        ),
    ],
)
def test_invalid_audit_policy_error_has_field_and_reason(document: Any, said: str) -> None:
    with pytest.raises(BadPolicy) as caught:
        read_policy(document)
    assert said in str(caught.value)
