"""Admission policies that are expensive, deep, huge or contradictory."""

from pathlib import Path

import pytest

from onejob.wire.errors import ApiError, Invalid
from tests.admission_policies.support import (
    a_mutating_policy,
    a_policy_service,
    a_validating_policy,
    applied,
    configure,
    make,
    patched,
)

_TEN = "[1,2,3,4,5,6,7,8,9,10]"


async def test_endless_loops_end_at_the_cost_limit(tmp_path: Path) -> None:
    expression = "true"
    for name in "abcdefghijkl":
        expression = f"{_TEN}.all({name}, {expression})"
    async with a_policy_service(tmp_path) as service:
        await configure(service, a_validating_policy(expression))
        with pytest.raises(ApiError, match="actual cost limit exceeded"):
            await make(service)


async def test_growing_text_of_variables_ends_at_the_cost_limit(tmp_path: Path) -> None:
    variables = [{"name": "v0", "expression": "'x'"}]
    for index in range(1, 40):
        previous = f"variables.v{index - 1}"
        variables.append({"name": f"v{index}", "expression": f"{previous} + {previous}"})
    async with a_policy_service(tmp_path) as service:
        policy = a_validating_policy("variables.v39 == ''", variables=variables)
        await configure(service, policy)
        with pytest.raises(ApiError, match="cost"):
            await make(service)


@pytest.mark.parametrize("depth", [60, 3000])
async def test_deep_expressions_are_refused(tmp_path: Path, depth: int) -> None:
    async with a_policy_service(tmp_path) as service:
        with pytest.raises(Invalid, match="recursion limit exceeded"):
            await configure(service, a_validating_policy("(" * depth + "true" + ")" * depth))
        deep = "Object{a: " * depth + "Object{}" + "}" * depth
        with pytest.raises(Invalid, match="recursion limit exceeded"):
            await configure(service, a_mutating_policy(applied(deep)), mutating=True)


async def test_mutation_cannot_rename_or_move_an_object(tmp_path: Path) -> None:
    for index, field in enumerate(("namespace", "kind")):
        path = "/metadata/namespace" if field == "namespace" else "/kind"
        expression = f"[JSONPatch{{op: 'add', path: '{path}', value: 'Other'}}]"
        folder = tmp_path / str(index)
        folder.mkdir()
        async with a_policy_service(folder) as service:
            await configure(service, a_mutating_policy(patched(expression)), mutating=True)
            with pytest.raises(ApiError):
                await make(service)


async def test_mutation_by_a_huge_value_is_refused_by_size(tmp_path: Path) -> None:
    variables = [{"name": "v0", "expression": "'xxxxxxxxxxxxxxxx'"}]
    for index in range(1, 17):
        previous = f"variables.v{index - 1}"
        variables.append({"name": f"v{index}", "expression": f"{previous} + {previous}"})
    expression = "Object{data: {'a': variables.v16, 'b': variables.v16}}"
    async with a_policy_service(tmp_path) as service:
        policy = a_mutating_policy(applied(expression), variables=variables)
        await configure(service, policy, mutating=True)
        with pytest.raises(ApiError, match=r"too large|Too long|must have at most"):
            await make(service)


async def test_policies_that_deny_everything_can_be_removed(tmp_path: Path) -> None:
    async with a_policy_service(tmp_path) as service:
        rule = {
            "operations": ["*"],
            "apiGroups": ["*"],
            "apiVersions": ["*"],
            "resources": ["*/*"],
        }
        policy = a_validating_policy("false", matchConstraints={"resourceRules": [rule]})
        await configure(service, policy)
        with pytest.raises(ApiError):
            await make(service)
        # A second policy can still be created beside it.
        await configure(service, a_validating_policy("true", name="other"))
