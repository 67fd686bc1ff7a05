"""Pods built from a Job's template."""

from typing import Any

import msgspec
import pytest

from onejob.planning.job.operator_settings import Settings
from onejob.planning.job.plan import PodSeed
from onejob.planning.job.pod_template import (
    NewPod,
    PodFactory,
    generate_name,
    generate_name_with_index,
)
from onejob.planning.names import (
    FAILURE_COUNT_ANNOTATION,
    IGNORED_FAILURE_COUNT_ANNOTATION,
    INDEX_ANNOTATION,
    TRACKING,
    TRACKING_AS_PROPOSED,
)
from tests.planning.build import LABELS, OWNER, a_job, an_indexed_job

TEMPLATE: dict[str, Any] = {
    "metadata": {
        "labels": {"app": 'odd "text" é'},
        "annotations": {"note": "n"},
        "finalizers": ["acme.io/hold"],
    },
    "spec": {
        "hostname": "mine",
        "restartPolicy": "Never",
        "initContainers": [{"name": "first"}],
        "containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}]}],
    },
}


PLAIN = PodSeed()


def made(seed: PodSeed = PLAIN, *, tracked: bool = True, **fields: Any) -> dict[str, Any]:
    job = a_job(**fields)
    document: dict[str, Any] = msgspec.json.decode(
        PodFactory(job, Settings(), tracked=tracked).document(seed)
    )
    return document


def test_a_pod_takes_the_template_and_belongs_to_its_job() -> None:
    pod = made(template=TEMPLATE)
    assert pod["apiVersion"] == "v1"
    assert pod["kind"] == "Pod"
    assert pod["metadata"] == {
        "generateName": "demo-",
        "namespace": "default",
        "ownerReferences": [OWNER],
        "finalizers": ["acme.io/hold", TRACKING],
        "labels": TEMPLATE["metadata"]["labels"],
        "annotations": {"note": "n"},
    }
    assert pod["spec"] == TEMPLATE["spec"]


def test_an_indexed_pod_knows_its_index_in_five_places() -> None:
    pod = made(PodSeed(7), template=TEMPLATE, completionMode="Indexed", completions=9)
    assert pod["metadata"]["generateName"] == "demo-7-"
    assert pod["metadata"]["labels"] == {"app": 'odd "text" é', INDEX_ANNOTATION: "7"}
    assert pod["metadata"]["annotations"] == {"note": "n", INDEX_ANNOTATION: "7"}
    assert pod["spec"]["hostname"] == "demo-7"
    for container in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
        variable = container["env"][-1]
        assert variable["name"] == "JOB_COMPLETION_INDEX"
        assert variable["valueFrom"]["fieldRef"]["fieldPath"] == (
            "metadata.labels['batch.kubernetes.io/job-completion-index']"
        )
    assert pod["spec"]["containers"][0]["env"][0] == {"name": "A", "value": "1"}


def test_the_least_template_makes_a_valid_document() -> None:
    pod = made(PodSeed(0), template={"spec": {}}, completionMode="Indexed")
    assert pod["spec"] == {"hostname": "demo-0"}
    assert made(template={"spec": {}})["spec"] == {}


@pytest.mark.parametrize(
    ("seed", "counts"),
    [
        (PodSeed(1), {}),
        (PodSeed(1, 0), {FAILURE_COUNT_ANNOTATION: "0"}),
        (
            PodSeed(1, 2, 3),
            {FAILURE_COUNT_ANNOTATION: "2", IGNORED_FAILURE_COUNT_ANNOTATION: "3"},
        ),
    ],
)
def test_failure_counts_are_carried_on(seed: PodSeed, counts: dict[str, str]) -> None:
    stale = {"metadata": {"annotations": {FAILURE_COUNT_ANNOTATION: "99", INDEX_ANNOTATION: "5"}}}
    pod = made(seed, template=stale, completionMode="Indexed")
    assert pod["metadata"]["annotations"] == {INDEX_ANNOTATION: "1", **counts}


def test_pod_factory_creation_shares_the_template_of_an_indexed_job() -> None:
    factory = PodFactory(an_indexed_job(completions=9, template=TEMPLATE), Settings())
    first, second = (factory.creation(PodSeed(index)) for index in (0, 1))
    assert first.body is second.body
    assert first.variation is not None
    assert first.variation.hostname == "demo-0"
    assert first.variation.labels == {INDEX_ANNOTATION: "0"}


def test_pod_factory_creation_of_a_plain_job_has_no_variation() -> None:
    factory = PodFactory(a_job(template=TEMPLATE), Settings())
    assert factory.creation(PodSeed()) == NewPod(factory.document(PodSeed()))


@pytest.mark.parametrize("name", [TRACKING, TRACKING_AS_PROPOSED])
def test_a_tracking_finalizer_is_not_added_twice(name: str) -> None:
    pod = made(template={"metadata": {"finalizers": [name]}, "spec": {}})
    assert pod["metadata"]["finalizers"] == [name]


def test_the_finalizer_can_have_the_proposed_name_or_be_left_out() -> None:
    settings = Settings(tracking_finalizer=TRACKING_AS_PROPOSED)
    document = msgspec.json.decode(PodFactory(a_job(), settings).document(PodSeed()))
    assert document["metadata"]["finalizers"] == [TRACKING_AS_PROPOSED]
    assert made(tracked=False)["metadata"].get("finalizers", []) == []


def test_pod_factory_neither_decodes_nor_encodes_per_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    factory = PodFactory(an_indexed_job(completions=1000, template=TEMPLATE), Settings())

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a creation has the template and a variation")

    monkeypatch.setattr(msgspec.json, "decode", refuse)
    monkeypatch.setattr(msgspec.json, "encode", refuse)
    creations = [factory.creation(PodSeed(index)) for index in range(1000)]
    assert len({new.variation.hostname for new in creations if new.variation is not None}) == 1000


@pytest.mark.parametrize(
    ("job_name", "prefix"), [("demo", "demo-"), ("a.b", "a.b-"), ("x" * 300, "x" * 300)]
)
def test_generate_name_is_the_job_and_a_dash_where_that_is_valid(
    job_name: str, prefix: str
) -> None:
    assert generate_name(job_name) == prefix


def test_the_job_part_of_a_long_name_is_cut() -> None:
    assert generate_name_with_index("demo", 3) == "demo-3-"
    assert generate_name_with_index("j" * 63, 99999) == "j" * 51 + "-99999-"


def test_labels_keep_the_selectors_pods_findable() -> None:
    assert made()["metadata"]["labels"] == LABELS
