"""Clean-up of a run whose process was killed: stop its remaining containers and record their ends.

The runtime has newer information than the run's database: processes end, and are recorded, while no
control plane exists to write their Pods' status. So a control plane is started once more in the
folder of the run, with a node that adopts the existing containers and starts none.
"""

import asyncio
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from onejob.cli.errors import EXIT_FAILED, CommandError
from onejob.cli.kept_runs import Run, has_supervisor
from onejob.planning.job.uncounted import ExitCodes

if TYPE_CHECKING:
    from onejob.node.runtime import (
        AttemptRef,
        Deliver,
        Fetch,
        NodeContext,
        RecoveredState,
        Runtime,
        RuntimeEvent,
    )
    from onejob.objects.pod_spec import Container, NodePod

_DEFAULT_GRACE_SECONDS: Final = 30
_COUNTING_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.02


def settle_run(folder: Path, run: Run) -> ExitCodes:
    """Wait until no container of the run is left, and have the status of its Pods written.

    Return the exit codes of its containers as far as the runtime has recorded them. Raises
    CommandError.
    """
    from onejob.node.runtimes import runtime_kind

    has_programs = runtime_kind(run.runtime).traits.runs_programs
    ended_in_order = run.finished_at is not None and not run.stopped_by
    if not has_programs or (ended_in_order and not has_supervisor(folder)):
        return {}
    with _problems_of(folder, run):
        return asyncio.run(_settle(folder, run))


def count_successes(folder: Path, run: Run) -> bool:
    """Complete the Jobs of a settled run whose Pods succeeded without being counted.

    Return whether all Jobs are complete now. Raises CommandError.
    """
    with _problems_of(folder, run):
        return asyncio.run(_count(folder))


@contextmanager
def _problems_of(folder: Path, run: Run) -> Iterator[None]:
    from onejob.cli.run.session import log_to
    from onejob.node.runtime import RuntimeUnavailable
    from onejob.store.base import CannotOpen
    from onejob.trusted_paths import NotTrusted

    log_to(folder / "onejob.log")
    try:
        yield
    except RuntimeUnavailable as error:
        raise CommandError(
            f"Pods of run {run.id} may still be running: {error}", exit_code=EXIT_FAILED
        ) from None
    except (CannotOpen, NotTrusted) as error:
        raise CommandError(
            f"cannot read run {run.id}: {error}", f"see {folder}", exit_code=EXIT_FAILED
        ) from None


async def _settle(folder: Path, run: Run) -> ExitCodes:
    from onejob.client.base import Selection
    from onejob.control_plane import ControlPlane, Dependencies, Settings
    from onejob.node.options import NodeOptions
    from onejob.objects.meta import PODS

    settling: list[_StartsNothing] = []

    def make(context: "NodeContext") -> "Runtime":
        settling.append(_StartsNothing(_runtime_of(run, folder, context)))
        return cast("Runtime", settling[0])

    settings = Settings(folder, NodeOptions(runtime=run.runtime), controllers=frozenset())
    plane = await ControlPlane.start(settings, Dependencies(runtime=make))
    (runtime,) = settling
    try:
        pods = map(msgspec.json.decode, (await plane.client.list(Selection(PODS))).documents)
        graces = {pod["metadata"]["uid"]: _grace_seconds(pod) for pod in pods}
        if count := runtime.stop_all(graces):
            noun = "Pod" if count == 1 else "Pods"
            note = f"note: waiting for {count} {noun} of run {run.id} to end"
            print(note, file=sys.stderr, flush=True)
        await runtime.all_ended.wait()
    finally:
        await plane.stop()
    return runtime.newest_codes()


async def _count(folder: Path) -> bool:
    from onejob.client.base import Selection
    from onejob.control_plane import ControlPlane, Settings
    from onejob.controllers.selection import JOB
    from onejob.objects.job import read_job
    from onejob.objects.meta import JOBS

    settings = Settings(folder, controllers=frozenset({JOB}), with_node=False)
    plane = await ControlPlane.start(settings)
    try:
        async with asyncio.timeout(_COUNTING_SECONDS):
            while True:
                listed = (await plane.client.list(Selection(JOBS))).documents
                jobs = [read_job(document) for document in listed]
                if all(job.finished for job in jobs):
                    return all(job.condition_is_true("Complete") for job in jobs)
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        return False
    finally:
        await plane.stop()


class _StartsNothing:
    """Runtime wrapper that adopts inherited containers and launches none.

    All other methods are the wrapped runtime's. The node does not repeat a launch, so dropping one
    is safe.
    """

    def __init__(self, runtime: "Runtime") -> None:
        self._runtime = runtime
        self._running: set[AttemptRef] = set()
        #: Exit codes; None for an attempt whose end is unknown.
        self._codes: dict[AttemptRef, int | None] = {}
        self.all_ended = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    async def start(self, deliver: "Deliver", fetch: "Fetch") -> "RecoveredState":
        def deliver_all(events: Iterable["RuntimeEvent"]) -> None:
            events = list(events)
            self._record_events(events)
            deliver(events)

        inherited = await self._runtime.start(deliver_all, fetch)
        self._record_events(inherited.attempts)
        return inherited

    def launch(self, pod: "NodePod", container: "Container", attempt: int) -> None:
        """Ignore the launch: the run that requested it has ended."""

    def stop_all(self, graces: Mapping[str, int]) -> int:
        """Stop all running containers; return the number of their Pods."""
        for ref in self._running:
            self._runtime.stop(ref, graces.get(ref.uid, _DEFAULT_GRACE_SECONDS))
        return len({ref.uid for ref in self._running})

    async def close(self, *, end_pods: bool) -> None:
        """Close the runtime, unless containers still run.

        In that case Ctrl-C was pressed: when this process exits, the supervisor loses its owner and
        stops them.
        """
        if self.all_ended.is_set():
            await self._runtime.close(end_pods=True)

    def newest_codes(self) -> ExitCodes:
        """Return the exit code of the last attempt, by Pod UID and container."""
        codes: dict[str, dict[str, int]] = {}
        for ref, code in sorted(self._codes.items(), key=lambda item: item[0].attempt):
            of_pod = codes.setdefault(ref.uid, {})
            of_pod.pop(ref.container, None)
            if code is not None:
                of_pod[ref.container] = code
        return codes

    def _record_events(self, events: Iterable["RuntimeEvent"]) -> None:
        from onejob.node.runtime import Ended, Lost, Started, Starting

        for event in events:
            if isinstance(event, Ended | Lost):
                self._running.discard(event.ref)
                self._codes[event.ref] = event.exit.code if isinstance(event, Ended) else None
            elif isinstance(event, Started | Starting) and event.ref not in self._codes:
                self._running.add(event.ref)
        if self._running:
            self.all_ended.clear()
        else:
            self.all_ended.set()


def _runtime_of(run: Run, folder: Path, context: "NodeContext") -> "Runtime":
    from onejob.clock import SystemClock
    from onejob.node.options import NodeOptions
    from onejob.node.runtimes import runtime_kind

    options = NodeOptions(runtime=run.runtime, pid_namespace="off", pods_end_with_server=True)
    if run.engine:
        options = msgspec.structs.replace(options, engine=run.engine)
    return runtime_kind(run.runtime).make(options, folder, SystemClock(), context)


def _grace_seconds(pod: Mapping[str, Any]) -> int:
    seconds = pod["spec"].get("terminationGracePeriodSeconds")
    return _DEFAULT_GRACE_SECONDS if seconds is None else max(int(seconds), 0)
