"""Containers of real images, through podman or docker, which run on when we do not.

The engine's records replace a journal: a container carries its attempt in its labels, its name
makes sure that an attempt is made once, and it stays after its end until that is on record.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from msgspec import structs

from onejob.clock import Clock
from onejob.node.agent.settings import NO_SETTINGS, FetchedSettings, fetch_settings
from onejob.node.logs.reading import log_path, read_logs
from onejob.node.options import NodeOptions
from onejob.node.podman.command import RunRequest, Surrounding, container_name, run_request
from onejob.node.podman.engine import (
    CANNOT_INVOKE,
    CLIENT_FAILED,
    NOT_FOUND,
    Abilities,
    Answer,
    Engine,
)
from onejob.node.podman.images import ImageFacts, ImageProblem, Images
from onejob.node.podman.logs import LogKeeper
from onejob.node.podman.records import DATA_DIR, Boot, Found, judge
from onejob.node.podman.traits import TRAITS
from onejob.node.process.mounts import Mount
from onejob.node.runtime import (
    AttemptRef,
    CommandResult,
    Deliver,
    Ended,
    Fetch,
    Inheritance,
    Lost,
    RuntimeEvent,
    RuntimeUnavailable,
    StartBlocked,
    Started,
    Warned,
)
from onejob.node.sessions.exec_session import ExecSession, Finished
from onejob.node.setup.environment import ConfigProblem, NodeContext, environment, settings_used
from onejob.node.setup.last_message import last_message, make_message_file
from onejob.node.setup.removal import remove_trees
from onejob.node.setup.volumes import (
    VolumeProblem,
    container_mounts,
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
#: Events tell of ends as they happen; now and then it is checked that none was missed.
_CHECK_SECONDS = 60.0
_RETRY_SECONDS = 1.0
#: An engine that announced an end writes it down within a moment.
_SETTLE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class PodmanSettings:
    node: NodeContext
    options: NodeOptions
    #: Variables that every container gets beside those of its image.
    base_env: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Attempt:
    """`preparing` can be given up; from `starting` on, there may be a container."""

    ref: AttemptRef
    stage: Literal["preparing", "starting", "running", "over"] = "preparing"
    stop_signal: str = ""
    message_policy: str = "File"
    started_at: datetime | None = None
    #: What was told last, for those who ask again.
    told: RuntimeEvent | None = None
    #: The engine announced its end.
    announced: bool = False
    stop_grace: float | None = None
    kill_timer: asyncio.TimerHandle | None = None
    #: Its Pod is gone: whatever becomes of it is of no interest.
    unwanted: bool = False
    making: asyncio.Task[None] | None = None


class PodmanRuntime:
    traits = TRAITS

    def __init__(self, data_dir: Path, clock: Clock, settings: PodmanSettings) -> None:
        self._data_dir = data_dir.resolve()
        self._pods = self._data_dir / "pods"
        self._clock = clock
        self._settings = settings
        self._boot = _this_boot(clock)
        self._engine = Engine(
            settings.options.engine, self._data_dir / "engine.lock", f"{DATA_DIR}={self._data_dir}"
        )
        self.name = "docker" if self._engine.is_docker else "podman"
        self._abilities = Abilities()
        self._images = Images(self._engine, clock)
        self._logs = LogKeeper()
        self._deliver: Deliver
        self._fetch: Fetch
        self._attempts: dict[AttemptRef, _Attempt] = {}
        self._names: dict[str, AttemptRef] = {}
        self._to_examine: set[AttemptRef] = set()
        self._examine_now = asyncio.Event()
        self._removals: asyncio.Queue[tuple[list[str], list[Path]]] = asyncio.Queue()
        self._loops: list[asyncio.Task[None]] = []
        self._errands: set[asyncio.Task[None]] = set()
        self._guard: asyncio.subprocess.Process | None = None

    async def start(self, deliver: Deliver, fetch: Fetch) -> Inheritance:
        """Raises RuntimeUnavailable."""
        self._deliver, self._fetch = deliver, fetch
        self._pods.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._abilities = await self._engine.prepare()
        began = self._clock.now()
        events = await self._take_over(await self._engine.containers())
        loops = (self._logs.run(), self._hear(began), self._examine(), self._remove())
        self._loops = [asyncio.create_task(loop) for loop in loops]
        if self._settings.options.pods_end_with_us:
            self._guard = await self._engine.guard()
        return Inheritance(events)

    def launch(self, pod: NodePod, container: Container, attempt: int) -> None:
        ref = AttemptRef(pod.uid, container.name, attempt)
        known = self._attempts.get(ref)
        if known is not None:
            if known.told is not None:
                self._deliver([known.told])
            return
        made = self._remember(_Attempt(ref, message_policy=container.termination_message_policy))
        made.making = self._spawn(self._make(pod, container, made))
        made.making.add_done_callback(lambda task: self._check_making(made, task))

    def stop(self, ref: AttemptRef, grace_seconds: float) -> None:
        attempt = self._attempts.get(ref)
        if attempt is None or attempt.stage == "over":
            return
        if attempt.stage == "preparing":
            self._give_up(attempt)
            self._tell(attempt, Ended(ref, _never_began(self._clock.now())))
            return
        again = attempt.stop_grace is not None
        attempt.stop_grace = grace_seconds
        if attempt.stage == "running":
            self._end(attempt, grace_seconds, again=again)

    def release(self, uid: str) -> None:
        folder = self._pods / uid
        self._drop(uid, *(folder / name for name in ("volumes", "messages", "engine")))

    def discard(self, uid: str) -> None:
        self._drop(uid, self._pods / uid)

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
        """Run a command in a container, with its streams in the caller's hands."""

        async def execute(streams: tuple[int, int, int]) -> Finished:
            try:
                code = await self._engine.attend(container_name(ref), command, streams, tty=tty)
            except OSError as error:
                return Finished(-1, str(error))
            failed = code == CLIENT_FAILED
            return (
                Finished(-1, f"{self.name} could not run the command") if failed else Finished(code)
            )

        return ExecSession.open(execute, stdin=stdin, tty=tty)

    async def refresh_volumes(self, pod: NodePod) -> None:
        settings = await fetch_settings(self._fetch, settings_in_volumes(pod))
        folder = self._pods / pod.uid
        await asyncio.to_thread(refresh_volumes, pod, folder, settings, self._settings.node)

    def logs(self, ref: AttemptRef, options: LogOptions) -> AsyncIterator[bytes]:
        return read_logs(self._log_path(ref), options, self._clock.now(), lambda: self.running(ref))

    def is_silent(self, ref: AttemptRef) -> bool:
        return False

    def running(self, ref: AttemptRef) -> bool:
        attempt = self._attempts.get(ref)
        return attempt is not None and attempt.stage in ("starting", "running")

    async def close(self, *, end_pods: bool) -> None:
        for attempt in list(self._attempts.values()):
            if attempt.stage == "preparing":
                self._give_up(attempt)
            if attempt.kill_timer is not None:
                attempt.kill_timer.cancel()
        # Clients at work finish: what they start must not be left without a trace.
        await asyncio.gather(*self._errands, return_exceptions=True)
        if self._names and (end_pods or self._settings.options.pods_end_with_us):
            self._removals.put_nowait((list(self._names), []))
        await self._removals.join()
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await self._images.close()
        await self._logs.close()
        if self._guard is not None:
            self._guard.kill()
            await self._guard.wait()

    # --- an earlier life

    async def _take_over(self, containers: Sequence[Found]) -> list[RuntimeEvent]:
        # Their clients are gone, so nobody will start them: those attempts are still to be made.
        await self._engine.remove(found.name for found in containers if found.unborn)
        events: list[RuntimeEvent] = []
        for found in containers:
            if found.unborn:
                continue
            attempt = self._remember(
                _Attempt(found.ref, "running", found.stop_signal, found.message_policy)
            )
            self._follow(found.ref)
            event = self._verdict(found)
            if isinstance(event, Started):
                attempt.started_at = event.at
            else:
                event = await self._conclude(attempt, event)
            attempt.told = event
            events.append(event)
        return events

    # --- making a container

    async def _make(self, pod: NodePod, container: Container, attempt: _Attempt) -> None:
        ref = attempt.ref
        try:
            settings = await self._settings_for(pod, container)
            image = await self._images.provide(
                pod.uid, container.image, container.image_pull_policy
            )
            notes: list[str] = []
            request = await asyncio.to_thread(
                self._prepare, pod, container, ref, settings, image, notes
            )
        except (ConfigProblem, ImageProblem) as problem:
            self._hinder(attempt, problem.reason, problem.message)
            return
        except VolumeProblem as problem:
            self._hinder(attempt, "ContainerCreating", problem.message)
            return
        except OSError as error:
            if pressure := pressure_of(error):
                self._hinder(attempt, pressure, str(error))
                return
            failed = Exit(128, self._clock.now(), reason="ContainerCannotRun", message=str(error))
            self._tell(attempt, Ended(ref, failed))
            return
        if notes:
            self._deliver([Warned(ref, "NotAsAsked", note) for note in notes])
        attempt.stage = "starting"
        attempt.stop_signal = image.stop_signal
        answer = await self._engine.run(request.arguments, request.env, self._engine_folder(ref))
        left = None if answer.code == 0 else await self._left_by_failure(ref)
        self._made(container, attempt, answer, left)

    async def _left_by_failure(self, ref: AttemptRef) -> Found | None:
        """The container that the engine made before it failed; None if there is none, or nobody
        can say: then the next try finds its name in use."""
        try:
            found = await self._engine.inspect([container_name(ref)])
        except RuntimeUnavailable as trouble:
            log.warning("%s", trouble)
            return None
        return next((container for container in found if container.ref == ref), None)

    def _check_making(self, attempt: _Attempt, task: asyncio.Task[None]) -> None:
        """A bug of ours must not leave the Pod without a word."""
        if not task.cancelled() and task.exception() is not None and not attempt.unwanted:
            self._hinder(attempt, "CreateContainerError", f"onejob: {task.exception()!r}")

    def _made(
        self, container: Container, attempt: _Attempt, answer: Answer, left: Found | None
    ) -> None:
        ref, name = attempt.ref, container_name(attempt.ref)
        if attempt.unwanted:
            self._removals.put_nowait(([name], [self._pods / ref.uid / "engine"]))
        elif answer.code == 0:
            attempt.stage = "running"
            attempt.started_at = self._clock.now()
            self._follow(ref)
            self._tell(attempt, Started(ref, attempt.started_at))
            if attempt.announced:
                self._look_at(ref)
            elif attempt.stop_grace is not None:
                self._end(attempt, attempt.stop_grace)
        elif answer.code in (CANNOT_INVOKE, NOT_FOUND):
            self._removals.put_nowait(([name], []))
            failed = Exit(128, self._clock.now(), reason="StartError", message=answer.problem)
            self._tell(attempt, Ended(ref, failed))
        elif "already in use" in answer.complaint or (left is not None and not left.unborn):
            # Somebody made this attempt before us, or the engine failed after its program had
            # begun: there is no second one, only news of it.
            attempt.stage = "running"
            self._look_at(ref)
        else:
            self._images.forget_image(container.image)
            if left is not None:
                self._removals.put_nowait(([name], []))
            self._hinder(attempt, "CreateContainerError", answer.problem)

    async def _settings_for(self, pod: NodePod, container: Container) -> FetchedSettings:
        keys = [*settings_used(pod, container)]
        if container.volume_mounts:
            keys.extend(settings_in_volumes(pod))
        return await fetch_settings(self._fetch, keys) if keys else NO_SETTINGS

    def _prepare(
        self,
        pod: NodePod,
        container: Container,
        ref: AttemptRef,
        settings: FetchedSettings,
        image: ImageFacts,
        notes: list[str],
    ) -> RunRequest:
        folder = self._pods / pod.uid
        env = environment(pod, container, self._settings.base_env, settings, self._settings.node)
        mounts = container_mounts(pod, container, folder, settings, self._settings.node, env, notes)
        # The engine looks sources up again: what links lead to now is what was checked.
        mounts = [replace(mount, source=os.path.realpath(mount.source)) for mount in mounts]
        if container.termination_message_path:
            message = make_message_file(self._pods, ref)
            mounts.append(Mount(str(message), container.termination_message_path))
        log_file = self._engine_log(ref)
        log_file.parent.mkdir(parents=True, exist_ok=True)
        around = Surrounding(
            str(self._data_dir),
            self._boot.id,
            self._abilities,
            self._settings.options.engine_options,
            self._engine.is_docker,
        )
        return run_request(
            pod, container, ref, env=env, mounts=mounts, image=image, log_file=log_file,
            around=around,
        )  # fmt: skip

    # --- its end

    def _end(self, attempt: _Attempt, grace_seconds: float, *, again: bool = False) -> None:
        if attempt.kill_timer is not None:
            attempt.kill_timer.cancel()
        if grace_seconds <= 0:
            self._spawn(self._signal(attempt, "KILL"))
            return
        if not again:
            self._spawn(self._signal(attempt, attempt.stop_signal or "TERM"))
        attempt.kill_timer = asyncio.get_running_loop().call_later(
            grace_seconds, lambda: self._spawn(self._signal(attempt, "KILL"))
        )

    async def _signal(self, attempt: _Attempt, signal: str) -> None:
        answer = await self._engine.signal(container_name(attempt.ref), signal)
        if answer.code and attempt.stage == "running":
            # Most likely it ended just now; if not, the engine's own word counts.
            log.info("%s: %s", container_name(attempt.ref), answer.problem)
            self._look_at(attempt.ref)

    async def _hear(self, since: datetime) -> None:
        while True:
            async with contextlib.aclosing(self._engine.deaths(since)) as deaths:
                async for name in deaths:
                    self._announced(name)
            log.warning("the engine's events ended; listening again")
            await asyncio.sleep(_RETRY_SECONDS)
            since = self._clock.now() - timedelta(seconds=2 * _RETRY_SECONDS)
            self._look_at(*self._attempts)

    def _announced(self, name: str) -> None:
        ref = self._names.get(name)
        attempt = self._attempts.get(ref) if ref is not None else None
        if attempt is not None:
            attempt.announced = True
            self._look_at(attempt.ref)

    def _look_at(self, *refs: AttemptRef) -> None:
        self._to_examine.update(refs)
        self._examine_now.set()

    async def _examine(self) -> None:
        """Ask the engine about those that may have ended, many at once."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_SECONDS):
                    await self._examine_now.wait()
            refs = self._to_examine if self._examine_now.is_set() else set(self._attempts)
            self._to_examine = set()
            self._examine_now.clear()
            running = [ref for ref in refs if self._is("running", ref)]
            if not running:
                continue
            try:
                containers = await self._engine.inspect([container_name(ref) for ref in running])
            except RuntimeUnavailable as trouble:
                log.warning("%s", trouble)
                await asyncio.sleep(_RETRY_SECONDS)
                self._look_at(*running)
                continue
            found = {container.ref: container for container in containers}
            for ref in running:
                await self._judge(ref, found.get(ref))

    async def _judge(self, ref: AttemptRef, found: Found | None) -> None:
        attempt = self._attempts.get(ref)
        if attempt is None or attempt.stage != "running":
            return
        if found is not None and found.unborn:
            self._removals.put_nowait(([found.name], []))
            self._hinder(attempt, "CreateContainerError", "a container of its name is in the way")
            return
        event = Lost(ref, self._clock.now()) if found is None else self._verdict(found)
        if isinstance(event, Started):
            if attempt.announced:
                asyncio.get_running_loop().call_later(_SETTLE_SECONDS, self._look_at, ref)
            return
        concluded = await self._conclude(attempt, event)
        if not attempt.unwanted:
            self._tell(attempt, concluded)

    def _verdict(self, found: Found) -> RuntimeEvent:
        # Podman's monitor notes an OOM kill in its folder, also where inspect misses it.
        noted = (self._engine_folder(found.ref) / "oom").exists()
        seen = replace(found, oom_killed=found.oom_killed or noted)
        return judge(seen, self._boot, self._clock.now())

    async def _conclude(self, attempt: _Attempt, event: RuntimeEvent) -> RuntimeEvent:
        """Bring its log to disk and add its last words."""
        if attempt.kill_timer is not None:
            attempt.kill_timer.cancel()
        # Its end may be the first that we hear of it.
        self._follow(attempt.ref)
        await self._logs.finish(attempt.ref)
        attempt.stage = "over"
        if not isinstance(event, Ended):
            return event
        message = await asyncio.to_thread(self._last_message, attempt, event.exit.code)
        started_at = attempt.started_at or event.exit.started_at
        exit = structs.replace(event.exit, started_at=started_at, message=message)
        return Ended(event.ref, exit)

    def _last_message(self, attempt: _Attempt, code: int) -> str:
        return last_message(
            self._pods,
            attempt.ref,
            code,
            policy=attempt.message_policy,
            log=self._log_path(attempt.ref),
        )

    # --- what is kept and what goes

    def _remember(self, attempt: _Attempt) -> _Attempt:
        self._attempts[attempt.ref] = attempt
        self._names[container_name(attempt.ref)] = attempt.ref
        return attempt

    def _is(self, stage: str, ref: AttemptRef) -> bool:
        attempt = self._attempts.get(ref)
        return attempt is not None and attempt.stage == stage

    def _tell(self, attempt: _Attempt, event: RuntimeEvent) -> None:
        attempt.told = event
        if not isinstance(event, Started):
            attempt.stage = "over"
            self._thin_out(attempt.ref)
        self._deliver([event])

    def _hinder(self, attempt: _Attempt, reason: str, message: str) -> None:
        """It did not count as an attempt, and may be asked for again."""
        self._forget(attempt)
        self._deliver([StartBlocked(attempt.ref, reason, message)])

    def _thin_out(self, ended: AttemptRef) -> None:
        """A container that restarts for days keeps its last two attempts, not all of them."""
        old = [
            ref
            for ref in self._attempts
            if ref[:2] == ended[:2] and ref.attempt < ended.attempt - 1
        ]
        for ref in old:
            self._forget(self._attempts[ref])
            self._removals.put_nowait(([container_name(ref)], []))

    def _forget(self, attempt: _Attempt) -> None:
        del self._attempts[attempt.ref]
        del self._names[container_name(attempt.ref)]

    def _give_up(self, attempt: _Attempt) -> None:
        if attempt.making is not None:
            attempt.making.cancel()

    def _drop(self, uid: str, *folders: Path) -> None:
        names = []
        for attempt in [a for a in self._attempts.values() if a.ref.uid == uid]:
            attempt.unwanted = True
            if attempt.kill_timer is not None:
                attempt.kill_timer.cancel()
            if attempt.stage == "preparing":
                self._give_up(attempt)
            else:
                names.append(container_name(attempt.ref))
            self._logs.forget(attempt.ref)
            self._forget(attempt)
        self._images.forget_pod(uid)
        self._removals.put_nowait((names, list(folders)))

    async def _remove(self) -> None:
        """Containers before the folders that are mounted in them, many in one call."""
        while True:
            batch = [await self._removals.get()]
            while not self._removals.empty():
                batch.append(self._removals.get_nowait())
            await self._engine.remove(name for names, _ in batch for name in names)
            await asyncio.to_thread(
                remove_trees, [str(folder) for _, folders in batch for folder in folders]
            )
            for _ in batch:
                self._removals.task_done()

    def _spawn(self, errand: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errand_done)
        return task

    def _errand_done(self, task: asyncio.Task[None]) -> None:
        self._errands.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("an errand at the engine failed", exc_info=error)

    def _follow(self, ref: AttemptRef) -> None:
        is_docker = self._engine.is_docker
        source = self._engine.output_of(container_name(ref)) if is_docker else self._engine_log(ref)
        self._logs.begin(ref, source, self._log_path(ref))

    # --- files

    def _log_path(self, ref: AttemptRef) -> Path:
        return log_path(self._data_dir, *ref)

    def _engine_log(self, ref: AttemptRef) -> Path:
        return self._engine_folder(ref) / "output"

    def _engine_folder(self, ref: AttemptRef) -> Path:
        return self._pods / ref.uid / "engine" / f"{ref.container}-{ref.attempt}"


def _never_began(now: datetime) -> Exit:
    """As the kubelet has it for a container that was not there when its Pod was ended."""
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
