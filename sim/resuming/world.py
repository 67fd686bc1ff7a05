"""Simulation of one seed: a run, resumed until all of its items have succeeded."""

import asyncio
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from onejob.cli.errors import CommandError
from onejob.cli.kept_runs import Run, RunFolder, RunJob, claim_run, create_folder, new_run_id
from onejob.cli.run.resuming import manifests_of_run
from onejob.client.base import Create
from onejob.control_plane import ControlPlane, Dependencies, Settings
from onejob.node.options import NodeOptions
from onejob.node.runtime import NodeContext
from onejob.objects.job import Job
from onejob.objects.meta import JOBS, NAMESPACES, Key
from onejob.objects.pod import Pod
from onejob.planning.job.parameter_rows import put_rows
from onejob.store.base import StoreError
from onejob.virtual_time import NOON, VirtualTimeLoop, virtual_clock
from onejob.wire.errors import ApiError
from onejob.wire.kinds import BY_KIND
from sim.checks.problems import Problems
from sim.disk import Disk, DiskCommitter
from sim.faults import Dice, Trace
from sim.history import History
from sim.machine import Machine, MachineRuntime
from sim.resuming.items import PARAMS, completions_left, items_of, left_of
from sim.world import Verdict

LEFT = "a resumed run has what is left"
KEPT = "a resumed run has what the run before had"
UNDER_WAY = "a run that is under way is not resumed"
_FAULTS = ("slow commit", "slow start", "late report", "failed start")
_MAX_RUN_SECONDS = 40.0
_RUNS = 4
_ENDS_WITHIN_SECONDS = 900.0

Document = dict[str, Any]


def simulate(seed: int, often: Collection[str] = ()) -> Verdict:
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="onejob-sim-", dir=place))
    try:
        return _World(seed, folder, often).run()
    finally:
        shutil.rmtree(folder)


class _World:
    def __init__(self, seed: int, folder: Path, often: Collection[str]) -> None:
        self._seed = seed
        self._runs = folder / "runs"
        self._rng = Random(f"{seed} resuming")
        self._trace = Trace()
        self._dice = Dice(seed, self._trace, often, _FAULTS)
        self._problems = Problems()
        self._processes = 0
        self._versions = 0

    def run(self) -> Verdict:
        documents: Sequence[Document] = self._first_manifests()
        number = 0
        while documents and number < _RUNS:
            number += 1
            documents = self._run_once(number, documents)
        return Verdict(
            self._seed, tuple(self._problems.found), self._dice.happened,
            tuple(self._trace.lines), (), self._processes, number,
        )  # fmt: skip

    def _run_once(self, number: int, documents: Sequence[Document]) -> Sequence[Document]:
        """Run to the end or until killed. Return the objects that a resumed run would create."""
        run_id = new_run_id(NOON, f"r{number}")
        folder = create_folder(self._runs / run_id)
        jobs = [RunJob(*_place(one)) for one in documents if one["kind"] == "Job"]
        folder.record(Run(run_id, NOON, tuple(jobs), runtime="simulated"))
        history, machine = History(), Machine(self._seed * 10 + number, self._dice)
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            self._trace.note = partial(_note, self._trace, runner.get_loop())  # type: ignore[method-assign]
            runner.run(self._live(folder.path, documents, history, machine))
        self._processes += len(machine.ran)
        self._try_early(folder, run_id)
        folder.release()
        return self._resume(run_id, documents, history)

    async def _live(
        self, folder: Path, documents: Sequence[Document], history: History, machine: Machine
    ) -> None:
        loop = asyncio.get_running_loop()
        committer = DiskCommitter(Disk(self._dice), lambda when: None, lambda: None)
        outside = Dependencies(
            clock=virtual_clock(),
            rng=Random(f"{self._seed} {folder.name}"),
            committer=committer,
            runtime=lambda node: self._runtime(node, machine),
        )
        options = NodeOptions("simulated", "node", {"cpu": "1000", "pods": "50"})
        plane = await ControlPlane.start(Settings(folder, options), outside)
        history.follow(plane.store)
        for document in documents:
            await self._create(plane, document)
        committer.reliable = False
        kill_at = loop.time() + self._rng.random() * _MAX_RUN_SECONDS
        if self._rng.random() < 0.4:
            kill_at = loop.time() + _ENDS_WITHIN_SECONDS
        while loop.time() < kill_at and not _all_finished(history):  # noqa: ASYNC110
            await asyncio.sleep(self._rng.random() * 0.2)
        # Killed or finished: unwritten changes are lost, running processes end.
        committer.cut()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=1.0)
        with suppress(TimeoutError, StoreError):
            async with asyncio.timeout(1.0):
                await plane.store.close()

    def _runtime(self, node: NodeContext, machine: Machine) -> MachineRuntime:
        return MachineRuntime(
            machine,
            self._dice,
            virtual_clock(),
            revision=lambda: 1 << 40,
            deletion_known=lambda uid: False,
        )

    async def _create(self, plane: ControlPlane, document: Document) -> None:
        kind = BY_KIND[document["apiVersion"], document["kind"]]
        namespace = document["metadata"].get("namespace", "default")
        if namespace != "default":
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            with suppress(ApiError):
                await plane.client.write(Create(NAMESPACES, "", msgspec.json.encode(space)))
        op = Create(kind.resource, namespace, msgspec.json.encode(document))
        try:
            await plane.checked_client.write(op)
        except ApiError as error:
            self._problems.add(KEPT, f"{_text(document)} cannot be created: {error}")
            raise

    # --- resuming

    def _try_early(self, folder: RunFolder, run_id: str) -> None:
        """Try to resume the run while its process lives."""
        try:
            claim_run(folder.path).release()
        except CommandError:
            return
        self._problems.add(UNDER_WAY, f"{run_id} was resumed all the same")

    def _resume(
        self, run_id: str, documents: Sequence[Document], history: History
    ) -> Sequence[Document]:
        claim = claim_run(self._runs / run_id)
        manifests = manifests_of_run(claim, failed_only=True, settings={})
        claim.release()
        fresh = [_decoded(manifest.document) for manifest in manifests]
        last = {
            version.key: version.subject
            for version in history.in_order()
            if isinstance(version.subject, Job | Pod) and not version.gone
        }
        left = False
        for document in documents:
            if document["kind"] == "Job":
                left |= self._compare_job(document, documents, fresh, last)
        if left:
            self._compare_others(documents, fresh)
        return fresh

    def _compare_job(
        self,
        document: Document,
        documents: Sequence[Document],
        fresh: Sequence[Document],
        last: Mapping[Key, Any],
    ) -> bool:
        """Return whether items remain."""
        namespace, name = _place(document)
        job = last.get(Key(JOBS, namespace, name))
        if job is None:
            return False
        found = [one for one in fresh if one["kind"] == "Job" and _place(one) == (namespace, name)]
        items = items_of(document, documents)
        pods = [subject for subject in last.values() if isinstance(subject, Pod)]
        if items is None:
            wanted: object = max(completions_left(job, pods), 0)
            has: object = found[0]["spec"].get("completions", 1) if found else 0
        else:
            wanted = left_of(job, pods, items)
            has = items_of(found[0], fresh) if found else []
        if has != wanted:
            self._problems.add(LEFT, f"job {namespace}/{name} has {has} instead of {wanted}")
        return bool(wanted)

    def _compare_others(self, documents: Sequence[Document], fresh: Sequence[Document]) -> None:
        rows = {
            one["metadata"].get("annotations", {}).get(PARAMS)
            for one in documents
            if one["kind"] == "Job"
        }
        for document in documents:
            if document["kind"] == "Job" or document["metadata"]["name"] in rows:
                continue
            same = [
                one
                for one in fresh
                if one["kind"] == document["kind"]
                and _place(one) == _place(document)
                and one.get("data") == document.get("data")
            ]
            if not same:
                self._problems.add(KEPT, f"{_text(document)} is missing")

    # --- first manifests

    def _first_manifests(self) -> list[Document]:
        made: list[Document] = []
        for number in range(self._rng.randint(1, 3)):
            namespace = self._rng.choice(("default", "team"))
            made += self._a_job(f"job-{number}", namespace)
            settings = {"name": f"settings-{number}", "namespace": namespace}
            data = {"seed": str(self._seed)}
            made.append(
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": settings, "data": data}
            )
        return made

    def _a_job(self, name: str, namespace: str) -> list[Document]:
        rng = self._rng
        completions = rng.randint(1, 8)
        container = {"name": "main", "image": "x", "command": ["sh", "-c", "true"], "env": []}
        spec: Document = {
            "completions": completions,
            "parallelism": rng.randint(1, 4),
            "backoffLimit": rng.choice((0, 2, 100)),
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        }
        metadata = {"name": name, "namespace": namespace}
        metadata["annotations"] = {"onejob.dev/backoff-seconds": "0"}  # type: ignore[assignment]
        document: Document = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata,
            "spec": spec,
        }
        if rng.random() < 0.3:
            return [document]
        spec["completionMode"] = "Indexed"
        if rng.random() < 0.5:
            spec |= {"backoffLimitPerIndex": 0, "backoffLimit": 100}
        if rng.random() < 0.5:
            return [document]
        config_map = put_rows(document, [{"ITEM": f"item {n}"} for n in range(completions)])
        config_map["metadata"]["namespace"] = namespace
        return [config_map, document]


def _note(trace: Trace, loop: asyncio.AbstractEventLoop, text: str) -> None:
    trace.lines.append((loop.time(), text))


def _all_finished(history: History) -> bool:
    last = {version.key: version.subject for version in history.versions}
    jobs = [job for job in last.values() if isinstance(job, Job)]
    return bool(jobs) and all(job.finished for job in jobs)


def _place(document: Mapping[str, Any]) -> tuple[str, str]:
    metadata = document["metadata"]
    return metadata.get("namespace", "default"), metadata["name"]


def _text(document: Mapping[str, Any]) -> str:
    return f"{document['kind']} {'/'.join(_place(document))}"


def _decoded(document: Mapping[str, Any]) -> Document:
    """Whole: lists of the API server may keep sections encoded."""
    whole: Document = msgspec.json.decode(msgspec.json.encode(document))
    return whole
