import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onejob.api.schema.schema import load_schema
from onejob.api.writing.field_sets import (
    add_fields,
    check_encoding,
    decode_fields,
    encode_fields,
    remove_fields,
    render_field,
)
from onejob.api.writing.managed_fields import MAX_UPDATE_ENTRIES, track_update
from tests.api.counting import Counted

JOB = load_schema().kind("batch/v1", "Job")
POD = load_schema().kind("v1", "Pod")
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def a_job(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "n", "uid": "u", "resourceVersion": "1"},
        "spec": spec,
    }


def created(job: dict[str, Any], manager: str = "creator") -> dict[str, Any]:
    track_update(None, job, manager, NOON, "", JOB)
    return job


def updated(
    old: dict[str, Any],
    manager: str = "editor",
    subresource: str = "",
    now: datetime = NOON,
    **spec: Any,
) -> dict[str, Any]:
    new = copy.deepcopy(old)
    new["spec"].update(spec)
    new["spec"] = {name: value for name, value in new["spec"].items() if value is not None}
    track_update(old, new, manager, now, subresource, JOB)
    return new


def owners(doc: dict[str, Any]) -> dict[str, Any]:
    return {e["manager"]: e["fieldsV1"] for e in doc["metadata"].get("managedFields", ())}


def test_the_creator_owns_all_that_it_sent() -> None:
    job = a_job(
        parallelism=2,
        template={
            "metadata": {"labels": {"a/b": "1"}},
            "spec": {
                "restartPolicy": "Never",
                "nodeSelector": {"x": "y"},
                "containers": [
                    {
                        "name": "c",
                        "command": ["a", "b"],
                        "resources": {},
                        "ports": [{"containerPort": 80}],
                        "env": [{"name": "A", "value": "1"}],
                    }
                ],
                "securityContext": {"runAsUser": 0},
            },
        },
    )
    job["metadata"]["finalizers"] = ["example.com/f"]
    job["status"] = {"active": 1}
    created(job)
    assert job["metadata"]["managedFields"] == [
        {
            "manager": "creator",
            "operation": "Update",
            "apiVersion": "batch/v1",
            "time": "2026-11-15T12:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:finalizers": {".": {}, 'v:"example.com/f"': {}}},
                "f:spec": {
                    "f:parallelism": {},
                    "f:template": {
                        "f:metadata": {"f:labels": {".": {}, "f:a/b": {}}},
                        "f:spec": {
                            "f:restartPolicy": {},
                            "f:nodeSelector": {},
                            "f:securityContext": {".": {}, "f:runAsUser": {}},
                            "f:containers": {
                                'k:{"name":"c"}': {
                                    ".": {},
                                    "f:name": {},
                                    "f:command": {},
                                    "f:resources": {},
                                    "f:ports": {
                                        ".": {},
                                        'k:{"containerPort":80,"protocol":"TCP"}': {
                                            ".": {},
                                            "f:containerPort": {},
                                        },
                                    },
                                    "f:env": {
                                        ".": {},
                                        'k:{"name":"A"}': {
                                            ".": {},
                                            "f:name": {},
                                            "f:value": {},
                                        },
                                    },
                                }
                            },
                        },
                    },
                },
            },
        }
    ]


def test_update_takes_ownership_of_changed_fields() -> None:
    job = updated(created(a_job(parallelism=1, completions=1)), parallelism=2, suspend=True)
    assert owners(job) == {
        "creator": {"f:spec": {"f:completions": {}}},
        "editor": {"f:spec": {"f:parallelism": {}, "f:suspend": {}}},
    }


def test_fields_removed_by_update_lose_their_owner() -> None:
    job = updated(created(a_job(parallelism=1, completions=1)), completions=None)
    assert owners(job) == {"creator": {"f:spec": {"f:parallelism": {}}}}


def test_an_owner_of_nothing_disappears() -> None:
    job = updated(created(a_job(parallelism=1)), parallelism=2)
    assert owners(job) == {"editor": {"f:spec": {"f:parallelism": {}}}}


def test_a_manager_keeps_what_it_had_and_gets_a_new_time() -> None:
    later = NOON + timedelta(hours=1)
    job = updated(created(a_job(parallelism=1)), "creator", now=later, completions=3)
    [entry] = job["metadata"]["managedFields"]
    assert entry["fieldsV1"] == {"f:spec": {"f:completions": {}, "f:parallelism": {}}}
    assert entry["time"] == "2026-11-15T13:00:00Z"


def test_an_update_that_changes_nothing_leaves_the_entries_alone() -> None:
    job = created(a_job(parallelism=1))
    assert updated(job, now=NOON + timedelta(hours=1)) == job


def test_the_main_endpoint_never_owns_status_nor_status_the_spec() -> None:
    old = created(a_job(parallelism=1))
    new = copy.deepcopy(old)
    new["status"] = {"active": 1}
    new["spec"]["completions"] = 5
    new["metadata"]["annotations"] = {"a": "b"}
    main, status = copy.deepcopy(new), copy.deepcopy(new)
    track_update(old, main, "m", NOON, "", JOB)
    track_update(old, status, "m", NOON, "status", JOB)
    annotation: Any = {"f:annotations": {".": {}, "f:a": {}}}
    assert owners(main)["m"] == {"f:metadata": annotation, "f:spec": {"f:completions": {}}}
    assert owners(status)["m"] == {"f:metadata": annotation, "f:status": {"f:active": {}}}
    assert status["metadata"]["managedFields"][-1]["subresource"] == "status"


def test_the_same_manager_on_another_endpoint_is_another_entry() -> None:
    job = created(a_job(parallelism=1), "m")
    new = copy.deepcopy(job)
    new["status"] = {"active": 1}
    track_update(job, new, "m", NOON, "status", JOB)
    assert [e.get("subresource") for e in new["metadata"]["managedFields"]] == [None, "status"]


def test_an_object_without_entries_gets_none_by_an_update() -> None:
    job = updated(a_job(parallelism=1), parallelism=2)
    assert "managedFields" not in job["metadata"]


@pytest.mark.parametrize("sent", [None, [], [{"operation": "?"}], [{"manager": "m"}]])
def test_entries_that_a_client_leaves_out_or_garbles_are_kept(sent: Any) -> None:
    old = created(a_job(parallelism=1))
    new = copy.deepcopy(old)
    if sent is None:
        del new["metadata"]["managedFields"]
    else:
        new["metadata"]["managedFields"] = sent
    track_update(old, new, "m", NOON, "", JOB)
    assert new == old


def test_one_empty_entry_resets_them() -> None:
    old = created(a_job(parallelism=1))
    new = copy.deepcopy(old)
    new["metadata"]["managedFields"] = [{}]
    track_update(old, new, "m", NOON, "", JOB)
    assert "managedFields" not in new["metadata"]


def test_a_client_may_hand_fields_to_another_manager() -> None:
    """kubectl does this with a JSON patch when it moves to server-side apply."""
    old = created(a_job(parallelism=1), "kubectl-client-side-apply")
    new = copy.deepcopy(old)
    new["metadata"]["managedFields"][0] |= {"manager": "kubectl", "operation": "Apply"}
    track_update(old, new, "kubectl", NOON, "", JOB)
    [entry] = new["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("kubectl", "Apply")
    assert entry["fieldsV1"] == {"f:spec": {"f:parallelism": {}}}


def test_too_many_updaters_are_folded_into_one() -> None:
    job = created(a_job(parallelism=1))
    for number in range(MAX_UPDATE_ENTRIES + 5):
        new = copy.deepcopy(job)
        new["metadata"].setdefault("labels", {})[f"l{number}"] = "x"
        track_update(job, new, f"m{number}", NOON + timedelta(seconds=number), "", JOB)
        job = new
    entries = job["metadata"]["managedFields"]
    assert len(entries) == MAX_UPDATE_ENTRIES
    labels = {
        name for e in entries for name in e["fieldsV1"]["f:metadata"]["f:labels"] if name != "."
    }
    assert labels == {f"f:l{number}" for number in range(MAX_UPDATE_ENTRIES + 5)}
    assert entries[0]["manager"] == "ancient-changes"


def test_a_list_whose_items_lack_their_key_counts_as_one_value() -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"image": "x"}]}}
    track_update(None, pod, "m", NOON, "", POD)
    assert owners(pod) == {"m": {"f:spec": {"f:containers": {}}}}


def test_field_sets_survive_their_encoding() -> None:
    fields = frozenset(
        {
            ("f:a",),
            ("f:a", "f:b"),
            ("f:l", 'k:{"name":"x"}'),
            ("f:l", 'k:{"name":"x"}', "f:v"),
            ("f:s", 'v:"x"'),
            ("f:i", "i:0"),
        }
    )
    assert decode_fields(encode_fields(fields)) == fields


@pytest.mark.parametrize("broken", [[], {"x": {}}, {"f:a": 1}, {"f:a": {"f:b": []}}])
def test_broken_encodings_are_refused(broken: Any) -> None:
    with pytest.raises(ValueError, match=r"fieldsV1|path element"):
        check_encoding(broken)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("f:spec", "f:parallelism"), ".spec.parallelism"),
        (("f:containers", 'k:{"name":"c"}', "f:image"), '.containers[name="c"].image'),
        (
            ("f:ports", 'k:{"containerPort":80,"protocol":"TCP"}'),
            '.ports[containerPort=80,protocol="TCP"]',
        ),
        (("f:finalizers", 'v:"a/b"'), '.finalizers[="a/b"]'),
        (("f:args", "i:3"), ".args[3]"),
    ],
)
def test_fields_are_named_as_conflicts_name_them(path: tuple[str, ...], text: str) -> None:
    assert render_field(path) == text


_paths = st.lists(st.sampled_from(["f:a", "f:b", "f:c"]), min_size=1, max_size=3).map(tuple)
_sets: Any = st.frozensets(_paths, max_size=6)


@given(_sets, _sets)
def test_encoded_sets_are_sets(a: Any, b: Any) -> None:
    encoded = encode_fields(a)
    before = copy.deepcopy(encoded)
    assert decode_fields(encoded) == a
    assert decode_fields(add_fields(encoded, b)) == a | b
    assert add_fields(encoded, b) == encode_fields(a | b)
    assert remove_fields(encoded, b) == encode_fields(a - b)
    assert encoded == before


def test_thousands_of_entries_are_folded_without_comparing_each_with_each() -> None:
    count = 2000
    new = a_job(parallelism=2, suspend=True)
    new["metadata"]["managedFields"] = [
        {
            "manager": Counted(f"m{index}"),
            "operation": "Update",
            "apiVersion": "batch/v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:suspend": {}}},
        }
        for index in range(count)
    ]
    Counted.comparisons = 0
    track_update(a_job(parallelism=1, suspend=True), new, "m", NOON, "", JOB)
    assert len(new["metadata"]["managedFields"]) <= MAX_UPDATE_ENTRIES
    assert Counted.comparisons < 100 * count
