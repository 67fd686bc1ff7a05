"""Protobuf encoding: decoding it again returns the same document."""

import json
from pathlib import Path
from typing import Any

import pytest

from onejob.api.decoding.protobuf import decode_protobuf
from onejob.api.schema.protobuf_encoding import (
    encode_event,
    encode_list,
    encode_object,
    framed,
    has_message,
)
from onejob.api.schema.schema import load_schema
from onejob.api.schema.shapes import ObjectShape
from onejob.wire.kinds import BY_RESOURCE, KINDS
from tests.api.protobuf_support import PROTOBUF, body, message, sample
from tests.api.recording_server import Raw, Recorder, discovery, needs_kubectl

JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {
        "name": "j",
        "creationTimestamp": "2026-11-16T09:00:00Z",
        "labels": {"b": "2", "a": "1"},
        "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}],
    },
    "spec": {
        "backoffLimit": 0,
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "c",
                        "command": ["a", ""],
                        "resources": {"limits": {"cpu": "500m"}},
                        "livenessProbe": {"httpGet": {"port": "web", "path": "/"}},
                        "readinessProbe": {"tcpSocket": {"port": 80}},
                    }
                ],
                "volumes": [{"name": "v", "secret": {"secretName": "s", "optional": False}}],
                "securityContext": {"supplementalGroups": [1, -2], "runAsUser": 0},
            }
        },
    },
    "status": {"active": 1},
}


def written(document: dict[str, Any]) -> bytes:
    return encode_object(json.dumps(document).encode())


def test_encoded_document_decodes_to_itself() -> None:
    assert decode_protobuf(written(JOB)) == JOB


@pytest.mark.parametrize("zero", [False, True], ids=["set", "zero"])
@pytest.mark.parametrize("kind", [k for k in KINDS if has_message(k)], ids=lambda k: k.resource)
def test_every_field_of_every_kind_survives(kind: Any, zero: bool) -> None:
    shape = load_schema().kind(kind.api_version, kind.kind)
    document = {**sample(shape, zero), "apiVersion": kind.api_version, "kind": kind.kind}
    once = decode_protobuf(written(document))
    assert decode_protobuf(written(once)) == once
    if not zero:
        assert once.keys() >= shape.fields.keys() - {"apiVersion", "kind"}


def test_encoding_matches_bytes_of_go() -> None:
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a"},
        "data": {"z": "2", "k": "v"},
        "immutable": False,
    }
    raw = message(
        (1, message((1, "a"))),
        (2, message((1, "k"), (2, "v"))),
        (2, message((1, "z"), (2, "2"))),
        (4, 0),
    )
    assert written(config) == body("v1", "ConfigMap", raw) + message((3, ""), (4, ""))


def test_a_list_is_one_object_with_its_items() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}}
    document = json.dumps(pod).encode()
    encoded = encode_list(BY_RESOURCE["pods"], {"resourceVersion": "7"}, [document, document])
    item = message((1, message((1, "p"))), (2, b""))
    raw = message((1, message((2, "7"))), (2, item), (2, item))
    assert encoded == body("v1", "PodList", raw) + message((3, ""), (4, ""))


def test_an_event_comes_after_its_length_with_a_whole_object_inside() -> None:
    encoded = framed(encode_event("ADDED", json.dumps(JOB).encode()))
    assert int.from_bytes(encoded[:4], "big") == len(encoded) - 4
    assert encoded[4:] == message((1, "ADDED"), (2, message((1, written(JOB)))))


def test_times_keep_their_fractions_and_may_be_before_everything() -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l", "creationTimestamp": "1969-12-31T23:59:59Z"},
        "spec": {"renewTime": "2026-11-16T09:00:00.000123Z"},
    }
    assert decode_protobuf(written(lease)) == lease


def test_protobuf_omits_onejob_extensions() -> None:
    document = json.loads(json.dumps(JOB))
    document["spec"]["backoffSeconds"] = 3
    assert decode_protobuf(written(document)) == JOB


def test_a_status_can_be_written() -> None:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "gone",
        "reason": "Expired",
        "details": {"causes": [{"reason": "r", "message": "m", "field": "f"}]},
        "code": 410,
    }
    assert decode_protobuf(written(status)) == status


def test_the_shape_of_list_metadata_is_known() -> None:
    shape = load_schema().kind("v1", "Status").fields["metadata"]
    assert isinstance(shape, ObjectShape)
    assert "resourceVersion" in shape.fields


class TestWithKubectl:
    pytestmark = needs_kubectl

    def test_kubectl_reads_what_it_would_read_in_json(self, tmp_path: Path) -> None:
        """`create job --from` gets the CronJob by a typed client, which takes both."""
        cronjob: Any = sample(load_schema().kind("batch/v1", "CronJob"), False)
        cronjob |= {"apiVersion": "batch/v1", "kind": "CronJob"}
        cronjob["metadata"] = {"name": "x", "namespace": "default", "uid": "u"}
        made = []
        for answer in (cronjob, Raw(PROTOBUF, written(cronjob))):
            answers = discovery({"v1": {}, "batch/v1": {"jobs": "Job", "cronjobs": "CronJob"}})
            answers["/apis/batch/v1/namespaces/default/cronjobs/x"] = answer
            with Recorder(tmp_path, answers).running() as server:
                command = ("create", "job", "y", "--from=cronjob/x", "--dry-run=client")
                made.append(json.loads(server.kubectl(*command, "-o", "json")))
        assert made[0] == made[1]
        assert len(made[1]["spec"]["template"]["spec"]) > 25
