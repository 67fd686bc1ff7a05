"""Shared helpers of the runners for planner files: reading objects, corrupting expectations."""

from collections.abc import Iterator
from typing import Any

import msgspec

from onejob.objects.job import Job, read_job
from onejob.objects.pod import Pod, read_pod
from onejob.planning.job.claiming import owner_reference
from onejob.planning.job.operator_settings import Settings
from tests.conformance.loader import with_value
from tests.conformance.verdict import Case


def as_job(document: dict[str, Any]) -> Job:
    return read_job(msgspec.json.encode(document))


def as_indexed_job(document: dict[str, Any]) -> Job:
    """Return the Job as Indexed: cases about indexes often omit the mode."""
    spec = {**document.get("spec", {}), "completionMode": "Indexed"}
    return as_job({**document, "spec": spec})


def as_pod(document: dict[str, Any]) -> Pod:
    return read_pod(msgspec.json.encode(document))


def as_pods(documents: list[dict[str, Any]]) -> list[Pod]:
    return [as_pod(document) for document in documents]


def as_adopted(job: Job, pod: Pod, settings: Settings) -> Pod:
    """Return the Pod as the adoption patch leaves it."""
    finalizers = dict.fromkeys((*pod.metadata.finalizers, settings.tracking_finalizer))
    metadata = msgspec.structs.replace(
        pod.metadata,
        owner_references=(*pod.metadata.owner_references, owner_reference(job)),
        finalizers=tuple(finalizers),
    )
    return msgspec.structs.replace(pod, metadata=metadata)


def spoil_expected(case: Case) -> Iterator[tuple[str, Case]]:
    """Yield the case with each value of `expected` corrupted, one at a time."""
    function, expected = case["function"], case["expected"]
    if not isinstance(expected, dict):
        yield function, with_value(case, ("expected",), spoiled(expected))
        return
    for name, value in expected.items():
        yield f"{function}.{name}", with_value(case, ("expected", name), spoiled(value))


def spoiled(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value + "x"
        case list():
            return [*value, "ghost"]
        case dict():
            return {**value, "ghost": "ghost"}
        case None:
            return "ghost"
        case _:
            raise AssertionError(f"no way to spoil {value!r}")
