import copy
from typing import Any

import pytest

from onejob.api.schema.schema import (
    TypeMismatch,
    all_problems,
    load_schema,
    normalise,
)
from onejob.api.schema.shapes import ListShape, ObjectShape
from onejob.wire.kinds import KINDS

SCHEMA = load_schema()
JOB = SCHEMA.kind("batch/v1", "Job")
POD = SCHEMA.kind("v1", "Pod")


def a_job(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}


def a_pod(**container: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i", **container}]},
    }


def test_every_served_kind_has_a_shape() -> None:
    for kind in KINDS:
        shape = SCHEMA.kind(kind.api_version, kind.kind)
        assert (shape.api_version, shape.kind) == (kind.api_version, kind.kind)
        for sub in kind.subresources:
            if sub.kind and not sub.kind.endswith("Options"):
                version = f"{sub.group}/{sub.version}" if sub.group else sub.version or "v1"
                assert SCHEMA.knows(version, sub.kind)


def test_schema_rejects_unknown_kinds() -> None:
    assert not SCHEMA.knows("batch/v2", "Job")
    with pytest.raises(KeyError):
        SCHEMA.kind("batch/v2", "Job")


def test_delete_options_belong_to_every_group() -> None:
    assert SCHEMA.kind("batch/v1", "DeleteOptions") is SCHEMA.kind("v1", "DeleteOptions")


def test_the_shapes_name_the_release_they_come_from() -> None:
    major, minor, patch = SCHEMA.release.removeprefix("v").split(".")
    assert (int(major), int(minor) >= 37, patch.isdigit()) == (1, True, True)


def test_nulls_are_dropped_everywhere() -> None:
    job = a_job(parallelism=None, template={"metadata": {"creationTimestamp": None}, "spec": None})
    job["status"] = None
    assert normalise(job, JOB) == []
    assert job == a_job(template={"metadata": {}})


def test_a_null_inside_a_list_or_map_becomes_the_empty_value_as_in_go() -> None:
    pod = a_pod(args=[None, "a"], env=[None], resources={"limits": {"cpu": None}})
    pod["metadata"]["labels"] = {"a": None}
    normalise(pod, POD)
    container = pod["spec"]["containers"][0]
    assert container["args"] == ["", "a"]
    assert container["env"] == [{}]
    assert container["resources"] == {"limits": {"cpu": "0"}}
    assert pod["metadata"]["labels"] == {"a": ""}


def test_unknown_fields_are_dropped_and_named_in_document_order() -> None:
    pod = a_pod(fooBar=1, env=[{"name": "A", "Value": "x"}])
    pod["zzz"] = {"deep": {"er": 1}}
    pod["metadata"]["Labels"] = {}
    pod["spec"]["nope"] = None
    expected = a_pod(env=[{"name": "A"}])
    assert normalise(pod, POD) == [
        'unknown field "metadata.Labels"',
        'unknown field "spec.containers[0].fooBar"',
        'unknown field "spec.containers[0].env[0].Value"',
        'unknown field "spec.nope"',
        'unknown field "zzz"',
    ]
    assert pod == expected


def test_duplicates_inside_unknown_fields_do_not_count() -> None:
    unknown = ['unknown field "spec.foo"', 'unknown field "x"']
    duplicates = [
        'duplicate field "spec.foo"',
        'duplicate field "spec.foo.a"',
        'duplicate field "spec.foo[0].a"',
        'duplicate field "spec.fooBar"',
        'line 3: key "a" already set in map',
    ]
    assert all_problems(unknown, duplicates) == [*unknown, *duplicates[3:]]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            {"backoffLimit": "3"},
            "json: cannot unmarshal string into Go struct field JobSpec.spec.backoffLimit "
            "of type int32",
        ),
        (
            {"backoffLimit": 1.5},
            "json: cannot unmarshal number 1.5 into Go struct field JobSpec.spec.backoffLimit "
            "of type int32",
        ),
        (
            {"backoffLimit": 3000000000},
            "json: cannot unmarshal number 3000000000 into Go struct field "
            "JobSpec.spec.backoffLimit of type int32",
        ),
        (
            {"activeDeadlineSeconds": 2**63},
            "json: cannot unmarshal number 9223372036854775808 into Go struct field "
            "JobSpec.spec.activeDeadlineSeconds of type int64",
        ),
        (
            {"parallelism": True},
            "json: cannot unmarshal bool into Go struct field JobSpec.spec.parallelism "
            "of type int32",
        ),
        (
            {"suspend": "yes"},
            "json: cannot unmarshal string into Go struct field JobSpec.spec.suspend of type bool",
        ),
        (
            {"managedBy": 5},
            "json: cannot unmarshal number into Go struct field JobSpec.spec.managedBy "
            "of type string",
        ),
        (
            {"template": []},
            "json: cannot unmarshal array into Go struct field JobSpec.spec.template "
            "of type v1.PodTemplateSpec",
        ),
        (
            {"template": {"spec": {"containers": {}}}},
            "json: cannot unmarshal object into Go struct field "
            "PodSpec.spec.template.spec.containers of type []v1.Container",
        ),
        (
            {"template": {"spec": {"containers": [{"env": [{"name": "A", "value": 1}]}]}}},
            "json: cannot unmarshal number into Go struct field "
            "EnvVar.spec.template.spec.containers.env.value of type string",
        ),
        (
            {"selector": {"matchLabels": {"a": True}}},
            "json: cannot unmarshal bool into Go struct field "
            "LabelSelector.spec.selector.matchLabels of type string",
        ),
        (
            {"template": {"spec": {"containers": [{"resources": {"limits": {"cpu": "x"}}}]}}},
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            {"template": {"spec": {"containers": [{"resources": {"limits": {"cpu": {}}}}]}}},
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            {"template": {"metadata": {"deletionTimestamp": "yesterday"}}},
            'parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": '
            'cannot parse "yesterday" as "2006"',
        ),
        (
            {"template": {"metadata": {"deletionTimestamp": 5}}},
            "json: cannot unmarshal number into Go struct field "
            "ObjectMeta.spec.template.metadata.deletionTimestamp of type string",
        ),
    ],
)
def test_wrong_types_are_refused_in_the_words_of_gos_decoder(
    spec: dict[str, Any], problem: str
) -> None:
    with pytest.raises(TypeMismatch) as caught:
        normalise(a_job(**spec), JOB)
    assert caught.value.code == 400
    assert caught.value.problem == problem
    assert caught.value.message == (f'Job in version "v1" cannot be handled as a Job: {problem}')


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("2026-11-15T18:31:32Z", "2026-11-15T18:31:32Z"),
        ("2026-11-15T18:31:32.987654321Z", "2026-11-15T18:31:32Z"),
        ("2026-11-15T18:31:32+02:00", "2026-11-15T16:31:32Z"),
        ("0001-01-01T00:00:01Z", "0001-01-01T00:00:01Z"),
    ],
)
def test_times_are_stored_in_whole_seconds_of_utc(sent: str, stored: str) -> None:
    job = a_job()
    job["metadata"]["creationTimestamp"] = sent
    normalise(job, JOB)
    assert job["metadata"]["creationTimestamp"] == stored


@pytest.mark.parametrize(
    "sent",
    [
        "2026-11-15T18:31:32.5Z",
        "2026-11-15T18:31:32.500000Z",
        "2026-11-15T20:31:32.5000001+02:00",
    ],
)
def test_micro_times_keep_six_digits(sent: str) -> None:
    lease = {"metadata": {"name": "l"}, "spec": {"renewTime": sent}}
    normalise(lease, SCHEMA.kind("coordination.k8s.io/v1", "Lease"))
    assert lease["spec"] == {"renewTime": "2026-11-15T18:31:32.500000Z"}


@pytest.mark.parametrize(
    "zero", ["0001-01-01T00:00:00Z", "0001-01-01T01:00:00+01:00", "0001-01-01T00:00:00.5Z"]
)
def test_the_zero_time_of_go_is_no_time(zero: str) -> None:
    """Kubernetes writes it as null, so that a client never finds it."""
    job = {**a_job(), "status": {"startTime": zero, "conditions": [{"lastTransitionTime": zero}]}}
    normalise(job, JOB)
    assert job["status"] == {"conditions": [{}]}
    lease = {"metadata": {"name": "l"}, "spec": {"renewTime": "0001-01-01T00:00:00Z"}}
    normalise(lease, SCHEMA.kind("coordination.k8s.io/v1", "Lease"))
    assert lease["spec"] == {}


@pytest.mark.parametrize("text", ["2026-02-30T00:00:00Z", "2026-11-15 18:31:32Z", "", "2026-11-15"])
def test_times_that_do_not_exist_are_refused(text: str) -> None:
    job = a_job()
    job["metadata"]["creationTimestamp"] = text
    with pytest.raises(TypeMismatch, match="parsing time"):
        normalise(job, JOB)


def test_quantities_are_stored_canonically() -> None:
    pod = a_pod(resources={"requests": {"cpu": 0.5, "memory": "1024Mi", "pods": 2}})
    normalise(pod, POD)
    assert pod["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "500m", "memory": "1Gi", "pods": "2"}
    }


def test_ports_may_be_numbers_or_names() -> None:
    pod = a_pod(readinessProbe={"httpGet": {"port": "web"}}, livenessProbe={"httpGet": {"port": 8}})
    before = copy.deepcopy(pod)
    assert normalise(pod, POD) == []
    assert pod == before
    with pytest.raises(TypeMismatch, match=r"cannot unmarshal bool .* of type int32"):
        normalise(a_pod(readinessProbe={"httpGet": {"port": True}}), POD)


@pytest.mark.parametrize(
    ("text", "byte"), [("!", 0), ("YWJ", 0), ("YWJjZ", 4), ("YW=j", 2), ("YWJj=", 4)]
)
def test_secret_data_must_be_base64(text: str, byte: int) -> None:
    secret = SCHEMA.kind("v1", "Secret")
    good = {"data": {"a": "YWJj", "b": ""}}
    assert normalise(good, secret) == []
    with pytest.raises(TypeMismatch, match=f"illegal base64 data at input byte {byte}"):
        normalise({"data": {"a": text}}, secret)


def test_managed_fields_are_not_pruned() -> None:
    job = a_job()
    entry = {"manager": "m", "fieldsV1": {"f:spec": {"f:whatever": {".": {}, "x": None}}}}
    job["metadata"]["managedFields"] = [entry]
    before = copy.deepcopy(job)
    assert normalise(job, JOB) == []
    assert job == before


def test_extension_fields_are_part_of_the_schema() -> None:
    job = a_job(
        backoffSeconds=2**40,
        failedPodsLimit=3,
        template={"spec": {"ttlSecondsAfterFinished": 5}},
    )
    before = copy.deepcopy(job)
    assert normalise(job, JOB) == []
    assert job == before
    cronjob = {"spec": {"jobTemplate": {"spec": {"backoffSeconds": 1, "failedPodsLimit": 1}}}}
    assert normalise(cronjob, SCHEMA.kind("batch/v1", "CronJob")) == []
    with pytest.raises(TypeMismatch, match="of type int32"):
        normalise(a_job(failedPodsLimit=2**40), JOB)


def test_the_original_name_of_last_probe_time_is_an_alias() -> None:
    job = a_job()
    now, then = "2026-11-15T00:00:00Z", "2026-11-14T00:00:00Z"
    job["status"] = {
        "conditions": [
            {"type": "Complete", "lastHeartbeatTime": now},
            {"type": "Failed", "lastHeartbeatTime": now, "lastProbeTime": then},
        ]
    }
    assert normalise(job, JOB) == []
    assert job["status"]["conditions"] == [
        {"type": "Complete", "lastProbeTime": now},
        {"type": "Failed", "lastProbeTime": then},
    ]


def _field(shape: ObjectShape, *path: str) -> ListShape:
    found: Any = shape
    for name in path:
        found = found.items if isinstance(found, ListShape) else found
        found = found.fields[name]
    assert isinstance(found, ListShape)
    return found


@pytest.mark.parametrize(
    ("path", "list_type", "keys", "merge_key"),
    [
        (("spec", "containers"), "map", ("name",), "name"),
        (("spec", "containers", "ports"), "map", ("containerPort", "protocol"), "containerPort"),
        (("spec", "containers", "volumeMounts"), "map", ("mountPath",), "mountPath"),
        (("spec", "containers", "command"), "atomic", (), ""),
        (("spec", "tolerations"), "atomic", (), ""),
        (("status", "conditions"), "map", ("type",), "type"),
        (("metadata", "ownerReferences"), "map", ("uid",), "uid"),
        (("metadata", "finalizers"), "set", (), ""),
    ],
)
def test_lists_know_how_they_merge(
    path: tuple[str, ...], list_type: str, keys: tuple[str, ...], merge_key: str
) -> None:
    shape = _field(POD, *path)
    assert (shape.list_type, shape.keys, shape.merge_key) == (list_type, keys, merge_key)


def test_job_conditions_are_atomic_for_apply_and_merged_by_type_for_patches() -> None:
    shape = _field(JOB, "status", "conditions")
    assert (shape.list_type, shape.merge_key) == ("atomic", "type")
    assert "merge" in shape.strategies
