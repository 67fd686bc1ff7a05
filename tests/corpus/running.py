"""Execution of the corpus on one engine, and the outcomes that engines must agree on."""

import asyncio
import copy
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from onejob.client.base import Create, Selection
from onejob.objects.meta import JOBS, PODS, Key
from onejob.planning.mirror import names
from onejob.wire.errors import ApiError, NotFound
from tests.corpus.cases import Case
from tests.corpus.engines import MANAGER, MIRRORED, Engine

Document = dict[str, Any]
#: What an engine made of a Job.
Outcome = dict[str, Any]

PATIENCE_SECONDS = 300.0
#: Conditions of a Job that Pods are counted by.
_COUNTERS = ("succeeded", "failed", "active", "terminating", "completedIndexes", "failedIndexes")


async def run(engine: Engine, cases: Mapping[str, Case], folder: Path) -> dict[str, Outcome]:
    """Run all cases at once, each in a namespace of its own; return their outcomes by name."""
    for case in cases:
        await _create_namespace(engine, case)
    outcomes = await asyncio.gather(
        *(_run_one(engine, name, case, folder) for name, case in cases.items())
    )
    return dict(zip(cases, outcomes, strict=True))


async def _create_namespace(engine: Engine, name: str) -> None:
    body = msgspec.json.encode(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    )
    for client in {id(client): client for client in (engine.client, engine.pods)}.values():
        await client.write(Create("namespaces", "", body))


async def _run_one(engine: Engine, name: str, case: Case, folder: Path) -> Outcome:
    marks = folder / "marks" / name
    marks.mkdir(parents=True)
    job = copy.deepcopy(case.job)
    if engine.mirrored:
        job["metadata"] |= MIRRORED
        job["spec"]["managedBy"] = MANAGER
        await _copy_target(engine, name)
    text = msgspec.json.encode(job).decode()
    body = text.replace("{marks}", str(marks)).replace("{image}", engine.image).encode()
    for other in case.others:
        resource = {"ConfigMap": "configmaps", "Secret": "secrets"}[other["kind"]]
        # The mirror copies none: they exist where the Pods run.
        for client in {id(each): each for each in (engine.client, engine.pods)}.values():
            await client.write(Create(resource, name, msgspec.json.encode(other)))
    try:
        await engine.client.write(Create(JOBS, name, body))
    except ApiError as error:
        return {"rejected": error.code, "causes": _causes(error)}
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await _outcome(engine, name)
    except TimeoutError:
        status = msgspec.json.decode(await engine.client.get(Key(JOBS, name, name)))["status"]
        return {"stuck": status}


async def _copy_target(engine: Engine, namespace: str) -> None:
    """Make the mirror's target known in the namespace."""
    found = msgspec.json.decode(await engine.client.get(Key("secrets", "default", "there")))
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "there", "labels": found["metadata"]["labels"]},
        "data": found["data"],
    }
    await engine.client.write(Create("secrets", namespace, msgspec.json.encode(secret)))


async def _outcome(engine: Engine, name: str) -> Outcome:
    """Wait until the Job and its Pods have settled, and return their outcome."""
    before: Outcome = {}
    while True:
        job = msgspec.json.decode(await engine.client.get(Key(JOBS, name, name)))
        try:
            listing = await engine.pods.list(Selection(PODS, name))
        except NotFound:
            listing = None
        pods = [] if listing is None else [msgspec.json.decode(each) for each in listing.documents]
        outcome = describe(job, pods)
        if outcome == before and _is_settled(job, pods):
            return outcome
        before = outcome
        await asyncio.sleep(1)


def _is_settled(job: Document, pods: Iterable[Document]) -> bool:
    """Return whether nothing is left to happen: the Job is finished or suspended, and all Pods are
    counted."""
    status = job.get("status", {})
    uncounted = status.get("uncountedTerminatedPods") or {}
    kinds = {each["type"] for each in status.get("conditions", ()) if each["status"] == "True"}
    over = bool(kinds & {"Complete", "Failed", "Suspended"})
    ended = all(pod.get("status", {}).get("phase") in ("Succeeded", "Failed") for pod in pods)
    return over and ended and not any(uncounted.values())


def describe(job: Document, pods: Iterable[Document]) -> Outcome:
    """Return what engines must agree on: conditions, counts, indexes, and the results of Pods."""
    status = job.get("status", {})
    conditions = [
        [each["type"], each["status"], each.get("reason", ""), _anonymous(each.get("message", ""))]
        for each in status.get("conditions", ())
        if each["type"] != names.READY
    ]
    # A Pod that a success policy ends has failed if it had begun, which is a matter of timing.
    ended_early = any(row[::2][:2] == ["SuccessCriteriaMet", "SuccessPolicy"] for row in conditions)
    skipped = {"failed"} if ended_early else set()
    counts = {name: status[name] for name in _COUNTERS if status.get(name) and name not in skipped}
    times = {name: name in status for name in ("startTime", "completionTime")}
    return {
        "conditions": sorted(conditions),
        **counts,
        **times,
        "pods": sorted(
            (each for each in map(_pod, pods) if not ended_early or each[1] == "Succeeded"),
            key=repr,
        ),
    }


def _pod(pod: Document) -> list[Any]:
    """Return index, phase and containers of a Pod."""
    status = pod.get("status", {})
    index = pod["metadata"].get("annotations", {}).get("batch.kubernetes.io/job-completion-index")
    disrupted = any(each["type"] == "DisruptionTarget" for each in status.get("conditions", ()))
    containers = [
        _container(each)
        for each in (
            *status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())
        )
    ]  # fmt: skip
    return [index, status.get("phase"), status.get("reason", ""), disrupted, sorted(containers)]


def _container(status: Document) -> list[Any]:
    ended = status.get("state", {}).get("terminated", {})
    return [
        status["name"],
        ended.get("exitCode", -1),
        ended.get("reason", ""),
        ended.get("message", ""),
        status.get("restartCount", 0),
    ]


def _anonymous(message: str) -> str:
    """Return a message without the random part of Pod names and without times."""
    return re.sub(r"-[a-z0-9]{5}\b(?= failed)", "-*", message)


def _causes(error: ApiError) -> list[str]:
    """Return the fields that a rejected Job is rejected for."""
    return sorted(re.findall(r"spec\.[A-Za-z.\[\]0-9]+", error.message))
