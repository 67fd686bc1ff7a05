"""Type checks of policies, and their results in the status."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.admission_policies.type_checking import check_types
from onejob.api.schema.schema import load_schema
from onejob.client.base import Create, Patch, Selection
from onejob.control_plane import ControlPlane, Settings
from onejob.objects.meta import Key
from onejob.wire.errors import ApiError
from onejob.wire.registry import KindRegistry
from tests.admission_policies.support import (
    GROUP,
    a_policy_service,
    a_validating_policy,
    constraints,
)
from tests.api.crd.build import a_definition, a_version, text, thing


def _texts(*expressions: str, **spec: Any) -> list[tuple[str, str]]:
    policy = a_validating_policy(*expressions, **spec)
    warnings = check_types(policy["spec"], KindRegistry(), load_schema().for_server())
    return [(warning.field, warning.text) for warning in warnings]


def test_check_types_names_the_kind_and_the_position() -> None:
    assert _texts("object.spec.x == 1") == [
        (
            "spec.validations[0].expression",
            "/v1, Kind=ConfigMap: ERROR: <input>:1:7: undefined field 'spec'\n"
            " | object.spec.x == 1\n | ......^\n",
        )
    ]


@pytest.mark.parametrize(
    ("expression", "resource", "fault"),
    [
        ("object.data.all(k, object.data[k] != '')", "configmaps", ""),
        ("object.metadata.name == 1", "configmaps", "no matching overload for '_==_'"),
        ("object.metadata.creationTimestamp < timestamp('2020-01-01T00:00:00Z')", "pods", ""),
        ("object.spec.ports.all(p, p.targetPort == 'a' || p.targetPort == 1)", "services", ""),
        ("object.spec.wrong == 1", "*", ""),
        ("object.spec.wrong == 1", "pods/status", ""),
        ("object.spec.wrong == 1", "unknowns", ""),
        ("authorizer.path('/').check('get').allowed()", "pods", ""),
        ("namespaceObject.metadata.labels == object.metadata.labels", "pods", ""),
    ],
)
def test_check_types_compares_with_the_schema(expression: str, resource: str, fault: str) -> None:
    texts = _texts(expression, matchConstraints=constraints(resource))
    assert fault in texts[0][1] if fault else not texts


def test_check_types_knows_params_and_variables() -> None:
    variables = [{"name": "name", "expression": "object.metadata.name"}]
    params = {"apiVersion": "v1", "kind": "ConfigMap"}
    texts = _texts(
        "variables.name == params.data.x",
        "variables.name == 1",
        "params.wrong == 1",
        variables=variables,
        paramKind=params,
    )
    assert [place for place, _ in texts] == [
        "spec.validations[1].expression",
        "spec.validations[2].expression",
    ]


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("object.spec.replicas > 1", ""),
        ("object.spec.cronSpec != '' && oldObject.spec.image.startsWith('registry/')", ""),
        ("object.spec.schedule.start < timestamp('2020-01-01T00:00:00Z')", ""),
        ("object.spec.schedule.days.all(day, day.weight < 1.5 && day.labels['a'] == 'b')", ""),
        ("object.spec.budget == '10%' || object.spec.budget == 1", ""),
        ("object.metadata.labels['a'] == object.metadata.ownerReferences[0].kind", ""),
        ("object.spec.template.metadata.labels['a'] == object.spec.template.apiVersion", ""),
        ("object.spec.replicas > params.spec.replicas", ""),
        ("object.spec.replicas > '1'", "no matching overload for '_>_' applied to '(int, string)'"),
        ("object.spec.maxRetries < 10", "undefined field 'maxRetries'"),
        ("object.spec.schedule.end == ''", "undefined field 'end'"),
        ("object.spec.open.anything == 1", "undefined field 'anything'"),
        ("object.spec.template.metadata.wrong == 1", "undefined field 'wrong'"),
        ("params.spec.maxRetries < 10", "undefined field 'maxRetries'"),
        ("object.spec.schedule == object.spec.open", "no matching overload for '_==_'"),
    ],
)
async def test_check_types_uses_the_schema_of_a_definition(
    tmp_path: Path, expression: str, fault: str
) -> None:
    day = thing(
        {
            "weight": {"type": "number"},
            "labels": {"type": "object", "additionalProperties": text()},
        },
    )
    schedule = thing(
        {"start": text(format="date-time"), "days": {"type": "array", "items": day}},
    )
    spec = thing(
        {
            "cronSpec": text(),
            "image": text(),
            "replicas": {"type": "integer"},
            "budget": {"x-kubernetes-int-or-string": True},
            "schedule": schedule,
            "open": thing({}, **{"x-kubernetes-preserve-unknown-fields": True}),
            "template": thing({}, **{"x-kubernetes-embedded-resource": True}),
        }
    )
    definition = a_definition(a_version(spec))
    definition["metadata"]["uid"] = "u"
    rule = {
        "operations": ["CREATE"], "apiGroups": ["example.com"], "apiVersions": ["v1"],
        "resources": ["widgets"],
    }  # fmt: skip
    policy = a_validating_policy(
        expression,
        matchConstraints={"resourceRules": [rule]},
        paramKind={"apiVersion": "example.com/v1", "kind": "Widget"},
    )
    async with a_policy_service(tmp_path) as service:
        service.definitions.install(definition)
        warnings = check_types(policy["spec"], service.kinds, service.schema)
    texts = [warning.text for warning in warnings]
    if fault:
        assert texts[0].startswith("example.com/v1, Kind=Widget: ERROR: ")
        assert fault in texts[0]
    else:
        assert texts == []


_POLICIES = f"validatingadmissionpolicies.{GROUP}"
_KEY = Key(_POLICIES, "", "p")


async def _checked(plane: ControlPlane, generation: int) -> dict[str, Any]:
    """Return the policy's status, once it is of a generation of the spec."""
    page = await plane.client.list(Selection(_POLICIES))
    found = [msgspec.json.decode(document) for document in page.documents]
    watch = plane.client.watch(Selection(_POLICIES), after=page.revision)
    try:
        while True:
            for document in found:
                status: dict[str, Any] = document.get("status") or {}
                if status.get("observedGeneration") == generation:
                    return status
            found = [msgspec.json.decode(event.document) for event in await anext(watch)]
    finally:
        await watch.aclose()


async def test_status_follows_the_spec_and_policies_outlive_a_restart(tmp_path: Path) -> None:
    settings = Settings(tmp_path, with_node=False)
    plane = await ControlPlane.start(settings)
    try:
        policy = {
            "apiVersion": f"{GROUP}/v1",
            "kind": "ValidatingAdmissionPolicy",
            **a_validating_policy("object.spec.x == 1", failurePolicy="Fail"),
        }
        await plane.client.write(Create(_POLICIES, "", msgspec.json.encode(policy)))
        warnings = (await _checked(plane, 1))["typeChecking"]["expressionWarnings"]
        assert [warning["fieldRef"] for warning in warnings] == ["spec.validations[0].expression"]
        change = {"spec": {"validations": [{"expression": "object.metadata.name != 'refused'"}]}}
        await plane.client.write(Patch(_KEY, msgspec.json.encode(change), "merge"))
        assert (await _checked(plane, 2))["typeChecking"] == {}
        binding = {
            "apiVersion": f"{GROUP}/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "b"},
            "spec": {"policyName": "p", "validationActions": ["Deny"]},
        }
        bindings = f"validatingadmissionpolicybindings.{GROUP}"
        await plane.client.write(Create(bindings, "", msgspec.json.encode(binding)))
    finally:
        await plane.stop()
    plane = await ControlPlane.start(settings)
    try:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "refused"}}
        with pytest.raises(ApiError, match="failed expression"):
            await plane.client.write(Create("configmaps", "default", msgspec.json.encode(body)))
    finally:
        await plane.stop()
