"""Encoding of responses: items, metadata, chunks of lists, warnings."""

import json

import pytest

from onejob.api.http.negotiation import Representation
from onejob.api.http.representations import list_item, list_pieces, metadata_only, require_form
from onejob.api.http.responses import compressed, warning_headers
from onejob.wire.errors import NotAcceptable
from onejob.wire.kinds import BY_RESOURCE
from onejob.wire.requests import ListOutcome

JOB = BY_RESOURCE["jobs.batch"]


def job(name: str, filler: str = "") -> bytes:
    document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": {"kind": 'a"b', "filler": filler}},
        "spec": {"kind": "inner"},
    }
    return json.dumps(document, separators=(",", ":")).encode()


def test_an_item_of_a_list_has_no_kind_of_its_own() -> None:
    item = json.loads(list_item(job("a"), JOB))
    assert list(item) == ["metadata", "spec"]
    assert item["spec"] == {"kind": "inner"}


@pytest.mark.parametrize(
    "document",
    [
        b'{"kind":"Job","apiVersion":"batch/v1","metadata":{"name":"a"}}',
        b'{ "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"} }',
        b'{"metadata":{"name":"a"},"kind":"Job","apiVersion":"batch/v1"}',
        b'{"apiVersion":"other/v1","kind":"Job","metadata":{"name":"a"}}',
    ],
)
def test_items_written_in_another_order_are_stripped_too(document: bytes) -> None:
    assert json.loads(list_item(document, JOB)) == {"metadata": {"name": "a"}}


def test_metadata_is_cut_out_unchanged() -> None:
    partial = json.loads(metadata_only(job("a")))
    assert partial == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": json.loads(job("a"))["metadata"],
    }


def test_a_long_list_comes_in_pieces_that_make_one_document() -> None:
    documents = tuple(job(f"j{i}", "x" * 2000) for i in range(1000))
    outcome = ListOutcome(documents, 12, "tok", 34)
    pieces = list(list_pieces(outcome, JOB, ""))
    assert len(pieces) > 10
    assert max(map(len, pieces)) < 200_000
    whole = json.loads(b"".join(pieces))
    assert whole["kind"] == "JobList"
    assert whole["apiVersion"] == "batch/v1"
    assert whole["metadata"] == {
        "resourceVersion": "12",
        "continue": "tok",
        "remainingItemCount": 34,
    }
    assert [item["metadata"]["name"] for item in whole["items"]] == [f"j{i}" for i in range(1000)]


def test_an_empty_list_has_items() -> None:
    assert json.loads(b"".join(list_pieces(ListOutcome((), 3), JOB, ""))) == {
        "kind": "JobList",
        "apiVersion": "batch/v1",
        "metadata": {"resourceVersion": "3"},
        "items": [],
    }


def test_metadata_list_items_have_kind() -> None:
    outcome = ListOutcome((job("a"),), 3)
    whole = json.loads(b"".join(list_pieces(outcome, JOB, "PartialObjectMetadataList")))
    assert (whole["kind"], whole["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert whole["items"][0]["kind"] == "PartialObjectMetadata"


@pytest.mark.parametrize(
    ("form", "is_list"), [("PartialObjectMetadata", True), ("PartialObjectMetadataList", False)]
)
def test_lists_and_objects_have_different_metadata_forms(form: str, is_list: bool) -> None:
    wanted = Representation("json", form)  # type: ignore[arg-type]
    with pytest.raises(NotAcceptable):
        require_form(wanted, JOB, is_list=is_list)
    require_form(wanted, JOB, is_list=not is_list)


def test_warnings_are_quoted() -> None:
    assert warning_headers(['unknown field "spec.foo"', "a\\b"]) == (
        (b"warning", b'299 - "unknown field \\"spec.foo\\""'),
        (b"warning", b'299 - "a\\\\b"'),
    )


def test_a_warning_cannot_end_its_header() -> None:
    ((_, value),) = warning_headers(["a\r\nSet-Cookie: b\x00"])
    assert value == b'299 - "a  Set-Cookie: b "'


def test_each_warning_is_sent_once() -> None:
    assert len(warning_headers(["a", "b", "a"])) == 2


def test_many_warnings_are_cut_short() -> None:
    headers = warning_headers([f"{i}" + "x" * 1000 for i in range(100)])
    assert 1 < len(headers) < 20
    assert all(len(value) < 300 for _, value in headers)


def test_compression_is_gzip() -> None:
    assert compressed(b"x" * 1000)[:2] == b"\x1f\x8b"
