"""Options in queries and DELETE bodies, and the error messages for invalid ones."""

from typing import Any

import pytest

from onejob.api.decoding.query import (
    delete_options_from_body,
    delete_options_from_query,
    flag,
    list_options,
    parse_query,
    watch_options,
    whole_number,
    write_options,
)
from onejob.wire.errors import BadRequest, Invalid
from onejob.wire.requests import DeleteOptions, ListOptions, User, WatchOptions, WriteOptions

ME = User("me")


def refused(raw: str, kind: str = "CreateOptions", patch_type: str = "") -> Invalid:
    with pytest.raises(Invalid) as raised:
        write_options(parse_query(raw.encode()), ME, "", kind, patch_type=patch_type)
    return raised.value


def test_a_plain_write_warns_and_is_named_after_its_user_agent() -> None:
    options = write_options({}, ME, "kubectl/v1.32 (linux)", "CreateOptions")
    assert options == WriteOptions(ME, field_manager="kubectl", field_validation="Warn")


def test_a_write_without_any_name_is_unknown() -> None:
    assert write_options({}, ME, "", "CreateOptions").field_manager == "unknown"


def test_write_options_are_read() -> None:
    query = parse_query(b"dryRun=All&fieldManager=m&fieldValidation=Strict&force=true&pretty=1")
    assert write_options(query, ME, "x/1", "PatchOptions", patch_type="apply") == WriteOptions(
        ME,
        dry_run=True,
        field_manager="m",
        field_validation="Strict",
        given=(("fieldManager", "m"), ("fieldValidation", "Strict")),
        force=True,
    )


@pytest.mark.parametrize(
    ("raw", "kind", "patch_type", "message"),
    [
        (
            "dryRun=Most",
            "CreateOptions",
            "",
            'dryRun: Unsupported value: ["Most"]: supported values: "All"',
        ),
        (
            "fieldValidation=Loud",
            "UpdateOptions",
            "",
            'fieldValidation: Unsupported value: "Loud": supported values: '
            '"", "Ignore", "Strict", "Warn"',
        ),
        (
            "force=true",
            "PatchOptions",
            "merge",
            "force: Forbidden: may not be specified for non-apply patch",
        ),
        (
            "",
            "PatchOptions",
            "apply",
            "fieldManager: Required value: is required for apply patch",
        ),
        (
            "fieldManager=" + "x" * 129,
            "CreateOptions",
            "",
            "fieldManager: Too long: may not be more than 128 bytes",
        ),
        (
            "fieldManager=a%00",
            "CreateOptions",
            "",
            'fieldManager: Invalid value: "a\\u0000": should only contain printable characters',
        ),
    ],
)
def test_bad_write_options_are_invalid(raw: str, kind: str, patch_type: str, message: str) -> None:
    error = refused(raw, kind, patch_type)
    assert error.message == f'{kind}.meta.k8s.io "" is invalid: {message}'
    assert error.details["group"] == "meta.k8s.io"
    assert error.details["kind"] == kind


def test_list_options_are_read() -> None:
    raw = b"labelSelector=a%3Db&fieldSelector=metadata.name%3Dx&limit=500&continue=tok"
    assert list_options(parse_query(raw)) == ListOptions("a=b", "metadata.name=x", 500, "tok")


def test_a_negative_limit_is_ignored() -> None:
    assert list_options(parse_query(b"limit=-5")).limit == 0


@pytest.mark.parametrize("text", ["x", "1.5", "", " 7", "٣", "99999999999999999999999", "--1"])
def test_a_limit_that_is_no_number_is_a_bad_request(text: str) -> None:
    query = {"limit": [text]}
    if not text:
        assert whole_number(query, "limit") is None
        return
    with pytest.raises(BadRequest):
        list_options(query)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (
            "resourceVersionMatch=Exact",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless "
            "resourceVersion is provided",
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=0",
            'resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for '
            'resourceVersion "0"',
        ),
        (
            "resourceVersionMatch=Near&resourceVersion=5",
            'resourceVersionMatch: Unsupported value: "Near": supported values: '
            '"Exact", "NotOlderThan", ""',
        ),
        (
            "resourceVersionMatch=NotOlderThan&resourceVersion=5&continue=x",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue "
            "is provided",
        ),
        (
            "sendInitialEvents=true",
            "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
        ),
    ],
)
def test_bad_list_options_are_invalid(raw: str, message: str) -> None:
    with pytest.raises(Invalid) as raised:
        list_options(parse_query(raw.encode()))
    assert raised.value.message == f'ListOptions.meta.k8s.io "" is invalid: {message}'


def test_watch_options_are_read() -> None:
    raw = (
        b"watch=true&resourceVersion=12&resourceVersionMatch=NotOlderThan"
        b"&sendInitialEvents=true&allowWatchBookmarks=1&timeoutSeconds=30"
    )
    assert watch_options(parse_query(raw), 1800) == WatchOptions(
        resource_version="12",
        resource_version_match="NotOlderThan",
        allow_bookmarks=True,
        send_initial_events=True,
        timeout_seconds=30,
    )


@pytest.mark.parametrize("raw", [b"", b"timeoutSeconds=0", b"timeoutSeconds=-1"])
def test_a_watch_without_an_end_gets_one(raw: bytes) -> None:
    assert watch_options(parse_query(raw), 1801).timeout_seconds == 1801


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (
            "sendInitialEvents=true",
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting "
            "resourceVersionMatch to NotOlderThan",
        ),
        (
            "resourceVersionMatch=NotOlderThan",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch "
            "unless sendInitialEvents is provided",
        ),
    ],
)
def test_bad_watch_options_are_invalid(raw: str, message: str) -> None:
    with pytest.raises(Invalid) as raised:
        watch_options(parse_query(raw.encode()), 1800)
    assert raised.value.message == f'ListOptions.meta.k8s.io "" is invalid: {message}'


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, DeleteOptions(ME)),
        ({"propagationPolicy": "Foreground"}, DeleteOptions(ME, propagation="Foreground")),
        ({"orphanDependents": True}, DeleteOptions(ME, propagation="Orphan")),
        ({"orphanDependents": False}, DeleteOptions(ME, propagation="Background")),
        (
            {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0},
            DeleteOptions(ME, grace_seconds=0),
        ),
        ({"dryRun": ["All"]}, DeleteOptions(ME, dry_run=True)),
        (
            {"preconditions": {"uid": "u", "resourceVersion": "5"}},
            DeleteOptions(ME, uid="u", resource_version="5"),
        ),
        ({"preconditions": None, "propagationPolicy": None}, DeleteOptions(ME)),
    ],
)
def test_delete_options_in_a_body(document: dict[str, Any], expected: DeleteOptions) -> None:
    assert delete_options_from_body(document, ME) == expected


def test_delete_options_in_the_query() -> None:
    query = parse_query(b"propagationPolicy=Orphan&gracePeriodSeconds=5&dryRun=All")
    assert delete_options_from_query(query, ME) == DeleteOptions(ME, True, "Orphan", 5)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            {"propagationPolicy": "Later"},
            'propagationPolicy: Unsupported value: "Later": supported values: '
            '"Foreground", "Background", "Orphan", "nil"',
        ),
        (
            {"propagationPolicy": "Orphan", "orphanDependents": True},
            'propagationPolicy: Invalid value: "Orphan": orphanDependents and '
            "deletionPropagation cannot be both set",
        ),
        ({"dryRun": ["Most"]}, 'dryRun: Unsupported value: ["Most"]: supported values: "All"'),
    ],
)
def test_bad_delete_options_are_invalid(document: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid) as raised:
        delete_options_from_body(document, ME)
    assert raised.value.message == f'DeleteOptions.meta.k8s.io "" is invalid: {message}'


@pytest.mark.parametrize(
    "document", [{"gracePeriodSeconds": "soon"}, {"kind": "Job"}, {"preconditions": []}]
)
def test_delete_options_of_the_wrong_type_are_a_bad_request(document: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        delete_options_from_body(document, ME)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [("", False), ("w", True), ("w=", True), ("w=1", True), ("w=0", False), ("w=False", False)],
)
def test_flags_are_true_unless_denied(raw: str, expected: bool) -> None:
    assert flag(parse_query(raw.encode()), "w") is expected


def test_too_many_parameters_are_a_bad_request() -> None:
    with pytest.raises(BadRequest):
        parse_query(b"&".join(b"a=1" for _ in range(1000)))
