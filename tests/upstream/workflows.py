"""Workflows on a real API server whose Jobs kube-controller-manager runs; the controller is killed.

While no controller runs, Jobs of tasks are deleted, too. All versions of workflows, Jobs and Pods
are then checked with the invariants of the simulator, and with the oracle.

python -m tests.upstream.workflows [kills] [seed]
"""

import asyncio
import sys
import time
from collections import Counter
from contextlib import aclosing
from random import Random
from typing import Any

import msgspec

from onejob.client.base import Client, Create, Delete, Selection
from onejob.cluster.definitions import definitions
from onejob.objects.job import Job, read_job
from onejob.objects.meta import JOBS, PODS, WORKFLOWS, Key
from onejob.objects.pod import Pod
from onejob.objects.workflow import read_workflow
from onejob.planning.names import WORKFLOW_START_FINALIZER
from onejob.wire.errors import ApiError
from sim.checks.problems import Problems
from sim.history import READ, Version
from sim.workflows.check import WorkflowCheck
from tests import build
from tests.upstream.cluster import Upstream
from tests.upstream.jobs import a_real_cluster, client_of
from tests.upstream.kubelet import Kubelet
from tests.upstream.replicas import Replica

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
#: Workflows that run at once.
AT_ONCE = 6
#: Every so many kills are followed by the deletion of a Job.
KILLS_PER_DELETION = 2


class Recorder:
    """All versions of the objects that the checks read, from watches of the API server."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._versions: list[Version] = []
        self._revision = 0

    async def begin(self) -> None:
        """Note the revision at which nothing exists yet."""
        self._revision = (await self._client.list(Selection(WORKFLOWS))).revision

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for resource in (WORKFLOWS, JOBS, PODS):
                group.create_task(self._follow(resource))

    def in_order(self) -> list[Version]:
        return sorted(self._versions, key=lambda version: version.revision)

    async def _follow(self, resource: str) -> None:
        revision = self._revision
        while True:
            # A watch that the server ends after some minutes continues where it was.
            async with aclosing(self._client.watch(Selection(resource), after=revision)) as stream:
                async for batch in stream:
                    for event in batch:
                        revision = event.revision
                        if event.type in ("ADDED", "MODIFIED", "DELETED"):
                            self._note(event.key, event.revision, event.document, event.type)

    def _note(self, key: Key, revision: int, document: bytes, kind: str) -> None:
        subject = READ[key.resource](document)
        gone = kind == "DELETED"
        self._versions.append(Version(revision, key, subject, gone, time.monotonic()))


def a_random_workflow(rng: Random, name: str) -> dict[str, Any]:
    """Return a workflow of up to eight Jobs, with every kind of edge."""
    names = [f"t{number}" for number in range(rng.randint(3, 8))]
    tasks = [
        _task(rng, each, [other for other in names[:number] if rng.random() < 0.35])
        for number, each in enumerate(names)
    ]
    rng.shuffle(tasks)
    spec: dict[str, Any] = {}
    if rng.random() < 0.5:
        spec["finally"] = [_task(rng, "last", [])]
    if rng.random() < 0.3:
        spec["parallelism"] = rng.randint(1, 3)
    return build.a_workflow(name, *tasks, **spec)


def _task(rng: Random, name: str, before: list[str]) -> dict[str, Any]:
    conditions = ("Complete", "Complete", "Failed", "Finished")
    edges = [f"{other}:{rng.choice(conditions)}" for other in before]
    when = {"when": "false"} if rng.random() < 0.1 else {}
    completions = rng.choice((1, 1, 2))
    job = {"completions": completions, "parallelism": completions, "backoffLimit": 0}
    return build.a_task(name, *edges, job=job, **when)


async def until_served(client: Client) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await client.list(Selection(WORKFLOWS))
                return
            except ApiError as error:
                # Without the group, the server has no page at all.
                if error.code != 404:
                    raise
                await asyncio.sleep(0.2)


async def delete_a_job(client: Client, rng: Random) -> str:
    """Delete a Job that has not finished, one with an unrecorded start if there is any."""
    jobs = [read_job(document) for document in (await client.list(Selection(JOBS))).documents]
    running = [job for job in jobs if not job.finished and not job.metadata.deleting]
    held = [job for job in running if WORKFLOW_START_FINALIZER in job.metadata.finalizers]
    candidates = held or running
    if not candidates:
        return ""
    job = rng.choice(candidates)
    await client.write(Delete(job.key, "Background"))
    return "an unrecorded start" if held else "a running Job"


async def run(cluster: Upstream, kills: int, seed: int) -> list[str]:
    rng = Random(seed)
    client = client_of(cluster)
    for definition in definitions():
        await client.write(Create(DEFINITIONS, "", msgspec.json.encode(definition)))
    await until_served(client)
    log = cluster.folder / "controller.log"

    def start() -> Replica:
        return Replica(cluster.kubeconfig, log, "--workflows", "--qps=0")

    def one_in_eight_fails(pod: Pod) -> int:
        return int(int(pod.metadata.uid[:4], 16) % 8 == 0)

    kubelet = Kubelet(client, exit_code=one_in_eight_fails, seconds=0.3, workers=16)
    recorder = Recorder(client)
    await recorder.begin()
    others = [asyncio.create_task(kubelet.run()), asyncio.create_task(recorder.run())]
    controller = start()
    started, created, done = time.monotonic(), 0, Counter[str]()
    try:
        while True:
            unfinished = await unfinished_workflows(client)
            while done["kills"] < kills and unfinished < AT_ONCE:
                document = a_random_workflow(rng, f"wf-{created}")
                await client.write(Create(WORKFLOWS, "default", msgspec.json.encode(document)))
                created, unfinished = created + 1, unfinished + 1
            if done["kills"] >= kills and not unfinished:
                break
            await asyncio.sleep(rng.uniform(0.0, 1.5))
            if done["kills"] < kills:
                controller.kill()
                done["kills"] += 1
                if done["kills"] % KILLS_PER_DELETION == 0:
                    done[f"deletions of {await delete_a_job(client, rng) or 'nothing'}"] += 1
                controller = start()
        # Garbage collection and the last finalizers.
        await asyncio.sleep(5)
        return await judge(client, recorder, started, created, done)
    finally:
        controller.stop()
        for task in others:
            task.cancel()
        results = await asyncio.gather(*others, return_exceptions=True)
        await client.close()
        for result in results:
            if isinstance(result, Exception):
                raise result


async def unfinished_workflows(client: Client) -> int:
    listing = await client.list(Selection(WORKFLOWS))
    return sum(not read_workflow(document).finished for document in listing.documents)


async def judge(
    client: Client, recorder: Recorder, started: float, created: int, done: Counter[str]
) -> list[str]:
    """Return what is wrong; print what was checked."""
    versions = recorder.in_order()
    problems = Problems()
    WorkflowCheck(problems).check(versions)
    wrong = [str(problem) for problem in problems.found]
    jobs: dict[tuple[str, str], set[str]] = {}
    for version in versions:
        if isinstance(version.subject, Job):
            owner = version.subject.metadata.controller_ref
            if owner is not None:
                place = (owner.uid, version.key.name)
                jobs.setdefault(place, set()).add(version.subject.metadata.uid)
    wrong += [f"{name}: {len(uids)} Jobs" for (_, name), uids in jobs.items() if len(uids) > 1]
    ends = Counter[str]()
    for document in (await client.list(Selection(WORKFLOWS))).documents:
        workflow = read_workflow(document)
        condition = workflow.finished_condition
        ends[f"workflows {condition.type if condition else 'unfinished'}"] += 1
        for task in workflow.status.tasks:
            ends[f"tasks {task.reason if task.reason == 'JobDeleted' else task.state}"] += 1
            wanted = bool(task.job_uid)
            found = (workflow.metadata.uid, task.job_name) in jobs
            if found != wanted:
                wrong.append(f"{workflow.metadata.name}: {task}, Job created: {found}")
    for document in (await client.list(Selection(JOBS))).documents:
        job = read_job(document)
        if WORKFLOW_START_FINALIZER in job.metadata.finalizers:
            wrong.append(f"job {job.metadata.name} has the finalizer still")
    print(f"{dict(done)} in {time.monotonic() - started:.0f} s")
    print(f"{created} workflows, {len(jobs)} Jobs, {len(versions)} versions: {dict(ends)}")
    return wrong


def main(arguments: list[str]) -> int:
    why = Upstream.missing()
    if why:
        print(f"skipped: {why}")
        return 0
    kills, seed = (*map(int, arguments), *(20, 1)[len(arguments) :])
    with a_real_cluster() as cluster:
        cluster.start_controller_manager("*", "--kube-api-qps=1000", "--kube-api-burst=1000")
        wrong = asyncio.run(run(cluster, kills, seed))
    for line in wrong:
        print(f"wrong: {line}")
    print("failed" if wrong else "ok: each task had one Job, and its end agrees with the oracle")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
