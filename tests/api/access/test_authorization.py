"""Authorization cache: repeated decisions do not evaluate all roles."""

import msgspec

from onejob.api.access.authorization import Attributes, RbacAuthorizer
from onejob.planning.rbac.policy import Binding, Policy, Role
from onejob.wire.requests import User

EVE = User("eve", groups=("system:authenticated",))


class CountedPolicy(Policy):
    asked: int = 0

    def granted(self, user, groups, namespace):  # type: ignore[no-untyped-def]
        self.asked += 1
        return super().granted(user, groups, namespace)


def a_policy(*rules: dict[str, list[str]]) -> CountedPolicy:
    policy = CountedPolicy()
    role = {"metadata": {"name": "r", "namespace": "a"}, "rules": list(rules)}
    policy.put_role(msgspec.convert(role, Role))
    binding = {
        "metadata": {"name": "b", "namespace": "a"},
        "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "eve"}],
    }
    policy.put_binding(msgspec.convert(binding, Binding))
    return policy


READ_ALL = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
READ_ONE = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["mine"]}


def get_pod(name: str, namespace: str = "a") -> Attributes:
    return Attributes("get", "", "v1", "pods", namespace=namespace, name=name)


def test_the_same_question_is_worked_out_once() -> None:
    policy = a_policy(READ_ALL)
    authorizer = RbacAuthorizer(policy)
    for name in ("x", "y", "x"):
        assert authorizer.authorize(EVE, get_pod(name)).allowed
        assert not authorizer.authorize(EVE, get_pod(name, "b")).allowed
    assert policy.asked == 2


def test_names_are_compared_each_time() -> None:
    authorizer = RbacAuthorizer(a_policy(READ_ONE))
    for _ in range(2):
        assert authorizer.authorize(EVE, get_pod("mine")).allowed
        assert not authorizer.authorize(EVE, get_pod("other")).allowed
        assert not authorizer.authorize(EVE, get_pod("")).allowed


def test_a_change_of_roles_or_bindings_counts_at_once() -> None:
    policy = a_policy(READ_ALL)
    authorizer = RbacAuthorizer(policy)
    assert authorizer.authorize(EVE, get_pod("x")).allowed
    policy.remove_role("a", "r")
    assert not authorizer.authorize(EVE, get_pod("x")).allowed
    policy.put_role(
        msgspec.convert({"metadata": {"name": "r", "namespace": "a"}, "rules": [READ_ALL]}, Role)
    )
    assert authorizer.authorize(EVE, get_pod("x")).allowed
    policy.remove_binding("a", "b")
    assert not authorizer.authorize(EVE, get_pod("x")).allowed


def test_long_questions_are_not_kept() -> None:
    policy = a_policy(READ_ALL)
    authorizer = RbacAuthorizer(policy)
    for _ in range(3):
        assert not authorizer.authorize(EVE, Attributes("get", path="/" + "x" * 600)).allowed
    assert policy.asked == 3


def test_authorization_cache_drops_concurrent_result_after_policy_change() -> None:
    """Large roles are evaluated in another thread while the loop follows changes."""

    class ChangedMeanwhile(Policy):
        changes: int = 1

        def concerning(self, user, groups, namespace, question):  # type: ignore[no-untyped-def]
            found = super().concerning(user, groups, namespace, question)
            if self.changes:
                self.changes -= 1
                self.remove_binding("a", "b")
            return found

    before = a_policy(READ_ALL)
    policy = ChangedMeanwhile(before.roles, before.bindings)
    authorizer = RbacAuthorizer(policy)
    authorizer.authorize(EVE, get_pod("x"))
    assert not authorizer.authorize(EVE, get_pod("x")).allowed


def test_bindings_may_change_while_another_thread_reads_them() -> None:
    before = a_policy(READ_ALL)
    policy = Policy(before.roles, before.bindings)
    reading = policy.granted(EVE.name, EVE.groups, "a")
    next(reading)
    binding = {"metadata": {"name": "c", "namespace": "a"}}
    policy.put_binding(msgspec.convert(binding, Binding))
    assert list(reading) == []
