"""Probes: asked again and again while an attempt runs; only a change of mind is passed on."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from onejob.clock import Clock
from onejob.node.agent.pod_work import PodWork
from onejob.node.agent.probe_checks import check
from onejob.node.runtime import AttemptRef, Runtime
from onejob.objects.pod_spec import Container, Probe

#: The Pod, and what to tell people about a failed probe ("" if nothing).
Tell = Callable[[PodWork, str], None]


@dataclass(slots=True)
class _Tally:
    """Consecutive answers of one kind; thresholds decide when they count."""

    successes: int = 0
    failures: int = 0

    def count(self, ok: bool, probe: Probe) -> bool | None:
        """True or False once enough answers in a row say so, else None."""
        if ok:
            self.successes, self.failures = self.successes + 1, 0
            return True if self.successes >= probe.success_threshold else None
        self.successes, self.failures = 0, self.failures + 1
        return False if self.failures >= probe.failure_threshold else None


class Prober:
    def __init__(self, runtime: Runtime, clock: Clock, tell: Tell) -> None:
        self._runtime = runtime
        self._clock = clock
        self._tell = tell
        self._tasks: dict[str, set[asyncio.Task[None]]] = {}

    def begin(self, work: PodWork, container: Container) -> None:
        """An attempt started: probe it until it ends."""
        if container.startup_probe or container.readiness_probe or container.liveness_probe:
            ref = AttemptRef(work.pod.uid, container.name, work.seen[container.name].attempt)
            task = asyncio.create_task(self._probe_attempt(work, container, ref))
            tasks = self._tasks.setdefault(work.pod.uid, set())
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    def forget(self, work: PodWork) -> None:
        for task in self._tasks.pop(work.pod.uid, ()):
            task.cancel()

    def stop(self) -> None:
        for tasks in self._tasks.values():
            for task in tasks:
                task.cancel()

    async def _probe_attempt(self, work: PodWork, container: Container, ref: AttemptRef) -> None:
        if container.startup_probe is not None:
            await self._ask(work, container, ref, container.startup_probe, "Startup")
        async with asyncio.TaskGroup() as group:
            if container.readiness_probe is not None:
                probe = container.readiness_probe
                group.create_task(self._ask(work, container, ref, probe, "Readiness"))
            if container.liveness_probe is not None:
                probe = container.liveness_probe
                group.create_task(self._ask(work, container, ref, probe, "Liveness"))

    async def _ask(
        self, work: PodWork, container: Container, ref: AttemptRef, probe: Probe, kind: str
    ) -> None:
        tally = _Tally()
        await asyncio.sleep(probe.initial_delay_seconds)
        while self._current(work, ref):
            began = self._clock.monotonic()
            answer = await check(self._runtime, work.pod, container, ref, probe)
            if not self._current(work, ref):
                return
            if not answer.ok:
                self._tell(work, f"{kind} probe failed: {answer.why}")
            # As the kubelet does: a probe that could not be made is thrown away.
            verdict = None if answer.unasked else tally.count(answer.ok, probe)
            if verdict is not None and self._decide(work, container, kind, verdict):
                return
            spent = self._clock.monotonic() - began
            await asyncio.sleep(max(probe.period_seconds - spent, 0))

    def _decide(self, work: PodWork, container: Container, kind: str, verdict: bool) -> bool:
        """Pass a verdict on; True when this probe has nothing more to ask."""
        name = container.name
        match kind, verdict:
            case "Readiness", _:
                work.probed(name, ready=verdict)
                self._tell(work, "")
                return False
            case "Startup", True:
                ready = container.readiness_probe is None
                work.probed(name, started=True, ready=ready)
                self._tell(work, "")
                return True
            case "Liveness", True:
                return False
            case _:
                work.probed(name, unhealthy=True)
                self._tell(work, f"Container {name} failed {kind.lower()} probe, will be restarted")
                return True

    def _current(self, work: PodWork, ref: AttemptRef) -> bool:
        seen = work.seen.get(ref.container)
        return seen is not None and seen.attempt == ref.attempt and seen.stage == "running"
