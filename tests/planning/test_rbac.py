"""RBAC: matching of rules, bindings of subjects, and coverage between rules."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onejob.objects.meta import LabelSelector, Meta
from onejob.planning.rbac import defaults
from onejob.planning.rbac.policy import (
    AggregationRule,
    Binding,
    Policy,
    Role,
    RoleRef,
    Subject,
    aggregated_rules,
)
from onejob.planning.rbac.rules import AccessAttributes, PolicyRule, allows, merged, not_covered

GET_PODS = PolicyRule(("get",), ("",), ("pods",))


@pytest.mark.parametrize(
    ("rule", "question", "allowed"),
    [
        (GET_PODS, AccessAttributes("get", "", "pods"), True),
        (GET_PODS, AccessAttributes("list", "", "pods"), False),
        (GET_PODS, AccessAttributes("get", "apps", "pods"), False),
        # A resource does not include its subresources, nor the other way round.
        (GET_PODS, AccessAttributes("get", "", "pods", "log"), False),
        (
            PolicyRule(("get",), ("",), ("pods/log",)),
            AccessAttributes("get", "", "pods", "log"),
            True,
        ),
        (PolicyRule(("get",), ("",), ("pods/log",)), AccessAttributes("get", "", "pods"), False),
        (PolicyRule(("get",), ("",), ("*/log",)), AccessAttributes("get", "", "pods", "log"), True),
        (PolicyRule(("get",), ("",), ("*/log",)), AccessAttributes("get", "", "pods"), False),
        (
            PolicyRule(("get",), ("",), ("pods/*",)),
            AccessAttributes("get", "", "pods", "log"),
            False,
        ),
        (PolicyRule(("get",), ("",), ("*",)), AccessAttributes("get", "", "pods", "log"), True),
        (
            PolicyRule(("*",), ("*",), ("*",)),
            AccessAttributes("deletecollection", "batch", "jobs"),
            True,
        ),
        (
            PolicyRule(("get",), ("",), ("pods",), ("a",)),
            AccessAttributes("get", "", "pods", name="a"),
            True,
        ),
        (
            PolicyRule(("get",), ("",), ("pods",), ("a",)),
            AccessAttributes("get", "", "pods", name="b"),
            False,
        ),
        # A list has no name, so a rule that names objects never allows it.
        (
            PolicyRule(("list",), ("",), ("pods",), ("a",)),
            AccessAttributes("list", "", "pods"),
            False,
        ),
        (
            PolicyRule(("get",), non_resource_urls=("/healthz",)),
            AccessAttributes("get", path="/healthz"),
            True,
        ),
        (
            PolicyRule(("get",), non_resource_urls=("/api/*",)),
            AccessAttributes("get", path="/api/v1"),
            True,
        ),
        (
            PolicyRule(("get",), non_resource_urls=("/api/*",)),
            AccessAttributes("get", path="/apis"),
            False,
        ),
        (PolicyRule(("get",), non_resource_urls=("*",)), AccessAttributes("get", path="/x"), True),
        (PolicyRule(("*",), ("*",), ("*",)), AccessAttributes("get", path="/metrics"), False),
        (
            PolicyRule(("get",), non_resource_urls=("*",)),
            AccessAttributes("get", "", "pods"),
            False,
        ),
    ],
)
def test_rbac_rule_matching(rule: PolicyRule, question: AccessAttributes, allowed: bool) -> None:
    assert allows(rule, question) is allowed


WORDS = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=2, unique=True).map(tuple)
RESOURCES = st.lists(
    st.sampled_from(["a", "b", "*", "a/s", "*/s"]), min_size=1, max_size=2, unique=True
).map(tuple)
NAMES = st.lists(st.sampled_from(["x", "y"]), max_size=2, unique=True).map(tuple)
RULES = st.lists(st.builds(PolicyRule, WORDS, WORDS, RESOURCES, NAMES), max_size=3)
QUESTIONS = [
    AccessAttributes(verb, group, resource, subresource, name)
    for verb in "ab"
    for group in "ab"
    for resource in "ab"
    for subresource in ("", "s")
    for name in ("", "x", "z")
]


@given(RULES, RULES)
def test_covered_rules_allow_nothing_more(
    owned: list[PolicyRule], wanted: list[PolicyRule]
) -> None:
    """A user gains nothing by rules covered by their own."""
    missing = not_covered(owned, wanted)
    for question in QUESTIONS:
        if any(allows(rule, question) for rule in wanted):
            held = any(allows(rule, question) for rule in owned)
            assert held or any(allows(rule, question) for rule in missing)


@given(RULES)
def test_rules_cover_themselves(rules: list[PolicyRule]) -> None:
    assert not_covered(rules, rules) == []


def test_errors_name_rules_as_upstream_does() -> None:
    rules = [PolicyRule((verb,), ("batch",), ("jobs",)) for verb in ("get", "list")]
    (rule,) = merged(rules)
    assert str(rule) == '{APIGroups:["batch"], Resources:["jobs"], Verbs:["get" "list"]}'
    url = PolicyRule(("get",), non_resource_urls=("/x",))
    assert str(url) == '{NonResourceURLs:["/x"], Verbs:["get"]}'


def bound(kind: str, name: str, *, namespace: str = "", subject_home: str = "") -> Policy:
    policy = Policy()
    policy.put_role(Role(metadata=Meta(name="reader"), rules=(GET_PODS,)))
    subject = Subject(kind=kind, name=name, namespace=subject_home)
    policy.put_binding(
        Binding(
            metadata=Meta(name="b", namespace=namespace),
            subjects=(subject,),
            role_ref=RoleRef(kind="ClusterRole", name="reader"),
        )
    )
    return policy


ASKED = AccessAttributes("get", "", "pods")


@pytest.mark.parametrize(
    ("policy", "user", "groups", "namespace", "reason"),
    [
        (
            bound("User", "alice"),
            "alice",
            (),
            "x",
            'RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "reader" to User "alice"',
        ),
        (
            bound("Group", "team", namespace="x"),
            "alice",
            ("team",),
            "x",
            'RBAC: allowed by RoleBinding "b/x" of ClusterRole "reader" to Group "team"',
        ),
        (
            bound("ServiceAccount", "bot", namespace="x"),
            "system:serviceaccount:x:bot",
            (),
            "x",
            'RBAC: allowed by RoleBinding "b/x" of ClusterRole "reader" to '
            'ServiceAccount "bot/x"',
        ),
        (bound("User", "alice", namespace="x"), "alice", (), "y", None),
        (bound("User", "alice", namespace="x"), "alice", (), "", None),
        (bound("User", "team"), "alice", ("team",), "x", None),
        (bound("ServiceAccount", "bot", namespace="x", subject_home="y"),
         "system:serviceaccount:x:bot", (), "x", None),
    ],
)  # fmt: skip
def test_rbac_grants_by_subject(
    policy: Policy, user: str, groups: tuple[str, ...], namespace: str, reason: str | None
) -> None:
    assert policy.decide(user, groups, namespace, ASKED) == reason


def test_a_binding_to_a_role_that_is_gone_gives_nothing() -> None:
    policy = bound("User", "alice")
    policy.remove_role("", "reader")
    assert policy.decide("alice", (), "x", ASKED) is None
    policy.put_role(Role(metadata=Meta(name="reader"), rules=(GET_PODS,)))
    policy.remove_binding("", "b")
    assert policy.decide("alice", (), "x", ASKED) is None


def test_roles_are_aggregated_by_label() -> None:
    selector = LabelSelector(match_labels={"to": "all"})
    whole = Role(
        metadata=Meta(name="whole", labels={"to": "all"}),
        aggregation_rule=AggregationRule(cluster_role_selectors=(selector,)),
    )
    parts = [
        Role(metadata=Meta(name=name, labels={"to": to}), rules=rules)
        for name, to, rules in (
            ("b", "all", (GET_PODS,)),
            ("a", "all", (PolicyRule(("get",), ("batch",), ("jobs",)), GET_PODS)),
            ("c", "none", (PolicyRule(("*",), ("*",), ("*",)),)),
        )
    ]
    found = aggregated_rules(whole, [whole, *parts])
    assert found == (PolicyRule(("get",), ("batch",), ("jobs",)), GET_PODS)


@pytest.mark.parametrize(
    "wanted", [*defaults.CLUSTER_ROLES, *defaults.CLUSTER_ROLE_BINDINGS], ids=lambda d: str(
        d["metadata"]["name"]
    )
)  # fmt: skip
def test_defaults_stay_as_they_are(wanted: defaults.Document) -> None:
    assert defaults.reconciled(wanted, wanted) is None


def test_defaults_are_mended_and_additions_kept() -> None:
    wanted = next(
        role for role in defaults.CLUSTER_ROLES if role["metadata"]["name"] == "system:basic-user"
    )
    mine = {"apiGroups": ["mine"], "resources": ["x"], "verbs": ["get"]}
    found = {**wanted, "rules": [mine], "metadata": {**wanted["metadata"], "labels": {"a": "b"}}}
    mended = defaults.reconciled(found, wanted)
    assert mended is not None
    assert mended["rules"][0] == mine
    assert (
        not_covered(
            msgspec.convert(mended["rules"], list[PolicyRule]),
            msgspec.convert(wanted["rules"], list[PolicyRule]),
        )
        == []
    )
    assert mended["metadata"]["labels"] == {
        "a": "b",
        "kubernetes.io/bootstrapping": "rbac-defaults",
    }
    left_alone = {
        **found, "metadata": {**found["metadata"], "annotations": {defaults.AUTO_UPDATE: "false"}}
    }  # fmt: skip
    assert defaults.reconciled(left_alone, wanted) is None
