"""Fields of the copy of a mirrored Job, and omitted ones."""

from typing import Any

import msgspec
import pytest

from onejob.objects.job import Job, read_job
from onejob.planning.mirror import names
from onejob.planning.mirror.annotations import (
    CopyLocation,
    InvalidAnnotation,
    read_mirror_spec,
    record_of,
)
from onejob.planning.mirror.copying import (
    ConfigRef,
    changed_copy,
    changes,
    copy_of,
    dropped_fields,
    named_config,
    needed_spec,
)

Document = dict[str, Any]
RECORD = CopyLocation("a", "far", "x")


def a_job(**spec: Any) -> Document:
    labels = {
        "batch.kubernetes.io/controller-uid": "u",
        "batch.kubernetes.io/job-name": "x",
        "controller-uid": "u",
        "job-name": "x",
        "app": "y",
    }
    return {
        "metadata": {
            "name": "x",
            "namespace": "ns",
            "uid": "u",
            "labels": {"team": "t"},
            "annotations": {names.TARGET: "a", "onejob.dev/backoff-seconds": "1"},
        },
        "spec": {
            "managedBy": names.MANAGER,
            "ttlSecondsAfterFinished": 5,
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
            "parallelism": 2,
            "template": {"metadata": {"labels": labels}, "spec": {"nodeSelector": {"a": "b"}}},
            **spec,
        },
    }


def test_a_copy_is_a_plain_suspended_job_that_names_its_origin() -> None:
    copy = copy_of(a_job(), RECORD)
    assert copy["metadata"]["namespace"] == "far"
    assert copy["metadata"]["labels"] == {"team": "t", names.ORIGIN: "u"}
    assert copy["metadata"]["annotations"]["onejob.dev/backoff-seconds"] == "1"
    assert names.TARGET not in copy["metadata"]["annotations"]
    assert copy["spec"].keys() == {"parallelism", "template", "suspend"}
    assert copy["spec"]["suspend"] is True
    assert copy["spec"]["template"]["metadata"]["labels"] == {"app": "y", names.ORIGIN: "u"}


def test_a_selector_of_the_users_own_is_kept() -> None:
    copy = copy_of(a_job(manualSelector=True, selector={"matchLabels": {"app": "y"}}), RECORD)
    assert copy["spec"]["selector"] == {"matchLabels": {"app": "y"}}
    assert copy["spec"]["template"]["metadata"]["labels"]["job-name"] == "x"


def test_a_template_follows_while_the_copy_is_suspended() -> None:
    copy = copy_of(a_job(), RECORD)
    copy["spec"]["template"]["metadata"]["labels"]["job-name"] = "generated"
    job = a_job(suspend=True)
    job["spec"]["template"]["spec"] = {"nodeSelector": {"a": "c"}}
    found = changes(job, copy)
    assert [change.field for change in found] == ["template"]
    after = changed_copy(job, copy, found)
    assert after["spec"]["template"]["spec"] == {"nodeSelector": {"a": "c"}}
    assert after["spec"]["template"]["metadata"]["labels"]["job-name"] == "generated"
    assert changes(job, after) == []
    copy["spec"]["suspend"] = False
    assert [change.field for change in changes(job, copy)] == ["suspend"]


def test_a_default_that_an_older_server_does_not_know_is_not_missed() -> None:
    job = a_job(podReplacementPolicy="TerminatingOrFailed")
    copy = copy_of(job, RECORD)
    del copy["spec"]["podReplacementPolicy"]
    assert list(dropped_fields(needed_spec(copy_of(job, RECORD)), copy["spec"])) == []
    copy["spec"]["suspend"] = False
    assert changes(job, copy) == []
    strict = copy_of(a_job(podReplacementPolicy="Failed"), RECORD)
    assert list(dropped_fields(needed_spec(strict), copy["spec"])) == ["spec.podReplacementPolicy"]


def test_defaults_of_the_remote_server_are_no_changes() -> None:
    copy = copy_of(a_job(), RECORD)
    copy["spec"] |= {"suspend": False, "backoffLimit": 6, "podReplacementPolicy": "Failed"}
    assert changes(a_job(), copy) == []


@pytest.mark.parametrize(
    ("sent", "stored", "dropped"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, []),
        ({"a": 1, "b": {"c": [{"d": 1}]}}, {"a": 2, "b": {"c": [{}]}}, ["spec.b.c[0].d"]),
        ({"a": [], "b": 0, "c": False, "d": None}, {}, []),
        ({"a": {"b": 1}}, {}, ["spec.a"]),
    ],
)
def test_fields_that_a_server_dropped(sent: Any, stored: Any, dropped: list[str]) -> None:
    assert list(dropped_fields(sent, stored)) == dropped


def test_config_that_a_template_names() -> None:
    container = {
        "env": [
            {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c1", "key": "k"}}},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s1", "optional": True}}},
        ],
        "envFrom": [{"configMapRef": {"name": "c2", "optional": True}}],
    }
    spec = {
        "imagePullSecrets": [{"name": "pull"}],
        "containers": [container],
        "initContainers": [{"envFrom": [{"secretRef": {"name": "s2"}}]}],
        "volumes": [
            {"configMap": {"name": "c2"}},
            {"secret": {"secretName": "s3"}},
            {"projected": {"sources": [{"secret": {"name": "s4"}}, {"downwardAPI": {}}]}},
        ],
    }
    assert set(named_config({"spec": spec})) == {
        ConfigRef("secrets", "pull", optional=True),
        ConfigRef("configmaps", "c1", optional=False),
        ConfigRef("configmaps", "c2", optional=False),
        ConfigRef("secrets", "s1", optional=True),
        ConfigRef("secrets", "s2", optional=False),
        ConfigRef("secrets", "s3", optional=False),
        ConfigRef("secrets", "s4", optional=False),
    }


def annotated(**annotations: str) -> Job:
    given = {f"onejob.dev/mirror-{name}": text for name, text in annotations.items()}
    document = {"metadata": {"namespace": "ns", "annotations": given}}
    return read_job(msgspec.json.encode(document))


def test_mirror_annotations_are_parsed() -> None:
    wanted = read_mirror_spec(
        annotated(target="a", copy="secrets, configmaps", **{"lost-after": "1h30m"})
    )
    assert (wanted.target, wanted.namespace, wanted.lost_after) == ("a", "ns", 5400.0)
    assert wanted.copied == {"secrets", "configmaps"}
    assert not wanted.restart


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ({}, "onejob.dev/mirror-target"),
        ({"target": "A_b"}, "onejob.dev/mirror-target"),
        ({"target": "a" * 60}, "onejob.dev/mirror-target"),
        ({"target": "a", "namespace": "x.y"}, "onejob.dev/mirror-namespace"),
        ({"target": "a", "copy": "pods"}, "onejob.dev/mirror-copy"),
        ({"target": "a", "lost-after": "-1m"}, "onejob.dev/mirror-lost-after"),
        ({"target": "a", "when-copy-deleted": "no"}, "onejob.dev/mirror-when-copy-deleted"),
    ],
)
def test_invalid_mirror_annotations_are_named(bad: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidAnnotation, match=named):
        read_mirror_spec(annotated(**bad))


def test_malformed_copy_record_counts_as_absent() -> None:
    assert record_of(annotated(record="{")) is None
    assert record_of(annotated(record='{"target":1}')) is None
