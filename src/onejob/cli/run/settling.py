"""The end of a run whose process was killed: stop what still runs of it, and collect how it ended.

The runtime knows more than the database of the run: processes end, and are recorded, while nothing
is there any more to write their Pods' status.
"""

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from onejob.cli.errors import EXIT_FAILED, CommandError
from onejob.cli.run.runs import Run, has_supervisor
from onejob.planning.job.uncounted import ExitCodes

if TYPE_CHECKING:
    from onejob.node.options import RuntimeName
    from onejob.node.runtime import AttemptRef, Runtime, RuntimeEvent
    from onejob.objects.meta import Key

_DEFAULT_GRACE_SECONDS: Final = 30


def settle_run(folder: Path, run: Run, pods: Sequence[Mapping[str, Any]]) -> ExitCodes:
    """Wait until no container of the run is left, and return how those ended of which the runtime
    has a record. Raises CommandError."""
    ended_in_order = run.finished_at is not None and not run.stopped_by
    if run.runtime == "simulated" or (ended_in_order and not has_supervisor(folder)):
        return {}
    from onejob.node.runtime import RuntimeUnavailable

    graces = {pod["metadata"]["uid"]: _grace(pod) for pod in pods}
    try:
        return asyncio.run(_Settling(run, graces).settle(folder))
    except RuntimeUnavailable as error:
        raise CommandError(
            f"the Pods of run {run.id} may still run: {error}", exit_code=EXIT_FAILED
        ) from None


class _Settling:
    def __init__(self, run: Run, graces: Mapping[str, int]) -> None:
        self._run = run
        self._graces = graces
        self._running: set[AttemptRef] = set()
        #: None for an attempt whose end is unknown.
        self._codes: dict[AttemptRef, int | None] = {}
        self._all_ended = asyncio.Event()

    async def settle(self, folder: Path) -> ExitCodes:
        runtime = _runtime_of(self._run, folder)
        settled = False
        try:
            inherited = await runtime.start(self._events, _no_settings)
            self._events(inherited.attempts)
            if self._running:
                self._announce()
            for ref in self._running:
                runtime.stop(ref, self._graces.get(ref.uid, _DEFAULT_GRACE_SECONDS))
            await self._all_ended.wait()
            settled = True
        finally:
            await runtime.close(end_pods=settled)
        return self._newest_codes()

    def _events(self, events: Iterable["RuntimeEvent"]) -> None:
        from onejob.node.runtime import Ended, Lost, Started, Starting

        for event in events:
            if isinstance(event, Ended | Lost):
                self._running.discard(event.ref)
                self._codes[event.ref] = event.exit.code if isinstance(event, Ended) else None
            elif isinstance(event, Started | Starting) and event.ref not in self._codes:
                self._running.add(event.ref)
        if self._running:
            self._all_ended.clear()
        else:
            self._all_ended.set()

    def _announce(self) -> None:
        pods = len({ref.uid for ref in self._running})
        print(
            f"note: waiting for {pods} Pod{'s' if pods > 1 else ''} of run {self._run.id} to end",
            file=sys.stderr,
            flush=True,
        )

    def _newest_codes(self) -> ExitCodes:
        """By Pod and container, the exit code of the last attempt."""
        codes: dict[str, dict[str, int]] = {}
        for ref, code in sorted(self._codes.items(), key=lambda item: item[0].attempt):
            of_pod = codes.setdefault(ref.uid, {})
            of_pod.pop(ref.container, None)
            if code is not None:
                of_pod[ref.container] = code
        return codes


def _runtime_of(run: Run, folder: Path) -> "Runtime":
    from onejob.clock import SystemClock
    from onejob.node.options import NodeOptions
    from onejob.node.runtimes import RUNTIMES
    from onejob.node.setup.environment import NodeContext

    name = cast("RuntimeName", run.runtime)
    options = NodeOptions(runtime=name, pid_namespace="off")
    if run.engine:
        options = NodeOptions(runtime=name, engine=run.engine)
    return RUNTIMES[name].make(options, folder, SystemClock(), NodeContext("", "127.0.0.1"))


async def _no_settings(key: "Key") -> bytes:
    raise AssertionError("nothing is started")


def _grace(pod: Mapping[str, Any]) -> int:
    seconds = pod["spec"].get("terminationGracePeriodSeconds")
    return _DEFAULT_GRACE_SECONDS if seconds is None else max(int(seconds), 0)
