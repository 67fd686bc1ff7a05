import base64
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onejob.api.decoding.bodies import decode_body
from onejob.api.decoding.protobuf import decode_protobuf
from onejob.api.schema.schema import load_schema, normalise
from onejob.wire.errors import BadRequest
from tests.api.protobuf_support import PROTOBUF, body, message, sample
from tests.api.recording_server import Recorder, discovery, needs_kubectl


def a_job(spec: bytes, *metadata: tuple[int, int | str | bytes]) -> dict[str, Any]:
    raw = message((1, message(*metadata)), (2, spec), (3, b""))
    return decode_protobuf(body("batch/v1", "Job", raw))


def test_a_body_becomes_the_document_that_json_would_be() -> None:
    container = message((1, "c"), (2, "i"), (3, "sh"), (3, "-c"), (5, ""), (16, 0), (8, b""))
    pod_spec = message((2, container), (3, "Never"), (10, ""))
    template = message((1, message((8, b""))), (2, pod_spec))
    labels = message((1, "a"), (2, "b"))
    assert a_job(message((1, 0), (6, template)), (1, "j"), (11, labels), (7, 0)) == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "labels": {"a": "b"}},
        "spec": {
            "parallelism": 0,
            "template": {
                "metadata": {},
                "spec": {
                    "containers": [
                        {"name": "c", "image": "i", "command": ["sh", "-c"], "resources": {}}
                    ],
                    "restartPolicy": "Never",
                },
            },
        },
        "status": {},
    }


def test_a_zero_counts_only_where_go_has_a_pointer_or_always_writes_it() -> None:
    port = message((2, 0), (3, 0), (4, ""))
    security = message((4, 0), (5, 0))
    container = message((1, ""), (6, port), (15, security), (18, 0))
    job = a_job(message((6, message((2, message((2, container), (4, 0), (11, 0)))))))
    pod = job["spec"]["template"]["spec"]
    assert pod == {
        "containers": [
            {
                "name": "",
                "ports": [{"containerPort": 0}],
                "securityContext": {"runAsUser": 0, "runAsNonRoot": False},
            }
        ],
        "terminationGracePeriodSeconds": 0,
    }


@pytest.mark.parametrize(
    ("wire", "value"), [(-1, -1), (2**31 - 1, 2**31 - 1), (-(2**31), -(2**31))]
)
def test_numbers_keep_their_sign(wire: int, value: int) -> None:
    assert a_job(message((1, wire)))["spec"]["parallelism"] == value


@pytest.mark.parametrize("codes", [message((3, 1), (3, 300)), message((3, b"\x01\xac\x02"))])
def test_repeated_numbers_may_be_packed(codes: bytes) -> None:
    rule = message((1, "FailJob"), (2, message((2, "In")) + codes))
    job = a_job(message((11, message((1, rule)))))
    assert job["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [1, 300]


def test_quantities_times_and_ports_have_messages_of_their_own() -> None:
    limits = message((1, message((1, "cpu"), (2, message((1, "500m"))))))
    port = message((1, 1), (2, 0), (3, "web"))
    number = message((1, 0), (2, 80), (3, ""))
    container = message(
        (8, limits),
        (10, message((1, message((2, message((2, number))))))),
        (11, message((1, message((2, message((2, port))))))),
    )
    job = a_job(
        message((6, message((2, message((2, container)))))), (9, message((1, 1763202600), (2, 5)))
    )
    found = job["spec"]["template"]["spec"]["containers"][0]
    assert found["resources"] == {"limits": {"cpu": "500m"}}
    assert found["livenessProbe"]["httpGet"]["port"] == 80
    assert found["readinessProbe"]["httpGet"]["port"] == "web"
    assert job["metadata"]["deletionTimestamp"] == "2025-11-15T10:30:00Z"


def test_micro_times_and_bytes_and_raw_json() -> None:
    spec = message((4, message((1, 1763202600), (2, 1500))))
    lease = decode_protobuf(body("coordination.k8s.io/v1", "Lease", message((2, spec))))
    assert lease["spec"] == {"renewTime": "2025-11-15T10:30:00.000001Z"}
    entry = message((1, "k"), (2, b"\x00\xff"))
    secret = decode_protobuf(body("v1", "Secret", message((2, entry))))
    assert secret["data"] == {"k": base64.b64encode(b"\x00\xff").decode()}
    fields = message((1, "m"), (7, message((1, '{"f:spec":{}}'))))
    job = a_job(b"", (17, fields))
    assert job["metadata"]["managedFields"] == [{"manager": "m", "fieldsV1": {"f:spec": {}}}]


def test_lists_inside_maps_are_wrapped() -> None:
    extra = message((1, "k"), (2, message((1, "a"), (1, "b"))))
    raw = message((2, message((5, extra))))
    review = decode_protobuf(body("authorization.k8s.io/v1", "SubjectAccessReview", raw))
    assert review["spec"] == {"extra": {"k": ["a", "b"]}}


def test_an_eviction_as_drain_sends_it() -> None:
    raw = message((1, message((1, "p"), (3, "n"))), (2, message((1, 0))))
    assert decode_protobuf(body("policy/v1", "Eviction", raw)) == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "p", "namespace": "n"},
        "deleteOptions": {"gracePeriodSeconds": 0},
    }


def test_delete_options_are_accepted_in_group_of_deleted_kind() -> None:
    raw = message((1, 0), (2, message((1, "u"))), (4, "Background"))
    assert decode_protobuf(body("batch/v1", "DeleteOptions", raw)) == {
        "apiVersion": "batch/v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u"},
        "propagationPolicy": "Background",
    }


def test_fields_that_are_not_known_are_skipped() -> None:
    raw = message((99, "x"), (98, 5)) + b"\xa9\x06" + b"12345678" + b"\xad\x06" + b"1234"
    document = decode_protobuf(body("v1", "ConfigMap", raw))
    assert document == {"apiVersion": "v1", "kind": "ConfigMap"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"k8s",
        b"k8s\0",
        b'{"kind":"Job"}',
        body("batch/v1", "Nope", b""),
        body("apps/v1", "Scale", b""),
        body("batch/v1", "Job", b"\x0a\x05ab"),
        body("batch/v1", "Job", message((1, 5))),
        body("batch/v1", "Job", message((1, message((1, b"\xff\xfe"))))),
        body("batch/v1", "Job", message((2, message((1, "text"))))),
        body("batch/v1", "Job", b"\x0b"),
        body("batch/v1", "Job", b"\x08" + b"\xff" * 11),
        body("batch/v1", "Job", message((1, message((8, message((1, 2**62))))))),
        body("batch/v1", "Job", message((1, message((17, message((7, message((1, "{"))))))))),
    ],
)
def test_malformed_protobuf_is_a_bad_request(data: bytes) -> None:
    with pytest.raises(BadRequest):
        decode_protobuf(data)


_raw: Any = st.recursive(
    st.integers(0, 2**64 - 1) | st.binary(max_size=6) | st.text(max_size=4),
    lambda inner: st.lists(st.tuples(st.integers(1, 25), inner), max_size=4).map(
        lambda fields: message(*fields)
    ),
    max_leaves=12,
)


@given(st.lists(st.tuples(st.integers(1, 5), _raw), max_size=4), st.integers(0, 40))
def test_any_fields_are_read_or_refused(fields: Any, cut: int) -> None:
    data = body("batch/v1", "Job", message(*fields))
    for attempt in (data, data[: max(0, len(data) - cut)]):
        with contextlib.suppress(BadRequest):
            decode_protobuf(attempt)


class TestWithKubectl:
    pytestmark = needs_kubectl

    @pytest.mark.parametrize("zero", [False, True])
    def test_a_job_with_every_field_set(self, tmp_path: Path, zero: bool) -> None:
        """kubectl's JSON of an object is the reference for its decoded protobuf."""
        job_type = load_schema().kind("batch/v1", "Job")
        answers = discovery({"v1": {}, "batch/v1": {"jobs": "Job", "cronjobs": "CronJob"}})
        cronjob: Any = sample(load_schema().kind("batch/v1", "CronJob"), zero)
        cronjob |= {"apiVersion": "batch/v1", "kind": "CronJob"}
        cronjob["metadata"] = {"name": "x", "namespace": "default", "uid": "u"}
        answers["/apis/batch/v1/namespaces/default/cronjobs/x"] = cronjob
        answers["POST /apis/batch/v1/namespaces/default/jobs"] = {
            "apiVersion": "batch/v1",
            "kind": "Job",
        }
        with Recorder(tmp_path, answers).running() as server:
            command = ("create", "job", "y", "--from=cronjob/x")
            expected = json.loads(server.kubectl(*command, "--dry-run=client", "-o", "json"))
            server.kubectl(*command)
        [(content_type, data)] = server.bodies("POST")
        document = decode_body(data, content_type).document
        normalise(expected, job_type)
        normalise(document, job_type)
        assert content_type == PROTOBUF
        assert document == expected
        assert len(document["spec"]["template"]["spec"]) > 25

    @pytest.mark.parametrize(
        ("api_version", "kind", "path", "command"),
        [
            ("batch/v1", "Job", "namespaces/default/jobs", "job j --image=i -- a b"),
            (
                "batch/v1", "CronJob", "namespaces/default/cronjobs",
                "cronjob c --image=i --schedule=@daily --restart=Never",
            ),
            ("v1", "Namespace", "namespaces", "namespace n"),
            (
                "v1", "ConfigMap", "namespaces/default/configmaps",
                "configmap m --from-literal=a=1 --from-literal=b=",
            ),
            (
                "v1", "Secret", "namespaces/default/secrets",
                "secret generic s --from-literal=a=1",
            ),
            ("v1", "ServiceAccount", "namespaces/default/serviceaccounts", "serviceaccount a"),
        ],
    )  # fmt: skip
    def test_imperative_creation(
        self, tmp_path: Path, api_version: str, kind: str, path: str, command: str
    ) -> None:
        root = "apis" if "/" in api_version else "api"
        answers = discovery({"v1": {}, "batch/v1": {}})
        answers[f"POST /{root}/{api_version}/{path}"] = {"apiVersion": api_version, "kind": kind}
        with Recorder(tmp_path, answers).running() as server:
            words = command.split()
            # Flags go before `--`.
            end = words.index("--") if "--" in words else len(words)
            dry = [*words[:end], "--dry-run=client", "-o", "json", *words[end:]]
            expected = json.loads(server.kubectl("create", *dry))
            server.kubectl("create", *words)
        [(content_type, data)] = server.bodies("POST")
        document = decode_body(data, content_type).document
        shape = load_schema().kind(api_version, kind)
        normalise(expected, shape)
        normalise(document, shape)
        expected["metadata"].pop("namespace", None)
        document["metadata"].pop("namespace", None)
        assert (content_type, document) == (PROTOBUF, expected)

    def test_asking_what_one_may_do(self, tmp_path: Path) -> None:
        review = "authorization.k8s.io/v1"
        answers = discovery({"v1": {"pods": "Pod"}, "batch/v1": {"jobs": "Job"}})
        answers[f"POST /apis/{review}/selfsubjectaccessreviews"] = {
            "kind": "SelfSubjectAccessReview",
            "apiVersion": review,
            "status": {"allowed": True},
        }
        with Recorder(tmp_path, answers).running() as server:
            assert server.kubectl("auth", "can-i", "create", "jobs.batch", "-n", "x") == "yes\n"
        [(content_type, data)] = server.bodies("POST")
        document = decode_body(data, content_type).document
        assert content_type == PROTOBUF
        assert document["spec"] == {
            "resourceAttributes": {
                "namespace": "x",
                "verb": "create",
                "group": "batch",
                "resource": "jobs",
            }
        }
