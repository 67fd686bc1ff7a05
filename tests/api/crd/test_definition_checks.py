"""Invalid CustomResourceDefinitions: upstream's error codes and messages, in bounded time."""

# Messages are upstream's, one row each.
# ruff: noqa: E501

from typing import Any

import pytest

from onejob.api.crd.definition_checks import check_definition
from onejob.api.crd.definitions import DefinitionStrategy
from onejob.api.crd.structural import RULES
from onejob.wire.kinds import BY_RESOURCE
from tests.api.crd.build import a_definition, a_version, text, thing

STRATEGY = DefinitionStrategy(BY_RESOURCE["customresourcedefinitions.apiextensions.k8s.io"])
AT = "spec.validation.openAPIV3Schema.properties[spec]"


def errors_of(definition: dict[str, Any]) -> list[str]:
    STRATEGY.default(definition)
    STRATEGY.prepare_create(definition)
    return [str(error) for error in check_definition(definition)]


def test_a_plain_definition_is_accepted_with_defaults() -> None:
    definition = a_definition(names={"kind": "Widget", "plural": "widgets"})
    assert errors_of(definition) == []
    assert definition["spec"]["names"]["singular"] == "widget"
    assert definition["spec"]["names"]["listKind"] == "WidgetList"
    assert definition["spec"]["conversion"] == {"strategy": "None"}
    assert definition["status"]["storedVersions"] == ["v1"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"x": {}}, f"{AT}.properties[x].type: Required value: must not be empty for specified object fields"),
        ({"x": {"type": "array"}}, f"{AT}.properties[x].items: Required value: must be specified"),
        ({"x": {"type": "sting"}}, f'{AT}.properties[x].type: Unsupported value: "sting": supported values: '
         '"array", "boolean", "integer", "number", "object", "string"'),
        ({"x": text(pattern="a(")},
         f'{AT}.properties[x].pattern: Invalid value: "a(": must be a valid regular expression, but isn\'t: '
         "error parsing regexp: missing closing ): `a(`"),
        ({"x": text(pattern="a{2000}")},
         f'{AT}.properties[x].pattern: Invalid value: "a{{2000}}": must be a valid regular expression, but '
         "isn't: error parsing regexp: invalid repeat count: `{2000}`"),
        ({"x": {"type": "array", "items": [text()]}},
         f"{AT}.properties[x].items: Forbidden: items must be a schema object and not an array"),
        ({"x": {"$ref": "#/definitions/y"}}, f"{AT}.properties[x].$ref: Forbidden: $ref is not supported"),
        ({"x": text(anyOf=[{"type": "integer"}])},
         f"{AT}.properties[x].anyOf[0].type: Forbidden: must be empty to be structural"),
        ({"x": text(default=5)},
         f'{AT}.properties[x].default: Invalid value: "integer":  in body must be of type string: "integer"'),
        ({"x": thing({"a": text()}, default={"a": 1})},
         f'{AT}.properties[x].default.a: Invalid value: "integer": a in body must be of type string: "integer"'),
        ({"x": text(default="b", maxLength=9, **{RULES: [{"rule": "self == 'a'"}]})},
         f"{AT}.properties[x].default: Invalid value: \"b\": failed rule: self == 'a'"),
        ({"x": thing({"a": text()}, default={"b": "c"})},
         f'{AT}.properties[x].default: Invalid value: {{"b":"c"}}: must not have unknown fields'),
        ({"x": thing({"a": text()}, additionalProperties=text())},
         f"{AT}.properties[x].additionalProperties: Forbidden: additionalProperties and properties are "
         "mutual exclusive"),
        ({"x": {"type": "array", "items": text(), "uniqueItems": True}},
         f"{AT}.properties[x].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime "
         "complexity becomes quadratic"),
        ({"x": {"type": "array", "x-kubernetes-list-type": "map", "items": thing({"k": text()})}},
         f"{AT}.properties[x].x-kubernetes-list-map-keys: Required value: must not be empty if "
         "x-kubernetes-list-type is map"),
        ({"x": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": thing({"k": text()})}},
         f"{AT}.properties[x].items.properties[k].default: Required value: this property is in "
         "x-kubernetes-list-map-keys, so it must have a default or be a required property"),
    ],
)  # fmt: skip
def test_schemas_that_cannot_be_are_refused(spec: dict[str, Any], expected: str) -> None:
    assert errors_of(a_definition(a_version(thing(spec)))) == [expected]


def test_errors_common_to_all_versions_are_reported_once() -> None:
    """Upstream reports errors of all versions there."""
    version = {
        **a_version(thing({"x": {"type": "sting"}})),
        "subresources": {"scale": {"specReplicasPath": ".x", "statusReplicasPath": ".status.x"}},
        "additionalPrinterColumns": [
            {"name": "A", "type": "string", "jsonPath": ".a", "format": "uri"}
        ],
        "selectableFields": [{"jsonPath": ".b"}, {"jsonPath": "b"}],
    }
    second = {**version, "name": "v2", "storage": False}
    fields = ["type", "scale.specReplicasPath", "format", "jsonPath", "jsonPath"]
    shared = [error.split(": ")[0] for error in errors_of(a_definition(version, second))]
    assert [field.endswith(fields[index]) for index, field in enumerate(shared)] == [True] * 5
    assert [field.split(".")[1] for field in shared] == [
        "validation", "subresources", "additionalPrinterColumns[0]", "selectableFields[0]",
        "selectableFields[1]",
    ]  # fmt: skip
    second = {
        key: value for key, value in second.items() if key not in ("selectableFields", "schema")
    }
    other = {**second, "schema": {"openAPIV3Schema": {"type": "object"}}}
    found = [error.split(": ")[0] for error in errors_of(a_definition(version, other))]
    assert (
        f"spec.versions[0].schema.openAPIV3Schema.{AT.split('.')[-1]}.properties[x].type" in found
    )
    assert "spec.versions[0].selectableFields[0].jsonPath" in found


def test_ineffective_schema_fields_are_warned_about() -> None:
    schema = thing({
        "a": text(format="bogus"), "b": {"type": "integer", "format": "int33"},
        "c": text(format="date-time"), "d": {"type": "integer", "format": "int32"}, "e": text(format="isbn"),
        "f": {"type": "array", "x-kubernetes-list-type": "set",
              "items": {"type": "object", "x-kubernetes-map-type": "atomic"}},
    })  # fmt: skip
    old = a_definition(a_version(schema))
    assert sorted(STRATEGY.warnings_on_create(old)) == [
        'unrecognized format "bogus"',
        'unrecognized format "int33"',
        'x-kubernetes-list-type: set for items of type "object" is not supported by server-side apply or CEL '
        "validation rules",
    ]
    new = a_definition(a_version(thing({"a": text(format="bogus"), "b": text(format="other")})))
    assert STRATEGY.warnings_on_update(new, old) == ['unrecognized format "other"']
    assert STRATEGY.warnings_on_update(old, old) == []


def test_only_at_the_root_alternatives_must_be_described_outside_of_them() -> None:
    alternatives = {"oneOf": [{"properties": {"y": {"minLength": 1}}}]}
    assert errors_of(a_definition(a_version(thing({}, **alternatives)))) == []
    root = "spec.validation.openAPIV3Schema"
    assert errors_of(a_definition(a_version(root=alternatives))) == [
        f"{root}.properties[y]: Required value: because it is defined in {root}.oneOf[0].properties[y]"
    ]


def test_a_type_of_null_is_refused_twice() -> None:
    found = errors_of(a_definition(a_version(thing({"x": {"type": "null"}}))))
    assert [error.split(": ")[1] for error in found] == ["Unsupported value", "Forbidden"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"group": "batch"}, 'spec.group: Invalid value: "batch": should be a domain with at least one dot'),
        ({"scope": "Everywhere"},
         'spec.scope: Unsupported value: "Everywhere": supported values: "Cluster", "Namespaced"'),
        ({"group": "foo.k8s.io"},
         "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval "
         'annotation "api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111'),
        ({"versions": [a_version(storage=False)]},
         "spec.versions: Invalid value: must have exactly one version marked as storage version"),
        ({"versions": [a_version(name="1v")]},
         'spec.versions[0].name: Invalid value: "1v": a DNS-1035 label must consist of lower case alphanumeric '
         "characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. "
         "'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"),
        ({"preserveUnknownFields": True},
         "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set "
         "x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"),
        ({"conversion": {"strategy": "Webhook"}},
         "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook"),
    ],
)  # fmt: skip
def test_definitions_that_cannot_be_are_refused(changes: dict[str, Any], expected: str) -> None:
    assert errors_of(a_definition(**changes))[0] == expected


def rules(*texts: str, **more: Any) -> dict[str, Any]:
    return {"x-kubernetes-validations": [{"rule": text, **more} for text in texts]}


def test_rules_must_type() -> None:
    schema = thing({"size": {"type": "integer"}}, **rules("self.size > 'a'", "self.size"))
    first, second = errors_of(a_definition(a_version(schema)))
    assert first.startswith(f"{AT}.x-kubernetes-validations[0].rule: Invalid value:")
    assert "found no matching overload for '_>_' applied to '(int, string)'" in first
    assert second == (
        f'{AT}.x-kubernetes-validations[1].rule: Invalid value: {{"Rule":"self.size","Message":"",'
        '"MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: cel expression must '
        "evaluate to a bool"
    )
    assert '{"Rule":"self.size \\u003e \'a\'",' in first


def test_rules_that_may_cost_too_much_are_refused() -> None:
    items = {"type": "array", "items": {"type": "array", "items": text()}}
    [error, *_] = errors_of(
        a_definition(
            a_version(thing({"x": {**items, **rules("self.all(a, self.all(b, a == b))")}}))
        )
    )
    assert error.startswith(
        f"{AT}.properties[x].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost "
        "exceeds budget by factor of more than 100x"
    )


def test_old_values_must_be_comparable() -> None:
    item = text(maxLength=9, **rules("self == oldSelf"))
    schema = {"type": "array", "maxItems": 9, "items": item}
    [error] = errors_of(a_definition(a_version(thing({"x": schema}))))
    assert error.endswith(
        f"oldSelf cannot be used on the uncorrelatable portion of the schema within {AT}.properties[x]"
    )


def test_a_schema_of_any_depth_is_refused_in_bounded_time() -> None:
    schema: dict[str, Any] = text()
    for _ in range(5000):
        schema = thing({"a": schema})
    assert errors_of(a_definition(a_version(schema))) == [
        "spec.validation.openAPIV3Schema: Forbidden: schemas may not be nested deeper "
        "than 64 levels"
    ]


@pytest.mark.parametrize(
    ("path", "is_valid"),
    [
        (".size", True),
        ("['size']", True),
        (".labels.any", True),
        (".labels['with.dots']", True),
        (".nested.deep", True),
        (".nested['dee\\p']", True),
        (".other", False),
        (".nested.other", False),
        (".size.deeper", False),
        ("size", False),
        (".list[0]", False),
        (".nested.", False),
        (".nested..deep", False),
        ("['size'", False),
        ("[size]", False),
    ],
)
def test_the_field_of_a_rule_is_one_of_the_schema(path: str, is_valid: bool) -> None:
    properties = {
        "size": {"type": "integer"},
        "labels": {"type": "object", "additionalProperties": text()},
        "nested": thing({"deep": text()}),
        "list": {"type": "array", "items": text()},
    }
    rule = {"rule": "self.size > 0", "fieldPath": path}
    found = errors_of(a_definition(a_version(thing(properties, **{RULES: [rule]}))))
    place = f"{AT}.{RULES}[0].fieldPath"
    assert found == (
        [] if is_valid else [f'{place}: Invalid value: "{path}": must be a valid path']
    )
