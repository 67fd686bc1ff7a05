"""onejob.dev/oom-memory-factor: replacements of OOM-killed Pods get more memory."""

from typing import Any

import msgspec
import pytest

from onejob.objects.pod import Pod
from onejob.planning.job.oom import MemoryGrowth, read_factor
from onejob.planning.job.operator_settings import Settings
from onejob.planning.job.plan import Plan
from onejob.planning.job.pod_template import PodFactory
from onejob.planning.job.pruning import keeps_accounted_pods
from onejob.planning.names import (
    OOM_MEMORY_FACTOR_ANNOTATION,
    OOM_MEMORY_MAX_ANNOTATION,
    OOM_RETRIES,
)
from onejob.wire.quantity import parse_quantity
from tests.planning.build import a_job, a_pod, an_indexed_job, plan

KILLED = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-03-01T11:00:00Z"}
RESOURCES = {"limits": {"memory": "100Mi", "cpu": "1"}, "requests": {"memory": "64Mi"}}
TEMPLATE = {
    "metadata": {"annotations": {OOM_RETRIES: "9"}},
    "spec": {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "resources": RESOURCES}, {"name": "small"}],
    },
}


def growing(factor: str = "2", **annotations: str) -> dict[str, Any]:
    return {"annotations": {OOM_MEMORY_FACTOR_ANNOTATION: factor, **annotations}}


def killed(name: str, *, retries: int = 0, **fields: Any) -> Pod:
    """Return a Pod that ran out of memory, after so many others."""
    statuses = [{"name": "c", "state": {"terminated": KILLED}}]
    annotations = {OOM_RETRIES: str(retries)} if retries else {}
    status = {"containerStatuses": statuses}
    fields = {"tracked": False, **fields}
    return a_pod(name, "F", annotations=annotations, status=status, **fields)


def memory(planned: Plan) -> list[tuple[str, str, str | None]]:
    """Return limit, request and annotation of each Pod to be created."""
    factory = PodFactory(planned.job, Settings())
    found = []
    for seed in planned.creations:
        pod = msgspec.json.decode(factory.document(seed))
        resources = pod["spec"]["containers"][0]["resources"]
        note = pod["metadata"].get("annotations", {}).get(OOM_RETRIES)
        found.append((resources["limits"]["memory"], resources["requests"]["memory"], note))
        assert resources["limits"]["cpu"] == "1"
        assert "resources" not in pod["spec"]["containers"][1]
    return found


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([], ("100Mi", "64Mi", None)),
        ([a_pod("f", "F", tracked=False, exit_code=137)], ("100Mi", "64Mi", None)),
        ([killed("a")], ("200Mi", "128Mi", "1")),
        ([killed("a", tracked=True)], ("200Mi", "128Mi", "1")),
        ([killed("a"), killed("b")], ("200Mi", "128Mi", "1")),
        ([killed("a"), killed("b", retries=1)], ("400Mi", "256Mi", "2")),
        # Other failures keep the present amount.
        (
            [a_pod("f", "F", tracked=False, annotations={OOM_RETRIES: "2"})],
            ("400Mi", "256Mi", "2"),
        ),
        ([a_pod("f", "F", tracked=False, annotations={OOM_RETRIES: "-1"})],
         ("100Mi", "64Mi", None)),
    ],
)  # fmt: skip
def test_memory_grows_with_each_pod_that_ran_out_of_it(
    pods: list[Pod], expected: tuple[str, str, str | None]
) -> None:
    job = a_job(metadata=growing(), template=TEMPLATE)
    assert memory(plan(job, pods)) == [expected]


@pytest.mark.parametrize(
    ("restart_policy", "exit_code", "expected"),
    [
        # An init container.
        (None, 137, ("200Mi", "128Mi", "1")),
        # A sidecar: another container made the Pod fail.
        ("Always", 137, ("100Mi", "64Mi", None)),
        # The container itself survived the kill of one of its processes.
        (None, 0, ("100Mi", "64Mi", None)),
    ],
)
def test_memory_grows_only_if_the_oom_kill_failed_the_pod(
    restart_policy: str | None, exit_code: int, expected: tuple[str, str, str | None]
) -> None:
    init = {"name": "i", **({"restartPolicy": restart_policy} if restart_policy else {})}
    failed = {"exitCode": 1, "reason": "Error", "finishedAt": "2026-03-01T11:00:00Z"}
    status = {
        "initContainerStatuses": [
            {"name": "i", "state": {"terminated": {**KILLED, "exitCode": exit_code}}}
        ],
        "containerStatuses": [{"name": "c", "state": {"terminated": failed}}],
    }
    pod = a_pod("a", "F", tracked=False, status=status, initContainers=[init])
    assert memory(plan(a_job(metadata=growing(), template=TEMPLATE), [pod])) == [expected]


def test_without_the_annotation_or_with_a_bad_one_nothing_grows() -> None:
    for metadata in ({}, growing("0.5"), growing("many")):
        job = a_job(metadata=metadata, template=TEMPLATE)
        planned = plan(job, [killed("a")])
        assert memory(planned) == [("100Mi", "64Mi", None)]
        assert not planned.notes
        assert not keeps_accounted_pods(job, Settings())


def test_each_index_grows_on_its_own() -> None:
    fields = {"metadata": growing(), "template": TEMPLATE, "completions": 3, "parallelism": 3}
    pods = [killed("a", index=1), killed("b", index=1, retries=1), killed("c", index=2)]
    expected = [
        ("100Mi", "64Mi", None), ("400Mi", "256Mi", "2"), ("200Mi", "128Mi", "1")
    ]  # fmt: skip
    assert memory(plan(an_indexed_job(**fields), pods)) == expected
    held = [killed("b", index=1, retries=1, tracked=True), killed("c", index=2, tracked=True)]
    assert memory(plan(an_indexed_job(**fields, backoffLimitPerIndex=5), held)) == expected


def test_growth_ends_at_the_maximum_and_never_takes_anything_away() -> None:
    metadata = growing("10", **{OOM_MEMORY_MAX_ANNOTATION: "256Mi"})
    planned = plan(a_job(metadata=metadata, template=TEMPLATE), [killed("a")])
    assert memory(planned) == [("256Mi", "256Mi", "1")]
    small = MemoryGrowth(1, 2000, parse_quantity("10Mi"))
    assert str(small.of(parse_quantity("100Mi"))) == "100Mi"
    # No whole KiB: a LimitRange with the same limit would refuse the next one, again and again.
    decimal = MemoryGrowth(3, 2000, parse_quantity("1G"))
    assert str(decimal.of(parse_quantity("256Mi"))) == "976562Ki"


def test_a_request_never_grows_beyond_its_limit() -> None:
    """A request above the limit is invalid. In KiB more is rounded up than in bytes."""
    resources = {"limits": {"memory": "1000000001", "cpu": "1"}, "requests": {"memory": "976562Ki"}}
    containers = [{"name": "c", "resources": resources}, {"name": "small"}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    planned = plan(a_job(metadata=growing("1.1"), template=template), [killed("a")])
    assert memory(planned) == [("1100000002", "1100000002", "1")]


@pytest.mark.parametrize(
    ("factor", "retries", "amount", "expected"),
    [
        ("1.5", 1, "1Gi", "1536Mi"),
        ("1.5", 2, "100M", "225M"),
        ("1.001", 1, "1Gi", "1049625Ki"),
        ("1.3", 1, "1", "2"),
        ("100", 64, "1Gi", "9007199254740991Ki"),
    ],
)
def test_amounts_are_exact_and_written_as_in_the_template(
    factor: str, retries: int, amount: str, expected: str
) -> None:
    thousandths = read_factor(factor)
    assert thousandths is not None
    grown = MemoryGrowth(retries, thousandths).of(parse_quantity(amount))
    assert str(grown) == expected
    assert parse_quantity(expected) == grown


def test_explanation_mentions_memory_growth() -> None:
    metadata = growing("1.5", **{OOM_MEMORY_MAX_ANNOTATION: "8Gi"})
    planned = plan(a_job(metadata=metadata, template=TEMPLATE), [killed("a", retries=1)])
    (note,) = [note.text for note in planned.notes if note.kind == "oom-memory"]
    assert note == (
        "Pods ran out of memory 2 times in a row: the next get up to 2.25 times the template's "
        "memory, at most 8Gi (onejob.dev/oom-memory-factor)"
    )


def test_oom_pod_with_memory_record_is_not_pruned() -> None:
    job = a_job(metadata=growing(), template=TEMPLATE, failedPodsLimit=0)
    pods = [killed("a"), killed("b", retries=1), a_pod("f", "F", tracked=False)]
    assert [pod.name for pod in plan(job, pods).prunings] == ["a", "f"]
    next_pod = a_pod("next", annotations={OOM_RETRIES: "2"})
    assert len(plan(job, [*pods, next_pod]).prunings) == 3
