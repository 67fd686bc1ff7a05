"""Cache of Pod specs: a new Pod is the same whether its spec was cached or not."""

import copy
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from onejob.api.sections import sectioned
from onejob.api.service import Service
from onejob.api.writing.created_spec import CreatedSpecs
from onejob.api.writing.writes import Writes
from onejob.objects.meta import PODS, Key
from onejob.wire.errors import ApiError
from onejob.wire.kinds import BY_RESOURCE
from onejob.wire.requests import Outcome, WriteOptions
from tests.api.two_services import TRUSTED, with_two_services

Doc = dict[str, Any]

POD = BY_RESOURCE[PODS]
STRICT = WriteOptions(field_manager="m", field_validation="Strict")
WARNING = WriteOptions(field_manager="m")
DRY_RUN = WriteOptions(field_manager="m", dry_run=True)


class NothingRemembered(CreatedSpecs):
    def judge(self, *_: Any, **__: Any) -> None:
        return None


def a_pod(metadata: Doc | None = None, **spec: Any) -> Doc:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "job-", "labels": {"a": "b"}, **(metadata or {})},
        "spec": {
            **spec,
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "busybox", "resources": {"limits": {"cpu": 1}}}],
        },
    }


def created(writes: Writes, pod: Doc, options: WriteOptions) -> bytes | tuple[int, str]:
    body = sectioned(msgspec.json.encode(pod)) if options.trusted else copy.deepcopy(pod)
    try:
        outcome: Outcome = writes.create(POD, "default", body, options)
    except ApiError as error:
        return error.code, error.message
    return b"%b %r" % (outcome.document, outcome.warnings)


def plain(service: Service) -> Writes:
    writes = service.writes
    forgetful = NothingRemembered(writes.strategies, writes.schema, writes.means)
    return replace(writes, created_specs=forgetful)


def compared(folder: Path, test: Callable[[Writes, Writes], Awaitable[None]]) -> None:
    with_two_services(folder, lambda one, other: test(one.writes, plain(other)))


PODS_TO_MAKE: list[Doc] = [
    a_pod(),
    a_pod(hostname="job-0"),
    a_pod(hostname="job-1"),
    a_pod(hostname="Not A Name"),
    a_pod(hostname=""),
    a_pod(hostname=7),
    a_pod({"name": "given"}),
    a_pod({"name": "Not A Name"}),
    a_pod({"labels": {"not a label": "x"}}),
    a_pod({"name": "dotted.name", "finalizers": [], "annotations": {}}),
    a_pod(schedulingGates=[{"name": "a/b"}]),
    a_pod(activeDeadlineSeconds=-1),
    a_pod(unknown={"a": 1}, hostname="job-2"),
    a_pod(hostNetwork="yes"),
    a_pod(securityContext={"runAsUser": 1000}),
    a_pod(imagePullSecrets=[{}]),
    a_pod(nodeSelector=None),
    {**a_pod(), "status": {"phase": "Running"}, "unknown": 1},
    {**a_pod(), "spec": {}},
    {**a_pod(), "spec": []},
    {"metadata": {"generateName": "job-"}},
]


@pytest.mark.parametrize("options", [TRUSTED, STRICT, WARNING, DRY_RUN])
def test_a_spec_that_was_seen_before_comes_out_the_same(
    tmp_path: Path, options: WriteOptions
) -> None:
    async def test(remembering: Writes, plain: Writes) -> None:
        # Our own writers send only well-formed documents.
        pods = PODS_TO_MAKE[:3] + PODS_TO_MAKE[9:12] if options.trusted else PODS_TO_MAKE
        for pod in pods:
            for _ in range(2):
                plain.rng.setstate(remembering.rng.getstate())
                found = created(remembering, pod, options)
                assert found == created(plain, pod, options), pod

    compared(tmp_path, test)


def test_the_pods_of_an_indexed_job_share_one_memory(tmp_path: Path) -> None:
    async def test(remembering: Writes, plain: Writes) -> None:
        for index in range(20):
            created(remembering, a_pod(hostname=f"job-{index}"), TRUSTED)
        assert remembering.created_specs.judged == 1
        assert plain.created_specs.judged == 0

    compared(tmp_path, test)


def test_what_is_long_is_not_kept(tmp_path: Path) -> None:
    async def test(remembering: Writes, plain: Writes) -> None:
        long = a_pod(schedulerName="s" * 20_000)
        assert created(remembering, long, STRICT) == created(plain, long, STRICT)
        assert remembering.created_specs.judged == 0

    compared(tmp_path, test)


def test_a_pod_that_is_kept_is_stored_as_it_was_answered(tmp_path: Path) -> None:
    async def test(remembering: Writes, plain: Writes) -> None:
        for _ in range(2):
            outcome = remembering.create(POD, "default", a_pod({"name": "n"}), DRY_RUN)
            assert msgspec.json.decode(outcome.document)["status"]["phase"] == "Pending"
        outcome = remembering.create(POD, "default", a_pod({"name": "n"}), STRICT)
        stored = remembering.store.newest(Key(PODS, "default", "n"))
        assert stored is not None
        assert stored.value == outcome.document

    compared(tmp_path, test)
