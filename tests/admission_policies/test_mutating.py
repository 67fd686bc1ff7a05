"""Mutating admission policies: patches, their order, reinvocation and errors."""

from pathlib import Path

import pytest

from onejob.metrics import Metrics
from onejob.wire.errors import ApiError, Invalid
from tests.admission_policies.support import (
    Doc,
    a_mutating_policy,
    a_policy_service,
    applied,
    configure,
    constraints,
    make,
    patched,
)
from tests.api.service_support import PERSON, POD, a_pod, read

_SIZE = "Object{data: {'size': string(object.data.size())}}"


async def test_apply_configuration_merges_with_the_object(tmp_path: Path) -> None:
    expression = "Object{metadata: Object.metadata{labels: {'n': object.metadata.name}}}"
    async with a_policy_service(tmp_path) as service:
        await configure(service, a_mutating_policy(applied(expression)), mutating=True)
        made = await make(service, data={"a": "1"}, labels={"x": "y"})
    assert made["metadata"]["labels"] == {"x": "y", "n": "m"}
    assert made["data"] == {"a": "1"}


async def test_apply_configuration_merges_lists_by_key(tmp_path: Path) -> None:
    expression = (
        "Object{spec: Object.spec{containers: object.spec.containers.map(c, "
        "Object.spec.containers{name: c.name, env: "
        "[Object.spec.containers.env{name: 'B', value: '2'}]})}}"
    )
    async with a_policy_service(tmp_path) as service:
        policy = a_mutating_policy(applied(expression), matchConstraints=constraints("pods"))
        await configure(service, policy, mutating=True)
        outcome = await service.create(POD, "default", a_pod("p"), PERSON)
    (container,) = read(outcome.document)["spec"]["containers"]
    assert {"name": "B", "value": "2"} in container["env"]
    assert container["image"]


async def test_json_patch_operations_apply_in_order(tmp_path: Path) -> None:
    expression = (
        "[JSONPatch{op: 'add', path: '/data/b', value: request.operation}, "
        "JSONPatch{op: 'copy', from: '/data/b', path: '/data/c'}, "
        "JSONPatch{op: 'add', path: '/metadata/annotations', value: {'k.io/a': 'b'}}, "
        "JSONPatch{op: 'remove', path: '/metadata/annotations/' + jsonpatch.escapeKey('k.io/a')}]"
    )
    async with a_policy_service(tmp_path) as service:
        await configure(service, a_mutating_policy(patched(expression)), mutating=True)
        made = await make(service, data={"a": "1"})
    assert made["data"] == {"a": "1", "b": "CREATE", "c": "CREATE"}
    assert not made["metadata"].get("annotations")


async def test_json_patch_with_a_failed_test_changes_nothing(tmp_path: Path) -> None:
    expression = (
        "[JSONPatch{op: 'test', path: '/data/a', value: '2'}, "
        "JSONPatch{op: 'remove', path: '/data'}]"
    )
    async with a_policy_service(tmp_path) as service:
        await configure(service, a_mutating_policy(patched(expression)), mutating=True)
        assert (await make(service, data={"a": "1"}))["data"] == {"a": "1"}


async def test_each_mutation_gets_the_result_of_the_last(tmp_path: Path) -> None:
    mutations = (applied("Object{data: {'b': '2'}}"), applied(_SIZE))
    async with a_policy_service(tmp_path) as service:
        await configure(service, a_mutating_policy(*mutations), mutating=True)
        assert (await make(service, data={"a": "1"}))["data"]["size"] == "2"


async def test_policy_is_reinvoked_after_changes_by_later_policies(tmp_path: Path) -> None:
    metrics = Metrics()
    async with a_policy_service(tmp_path, metrics) as service:
        first = a_mutating_policy(applied(_SIZE), name="a", reinvocationPolicy="IfNeeded")
        await configure(service, first, mutating=True)
        second = a_mutating_policy(applied("Object{data: {'b': '2'}}"), name="b")
        await configure(service, second, mutating=True)
        made = await make(service, data={"a": "1"})
        # It counts itself and the value of the second policy.
        assert made["data"] == {"a": "1", "b": "2", "size": "3"}
    counts = [
        metrics.mutating_policy_checks.value(
            policy=name, policy_binding=f"{name}-binding", error_type="no_error"
        )
        for name in ("a", "b")
    ]
    assert counts == [2, 1]


async def test_mutations_apply_to_updates_and_own_conditions(tmp_path: Path) -> None:
    condition = {"name": "updates", "expression": "request.operation == 'UPDATE'"}
    async with a_policy_service(tmp_path) as service:
        policy = a_mutating_policy(applied(_SIZE), matchConditions=[condition])
        await configure(service, policy, mutating=True)
        made = await make(service, data={"a": "1"})
        assert made["data"] == {"a": "1"}
        kind = service.kinds.by_resource["configmaps"]
        made["data"]["b"] = "2"
        outcome = await service.update(kind, "default", "m", made, PERSON)
        assert read(outcome.document)["data"] == {"a": "1", "b": "2", "size": "2"}


@pytest.mark.parametrize(
    ("mutation", "text"),
    [
        (applied("Object{data: {'b': object.nothing}}"), "no such key: nothing"),
        (applied("Object{metadata: Object.spec{labels: {'a': 'b'}}}"),
         'type mismatch: unexpected type name "Object.spec", expected "Object.metadata"'),
        (applied("Object{wrong: 'a'}"),
         "failed to convert patch object to typed object: .wrong: field not declared in schema"),
        (patched("[JSONPatch{op: 'remove', path: '/data/none'}]"), "JSON Patch: "),
    ],
)  # fmt: skip
async def test_failed_mutation_denies_unless_failures_are_ignored(
    tmp_path: Path, mutation: Doc, text: str
) -> None:
    async with a_policy_service(tmp_path) as service:
        await configure(service, a_mutating_policy(mutation), mutating=True)
        with pytest.raises(ApiError) as refusal:
            await make(service, data={"a": "1"})
        head = "policy 'p' with binding 'p-binding' denied request: "
        assert refusal.value.message.startswith(head)
        assert text in refusal.value.message
        assert (refusal.value.code, refusal.value.reason) == (403, "Invalid")
    ignoring = tmp_path / "ignoring"
    ignoring.mkdir()
    async with a_policy_service(ignoring) as service:
        policy = a_mutating_policy(mutation, failurePolicy="Ignore")
        await configure(service, policy, mutating=True)
        assert (await make(service, data={"a": "1"}))["data"] == {"a": "1"}


async def test_atomic_list_in_apply_configuration_is_refused(tmp_path: Path) -> None:
    expression = (
        "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'c', args: ['y']}]}}"
    )
    async with a_policy_service(tmp_path) as service:
        policy = a_mutating_policy(applied(expression), matchConstraints=constraints("pods"))
        await configure(service, policy, mutating=True)
        with pytest.raises(
            ApiError, match="may not mutate atomic arrays, maps or structs"
        ) as found:
            await service.create(POD, "default", a_pod("p"), PERSON)
    assert found.value.message.endswith(": .spec.containers[0].args")


async def test_mutated_object_is_validated(tmp_path: Path) -> None:
    expression = "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'a b': ''}}]"
    async with a_policy_service(tmp_path) as service:
        await configure(service, a_mutating_policy(patched(expression)), mutating=True)
        with pytest.raises(Invalid, match=r"metadata\.labels"):
            await make(service)
