import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onejob.api.schema.schema import load_schema
from onejob.api.writing.strategic_merge import strategic_merge
from onejob.wire.errors import BadRequest
from tests.api.counting import Counted

POD = load_schema().kind("v1", "Pod")
JOB = load_schema().kind("batch/v1", "Job")


def containers(*items: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(items)}}


def c(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, **fields}


@pytest.mark.parametrize(
    ("doc", "patch", "expected"),
    [
        pytest.param(
            {"metadata": {"labels": {"a": "1", "b": "2"}}},
            {"metadata": {"labels": {"a": None, "c": "3"}}},
            {"metadata": {"labels": {"b": "2", "c": "3"}}},
            id="maps merge, null deletes",
        ),
        pytest.param(
            {}, {"metadata": {"labels": {"a": None}}}, {"metadata": {"labels": {}}},
            id="a null that meets nothing vanishes",
        ),
        pytest.param(
            containers(c("a", image="1"), c("b")),
            containers(c("b", image="2")),
            containers(c("a", image="1"), c("b", image="2")),
            id="items merge by key",
        ),
        pytest.param(
            containers(c("a")), containers(c("b")), containers(c("b"), c("a")),
            id="new items stand first",
        ),
        pytest.param(
            containers(c("a"), c("b")),
            containers(c("a", **{"$patch": "delete"})),
            containers(c("b")),
            id="delete an item",
        ),
        pytest.param(
            containers(c("a"), c("b")),
            containers(c("z"), {"$patch": "replace"}),
            containers(c("z")),
            id="replace a list",
        ),
        pytest.param(
            containers(c("a", image="1")),
            containers(c("a", **{"$patch": "replace"}, tty=True)),
            containers(),
            id="an item with replace replaces the list by the others",
        ),
        pytest.param(
            {"spec": {"securityContext": {"runAsUser": 1}}},
            {"spec": {"securityContext": {"$patch": "replace", "runAsGroup": 2}}},
            {"spec": {"securityContext": {"runAsGroup": 2}}},
            id="replace an object",
        ),
        pytest.param(
            {"spec": {"securityContext": {"runAsUser": 1}}},
            {"spec": {"securityContext": {"$patch": "delete"}}},
            {"spec": {"securityContext": {}}},
            id="delete an object's content",
        ),
        pytest.param(
            {"spec": {}}, {"spec": {"securityContext": {"$patch": "delete"}}}, {"spec": {}},
            id="delete what is not there",
        ),
        pytest.param(
            {"spec": {"securityContext": {"runAsUser": 1}}},
            {"spec": {"securityContext": {"$patch": "merge", "runAsGroup": 2}}},
            {"spec": {"securityContext": {"runAsUser": 1, "runAsGroup": 2}}},
            id="merge is the default",
        ),
        pytest.param(
            {"metadata": {"finalizers": ["a", "b"]}},
            {"metadata": {"finalizers": ["c", "b"]}},
            {"metadata": {"finalizers": ["c", "a", "b"]}},
            id="scalars unite",
        ),
        pytest.param(
            {"metadata": {"finalizers": ["a", "b"]}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a", "z"]}},
            {"metadata": {"finalizers": ["b"]}},
            id="delete scalars",
        ),
        pytest.param(
            {"metadata": {}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}},
            {"metadata": {}},
            id="delete scalars from nothing",
        ),
        pytest.param(
            {"metadata": {"finalizers": ["a", "b"]}},
            {
                "metadata": {
                    "finalizers": ["c"],
                    "$deleteFromPrimitiveList/finalizers": ["a"],
                    "$setElementOrder/finalizers": ["c", "b"],
                }
            },
            {"metadata": {"finalizers": ["c", "b"]}},
            id="add, delete and order scalars at once",
        ),
        pytest.param(
            containers(c("a"), c("b"), c("c")),
            {"spec": {"$setElementOrder/containers": [c("c"), c("a"), c("b")]}},
            containers(c("c"), c("a"), c("b")),
            id="order alone",
        ),
        pytest.param(
            containers(c("a"), c("server"), c("b")),
            {
                "spec": {
                    "$setElementOrder/containers": [c("a"), c("b"), c("new")],
                    "containers": [c("b", image="2"), c("new", image="3")],
                }
            },
            containers(c("a"), c("server"), c("b", image="2"), c("new", image="3")),
            id="order with an item only the server knows",
        ),
        pytest.param(
            {"spec": {}},
            {
                "spec": {
                    "$setElementOrder/containers": [c("b"), c("a")],
                    "containers": [c("b"), c("a")],
                }
            },
            containers(c("b"), c("a")),
            id="order of a new list",
        ),
        pytest.param(
            {"spec": {}}, {"spec": {"$setElementOrder/containers": [c("b")]}}, {"spec": {}},
            id="order of nothing",
        ),
        pytest.param(
            {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}},
            {
                "spec": {
                    "volumes": [
                        c("v", **{"$retainKeys": ["name", "hostPath"]}, hostPath={"path": "/"})
                    ]
                }
            },
            {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}},
            id="retainKeys",
        ),
        pytest.param(
            containers(c("a", ports=[{"containerPort": 80, "protocol": "TCP"}])),
            containers(c("a", ports=[{"containerPort": 80, "name": "web"}])),
            containers(c("a", ports=[{"containerPort": 80, "protocol": "TCP", "name": "web"}])),
            id="ports merge by containerPort alone",
        ),
        pytest.param(
            containers(c("a", command=["x", "y"])),
            containers(c("a", command=["z"])),
            containers(c("a", command=["z"])),
            id="atomic lists are replaced",
        ),
        pytest.param(
            {"spec": {"nodeSelector": {"a": "1"}}},
            {"spec": {"nodeSelector": {"b": "2"}}},
            {"spec": {"nodeSelector": {"a": "1", "b": "2"}}},
            id="maps merge even where apply takes them as one",
        ),
        pytest.param(
            containers(c("a")),
            containers(c("b", env=[c("X", **{"$patch": "delete"}), c("Y", value=None)])),
            containers(c("b", env=[c("Y")]), c("a")),
            id="directives inside a new item",
        ),
        pytest.param(
            {"spec": {"containers": "odd"}}, containers(c("a")), containers(c("a")),
            id="another type is replaced",
        ),
        pytest.param(
            {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "r"}]}},
            {
                "status": {
                    "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "New"}],
                    "conditions": [
                        {"type": "Ready", "status": "True"},
                        {"type": "New", "status": "True"},
                    ],
                }
            },
            {
                "status": {
                    "conditions": [
                        {"type": "Ready", "status": "True", "reason": "r"},
                        {"type": "New", "status": "True"},
                    ]
                }
            },
            id="pod conditions by type",
        ),
        pytest.param(
            {"spec": {"foo": {"a": [1]}}}, {"spec": {"foo": {"a": [2], "b": 1}}},
            {"spec": {"foo": {"a": [2], "b": 1}}},
            id="unknown fields merge like JSON",
        ),
    ],
)  # fmt: skip
def test_strategic_merge(doc: Any, patch: Any, expected: Any) -> None:
    before = copy.deepcopy((doc, patch))
    assert strategic_merge(doc, patch, POD) == expected
    assert (doc, patch) == before


def test_job_conditions_merge_by_type() -> None:
    job = {"status": {"conditions": [{"type": "Complete", "status": "False"}]}}
    patch = {"status": {"conditions": [{"type": "Custom", "status": "True"}]}}
    merged = strategic_merge(job, patch, JOB)
    assert {item["type"] for item in merged["status"]["conditions"]} == {"Complete", "Custom"}


@pytest.mark.parametrize(
    "patch",
    [
        containers({"image": "no key"}),
        containers("text"),
        {"spec": {"$patch": "frobnicate"}},
        {"spec": {"$setElementOrder/containers": "text"}},
        {"spec": {"$setElementOrder/containers": [c("b")], "containers": [c("a")]}},
        {"spec": {"$setElementOrder/containers": [c("b"), c("a")], "containers": [c("a"), c("b")]}},
        {"spec": {"$setElementOrder/containers": [c("a")], "containers": "text"}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}},
        {"spec": {"securityContext": {"runAsUser": 1, "$retainKeys": ["runAsGroup"]}}},
        {"spec": {"securityContext": {"$retainKeys": "runAsGroup"}}},
    ],
)
def test_a_patch_that_contradicts_itself_is_a_bad_request(patch: Any) -> None:
    with pytest.raises(BadRequest):
        strategic_merge(containers(c("a")), patch, POD)


_names = st.sampled_from("abcd")
_container: Any = st.fixed_dictionaries(
    {"name": _names},
    optional={
        "image": st.sampled_from(["1", "2"]),
        "command": st.lists(_names, max_size=2),
        "env": st.lists(
            st.fixed_dictionaries({"name": _names}, optional={"value": _names}),
            max_size=3,
            unique_by=lambda item: str(item["name"]),
        ),
    },
)
_pods: Any = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "labels": st.dictionaries(_names, _names, max_size=3),
                "finalizers": st.lists(_names, max_size=3, unique=True),
            },
        ),
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "containers": st.lists(
                    _container, max_size=3, unique_by=lambda item: str(item["name"])
                ),
                "nodeName": _names,
            },
        ),
    },
)


@given(_pods, _pods)
def test_merging_settles_and_leaves_its_arguments_alone(doc: Any, patch: Any) -> None:
    before = copy.deepcopy((doc, patch))
    merged = strategic_merge(doc, patch, POD)
    assert strategic_merge(merged, patch, POD) == merged
    assert (doc, patch) == before


@given(_pods)
def test_merging_a_document_into_itself_or_nothing_gives_that_document(doc: Any) -> None:
    assert strategic_merge(doc, doc, POD) == doc
    assert strategic_merge({}, doc, POD) == doc
    assert strategic_merge(doc, {}, POD) == doc


@given(_pods, _pods)
def test_the_difference_of_two_documents_leads_from_one_to_the_other(old: Any, new: Any) -> None:
    assert strategic_merge(old, _difference(old, new), POD) == new


def _difference(old: Any, new: Any) -> Any:
    """Return the patch that a client would compute: removals by directive, and the whole order."""
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if before == value:
            continue
        if isinstance(value, dict) and isinstance(before, dict):
            patch[name] = _difference(before, value)
        elif name in ("containers", "env") and isinstance(before, list):
            patch |= _list_difference(name, before, value)
        elif name == "finalizers" and isinstance(before, list):
            patch[f"$deleteFromPrimitiveList/{name}"] = [i for i in before if i not in value]
            patch[f"$setElementOrder/{name}"] = value
            patch[name] = [item for item in value if item not in before]
        else:
            patch[name] = value
    return patch


def _list_difference(name: str, old: list[Any], new: list[Any]) -> dict[str, Any]:
    by_name = {item["name"]: item for item in old}
    names = [item["name"] for item in new]
    changes = [
        {**_difference(by_name[item["name"]], item), "name": item["name"]}
        if item["name"] in by_name
        else item
        for item in new
    ]
    removals = [{"name": gone, "$patch": "delete"} for gone in by_name if gone not in names]
    return {
        f"$setElementOrder/{name}": [{"name": item} for item in names],
        name: changes + removals,
    }


def test_long_lists_are_merged_by_looking_items_up() -> None:
    count = 2000
    names = [Counted(f"v{index}") for index in range(count)]
    old = {"spec": {"volumes": [{"name": name, "emptyDir": {}} for name in names]}}
    patch = {
        "spec": {
            "$setElementOrder/volumes": [{"name": name} for name in reversed(names)],
            "volumes": [
                {"name": name, "emptyDir": {"medium": "Memory"}} for name in reversed(names)
            ],
        }
    }
    Counted.comparisons = 0
    merged = strategic_merge(old, patch, POD)
    assert [volume["name"] for volume in merged["spec"]["volumes"]] == list(reversed(names))
    assert merged["spec"]["volumes"][0]["emptyDir"] == {"medium": "Memory"}
    # Sorting takes n log n comparisons; comparing all pairs would take four million.
    assert Counted.comparisons < 100 * count


def test_duplicate_items_keep_first_position() -> None:
    old = {"metadata": {"finalizers": ["a/a", "b/b"]}}
    patch = {"metadata": {"finalizers": ["c/c", "a/a", "c/c"]}}
    merged = strategic_merge(old, patch, POD)
    assert sorted(merged["metadata"]["finalizers"]) == ["a/a", "b/b", "c/c"]
