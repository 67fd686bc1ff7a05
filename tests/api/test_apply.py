import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onejob.api.schema.schema import load_schema
from onejob.api.writing.apply import apply
from onejob.api.writing.managed_fields import track_update
from onejob.planning.names import LAST_APPLIED
from onejob.wire.errors import BadRequest, Conflict

JOB = load_schema().kind("batch/v1", "Job")
POD = load_schema().kind("v1", "Pod")
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)


def a_job(*, status: Any = None, metadata: Any = None, **spec: Any) -> dict[str, Any]:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", **(metadata or {})},
    }
    return job | ({"spec": spec} if spec else {}) | ({"status": status} if status else {})


def on(live: Any, applied: Any, manager: str = "a", **options: Any) -> dict[str, Any]:
    return apply(
        live,
        applied,
        manager,
        options.get("force", False),
        JOB,
        options.get("now", NOON),
        options.get("subresource", ""),
    )


def entries(doc: dict[str, Any]) -> dict[str, Any]:
    return {e["manager"]: e["fieldsV1"] for e in doc["metadata"].get("managedFields", ())}


def bare(doc: dict[str, Any]) -> dict[str, Any]:
    metadata = {k: v for k, v in doc["metadata"].items() if k != "managedFields"}
    return {**doc, "metadata": metadata}


def pod_spec(*containers: Any, **fields: Any) -> dict[str, Any]:
    return {"template": {"spec": {"containers": list(containers), **fields}}}


def test_apply_creates_missing_object_and_owns_applied_fields() -> None:
    job = on(None, a_job(parallelism=2, metadata={"labels": {"a": "1"}}, **pod_spec({"name": "c"})))
    assert bare(job) == a_job(
        parallelism=2, metadata={"labels": {"a": "1"}}, **pod_spec({"name": "c"})
    )
    assert job["metadata"]["managedFields"] == [
        {
            "manager": "a",
            "operation": "Apply",
            "apiVersion": "batch/v1",
            "time": "2026-11-15T12:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {"f:a": {}}},
                "f:spec": {
                    "f:parallelism": {},
                    "f:template": {
                        "f:spec": {"f:containers": {'k:{"name":"c"}': {".": {}, "f:name": {}}}}
                    },
                },
            },
        }
    ]


def test_applying_the_same_again_changes_nothing_not_even_the_time() -> None:
    job = on(None, a_job(parallelism=2))
    assert on(job, a_job(parallelism=2), now=LATER) == job


def test_fields_of_others_are_left_alone() -> None:
    job = on(on(None, a_job(parallelism=2)), a_job(completions=3), "b")
    assert bare(job) == a_job(parallelism=2, completions=3)
    assert entries(job) == {
        "a": {"f:spec": {"f:parallelism": {}}},
        "b": {"f:spec": {"f:completions": {}}},
    }


def test_the_same_value_is_shared() -> None:
    job = on(on(None, a_job(parallelism=2)), a_job(parallelism=2), "b")
    assert entries(job) == {name: {"f:spec": {"f:parallelism": {}}} for name in "ab"}
    without_a = on(job, a_job(), "a")
    assert bare(without_a) == a_job(parallelism=2)
    assert entries(without_a) == {"b": {"f:spec": {"f:parallelism": {}}}}


def test_apply_removes_omitted_fields_without_other_owner() -> None:
    job = on(None, a_job(parallelism=2, completions=3, metadata={"labels": {"x": "1", "y": "2"}}))
    job = on(job, a_job(parallelism=2, metadata={"labels": {"y": "2"}}))
    assert bare(job) == a_job(parallelism=2, metadata={"labels": {"y": "2"}})


def test_a_container_that_is_emptied_goes_too() -> None:
    job = on(None, a_job(parallelism=2, metadata={"labels": {"x": "1"}}))
    assert bare(on(job, a_job(parallelism=2))) == a_job(parallelism=2)


def test_an_item_no_longer_stated_goes_with_its_defaults() -> None:
    job = on(None, a_job(**pod_spec({"name": "a"}, {"name": "b", "image": "i"})))
    job["spec"]["template"]["spec"]["containers"][1]["imagePullPolicy"] = "Always"
    job = on(job, a_job(**pod_spec({"name": "a"})))
    assert job["spec"] == pod_spec({"name": "a"})


def test_an_item_in_which_another_owns_something_stays() -> None:
    job = on(None, a_job(**pod_spec({"name": "a"}, {"name": "b", "image": "i"})))
    job = on(job, a_job(**pod_spec({"name": "b", "tty": True})), "other")
    job = on(job, a_job(**pod_spec({"name": "a"})))
    assert job["spec"] == pod_spec({"name": "a"}, {"name": "b", "tty": True})


def test_a_conflict_names_the_field_and_its_owner() -> None:
    job = on(None, a_job(parallelism=2), "m")
    with pytest.raises(Conflict) as caught:
        on(job, a_job(parallelism=3))
    error = caught.value
    assert (error.code, error.reason) == (409, "Conflict")
    assert error.message == ('Apply failed with 1 conflict: conflict with "m": .spec.parallelism')
    assert error.details["causes"] == [
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "m"',
            "field": ".spec.parallelism",
        }
    ]


def test_apply_conflict_names_version_and_subresource_of_update() -> None:
    job = a_job(parallelism=2, completions=2)
    track_update(None, job, "m", NOON, "", JOB)
    with pytest.raises(Conflict) as caught:
        on(job, a_job(parallelism=3, completions=3))
    assert caught.value.message == (
        'Apply failed with 2 conflicts: conflicts with "m" using batch/v1:\n'
        "- .spec.completions\n- .spec.parallelism"
    )
    new = copy.deepcopy(job)
    new["status"] = {"active": 1}
    track_update(job, new, "m", NOON, "status", JOB)
    with pytest.raises(Conflict, match='conflict with "m" with subresource "status" using batch'):
        on(new, a_job(status={"active": 2}), subresource="status")


def test_force_takes_the_fields_over() -> None:
    job = on(None, a_job(parallelism=2, completions=2), "m")
    job = on(job, a_job(parallelism=3), force=True)
    assert bare(job) == a_job(parallelism=3, completions=2)
    assert entries(job) == {
        "a": {"f:spec": {"f:parallelism": {}}},
        "m": {"f:spec": {"f:completions": {}}},
    }


def test_fields_before_first_apply_get_their_own_entry() -> None:
    job = a_job(parallelism=2, completions=2, status={"active": 1})
    applied = on(job, a_job(parallelism=2))
    before: Any = {"f:spec": {"f:completions": {}, "f:parallelism": {}}}
    assert entries(applied) == {
        "a": {"f:spec": {"f:parallelism": {}}},
        "before-first-apply": before,
    }
    with pytest.raises(Conflict, match='conflict with "before-first-apply" using batch/v1'):
        on(job, a_job(parallelism=3))


def test_status_is_neither_set_nor_owned_from_the_main_endpoint() -> None:
    job = on(None, a_job(parallelism=1))
    job["status"] = {"active": 1}
    job = on(job, a_job(parallelism=1, status={"active": 5}))
    assert job["status"] == {"active": 1}
    assert entries(job) == {"a": {"f:spec": {"f:parallelism": {}}}}


def test_the_status_endpoint_owns_status_apart() -> None:
    job = on(None, a_job(parallelism=1))
    job = on(job, a_job(parallelism=9, status={"active": 5}), subresource="status")
    assert bare(job) == a_job(parallelism=1, status={"active": 5})
    main, status = job["metadata"]["managedFields"]
    assert "subresource" not in main
    assert (status["subresource"], status["fieldsV1"]) == ("status", {"f:status": {"f:active": {}}})


@pytest.mark.parametrize(
    ("live", "applied", "expected"),
    [
        ([{"name": "a"}, {"name": "b"}], [{"name": "b"}, {"name": "a"}], "ba"),
        ([{"name": "a"}, {"name": "x"}], [{"name": "a"}, {"name": "b"}], "axb"),
        ([{"name": "x"}, {"name": "a"}], [{"name": "b"}, {"name": "a"}], "xba"),
        ([{"name": "x"}], [{"name": "a"}], "xa"),
    ],
)
def test_keyed_items_come_in_the_applied_order_and_others_stay(
    live: Any, applied: Any, expected: str
) -> None:
    job = on(on(None, a_job(**pod_spec(*live)), "other"), a_job(**pod_spec(*applied)))
    containers = job["spec"]["template"]["spec"]["containers"]
    assert "".join(item["name"] for item in containers) == expected


def test_atomic_values_are_replaced_as_a_whole() -> None:
    job = on(
        None,
        a_job(
            **pod_spec({"name": "c", "command": ["a"]}, nodeSelector={"x": "1"}, tolerations=[]),
            podFailurePolicy={"rules": [{"action": "Ignore"}]},
        ),
    )
    job = on(
        job,
        a_job(
            **pod_spec({"name": "c", "command": ["b"]}, nodeSelector={"y": "1"}),
            podFailurePolicy={"rules": [{"action": "Count"}]},
        ),
    )
    assert job["spec"] == {
        **pod_spec({"name": "c", "command": ["b"]}, nodeSelector={"y": "1"}),
        "podFailurePolicy": {"rules": [{"action": "Count"}]},
    }


def test_finalizers_are_a_set() -> None:
    job = on(None, a_job(metadata={"finalizers": ["x/a", "x/b"]}))
    job = on(job, a_job(metadata={"finalizers": ["x/c"]}), "b")
    assert job["metadata"]["finalizers"] == ["x/a", "x/b", "x/c"]
    job = on(job, a_job(metadata={"finalizers": ["x/b"]}))
    assert job["metadata"]["finalizers"] == ["x/b", "x/c"]


def test_ports_without_protocol_are_tcp() -> None:
    def port(**more: Any) -> dict[str, Any]:
        return a_job(**pod_spec({"name": "c", "ports": [{"containerPort": 80, **more}]}))

    job = on(on(None, port(protocol="TCP")), port(name="web"), "b")
    [found] = job["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert found == {"containerPort": 80, "protocol": "TCP", "name": "web"}


@pytest.mark.parametrize(
    ("applied", "problem"),
    [
        (a_job(metadata={"managedFields": [{}]}), "metadata.managedFields must be nil"),
        (a_job(**pod_spec({"image": "x"})), "omits key field name"),
        (a_job(**pod_spec({"name": "x"}, {"name": "x"})), "duplicate entries for key"),
        (a_job(metadata={"finalizers": ["a", "a"]}), "duplicate entries for key"),
    ],
)
def test_unmergeable_apply_is_a_bad_request(applied: Any, problem: str) -> None:
    with pytest.raises(BadRequest, match=problem):
        on(None, applied)


def _client_side_applied(**spec: Any) -> dict[str, Any]:
    text = '{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j"},"spec":{"parallelism":1}}'
    job = a_job(metadata={"annotations": {LAST_APPLIED: text}}, **spec)
    track_update(None, job, "kubectl-client-side-apply", NOON, "", JOB)
    return job


def test_kubectl_may_overwrite_what_it_applied_on_the_client_side() -> None:
    job = on(_client_side_applied(parallelism=1), a_job(parallelism=5), "kubectl")
    assert job["spec"] == {"parallelism": 5}
    assert job["metadata"]["annotations"][LAST_APPLIED] == (
        '{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j"},"spec":{"parallelism":5}}\n'
    )


def test_others_and_other_fields_still_conflict() -> None:
    live = _client_side_applied(parallelism=1, completions=1)
    with pytest.raises(Conflict):
        on(live, a_job(parallelism=5), "someone")
    with pytest.raises(Conflict):
        on(live, a_job(completions=5), "kubectl")


def test_the_four_steps_of_kubectls_migration() -> None:
    live = _client_side_applied(parallelism=1, completions=1)
    wanted = a_job(parallelism=1)
    first = on(live, wanted, "kubectl")
    second = on(
        first,
        a_job(
            metadata={"annotations": {LAST_APPLIED: first["metadata"]["annotations"][LAST_APPLIED]}}
        ),
        "kubectl-last-applied",
    )
    # kubectl transfers everything that client-side apply owned to its apply entry.
    third = copy.deepcopy(second)
    third["metadata"]["managedFields"] = [
        entry | {"manager": "kubectl", "operation": "Apply"}
        if entry["manager"] == "kubectl-client-side-apply"
        else entry
        for entry in third["metadata"]["managedFields"]
        if entry["manager"] != "kubectl"
    ]
    track_update(second, third, "kubectl", NOON, "", JOB)
    fourth = on(third, wanted, "kubectl")
    assert bare(fourth)["spec"] == {"parallelism": 1}
    assert set(entries(fourth)) == {"kubectl", "kubectl-last-applied"}
    assert LAST_APPLIED in fourth["metadata"]["annotations"]


_names = st.sampled_from("abc")
_port: Any = st.fixed_dictionaries(
    {"containerPort": st.integers(1, 2)}, optional={"hostPort": st.integers(1, 2)}
)
_container: Any = st.fixed_dictionaries(
    {"name": _names},
    optional={
        "image": _names,
        "args": st.lists(_names, max_size=2),
        "ports": st.lists(_port, unique_by=lambda item: int(item["containerPort"])),
    },
)
_containers: Any = st.lists(_container, max_size=3, unique_by=lambda item: str(item["name"]))
_template: Any = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries({"labels": st.dictionaries(_names, _names, max_size=2)}),
        "spec": st.fixed_dictionaries({"containers": _containers}),
    },
)
_specs: Any = st.fixed_dictionaries(
    {},
    optional={
        "parallelism": st.integers(0, 2),
        "suspend": st.booleans(),
        "template": _template,
    },
)
_jobs: Any = st.builds(
    lambda spec, finalizers: a_job(metadata={"finalizers": finalizers}, **spec),
    _specs,
    st.lists(_names, max_size=2, unique=True),
)


@given(_jobs, _jobs)
def test_applying_twice_is_applying_once(first: Any, second: Any) -> None:
    arguments = copy.deepcopy((first, second))
    live = on(None, first, "one")
    once = on(live, second, "two", force=True)
    assert on(once, second, "two", now=LATER) == once
    assert (first, second) == arguments


@given(_jobs)
def test_empty_apply_removes_applied_fields(job: Any) -> None:
    empty = on(on(None, job), a_job())
    assert "managedFields" not in empty["metadata"]
    assert not _leaves(empty.get("spec"))
    assert "finalizers" not in empty["metadata"] or not empty["metadata"]["finalizers"]


@given(_jobs, _jobs)
def test_a_forced_apply_always_gets_its_way(first: Any, second: Any) -> None:
    job = on(on(None, first, "one"), second, "two", force=True)
    assert _within(second.get("spec", {}), job.get("spec", {}))


@given(_jobs, _jobs)
def test_an_update_after_an_apply_keeps_every_owned_field_present(first: Any, second: Any) -> None:
    live = on(None, first, "one")
    new = copy.deepcopy(second)
    track_update(live, new, "editor", LATER, "", JOB)
    again = on(new, second, "two")
    assert bare(again) == bare(new)


def _leaves(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_leaves(item) for item in value.values())
    return bool(value) if isinstance(value, list) else value is not None


def _within(part: Any, whole: Any) -> bool:
    """Return whether `whole` has all values of `part`; keyed items are matched by key."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            name in whole and _within(item, whole[name]) for name, item in part.items()
        )
    if not part:
        # An empty keyed list claims nothing about the items of other managers.
        return True
    if isinstance(part, list) and isinstance(part[0], dict):
        key = "name" if "name" in part[0] else "containerPort"
        by_key = {item[key]: item for item in whole}
        return all(_within(item, by_key.get(item[key])) for item in part)
    return bool(part == whole)
