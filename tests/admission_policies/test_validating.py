"""Validating admission policies: decisions, params, audit annotations, metrics and cost."""

from pathlib import Path
from typing import Any

import pytest

from onejob.api.audit_notes import begin_notes
from onejob.api.service import Service
from onejob.cel.library.authorizer import AccessCheck
from onejob.metrics import Metrics
from onejob.wire.errors import ApiError, Invalid
from onejob.wire.requests import DeleteOptions, User, WriteOptions
from tests.admission_policies.support import (
    GROUP,
    Doc,
    a_policy_service,
    a_validating_policy,
    configure,
    constraints,
    make,
)
from tests.api.service_support import CONFIGMAP, NAMESPACE, PERSON, a_map

_PARAMS = {"apiVersion": "v1", "kind": "ConfigMap"}


async def _refusal(service: Service, name: str = "m", **fields: Any) -> ApiError:
    with pytest.raises(ApiError) as refusal:
        await make(service, name, **fields)
    return refusal.value


async def test_validation_denies_with_status_of_its_reason(tmp_path: Path) -> None:
    validation = {
        "expression": "object.data.size() > 1",
        "messageExpression": "'has ' + string(object.data.size())",
        "reason": "Forbidden",
    }
    async with a_policy_service(tmp_path) as service:
        await configure(service, a_validating_policy(validation))
        message = "ValidatingAdmissionPolicy 'p' with binding 'p-binding' denied request: has 1"
        assert (await _refusal(service, data={"a": "1"})).status() == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": f'configmaps "m" is forbidden: {message}',
            "reason": "Forbidden",
            "details": {"name": "m", "kind": "configmaps", "causes": [{"message": message}]},
            "code": 403,
        }
        await make(service, data={"a": "1", "b": "2"})


async def test_policy_takes_effect_with_its_binding_and_ends_with_it(tmp_path: Path) -> None:
    async with a_policy_service(tmp_path) as service:
        await configure(service, a_validating_policy("false"), bound=False)
        await make(service, "before")
        assert not service.admission.dynamic.active
        bindings = service.kinds.by_resource[f"validatingadmissionpolicybindings.{GROUP}"]
        spec = {"policyName": "p", "validationActions": ["Deny"]}
        await service.create(bindings, "", {"metadata": {"name": "b"}, "spec": spec}, PERSON)
        assert (await _refusal(service)).code == 422
        await service.delete(bindings, "", "b", DeleteOptions())
        await make(service, "after")


async def test_configurations_are_never_subject_to_policies(tmp_path: Path) -> None:
    everything = constraints()
    everything["resourceRules"][0] |= {
        "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"],
    }  # fmt: skip
    async with a_policy_service(tmp_path) as service:
        await configure(service, a_validating_policy("false", matchConstraints=everything))
        await _refusal(service)
        policies = service.kinds.by_resource[f"validatingadmissionpolicies.{GROUP}"]
        await service.delete(policies, "", "p", DeleteOptions())
        await make(service)


async def test_warn_and_audit_actions_admit_the_request(tmp_path: Path) -> None:
    async with a_policy_service(tmp_path) as service:
        policy = a_validating_policy({"expression": "false", "message": "no"})
        await configure(service, policy, validationActions=["Warn", "Audit"])
        notes = begin_notes()
        outcome = await service.create(CONFIGMAP, "default", a_map("m"), PERSON)
        assert outcome.warnings == (
            "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p-binding': no",
        )
        assert notes["validation.policy.admission.k8s.io/validation_failure"] == (
            '[{"message":"no","policy":"p","binding":"p-binding","expressionIndex":0,'
            '"validationActions":["Warn","Audit"]}]'
        )


async def test_audit_annotations_join_distinct_values_of_params(tmp_path: Path) -> None:
    async with a_policy_service(tmp_path) as service:
        for name in ("a", "b", "c"):
            await make(service, name, {"level": "x" if name == "c" else name}, labels={"l": "1"})
        spec: Doc = {
            "paramKind": _PARAMS,
            "matchConstraints": constraints("secrets"),
            "auditAnnotations": [
                {"key": "level", "valueExpression": "string(params.data.level)"},
                {"key": "none", "valueExpression": "null"},
            ],
        }
        reference = {"selector": {"matchLabels": {"l": "1"}}, "parameterNotFoundAction": "Deny"}
        await configure(service, a_validating_policy(**spec), paramRef=reference)
        secrets = service.kinds.by_resource["secrets"]
        notes = begin_notes()
        await service.create(secrets, "default", {"metadata": {"name": "s"}}, PERSON)
        assert notes["p/level"] == "a, b, x"
        assert "p/none" not in notes


async def test_audit_annotation_error_denies_whatever_the_actions_are(tmp_path: Path) -> None:
    annotation = {"key": "k", "valueExpression": "string(object.nothing)"}
    async with a_policy_service(tmp_path) as service:
        policy = a_validating_policy(auditAnnotations=[annotation])
        await configure(service, policy, validationActions=["Audit"])
        assert "no such key: nothing" in (await _refusal(service)).message


async def test_failure_policy_ignore_admits_after_errors(tmp_path: Path) -> None:
    metrics = Metrics()
    async with a_policy_service(tmp_path, metrics) as service:
        policy = a_validating_policy("object.nothing == 1", failurePolicy="Ignore")
        await configure(service, policy)
        await make(service)
        count = metrics.validating_policy_checks.value(
            policy="p",
            policy_binding="p-binding",
            error_type="invalid_error",
            enforcement_action="allow",
        )
        assert count == 1


async def test_authorizer_asks_about_the_requester_and_about_accounts(tmp_path: Path) -> None:
    asked: list[tuple[User, AccessCheck]] = []

    def authorize(user: User, check: AccessCheck) -> tuple[bool, str]:
        asked.append((user, check))
        return user.name == "somebody", "because"

    validation = {
        "expression": (
            "authorizer.requestResource.check('create').reason() == 'because' && "
            "authorizer.serviceAccount('a', 'b').path('/x').check('get').allowed()"
        ),
        "message": "the account may not",
    }
    async with a_policy_service(tmp_path, authorize=authorize) as service:
        await configure(service, a_validating_policy(validation))
        assert "the account may not" in (await _refusal(service)).message
    (user, check), (account, path) = asked
    assert user == PERSON.user
    assert check == AccessCheck(verb="create", resource="configmaps", namespace="default", name="m")
    assert account.name == "system:serviceaccount:a:b"
    assert account.groups == ("system:serviceaccounts", "system:serviceaccounts:a")
    assert (path.verb, path.path) == ("get", "/x")


async def test_variables_are_computed_once_and_only_if_used(tmp_path: Path) -> None:
    asked: list[str] = []

    def authorize(user: User, check: AccessCheck) -> tuple[bool, str]:
        asked.append(check.verb)
        return True, ""

    def allowed(verb: str) -> str:
        return f"authorizer.requestResource.check('{verb}').allowed()"

    variables = [
        {"name": "used", "expression": allowed("get")},
        {"name": "unused", "expression": allowed("list")},
    ]
    async with a_policy_service(tmp_path, authorize=authorize) as service:
        policy = a_validating_policy("variables.used && variables.used", variables=variables)
        await configure(service, policy)
        await make(service)
    assert asked == ["get"]


async def test_budget_is_shared_by_all_validations(tmp_path: Path) -> None:
    expensive = "[1,2,3,4,5,6,7,8,9,10]"
    loops = f"{expensive}.all(a, {expensive}.all(b, {expensive}.all(c, {expensive}.all(d, true))))"
    async with a_policy_service(tmp_path) as service:
        await configure(service, a_validating_policy(*[f"{loops} && {loops}"] * 200))
        message = (await _refusal(service)).message
    assert "validation failed due to running out of cost budget" in message


async def test_expression_stops_at_its_own_limit(tmp_path: Path) -> None:
    check = "authorizer.requestResource.check('create').allowed()"
    async with a_policy_service(tmp_path) as service:
        await configure(service, a_validating_policy(f"{check} && {check} && {check}"))
        message = (await _refusal(service)).message
    assert message.endswith("resulted in error: operation cancelled: actual cost limit exceeded")


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        ({"name": "none", "parameterNotFoundAction": "Deny"}, "no params found"),
        ({"name": "none", "parameterNotFoundAction": "Allow"}, ""),
        ({"selector": {}, "parameterNotFoundAction": "Deny"}, "limit is 3"),
    ],
)
async def test_params_by_name_and_selector(tmp_path: Path, reference: Doc, text: str) -> None:
    async with a_policy_service(tmp_path) as service:
        await make(service, "limit", {"n": "3"})
        validation = {
            "expression": "object.metadata.name.size() < int(params.data.n)",
            "messageExpression": "'limit is ' + params.data.n",
        }
        policy = a_validating_policy(
            validation, paramKind=_PARAMS, matchConstraints=constraints("secrets")
        )
        await configure(service, policy, paramRef=reference)
        secrets = service.kinds.by_resource["secrets"]
        body = {"metadata": {"name": "long-name"}}
        if not text:
            await service.create(secrets, "default", body, PERSON)
            return
        with pytest.raises(ApiError, match=text):
            await service.create(secrets, "default", body, PERSON)


async def test_unknown_kind_of_params_denies_until_it_is_served(tmp_path: Path) -> None:
    async with a_policy_service(tmp_path) as service:
        kind = {"apiVersion": "x.dev/v1", "kind": "Limit"}
        reference = {"name": "a", "parameterNotFoundAction": "Allow"}
        policy = a_validating_policy("true", paramKind=kind)
        await configure(service, policy, paramRef=reference)
        assert (await _refusal(service)).message.endswith(
            "ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to "
            "find resource referenced by paramKind: 'x.dev/v1, Kind=Limit'"
        )


async def test_deletion_is_evaluated_with_the_stored_object(tmp_path: Path) -> None:
    async with a_policy_service(tmp_path) as service:
        rule = constraints()
        rule["resourceRules"][0]["operations"] = ["DELETE"]
        policy = a_validating_policy("!has(oldObject.metadata.labels)", matchConstraints=rule)
        await configure(service, policy)
        await make(service, "kept", labels={"a": "b"})
        await make(service, "free")
        await service.delete(CONFIGMAP, "default", "free", DeleteOptions())
        with pytest.raises(ApiError):
            await service.delete(CONFIGMAP, "default", "kept", DeleteOptions())


async def test_namespace_object_is_that_of_the_request(tmp_path: Path) -> None:
    async with a_policy_service(tmp_path) as service:
        await service.create(NAMESPACE, "", {"metadata": {"name": "prod"}}, PERSON)
        await configure(service, a_validating_policy("namespaceObject.metadata.name != 'prod'"))
        await make(service)
        with pytest.raises(ApiError):
            await service.create(CONFIGMAP, "prod", a_map("m"), PERSON)


async def test_policies_survive_a_restart(tmp_path: Path) -> None:
    async with a_policy_service(tmp_path) as service:
        await configure(service, a_validating_policy("false"))
        dynamic = service.admission.dynamic
        dynamic.reload()
        assert dynamic.active
        await _refusal(service)


async def test_dry_run_and_own_writes_are_evaluated(tmp_path: Path) -> None:
    async with a_policy_service(tmp_path) as service:
        await configure(service, a_validating_policy("!request.dryRun"))
        options = WriteOptions(PERSON.user, dry_run=True)
        with pytest.raises(ApiError):
            await service.create(CONFIGMAP, "default", a_map("m"), options)
        await service.create(CONFIGMAP, "default", a_map("m"), WriteOptions(trusted=True))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"validations": [{"expression": "1"}]},
         'spec.validations[0].expression: Invalid value: "1": must evaluate to bool but got int'),
        ({"validations": [{"expression": "true", "reason": "Gone"}]},
         'spec.validations[0].reason: Unsupported value: "Gone"'),
        ({"variables": [{"name": "in", "expression": "1"}]}, "must be a valid CEL identifier"),
        ({"matchConditions": [{"name": "a", "expression": "variables.x"}]},
         "undeclared reference to 'variables'"),
        ({"auditAnnotations": [{"key": "a", "valueExpression": "1"}]},
         "must evaluate to one of [string null_type] but got int"),
        ({"paramKind": {"apiVersion": "a/b/c", "kind": "K"}},
         "unexpected GroupVersion string: a/b/c"),
    ],
)  # fmt: skip
async def test_faulty_policy_is_refused(tmp_path: Path, spec: Doc, message: str) -> None:
    async with a_policy_service(tmp_path) as service:
        with pytest.raises(Invalid) as refusal:
            await configure(service, a_validating_policy("true", **spec))
        assert message in refusal.value.message
