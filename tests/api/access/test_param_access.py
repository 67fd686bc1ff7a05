"""Read access to the params of admission policies."""

from typing import Any

import pytest

from onejob.api.access.authorization import Attributes, Decision
from onejob.api.access.param_access import ParamAccess
from onejob.objects.meta import Key
from onejob.planning.rbac.rules import PolicyRule
from onejob.wire.errors import Invalid
from onejob.wire.kinds import BY_RESOURCE
from onejob.wire.registry import KindRegistry
from onejob.wire.requests import User
from tests.api.service_support import PERSON, served

_GROUP = "admissionregistration.k8s.io"
_POLICY = BY_RESOURCE[f"validatingadmissionpolicies.{_GROUP}"]
_BINDING = BY_RESOURCE[f"validatingadmissionpolicybindings.{_GROUP}"]
_SPEC: dict[str, Any] = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}


class _Refusing:
    """Authorizer that refuses everything and records what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Attributes] = []

    def authorize(self, user: User, attributes: Attributes) -> Decision:
        self.asked.append(attributes)
        return Decision(False)

    def rules(self, user: User, namespace: str) -> tuple[PolicyRule, ...]:
        return ()


def _document(spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "spec": spec}


def test_policy_requires_access_to_all_params(tmp_path: Any) -> None:
    async def test(service: Any) -> None:
        authorizer = _Refusing()
        guard = ParamAccess(service.store, KindRegistry(), authorizer)
        user = User("somebody")
        with pytest.raises(Invalid) as refusal:
            guard(user, _POLICY, "", _document(_SPEC), None)
        assert refusal.value.errors[0].field == "spec.paramKind"
        assert 'user somebody must have "get" permission' in refusal.value.message
        assert authorizer.asked == [
            Attributes("get", "", "*", "configmaps", namespace="*", name="*")
        ]
        guard(user, _POLICY, "", _document(_SPEC), _document(_SPEC))
        guard(user, _POLICY, "", _document({}), None)
        guard(User("root", groups=("system:masters",)), _POLICY, "", _document(_SPEC), None)
        assert len(authorizer.asked) == 1

    served(tmp_path, test)


@pytest.mark.parametrize(
    ("reference", "asked"),
    [
        ({"name": "a", "namespace": "n"}, ("get", "n", "a")),
        ({"selector": {}}, ("list", "", "")),
    ],
)
def test_binding_requires_access_to_its_params(
    tmp_path: Any, reference: dict[str, Any], asked: tuple[str, str, str]
) -> None:
    async def test(service: Any) -> None:
        authorizer = _Refusing()
        guard = ParamAccess(service.store, KindRegistry(), authorizer)
        binding = _document({"policyName": "p", "paramRef": reference})
        with pytest.raises(Invalid, match="unable to get policy p"):
            guard(User("somebody"), _BINDING, "", binding, None)
        rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["pods"]}  # fmt: skip
        spec = {
            **_SPEC,
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "true"}],
        }
        body = {"metadata": {"name": "p"}, "spec": spec}
        await service.create(_POLICY, "", body, PERSON)
        assert service.store.newest(Key(_POLICY.storage, "", "p")) is not None
        with pytest.raises(Invalid, match="permission on the object referenced by paramRef"):
            guard(User("somebody"), _BINDING, "", binding, None)
        verb, namespace, name = asked
        last = Attributes(verb, "", "*", "configmaps", namespace=namespace, name=name)
        assert authorizer.asked[-1] == last

    served(tmp_path, test)
