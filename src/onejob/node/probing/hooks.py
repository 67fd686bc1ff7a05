"""Lifecycle hooks: postStart right after a container's start, preStop right before its stop.

As with the kubelet, a container is not reported as running before its postStart hook is done, and
is stopped if that fails; a preStop hook consumes the grace period, and never gets more.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine

from onejob.clock import Clock
from onejob.node.probing.probe_checks import ProbeResult, ask
from onejob.node.runtime import AttemptRef, Runtime
from onejob.objects.pod_spec import Container, Handler, NodePod

#: Arguments: the Pod, and the reason and message of an event about it.
Warn = Callable[[NodePod, str, str], None]

#: The kubelet's minimum, in seconds, that a container gets to stop after its hook.
_MIN_GRACE_SECONDS = 2.0
#: Seconds before a hook is retried that could not be run for lack of resources.
_RETRY_SECONDS = 1.0


class Hooks:
    """Lifecycle hooks in progress, by attempt."""

    def __init__(self, runtime: Runtime, clock: Clock, warn: Warn) -> None:
        self._runtime = runtime
        self._clock = clock
        self._warn = warn
        self._tasks: dict[AttemptRef, asyncio.Task[None]] = {}
        #: Attempts whose preStop hook has begun.
        self._stopping: set[AttemptRef] = set()

    def run_post_start(
        self, pod: NodePod, container: Container, ref: AttemptRef, done: Callable[[bool], None]
    ) -> None:
        """Start the postStart hook of a container that has one; `done` is called with its
        success."""
        hook = None if container.lifecycle is None else container.lifecycle.post_start
        assert hook is not None, "asked for only where there is one"
        self._begin(ref, self._post_start(pod, container, ref, hook, done))

    def stop(self, pod: NodePod, ref: AttemptRef, grace_seconds: float) -> None:
        """Stop a container, after its preStop hook if it has one. A repeated request cancels the
        hook and stops the container at once."""
        again = self._cancel(ref) and ref in self._stopping
        container = pod.container(ref.container)
        lifecycle = None if container is None else container.lifecycle
        hook = None if lifecycle is None else lifecycle.pre_stop
        if (
            container is None
            or hook is None
            or grace_seconds <= 0
            or again
            or not self._runtime.traits.runs_programs
        ):
            self._runtime.stop(ref, grace_seconds)
            return
        self._stopping.add(ref)
        self._begin(ref, self._pre_stop(pod, container, ref, hook, grace_seconds))

    def forget(self, uid: str) -> None:
        """Cancel the hooks of a Pod."""
        if not self._tasks and not self._stopping:
            return
        for ref in [ref for ref in (*self._tasks, *self._stopping) if ref.uid == uid]:
            self._cancel(ref)
            self._stopping.discard(ref)

    def close(self) -> None:
        """Cancel all hooks."""
        for ref in list(self._tasks):
            self._cancel(ref)

    async def _post_start(
        self,
        pod: NodePod,
        container: Container,
        ref: AttemptRef,
        hook: Handler,
        done: Callable[[bool], None],
    ) -> None:
        answer = await self._perform(pod, container, ref, hook, math.inf)
        if not answer.ok and self._runtime.running(ref):
            self._warn(pod, "FailedPostStartHook", f"PostStartHook failed: {answer.why}")
        done(answer.ok)

    async def _pre_stop(
        self, pod: NodePod, container: Container, ref: AttemptRef, hook: Handler, grace: float
    ) -> None:
        began = self._clock.monotonic()
        answer = await self._perform(pod, container, ref, hook, grace)
        if not answer.ok and self._runtime.running(ref):
            self._warn(pod, "FailedPreStopHook", f"PreStopHook failed: {answer.why}")
        left = grace - (self._clock.monotonic() - began)
        self._runtime.stop(ref, max(left, _MIN_GRACE_SECONDS))

    async def _perform(
        self, pod: NodePod, container: Container, ref: AttemptRef, hook: Handler, seconds: float
    ) -> ProbeResult:
        """Run a hook's handler and return its result; retried while the container cannot be asked
        yet."""
        if hook.sleep is not None:
            await asyncio.sleep(min(hook.sleep.seconds, seconds))
            return ProbeResult(hook.sleep.seconds <= seconds, "the grace period has expired")
        until = self._clock.monotonic() + seconds
        answer = await ask(self._runtime, pod, container, ref, hook, seconds)
        while answer.unasked and self._clock.monotonic() + _RETRY_SECONDS < until:
            await asyncio.sleep(_RETRY_SECONDS)
            left = until - self._clock.monotonic()
            answer = await ask(self._runtime, pod, container, ref, hook, left)
        # Any HTTP response shows that the hook was delivered, whatever its status.
        return ProbeResult(True) if answer.status else answer

    def _begin(self, ref: AttemptRef, doing: Coroutine[None, None, None]) -> None:
        """Run a hook in a task of its own."""
        task = asyncio.create_task(doing)
        self._tasks[ref] = task
        task.add_done_callback(lambda _: self._on_task_end(ref, task))

    def _on_task_end(self, ref: AttemptRef, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(ref) is task:
            del self._tasks[ref]

    def _cancel(self, ref: AttemptRef) -> bool:
        """Cancel the hook of an attempt; return whether one was running."""
        task = self._tasks.pop(ref, None)
        return task is not None and task.cancel()
