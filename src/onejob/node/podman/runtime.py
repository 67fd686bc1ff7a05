"""Podman runtime: containers of real images, through Podman or Docker, that outlive the server.

The engine's records replace a journal: a container has its attempt in its labels, its unique name
ensures that an attempt is made only once, and it is kept after its exit until that is stored.
"""

import asyncio
import logging
import os
import shutil
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from onejob.clock import Clock
from onejob.node.exec_session import ExecSession, Finished
from onejob.node.logs.reading import read_logs
from onejob.node.options import NodeOptions
from onejob.node.podman.attempts import Attempt, Attempts
from onejob.node.podman.command import NodeSide, container_name
from onejob.node.podman.ends import EndWatch
from onejob.node.podman.engine import (
    CANNOT_INVOKE,
    CLIENT_FAILED,
    NOT_FOUND,
    Abilities,
    Engine,
    EngineResult,
    not_installed,
)
from onejob.node.podman.engine_settings import PodmanSettings
from onejob.node.podman.image_volumes import images_of_volumes
from onejob.node.podman.images import ImageProblem, Images
from onejob.node.podman.limit_changes import change_limits, change_problem
from onejob.node.podman.logs import LogKeeper
from onejob.node.podman.pod_folders import PodFolders
from onejob.node.podman.preparation import Preparation, settings_for
from onejob.node.podman.records import DATA_DIR, Boot, Found, judge
from onejob.node.podman.removals import Removals
from onejob.node.runtime import (
    AttemptRef,
    CommandResult,
    Deliver,
    Ended,
    Fetch,
    Lost,
    NodeContext,
    RecoveredState,
    Runtime,
    RuntimeEvent,
    RuntimeKind,
    RuntimeTraits,
    RuntimeUnavailable,
    StartBlocked,
    Started,
    Warned,
)
from onejob.node.setup.container_sources import fetch_settings
from onejob.node.setup.environment import ConfigProblem, passed_variables
from onejob.node.setup.last_message import last_message
from onejob.node.setup.volumes import (
    VolumeProblem,
    refresh_volumes,
    settings_in_volumes,
)
from onejob.node.supervisor import linux
from onejob.node.supervisor.pressure import pressure_of
from onejob.objects.pod_spec import Container, NodePod
from onejob.planning.pod.lifecycle import Exit
from onejob.wire.requests import LogOptions

log = logging.getLogger(__name__)

_COMMAND_OUTPUT_BYTES = 10 * 1024


class PodmanRuntime(Runtime):
    """Runtime of Podman or Docker containers, which outlive the server.

    Guarantees: an attempt is made once, because its container has a unique name. `launch` of a
    known attempt reports its last event again. `start` adopts the containers of earlier runs. After
    `close`, containers keep running unless `end_pods` or the option `pods_end_with_server` is set.
    """

    traits = RuntimeTraits(uses_images=True, has_outputs=True)

    def __init__(self, data_dir: Path, clock: Clock, settings: PodmanSettings) -> None:
        self._folders = PodFolders(data_dir)
        self._clock = clock
        self._settings = settings
        self._boot = _this_boot(clock)
        data_dir = self._folders.data_dir
        self._engine = Engine(
            settings.options.engine, data_dir / "engine.lock", f"{DATA_DIR}={data_dir}"
        )
        self.name = "docker" if self._engine.is_docker else "podman"
        self._abilities = Abilities()
        self._images = Images(self._engine, clock)
        self._logs = LogKeeper()
        self._deliver: Deliver
        self._fetch: Fetch
        self._attempts = Attempts()
        self._ends = EndWatch(self._engine, clock, self._attempts, self._apply_inspection)
        self._preparing = asyncio.Lock()
        self._preparation = Preparation(self._folders, settings, clock, self._node_side)
        self._removals = Removals(self._engine)
        self._loops: list[asyncio.Task[None]] = []
        self._requests: set[asyncio.Task[None]] = set()
        self._guard: asyncio.subprocess.Process | None = None

    async def start(self, deliver: Deliver, fetch: Fetch) -> RecoveredState:
        """Connect to the engine and adopt its containers. Raises RuntimeUnavailable."""
        self._deliver, self._fetch = deliver, fetch
        self._folders.all.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._abilities = await self._engine.prepare()
        began = self._clock.now()
        events = await self._adopt_containers(await self._engine.containers())
        loops = (
            self._logs.run(),
            self._ends.follow_events(began),
            self._ends.examine(),
            self._removals.run(),
        )
        self._loops = [asyncio.create_task(loop) for loop in loops]
        if self._settings.options.pods_end_with_server:
            self._guard = await self._engine.guard()
        return RecoveredState(events)

    def launch(self, pod: NodePod, container: Container, attempt: int) -> None:
        ref = AttemptRef(pod.uid, container.name, attempt)
        known = self._attempts.get(ref)
        if known is not None:
            if known.reported is not None:
                self._deliver([known.reported])
            return
        made = self._attempts.add(Attempt(ref, message_policy=container.termination_message_policy))
        made.making = self._spawn(self._make(pod, container, made))
        made.making.add_done_callback(lambda task: self._check_making(made, task))

    def stop(self, ref: AttemptRef, grace_seconds: float) -> None:
        attempt = self._attempts.get(ref)
        if attempt is None or attempt.stage == "over":
            return
        if attempt.stage == "preparing":
            attempt.cancel_making()
            self._report(attempt, Ended(ref, _not_started_exit(self._clock.now())))
            return
        again = attempt.stop_grace is not None
        attempt.stop_grace = grace_seconds
        if attempt.stage == "running":
            self._end(attempt, grace_seconds, again=again)

    def release(self, uid: str) -> None:
        self._drop(uid, self._folders.all_but_logs(uid))

    def discard(self, uid: str) -> None:
        self._drop(uid, [self._folders.of(uid)])

    def limits_problem(self, container: Container, ref: AttemptRef) -> str:
        return change_problem(container, self._abilities, self.name)

    async def change_limits(self, container: Container, ref: AttemptRef) -> str:
        return await change_limits(self._engine, container, ref, self._abilities)

    async def run_command(
        self, pod: NodePod, ref: AttemptRef, command: Sequence[str], timeout_seconds: float
    ) -> CommandResult:
        try:
            async with asyncio.timeout(timeout_seconds):
                answer = await self._engine.execute(container_name(ref), command)
        except TimeoutError:
            return CommandResult(-1, "command timed out")
        if answer.code == CLIENT_FAILED:
            return CommandResult(-1, answer.problem, answer.pressure)
        output = answer.output[:_COMMAND_OUTPUT_BYTES].decode("utf-8", "replace")
        return CommandResult(answer.code, (output + answer.complaint)[:_COMMAND_OUTPUT_BYTES])

    async def open_session(
        self, pod: NodePod, ref: AttemptRef, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> ExecSession:
        """Run a command in a container, with streams held by the caller."""

        async def execute(streams: tuple[int, int, int]) -> Finished:
            try:
                code = await self._engine.attend(container_name(ref), command, streams, tty=tty)
            except (OSError, ValueError) as error:
                return Finished(-1, str(error))
            failed = code == CLIENT_FAILED
            return Finished(-1, f"{self.name} cannot run the command") if failed else Finished(code)

        return ExecSession.open(execute, stdin=stdin, tty=tty)

    async def refresh_volumes(self, pod: NodePod) -> None:
        settings = await fetch_settings(self._fetch, settings_in_volumes(pod))
        folder = self._folders.of(pod.uid)
        async with self._preparing:
            await asyncio.to_thread(refresh_volumes, pod, folder, settings, self._settings.node)

    def logs(self, ref: AttemptRef, options: LogOptions) -> AsyncIterator[bytes]:
        return read_logs(
            self._folders.log(ref), options, self._clock.now(), lambda: self.running(ref)
        )

    def running(self, ref: AttemptRef) -> bool:
        attempt = self._attempts.get(ref)
        return attempt is not None and attempt.stage in ("starting", "running")

    async def close(self, *, end_pods: bool) -> None:
        for attempt in self._attempts:
            if attempt.stage == "preparing":
                attempt.cancel_making()
            attempt.cancel_kill()
        # Running clients finish, so that no container is started without a record.
        await asyncio.gather(*self._requests, return_exceptions=True)
        names = self._attempts.container_names
        if names and (end_pods or self._settings.options.pods_end_with_server):
            self._removals.add(names)
        await self._removals.done()
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await self._images.close()
        await self._logs.close()
        if self._guard is not None:
            self._guard.kill()
            await self._guard.wait()

    # --- containers of an earlier run

    async def _adopt_containers(self, containers: Sequence[Found]) -> list[RuntimeEvent]:
        """Adopt the containers of an earlier run; return events that they ended or run."""
        # Their clients are dead, so they will never be started: those attempts are still to be
        # made.
        await self._engine.remove(found.name for found in containers if found.unborn)
        events: list[RuntimeEvent] = []
        for found in containers:
            if found.unborn:
                continue
            attempt = self._attempts.add(
                Attempt(found.ref, "running", found.stop_signal, found.message_policy)
            )
            self._copy_logs(found.ref)
            event = self._end_event(found)
            if isinstance(event, Started):
                attempt.started_at = event.at
            else:
                event = await self._conclude(attempt, event)
            attempt.reported = event
            events.append(event)
        return events

    # --- creation of a container

    async def _make(self, pod: NodePod, container: Container, attempt: Attempt) -> None:
        """Prepare and create the container of an attempt; failures are reported as events."""
        ref = attempt.ref
        try:
            settings = await settings_for(self._fetch, pod, container)
            image = await self._images.provide(
                pod.uid, container.image, container.image_pull_policy
            )
            for volume in images_of_volumes(pod, container):
                await self._images.provide(pod.uid, volume.reference, volume.pull_policy)
            places = self._preparation.places(pod, container)
            notes: list[str] = []
            # One at a time: files and decoded settings of a container take up to a hundred MB.
            async with self._preparing:
                request = await asyncio.to_thread(
                    self._preparation.prepare, pod, container, ref, settings, image, places, notes
                )
            del settings
        except (ConfigProblem, ImageProblem) as problem:
            self._block(attempt, problem.reason, problem.message)
            return
        except VolumeProblem as problem:
            self._block(attempt, "ContainerCreating", problem.message)
            return
        except OSError as error:
            if pressure := pressure_of(error):
                self._block(attempt, pressure, str(error))
                return
            failed = Exit(128, self._clock.now(), reason="ContainerCannotRun", message=str(error))
            self._report(attempt, Ended(ref, failed))
            return
        if notes:
            self._deliver([Warned(ref, "NotAsAsked", note) for note in notes])
        attempt.stage = "starting"
        attempt.stop_signal = image.stop_signal
        answer = await self._engine.run(
            request.arguments, request.env, self._folders.of_engine(ref)
        )
        left = None if answer.code == 0 else await self._left_by_failure(ref)
        self._on_created(pod, container, attempt, answer, left)

    async def _left_by_failure(self, ref: AttemptRef) -> Found | None:
        """Return the container that the engine created before it failed; None if there is none or
        it cannot be determined. In the latter case, the next attempt finds its name in use."""
        try:
            found = await self._engine.inspect([container_name(ref)])
        except RuntimeUnavailable as trouble:
            log.warning("%s", trouble)
            return None
        return next((container for container in found if container.ref == ref), None)

    def _check_making(self, attempt: Attempt, task: asyncio.Task[None]) -> None:
        """Report an unexpected exception as a blocked start: a bug must not leave the Pod waiting
        for ever."""
        if not task.cancelled() and task.exception() is not None and not attempt.unwanted:
            self._block(attempt, "CreateContainerError", f"onejob: {task.exception()!r}")

    def _on_created(
        self,
        pod: NodePod,
        container: Container,
        attempt: Attempt,
        answer: EngineResult,
        left: Found | None,
    ) -> None:
        ref, name = attempt.ref, attempt.name
        if attempt.unwanted:
            self._removals.add([name], [self._folders.of(ref.uid) / "engine"])
        elif answer.code == 0:
            attempt.stage = "running"
            attempt.started_at = self._clock.now()
            self._copy_logs(ref)
            self._report(attempt, Started(ref, attempt.started_at))
            if attempt.announced:
                self._ends.look_at(ref)
            elif attempt.stop_grace is not None:
                self._end(attempt, attempt.stop_grace)
        elif answer.code in (CANNOT_INVOKE, NOT_FOUND):
            self._removals.add([name])
            failed = Exit(128, self._clock.now(), reason="StartError", message=answer.problem)
            self._report(attempt, Ended(ref, failed))
        elif "already in use" in answer.complaint or (left is not None and not left.unborn):
            # The attempt was made before, or the engine failed after its program had begun: it must
            # not be made again, only inspected.
            attempt.stage = "running"
            self._ends.look_at(ref)
        else:
            self._images.forget_image(container.image)
            for volume in images_of_volumes(pod, container):
                self._images.forget_image(volume.reference)
            if left is not None:
                self._removals.add([name])
            self._block(attempt, "CreateContainerError", answer.problem)

    def _node_side(self) -> NodeSide:
        return NodeSide(
            str(self._folders.data_dir),
            self._boot.id,
            self._abilities,
            self._settings.options.engine_options,
            self._engine.is_docker,
            rootless=os.geteuid() != 0,
        )

    # --- end of a container

    def _end(self, attempt: Attempt, grace_seconds: float, *, again: bool = False) -> None:
        """Stop a container by its signal, and kill it after the grace period.

        `again`: the signal was sent already, and only the grace period changes.
        """
        attempt.cancel_kill()
        if grace_seconds <= 0:
            self._spawn(self._signal(attempt, "KILL"))
            return
        if not again:
            self._spawn(self._signal(attempt, attempt.stop_signal or "TERM"))
        attempt.kill_timer = asyncio.get_running_loop().call_later(
            grace_seconds, lambda: self._spawn(self._signal(attempt, "KILL"))
        )

    async def _signal(self, attempt: Attempt, signal: str) -> None:
        """Send a signal; if that fails, look at the container's state."""
        answer = await self._engine.signal(attempt.name, signal)
        if answer.code and attempt.stage == "running":
            # Most likely the container has just exited; if not, the engine's record is
            # authoritative.
            log.info("%s: %s", attempt.name, answer.problem)
            self._ends.look_at(attempt.ref)

    async def _apply_inspection(self, ref: AttemptRef, found: Found | None) -> None:
        """Report the end of an attempt if its record shows one; do nothing if it is not running."""
        attempt = self._attempts.running(ref)
        if attempt is None:
            return
        if found is not None and found.unborn:
            self._removals.add([found.name])
            self._block(attempt, "CreateContainerError", "another container has the same name")
            return
        event = Lost(ref, self._clock.now()) if found is None else self._end_event(found)
        if isinstance(event, Started):
            if attempt.announced:
                self._ends.inspect_later(ref)
            return
        concluded = await self._conclude(attempt, event)
        if not attempt.unwanted:
            self._report(attempt, concluded)

    def _end_event(self, found: Found) -> RuntimeEvent:
        # Podman's monitor notes an OOM kill in its folder, even where inspect misses it.
        noted = (self._folders.of_engine(found.ref) / "oom").exists()
        seen = replace(found, oom_killed=found.oom_killed or noted)
        return judge(seen, self._boot, self._clock.now())

    async def _conclude(self, attempt: Attempt, event: RuntimeEvent) -> RuntimeEvent:
        """Complete the attempt's log, and add its termination message to the event."""
        attempt.cancel_kill()
        # The exit may be the first observation of this container.
        self._copy_logs(attempt.ref)
        await self._logs.finish(attempt.ref)
        attempt.stage = "over"
        if not isinstance(event, Ended):
            return event
        message = await asyncio.to_thread(self._last_message, attempt, event.exit.code)
        started_at = attempt.started_at or event.exit.started_at
        exit = structs.replace(event.exit, started_at=started_at, message=message)
        return Ended(event.ref, exit)

    def _last_message(self, attempt: Attempt, code: int) -> str:
        return last_message(
            self._folders.all,
            attempt.ref,
            code,
            policy=attempt.message_policy,
            log=self._folders.log(attempt.ref),
        )

    # --- records and removal

    def _report(self, attempt: Attempt, event: RuntimeEvent) -> None:
        """Deliver an event of an attempt, which is over unless it has started."""
        attempt.reported = event
        if not isinstance(event, Started):
            attempt.stage = "over"
            self._thin_out(attempt.ref)
        self._deliver([event])

    def _block(self, attempt: Attempt, reason: str, message: str) -> None:
        """Report a blocked start. It does not count as an attempt, and may be requested again."""
        self._attempts.remove(attempt)
        self._deliver([StartBlocked(attempt.ref, reason, message)])

    def _thin_out(self, ended: AttemptRef) -> None:
        """Remove old attempts: a container that restarts for days keeps only its last two."""
        for attempt in self._attempts.long_before(ended):
            self._attempts.remove(attempt)
            self._removals.add([attempt.name])

    def _drop(self, uid: str, folders: Sequence[Path]) -> None:
        """End all attempts of a Pod, and remove their containers and the folders."""
        names = []
        for attempt in self._attempts.of_pod(uid):
            attempt.unwanted = True
            attempt.cancel_kill()
            if attempt.stage == "preparing":
                attempt.cancel_making()
            else:
                names.append(attempt.name)
            self._logs.forget(attempt.ref)
            self._attempts.remove(attempt)
        self._images.forget_pod(uid)
        self._preparation.ended(uid)
        self._removals.add(names, folders)

    def _spawn(self, request: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a request in a task of its own and return the task."""
        task = asyncio.create_task(request)
        self._requests.add(task)
        task.add_done_callback(self._request_done)
        return task

    def _request_done(self, task: asyncio.Task[None]) -> None:
        self._requests.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a request to the engine failed", exc_info=error)

    def _copy_logs(self, ref: AttemptRef) -> None:
        """Start importing the container's output."""
        is_docker = self._engine.is_docker
        source = (
            self._engine.output_of(container_name(ref))
            if is_docker
            else self._folders.engine_log(ref)
        )
        self._logs.begin(ref, source, self._folders.log(ref))


def _not_started_exit(now: datetime) -> Exit:
    """Return the kubelet's exit for a container that did not exist when its Pod was terminated."""
    return Exit(
        137,
        now,
        reason="ContainerStatusUnknown",
        message="The container could not be located when the pod was terminated",
    )


def _this_boot(clock: Clock) -> Boot:
    with open("/proc/uptime") as file:
        uptime = float(file.read().split()[0])
    return Boot(linux.boot_id(), clock.now() - timedelta(seconds=uptime))


def _make(options: NodeOptions, data_dir: Path, clock: Clock, context: NodeContext) -> Runtime:
    # Nothing is inherited by default: an image sets its own PATH.
    settings = PodmanSettings(context, options, passed_variables(options))
    return PodmanRuntime(data_dir, clock, settings)


def _unusable_reason(options: NodeOptions) -> str:
    program = options.engine[0]
    return "" if shutil.which(program) is not None else not_installed(program)


KIND: Final = RuntimeKind(PodmanRuntime.traits, _make, _unusable_reason)
