"""Warnings about fields without effect: each rule, and the values that need none."""

from typing import Any

import pytest

from onejob.planning.pod.without_effect import RULES, Rule, without_effect

_VALUES: dict[str, Any] = {
    "hostUsers": False,
    "affinity.podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]},
    "affinity.podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]},
}


def nested(path: str, value: Any) -> dict[str, Any]:
    """Return the smallest document with this value at a path."""
    for name in reversed(path.split(".")):
        field = name.removesuffix("[]")
        value = {field: value} if field == name else {field: [value]}
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.path)
def test_a_field_without_effect_is_named_with_its_reason(rule: Rule) -> None:
    spec = nested(rule.path, _VALUES.get(rule.path, "something"))
    shown = rule.path.replace("[]", "[0]")
    for runtime in ("process", "podman"):
        expected = [f"{shown}: has no effect: {rule.why}"] if runtime in rule.runtimes else []
        assert without_effect(spec, runtime) == expected
    for value in rule.harmless:
        assert without_effect(nested(rule.path, value), "process") == []


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"volumes": [{"emptyDir": {"sizeLimit": "1Gi", "medium": "Memory"}}]},
        {"hostNetwork": True, "containers": [{"ports": [{"hostPort": 80}]}]},
        {
            "affinity": {
                "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}
            }
        },
        {"containers": "no list", "volumes": [None], "affinity": None},
    ],
)
def test_supported_or_malformed_fields_are_not_warned_about(spec: dict[str, Any]) -> None:
    assert without_effect(spec, "podman") == []
