import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onejob.api.writing.patching import MAX_OPERATIONS, PatchFailed, json_patch, merge_patch
from onejob.wire.errors import BadRequest


@pytest.mark.parametrize(
    ("doc", "patch", "expected"),
    [
        # The cases of RFC 7386, as far as both sides are objects.
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"a": 5}, {"a": {"b": 1}}, {"a": {"b": 1}}),
    ],
)
def test_merge_patch(doc: Any, patch: Any, expected: Any) -> None:
    assert merge_patch(doc, patch) == expected


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([{"op": "add", "path": "/c", "value": 1}], {"a": {"b": [1, 2]}, "c": 1}),
        ([{"op": "add", "path": "/a/b/0", "value": 0}], {"a": {"b": [0, 1, 2]}}),
        ([{"op": "add", "path": "/a/b/-", "value": 3}], {"a": {"b": [1, 2, 3]}}),
        ([{"op": "add", "path": "/a/b/2", "value": 3}], {"a": {"b": [1, 2, 3]}}),
        ([{"op": "add", "path": "/a/x~1y~0z", "value": 1}], {"a": {"b": [1, 2], "x/y~z": 1}}),
        ([{"op": "add", "path": "", "value": {"z": 1}}], {"z": 1}),
        ([{"op": "remove", "path": "/a/b/1"}], {"a": {"b": [1]}}),
        ([{"op": "remove", "path": "/a/b/-1"}], {"a": {"b": [1]}}),
        ([{"op": "remove", "path": "/a"}], {}),
        ([{"op": "replace", "path": "/a/b", "value": None}], {"a": {"b": None}}),
        ([{"op": "replace", "path": "/a/b/0", "value": 9}], {"a": {"b": [9, 2]}}),
        ([{"op": "replace", "path": "/a/b/1", "value": 9}], {"a": {"b": [1, 9]}}),
        ([{"op": "replace", "path": "", "value": {}}], {}),
        ([{"op": "move", "from": "/a/b", "path": "/c"}], {"a": {}, "c": [1, 2]}),
        ([{"op": "move", "from": "/a", "path": "/a"}], {"a": {"b": [1, 2]}}),
        ([{"op": "copy", "from": "/a/b/0", "path": "/c"}], {"a": {"b": [1, 2]}, "c": 1}),
        ([{"op": "test", "path": "/a/b", "value": [1, 2]}], {"a": {"b": [1, 2]}}),
        ([{"op": "test", "path": "/nope", "value": None}], {"a": {"b": [1, 2]}}),
        ([], {"a": {"b": [1, 2]}}),
    ],
)
def test_json_patch(operations: list[Any], expected: Any) -> None:
    assert json_patch({"a": {"b": [1, 2]}}, operations) == expected


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a/b", "value": [2, 1]},
        {"op": "test", "path": "/a/b/0", "value": True},
        {"op": "test", "path": "/nope", "value": 1},
        {"op": "remove", "path": "/nope"},
        {"op": "remove", "path": "/a/b/2"},
        {"op": "remove", "path": ""},
        {"op": "replace", "path": "/nope", "value": 1},
        {"op": "replace", "path": "/a/b/-", "value": 1},
        {"op": "replace", "path": "/a/b/x", "value": 1},
        {"op": "add", "path": "/x/y", "value": 1},
        {"op": "add", "path": "/a/b/3", "value": 1},
        {"op": "add", "path": "/a/b/0/c", "value": 1},
        {"op": "add", "path": "a", "value": 1},
        {"op": "add", "path": "/c"},
        {"op": "add", "path": "", "value": 5},
        {"op": "add", "value": 5},
        {"op": "move", "from": "/nope", "path": "/c"},
        {"op": "move", "from": "/a", "path": "/a/b"},
        {"op": "copy", "from": "/nope", "path": "/c"},
        {"op": "frobnicate", "path": "/a"},
        {"path": "/a"},
    ],
)
def test_an_operation_that_does_not_fit_is_unprocessable(operation: Any) -> None:
    with pytest.raises(PatchFailed) as caught:
        json_patch({"a": {"b": [1, 2]}}, [operation])
    assert (caught.value.code, caught.value.reason) == (422, "Invalid")


def test_a_list_of_something_else_is_no_json_patch() -> None:
    with pytest.raises(BadRequest):
        json_patch({}, ["add"])
    with pytest.raises(BadRequest, match="allowed maximum operations"):
        json_patch({}, [{"op": "test", "path": "/a"}] * (MAX_OPERATIONS + 1))


_leaves = st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["x", "y"])
_values: Any = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=8,
)
_documents: Any = st.dictionaries(st.sampled_from("abc"), _values)
_pointers = st.sampled_from(["", "/a", "/b", "/a/0", "/a/b", "/a/-", "/c/1", "a"])
_operations: Any = st.lists(
    st.fixed_dictionaries(
        {
            "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]),
            "path": _pointers,
        },
        optional={"value": _values, "from": _pointers},
    ),
    max_size=4,
)


@given(_documents, _operations)
def test_a_json_patch_leaves_its_arguments_alone(doc: Any, operations: Any) -> None:
    before = copy.deepcopy((doc, operations))
    try:
        patched = json_patch(doc, operations)
    except PatchFailed:
        pass
    else:
        _scribble(patched)
    assert (doc, operations) == before


@given(_documents, _documents)
def test_a_merge_patch_leaves_its_arguments_alone_and_settles(doc: Any, patch: Any) -> None:
    before = copy.deepcopy((doc, patch))
    merged = merge_patch(doc, patch)
    assert merge_patch(merged, patch) == merged
    assert (doc, patch) == before
    # Untouched parts are shared with the document, but nothing is shared with the patch.
    _scribble(merged)
    assert patch == before[1]


def _scribble(value: Any) -> None:
    """Change everything that could be shared."""
    children = value.values() if isinstance(value, dict) else value
    for child in list(children):
        if isinstance(child, dict | list):
            _scribble(child)
    if isinstance(value, dict):
        value["scribble"] = True
    else:
        value.append("scribble")
