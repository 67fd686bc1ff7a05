"""Properties of `normalise` for any document, and for documents that upstream wrote."""

import copy
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onejob.api.schema.schema import TypeMismatch, load_schema, normalise
from tests.conformance import loader as conformance

JOB = load_schema().kind("batch/v1", "Job")

_JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {
        "name": "j",
        "creationTimestamp": "2026-11-15T10:00:00Z",
        "labels": {"a": "b"},
        "finalizers": ["x/y"],
        "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}],
    },
    "spec": {
        "parallelism": 1,
        "suspend": True,
        "podFailurePolicy": {
            "rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [1]}}]
        },
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "c",
                        "resources": {"limits": {"cpu": "500m"}},
                        "livenessProbe": {"httpGet": {"port": "web"}},
                        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
                    }
                ],
            }
        },
    },
    "status": {"conditions": [{"type": "Failed", "lastHeartbeatTime": "2026-11-15T10:00:00Z"}]},
}

_odd_values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "x", "1", "0.5Gi", "2026-11-15T10:00:00.5+01:00", "YWI="]),
    lambda inner: st.lists(inner, max_size=2)
    | st.dictionaries(st.sampled_from(["name", "cpu", "x", "type"]), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip


@given(st.data())
def test_any_document_is_refused_or_settles(data: st.DataObject) -> None:
    job = copy.deepcopy(_JOB)
    for _ in range(data.draw(st.integers(1, 3))):
        holder, key = data.draw(st.sampled_from(list(_places(job))))
        holder[key] = data.draw(_odd_values)
    try:
        normalise(job, JOB)
    except TypeMismatch:
        return
    once = copy.deepcopy(job)
    assert normalise(job, JOB) == []
    assert job == once
    assert msgspec.json.decode(msgspec.json.encode(job)) == once


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every (container, key or index) inside a document."""
    keys: Any = value.keys() if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


@pytest.mark.skipif(
    conformance.folder() is None,
    reason="no conformance folder beside the checkout and ONEJOB_CONFORMANCE is not set",
)
@pytest.mark.parametrize(
    ("file", "field", "kind"),
    [
        ("job_validate_create", "job", "Job"),
        ("job_validate_update", "new", "Job"),
        ("job_validate_status", "new", "Job"),
        ("job_sync", "job", "Job"),
        ("cronjob_sync", "cronJob", "CronJob"),
        ("defaults", "out", ""),
    ],
)
def test_documents_that_upstream_wrote_are_left_as_they_are(
    file: str, field: str, kind: str
) -> None:
    seen = 0
    for case in conformance.load(file):
        holder = next((c for c in (case, case.get("args", {})) if c.get(field)), None)
        if holder is None:
            continue
        document = holder[field]
        before = copy.deepcopy(document)
        shape = load_schema().kind("batch/v1", kind or case["kind"])
        assert normalise(document, shape) == [], case.get("name")
        assert document == before, case.get("name")
        seen += 1
    assert seen > 10


def test_empty_lists_and_maps_of_built_in_kinds_are_omitted_as_in_go() -> None:
    pod: Any = {
        "metadata": {"labels": {}},
        "spec": {
            "containers": [{"name": "c", "args": [], "resources": {"limits": {}}}],
            "nodeSelector": {},
            "affinity": {},
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
    }
    shape = load_schema().kind("v1", "Pod")
    assert load_schema().normalise(pod, shape) == []
    assert pod["spec"] == {
        "containers": [{"name": "c", "resources": {}}],
        "affinity": {},
        "volumes": [{"name": "v", "emptyDir": {}}],
    }


def test_empty_lists_that_go_writes_are_kept() -> None:
    limits: Any = {"spec": {"limits": []}}
    schema = load_schema()
    assert schema.normalise(limits, schema.kind("v1", "LimitRange")) == []
    assert limits == {"spec": {"limits": []}}
