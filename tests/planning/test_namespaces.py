"""Namespaces: their default objects, and finalization."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from onejob.planning.namespaces import (
    Remains,
    deletion_conditions,
    finalized,
    has_other_finalizers,
    root_ca_map,
    root_ca_repair,
    service_account,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = datetime(2026, 1, 1, 13, tzinfo=UTC)


def test_default_objects_are_in_their_namespace() -> None:
    for document in (service_account("team"), root_ca_map("team", "PEM")):
        assert msgspec.json.decode(document)["metadata"]["namespace"] == "team"
    assert msgspec.json.decode(root_ca_map("team", "PEM"))["data"] == {"ca.crt": "PEM"}


def test_only_a_spoilt_certificate_is_repaired() -> None:
    good = root_ca_map("team", "PEM")
    assert root_ca_repair(good, "PEM") is None
    for spoilt in (root_ca_map("team", "OLD"), b"{}"):
        repair = root_ca_repair(spoilt, "PEM")
        assert repair is not None
        assert msgspec.json.decode(repair) == [
            {"op": "add", "path": "/data", "value": {"ca.crt": "PEM"}}
        ]


def test_letting_go_leaves_the_finalizers_of_others() -> None:
    stored = b'{"metadata":{"name":"team"},"spec":{"finalizers":["kubernetes","example.org/x"]}}'
    assert msgspec.json.decode(finalized(stored)) == {
        "metadata": {"name": "team"},
        "spec": {"finalizers": ["example.org/x"]},
    }
    assert msgspec.json.decode(finalized(b"{}")) == {"spec": {"finalizers": []}}


def _remains(failure: str = "") -> Remains:
    remains = Remains(failures=[failure] if failure else [])
    remains.add("pods", ["a/b"])
    remains.add("pods", ["a/b", "c/d"])
    remains.add("jobs.batch", [])
    return remains


def _conditions(patch: bytes | None) -> dict[str, Any]:
    assert patch is not None
    listed = msgspec.json.decode(patch)["status"]["conditions"]
    return {condition["type"]: condition for condition in listed}


@pytest.mark.parametrize(
    ("kind", "remains", "status", "reason", "message"),
    [
        (
            "NamespaceDeletionDiscoveryFailure",
            _remains(),
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            _remains(),
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        (
            "NamespaceDeletionContentFailure",
            _remains(),
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        (
            "NamespaceDeletionContentFailure",
            _remains("no"),
            "True",
            "ContentDeletionFailed",
            "Failed to delete all resource types, 1 remaining: no",
        ),
        (
            "NamespaceContentRemaining",
            _remains(),
            "True",
            "SomeResourcesRemain",
            "Some resources are remaining: jobs.batch has 1 resource instances, "
            "pods. has 2 resource instances",
        ),
        (
            "NamespaceContentRemaining",
            Remains(),
            "False",
            "ContentRemoved",
            "All content successfully removed",
        ),
        (
            "NamespaceFinalizersRemaining",
            _remains(),
            "True",
            "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining: "
            "a/b in 2 resource instances, c/d in 1 resource instances",
        ),
        (
            "NamespaceFinalizersRemaining",
            Remains(),
            "False",
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished",
        ),
    ],
)
def test_namespace_conditions_name_remaining_objects(
    kind: str, remains: Remains, status: str, reason: str, message: str
) -> None:
    assert _conditions(deletion_conditions(b"{}", remains, NOON))[kind] == {
        "type": kind,
        "status": status,
        "lastTransitionTime": "2026-01-01T12:00:00Z",
        "reason": reason,
        "message": message,
    }


def test_unchanged_namespace_conditions_are_not_rewritten() -> None:
    said = deletion_conditions(b"{}", _remains(), NOON)
    assert said is not None
    assert deletion_conditions(said, _remains(), LATER) is None


def test_a_condition_changes_its_time_only_with_its_status() -> None:
    said = deletion_conditions(b"{}", _remains(), NOON)
    assert said is not None
    fewer = Remains()
    fewer.add("pods", [])
    after = _conditions(deletion_conditions(said, fewer, LATER))
    remaining, finalizers = (
        after["NamespaceContentRemaining"],
        after["NamespaceFinalizersRemaining"],
    )
    assert remaining["lastTransitionTime"] == "2026-01-01T12:00:00Z"
    assert remaining["message"].endswith("pods. has 1 resource instances")
    assert finalizers["lastTransitionTime"] == "2026-01-01T13:00:00Z"


@pytest.mark.parametrize(
    "condition",
    [{}, {"status": "True"}, {"type": "NamespaceContentRemaining"},
     {"type": "NamespaceContentRemaining", "status": "True"}],
)  # fmt: skip
def test_deletion_conditions_replace_sparse_ones(condition: dict[str, str]) -> None:
    stored = msgspec.json.encode({"status": {"conditions": [condition]}})
    after = deletion_conditions(stored, _remains(), NOON)
    assert _conditions(after) == _conditions(deletion_conditions(b"{}", _remains(), NOON))


def test_finalizers_of_others_keep_an_empty_namespace() -> None:
    assert not has_other_finalizers(b'{"spec":{"finalizers":["kubernetes"]}}')
    assert has_other_finalizers(b'{"spec":{"finalizers":["kubernetes","example.org/x"]}}')
    assert not has_other_finalizers(b"{}")
