"""Validation of names, labels and selectors, with the exact error messages."""

from collections.abc import Callable, Sequence
from random import Random
from uuid import UUID

import pytest

from onejob.api.writing.metadata import new_uid
from onejob.wire.field_errors import FieldError
from onejob.wire.labels import validate_annotations, validate_label_selector, validate_labels
from onejob.wire.names import (
    as_prefix,
    config_key_errors,
    label_errors,
    label_value_errors,
    port_name_errors,
    qualified_name_errors,
    subdomain_errors,
)

ENDS = "and must start and end with an alphanumeric character"
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    f"{ENDS} (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    f"'.', {ENDS} (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
QUALIFIED = (
    f"must consist of alphanumeric characters, '-', '_' or '.', {ENDS} (e.g. 'MyName',  or "
    "'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    f"'.', {ENDS} (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


@pytest.mark.parametrize(
    ("rule", "text", "errors"),
    [
        (subdomain_errors, "a.b-c.1", []),
        (subdomain_errors, "a" * 253, []),
        (subdomain_errors, "a" * 254, ["must be no more than 253 characters"]),
        (subdomain_errors, "a..b", [SUBDOMAIN]),
        (subdomain_errors, "A", [SUBDOMAIN]),
        (subdomain_errors, "a\n", [SUBDOMAIN]),
        (subdomain_errors, "", [SUBDOMAIN]),
        (label_errors, "a-1", []),
        (label_errors, "a.b", ["must not contain dots"]),
        (label_errors, "-a", [LABEL]),
        (label_errors, "a" * 64, ["must be no more than 63 characters"]),
        (qualified_name_errors, "My_name.x", []),
        (qualified_name_errors, "example.com/Name", []),
        (qualified_name_errors, "", ["name part must be non-empty", f"name part {QUALIFIED}"]),
        (qualified_name_errors, "/a", ["prefix part must be non-empty"]),
        (qualified_name_errors, "UP/a", [f"prefix part {SUBDOMAIN}"]),
        (qualified_name_errors, "a" * 64, ["name part must be no more than 63 bytes"]),
        (
            qualified_name_errors,
            "a/b/c",
            [
                f"a valid label key {QUALIFIED} with an optional DNS subdomain prefix and '/' "
                "(e.g. 'example.com/MyName')"
            ],
        ),
        (label_value_errors, "", []),
        (label_value_errors, "a_B.1", []),
        (label_value_errors, "a b", [VALUE]),
        (label_value_errors, "ä", [VALUE]),
        (label_value_errors, "a" * 64, ["must be no more than 63 bytes"]),
        (config_key_errors, "..data", ["must not start with '..'"]),
        (port_name_errors, "web-1", []),
        (
            port_name_errors,
            "-8--0",
            [
                "must contain at least one letter (a-z)",
                "must not contain consecutive hyphens",
                "must not begin or end with a hyphen",
            ],
        ),
        (port_name_errors, "a" * 16, ["must be no more than 15 characters"]),
    ],
)
def test_rules_of_names(rule: Callable[[str], Sequence[str]], text: str, errors: list[str]) -> None:
    assert list(rule(text)) == errors


def test_a_prefix_may_end_in_a_dash() -> None:
    assert subdomain_errors(as_prefix("job-")) == []
    assert subdomain_errors(as_prefix("-")) != []


def texts(errors: list[FieldError]) -> list[str]:
    return [str(error) for error in errors]


def test_errors_of_labels_show_the_key_or_the_value() -> None:
    assert texts(validate_labels({"a b": "c d"}, "p")) == [
        f'p: Invalid value: "a b": name part {QUALIFIED}',
        f'p: Invalid value: "c d": {VALUE}',
    ]


def test_keys_of_annotations_may_be_upper_case_and_values_anything() -> None:
    assert validate_annotations({"EXAMPLE.com/x": "any thing"}, "p") == []


def test_annotations_are_measured_in_bytes() -> None:
    assert validate_annotations({"a": "ä" * 131_071}, "p") == []
    assert texts(validate_annotations({"a": "ä" * 131_072}, "p")) == [
        "p: Too long: may not be more than 262144 bytes"
    ]


def test_selector_requirements_are_validated_by_operator() -> None:
    expressions = [
        {"key": "a", "operator": "In"},
        {"key": "a", "operator": "Exists", "values": ["x"]},
        {"key": "a", "operator": "Gt", "values": ["1"]},
        {"key": "a", "operator": "NotIn", "values": ["not ok"]},
    ]
    assert texts(validate_label_selector({"matchExpressions": expressions}, "s")) == [
        "s.matchExpressions[0].values: Required value: "
        "must be specified when `operator` is 'In' or 'NotIn'",
        "s.matchExpressions[1].values: Forbidden: "
        "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        's.matchExpressions[2].operator: Invalid value: "Gt": not a valid selector operator',
        f's.matchExpressions[3].values[0]: Invalid value: "not ok": {VALUE}',
    ]
    stored = {"matchExpressions": expressions[3:]}
    assert validate_label_selector(stored, "s", tolerate_bad_values=True) == []


def test_uids_match_format_of_uuid_module() -> None:
    for seed in range(100):
        expected = str(UUID(int=Random(seed).getrandbits(128), version=4))
        assert new_uid(Random(seed)) == expected
