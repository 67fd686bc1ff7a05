from typing import Any

import pytest

from onejob.api.schema.comparing import semantically_equal
from onejob.api.schema.schema import load_schema

POD = load_schema().kind("v1", "Pod")


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ({}, {"a": None}, True),
        ({}, {"a": {}}, True),
        ({}, {"a": []}, True),
        ({"a": None}, {"a": []}, True),
        ({"a": {"b": {}}}, {}, False),
        ({"a": {"b": {}}}, {"a": {}}, True),
        ({"a": 0}, {}, False),
        ({"a": ""}, {}, False),
        ({"a": False}, {}, False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": [1, 2]}, {"a": [2, 1]}, False),
        ({"a": [1]}, {"a": [1, 2]}, False),
        ({"a": [{}]}, {"a": [{"b": None}]}, True),
        ({"a": "x"}, {"a": "x"}, True),
        ({"a": "x"}, {"a": ["x"]}, False),
    ],
)
def test_missing_null_and_empty_mean_the_same(a: Any, b: Any, same: bool) -> None:
    assert semantically_equal(a, b) is same
    assert semantically_equal(b, a) is same


def limits(cpu: Any) -> Any:
    return {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": cpu}}}]}}


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [("0.5", "500m", True), ("1", 1, True), ("1", "2", False), ("odd", "1", False)],
)
def test_quantities_compare_by_value_where_the_type_is_known(a: Any, b: Any, same: bool) -> None:
    assert semantically_equal(limits(a), limits(b), POD) is same


def test_text_that_looks_like_a_quantity_compares_as_text() -> None:
    assert not semantically_equal(
        {"metadata": {"labels": {"a": "0.5"}}}, {"metadata": {"labels": {"a": "500m"}}}, POD
    )
    assert not semantically_equal(limits("0.5"), limits("500m"))
