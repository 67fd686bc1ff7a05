"""Lazily decoded documents: split into sections, they behave like dicts."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onejob.api.schema.schema import load_schema
from onejob.api.sections import (
    Section,
    SectionedDocument,
    copied,
    held,
    same_bytes,
    same_member,
    sectioned,
    shallow,
)
from onejob.api.writing.patching import merge_patch
from onejob.api.writing.strategic_merge import strategic_merge

Doc = dict[str, Any]

POD = load_schema().kind("v1", "Pod")

A_POD: Doc = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "labels": {"a": "b"}, "finalizers": ["example.com/f"]},
    "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"},
    "status": {"phase": "Pending"},
    "unknown": {"deep": [1, {"er": None}]},
}


@pytest.fixture(scope="module", autouse=True)
def short_sections_are_split_too() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onejob.api.sections._SHORT", 0)
        yield


def split_up(doc: Doc) -> SectionedDocument:
    return sectioned(msgspec.json.encode(doc))


def untouched(doc: Doc) -> list[str]:
    return [name for name in dict.keys(doc) if type(held(doc, name)) is msgspec.Raw]


def test_only_what_is_read_is_decoded() -> None:
    doc = split_up(A_POD)
    assert doc["metadata"]["name"] == "p"
    assert doc["status"].get("phase") == "Pending"
    assert untouched(doc) == ["apiVersion", "kind", "spec", "unknown"]
    assert msgspec.json.encode(doc) == msgspec.json.encode(A_POD)


def test_a_change_to_one_section_leaves_the_bytes_of_the_others() -> None:
    # Not in our own format: with blanks, and with numbers in another form.
    text = b'{"kind":"Pod","spec":{"a": 1.50,"b":[ ]},"status":{"phase":"Pending","x":1e3}}'
    doc = sectioned(text)
    doc["status"]["phase"] = "Running"
    assert msgspec.json.encode(doc) == text.replace(b"Pending", b"Running")


def test_a_short_section_is_decoded_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onejob.api.sections._SHORT", 100)
    text = "x" * 100
    doc = split_up({"spec": {"a": [1]}, "status": {"b": text}})
    assert untouched(doc) == ["spec", "status"]
    assert untouched(doc["spec"]) == []
    assert untouched(doc["status"]) == ["b"]
    assert doc == {"spec": {"a": [1]}, "status": {"b": text}}


def test_a_merge_patch_shares_what_it_had_to_decode() -> None:
    doc = split_up(A_POD)
    patched = merge_patch(doc, {"metadata": {"labels": {"c": "d"}}, "status": {"phase": "Failed"}})
    assert patched["metadata"]["finalizers"] is doc["metadata"]["finalizers"]
    assert patched["metadata"]["labels"] == {"a": "b", "c": "d"}
    assert untouched(patched) == ["apiVersion", "kind", "spec", "unknown"]
    assert doc == A_POD


@pytest.mark.parametrize(
    "read",
    [
        lambda doc: dict(doc),
        lambda doc: {**doc},
        lambda doc: dict(doc.items()),
        lambda doc: dict(zip(doc, doc.values(), strict=True)),
        lambda doc: doc | {},
        lambda doc: {} | doc,
        lambda doc: doc.copy(),
        lambda doc: copy.deepcopy(doc),
        lambda doc: copied(doc),
        lambda doc: {name: doc.pop(name) for name in list(doc)},
        lambda doc: dict(reversed([doc.popitem() for _ in range(len(doc))])),
        lambda doc: {name: doc.setdefault(name, "no") for name in doc},
    ],
)
def test_every_way_to_read_gives_what_was_written(read: Callable[[Doc], Doc]) -> None:
    assert read(split_up(A_POD)) == A_POD
    for name in ("metadata", "spec", "status"):
        assert read(split_up(A_POD)[name]) == A_POD[name]
    assert repr(split_up(A_POD)["spec"]) == repr(A_POD["spec"])


def test_documents_are_compared_by_what_they_say() -> None:
    doc = split_up(A_POD)
    assert doc == A_POD
    assert doc == A_POD
    assert doc == split_up(A_POD)
    spaced = sectioned(msgspec.json.format(msgspec.json.encode(A_POD)))
    assert spaced == doc
    assert same_member(spaced, doc, "spec")
    assert not same_bytes(spaced, doc, "spec")
    for name in A_POD:
        assert doc != split_up({**A_POD, name: {"other": 1}})
        assert doc != split_up({n: v for n, v in A_POD.items() if n != name})


def test_a_copy_is_independent_of_what_it_was_made_of() -> None:
    doc = split_up(A_POD)
    read = doc["metadata"]["labels"]
    fork = copied(doc)
    fork["metadata"]["labels"]["a"] = "changed"
    fork["status"]["phase"] = "Running"
    assert read == {"a": "b"}
    assert doc == A_POD
    near = shallow(doc)
    near["status"] = {}
    assert doc == A_POD


@pytest.mark.parametrize("value", [None, [], "text", 7])
def test_a_section_that_is_no_object_is_what_it_is(value: Any) -> None:
    doc = split_up({"metadata": value, "spec": value, "status": value})
    assert doc["spec"] == value
    assert doc.get("status") == value
    assert doc["metadata"] == value


def test_the_last_of_fields_that_are_given_twice_counts() -> None:
    assert sectioned(b'{"spec":{"a":1},"spec":{"a":2,"a":3}}') == {"spec": {"a": 3}}


def test_what_is_no_object_is_refused() -> None:
    for text in (b"[]", b"null", b"{", b""):
        with pytest.raises(msgspec.DecodeError):
            sectioned(text)


def test_managed_fields_stay_encoded_while_the_rest_of_the_metadata_is_read() -> None:
    metadata = {**A_POD["metadata"], "managedFields": [{"manager": "m"}]}
    doc = split_up({**A_POD, "metadata": metadata})
    doc["metadata"]["name"] = "q"
    assert isinstance(doc["metadata"], Section)
    assert type(held(doc["metadata"], "managedFields")) is msgspec.Raw
    assert msgspec.json.decode(msgspec.json.encode(doc))["metadata"] == {**metadata, "name": "q"}


def test_a_large_document_is_split_and_joined_without_being_decoded() -> None:
    large = {**A_POD, "spec": {"containers": [{"name": f"c{i}"} for i in range(20_000)]}}
    doc = split_up(large)
    doc["metadata"]["name"] = "q"
    assert type(held(doc, "spec")) is msgspec.Raw
    assert msgspec.json.decode(msgspec.json.encode(doc))["spec"] == large["spec"]


# --- merging patches ----------------------------------------------------------------------

_texts = st.sampled_from(["", "a", "null", "$patch", 'q"\\'])
_names = st.sampled_from(["a", "null", "$other"])
_conditions = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["A", "B", "C"])},
        optional={"status": st.sampled_from(["True", "False"]), "reason": st.none() | _texts},
    ),
    max_size=3,
    unique_by=lambda condition: str(condition["type"]),
)
_status = st.fixed_dictionaries(
    {},
    optional={
        "phase": st.none() | _texts,
        "conditions": _conditions,
        "podIPs": st.lists(st.fixed_dictionaries({"ip": _texts}), max_size=2),
        "containerStatuses": st.lists(
            st.fixed_dictionaries({"name": _texts, "restartCount": st.integers(0, 2)}), max_size=2
        ),
        "unknown": st.dictionaries(_names, _texts, max_size=2),
    },
)
_metadata = st.fixed_dictionaries(
    {},
    optional={
        "name": st.just("p"),
        "labels": st.none() | st.dictionaries(_names, st.none() | _texts, max_size=2),
        "finalizers": st.lists(_texts, max_size=2, unique=True),
        "$deleteFromPrimitiveList/finalizers": st.lists(_texts, max_size=2),
        "managedFields": st.lists(st.fixed_dictionaries({"manager": _texts}), max_size=1),
    },
)
_patches = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.none() | _metadata,
        "status": st.none() | _status,
        "spec": st.none() | st.fixed_dictionaries({}, optional={"nodeName": st.none() | _texts}),
        "kind": st.just("Pod"),
    },
)
_documents = st.fixed_dictionaries(
    {"kind": st.just("Pod"), "metadata": st.just(A_POD["metadata"])},
    optional={"status": _status, "spec": st.just(A_POD["spec"])},
)


@settings(deadline=None)
@given(_documents, _patches)
def test_patches_of_split_documents_lead_to_the_same_bytes(doc: Doc, patch: Doc) -> None:
    for merged in (
        lambda a, b: strategic_merge(a, b, POD),
        merge_patch,
    ):
        expected = msgspec.json.encode(merged(doc, patch))
        split_doc, split_patch = split_up(doc), split_up(patch)
        found = merged(split_doc, split_patch)
        assert msgspec.json.encode(found) == expected
        assert split_doc == doc, "the stored document is left alone"
        assert split_patch == patch
        assert msgspec.json.encode(merged(split_up(doc), patch)) == expected
