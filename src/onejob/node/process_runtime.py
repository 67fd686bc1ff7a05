"""Containers as processes of this host, owned by the supervisor so that they outlive us.

This module decides what each process shall be (program, environment, mounts, identity) and
turns what the supervisor tells into the agent's events.
"""

import asyncio
import logging
import math
import os
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from onejob.api.requests import LogOptions
from onejob.clock import Clock
from onejob.node.descriptors import Sink
from onejob.node.environment import ConfigProblem, NodeContext, environment, expand, settings_used
from onejob.node.exec_session import ExecSession, Finished
from onejob.node.images import Images, NoStandIn, Shell, find_shell
from onejob.node.links import LinkRefused, Links
from onejob.node.logs import last_words, log_path, read_logs
from onejob.node.mounts import Mount, plan_mounts
from onejob.node.runtime import (
    AttemptRef,
    CommandResult,
    Deliver,
    Ended,
    Fetch,
    Hindered,
    Inheritance,
    Lost,
    RuntimeEvent,
    Started,
)
from onejob.node.scratch import ScratchFolders
from onejob.node.settings import NO_SETTINGS, FetchedSettings, fetch_settings
from onejob.node.supervisor_client import SupervisorClient, SupervisorGone
from onejob.node.volumes import VolumeProblem, mount_source, provide_volumes, settings_in_volumes
from onejob.objects.pod_spec import Container, NodePod
from onejob.planning.pod_lifecycle import Exit

log = logging.getLogger(__name__)

#: The parts of the server's environment that every container gets.
INHERITED = ("PATH", "HOME", "LANG", "TMPDIR")
_MESSAGE_BYTES = 4096
_FALLBACK_LINES, _FALLBACK_BYTES = 80, 2048
#: How much longer than the longest grace the supervisor may take to end everything.
_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    node: NodeContext
    base_env: Mapping[str, str]
    images: Images = field(default_factory=Images)
    shell: Shell = field(default_factory=find_shell)
    #: Where containers without workingDir start; None gives each Pod a scratch directory.
    working_dir: Path | None = None
    #: End the workloads when this process goes away, instead of letting them outlive it.
    end_with_owner: bool = False
    host_read_only: bool = False
    #: Whether volumes get mount namespaces; None means if the machine allows it.
    isolation: bool | None = None


class ProcessRuntime:
    name = "process"
    simulated = False

    def __init__(self, data_dir: Path, clock: Clock, settings: ProcessSettings) -> None:
        self._data_dir = data_dir
        self._pods = data_dir / "pods"
        self._directory = data_dir / "supervisor"
        self._clock = clock
        self._settings = settings
        self._links: Links
        self._deliver: Deliver
        self._fetch: Fetch
        self._supervisor = self._new_supervisor()
        #: Asked for, not yet answered: asked again if the supervisor has to be replaced.
        self._asked: dict[AttemptRef, dict[str, Any]] = {}
        self._running: set[AttemptRef] = set()
        self._messages: dict[AttemptRef, tuple[Path, Container]] = {}
        #: Pods that got directories of their own, apart from logs.
        self._furnished: set[str] = set()
        self._scratch = ScratchFolders(f"{self._pods}/scratch", self._remove)
        self._rubbish: list[str] = []
        self._outbox: list[dict[str, Any]] = []
        self._forgotten: list[str] = []
        self._flush_due = False
        #: What waits for its settings to be fetched.
        self._launching: dict[AttemptRef, asyncio.Task[None]] = {}
        self._starting_over: asyncio.Task[None] | None = None
        self._commands: dict[int, asyncio.Future[CommandResult]] = {}
        self._command_number = 0
        self._longest_grace = 0
        self._closing = False
        self._cleaner = ThreadPoolExecutor(1, "pod-cleaner")

    async def start(self, deliver: Deliver, fetch: Fetch) -> Inheritance:
        self._deliver, self._fetch = deliver, fetch
        self._pods.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = await self._supervisor.connect()
        self._links = Links(self._pods)
        # What was made for Pods in an earlier life is ours to clear away.
        self._furnished.update(record[1] for record in found.known)
        self._scratch.inherit(found.folders)
        return Inheritance(
            [event for record in found.known if (event := self._event(record)) is not None],
            found.rebooted,
        )

    def launch(self, pod: NodePod, container: Container, attempt: int) -> None:
        ref = AttemptRef(pod.uid, container.name, attempt)
        keys = [*settings_used(pod, container)]
        if container.volume_mounts:
            keys.extend(settings_in_volumes(pod))
        if keys:
            task = asyncio.create_task(self._launch_with(pod, container, ref, keys))
            self._launching[ref] = task
            task.add_done_callback(lambda _: self._launching.pop(ref, None))
        else:
            self._request(pod, container, ref, NO_SETTINGS)

    def stop(self, ref: AttemptRef, grace_seconds: float) -> None:
        if (launching := self._launching.get(ref)) is not None:
            launching.cancel()
            never = Exit(137, self._clock.now(), message="stopped before it could be started")
            self._deliver([Ended(ref, never)])
            return
        self._flush()
        self._supervisor.send({"do": "stop", "items": [[*ref, grace_seconds]]})

    def release(self, uid: str) -> None:
        self._forget(uid)
        if uid in self._furnished:
            self._furnished.discard(uid)
            for name in ("volumes", "root", "messages"):
                self._remove(f"{self._pods}/{uid}/{name}")

    def discard(self, uid: str) -> None:
        # It may still run.
        self._scratch.never_hand_on(uid)
        self._forget(uid)
        self._furnished.discard(uid)
        self._remove(f"{self._pods}/{uid}")

    def _forget(self, uid: str) -> None:
        for ref, launching in self._launching.items():
            if ref.uid == uid:
                launching.cancel()
        self._forgotten.append(uid)
        self._flush_soon()
        self._links.give_back(uid)
        self._scratch.give_back(uid)

    async def run_command(
        self, pod: NodePod, ref: AttemptRef, command: Sequence[str], timeout_seconds: float
    ) -> CommandResult:
        try:
            request = await self._beside(pod, ref, command)
        except (ConfigProblem, OSError) as problem:
            return CommandResult(-1, str(problem))
        self._command_number += 1
        number = self._command_number
        answer: asyncio.Future[CommandResult] = asyncio.get_running_loop().create_future()
        self._commands[number] = answer
        if timeout_seconds < math.inf:
            request["timeout"] = timeout_seconds
        self._supervisor.send({"do": "run", "id": number, **request})
        try:
            return await answer
        finally:
            self._commands.pop(number, None)

    async def open_session(
        self, pod: NodePod, ref: AttemptRef, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> ExecSession:
        """Run a command beside a container, with its streams in the caller's hands. Raises
        ConfigProblem."""
        request = await self._beside(pod, ref, command)
        # Taken as it comes: `$(VAR)` is only special in a container's own command.
        request["argv"] = list(command)
        if tty:
            _give_terminal(request)

        async def execute(streams: tuple[int, int, int]) -> Finished:
            return await self._supervisor.execute(request, streams)

        return ExecSession.open(execute, stdin=stdin, tty=tty)

    async def open_stdin(self, ref: AttemptRef, *, once: bool) -> Sink | None:
        fd = await self._supervisor.take_stdin(ref, once=once)
        return None if fd is None else Sink(fd)

    def logs(self, ref: AttemptRef, options: LogOptions) -> AsyncIterator[bytes]:
        return read_logs(self._log_path(ref), options, self._clock.now(), lambda: self.running(ref))

    def running(self, ref: AttemptRef) -> bool:
        return ref in self._running

    async def close(self, *, end_pods: bool) -> None:
        self._closing = True
        under_way = [*self._launching.values()]
        if self._starting_over is not None:
            under_way.append(self._starting_over)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        self._scratch.close()
        self._flush()
        end = end_pods or self._settings.end_with_owner
        patience = self._longest_grace + _PATIENCE_SECONDS
        await self._supervisor.close(end=end, patience_seconds=patience)
        await asyncio.to_thread(self._cleaner.shutdown)

    # --- what a process shall be

    async def _beside(
        self, pod: NodePod, ref: AttemptRef, command: Sequence[str]
    ) -> dict[str, Any]:
        """A process like that of a running container. Raises ConfigProblem, OSError."""
        container = pod.container(ref.container)
        if container is None:
            raise ConfigProblem(f"no container {ref.container}")
        settings = await fetch_settings(self._fetch, settings_used(pod, container))
        if ref not in self._running:
            raise ConfigProblem("the container is not running")
        return self._process(pod, container, ref, settings, tuple(command))

    async def _launch_with(
        self, pod: NodePod, container: Container, ref: AttemptRef, keys: Sequence[Any]
    ) -> None:
        try:
            settings = await fetch_settings(self._fetch, keys)
        except ConfigProblem as problem:
            self._deliver([Hindered(ref, problem.reason, problem.message)])
            return
        self._request(pod, container, ref, settings)

    def _request(
        self, pod: NodePod, container: Container, ref: AttemptRef, settings: FetchedSettings
    ) -> None:
        now = self._clock.now()
        try:
            command = self._settings.images.command_line(container)
            request = self._process(pod, container, ref, settings, command)
            self._add_mounts(request, pod, container, ref, settings)
        except NoStandIn as problem:
            failed = Exit(128, now, reason="StartError", message=str(problem))
            self._deliver([Ended(ref, failed)])
            return
        except ConfigProblem as problem:
            self._deliver([Hindered(ref, problem.reason, problem.message)])
            return
        except VolumeProblem as problem:
            self._deliver([Hindered(ref, "ContainerCreating", problem.message)])
            return
        except OSError as error:
            failed = Exit(128, now, reason="ContainerCannotRun", message=str(error))
            self._deliver([Ended(ref, failed)])
            return
        grace = request["grace"] = max(pod.spec.termination_grace_period_seconds, 0)
        self._longest_grace = max(self._longest_grace, grace)
        request["log"] = str(self._log_path(ref))
        if container.stdin:
            request["stdin"] = True
        if container.tty:
            _give_terminal(request)
        self._asked[ref] = request
        self._running.add(ref)
        self._outbox.append(request)
        self._flush_soon()

    def _process(
        self,
        pod: NodePod,
        container: Container,
        ref: AttemptRef,
        settings: FetchedSettings,
        command: tuple[str, ...],
    ) -> dict[str, Any]:
        env = environment(pod, container, self._settings.base_env, settings, self._settings.node)
        argv = [expand(word, env) for word in command]
        request: dict[str, Any] = {
            "claim": ref,
            "argv": argv,
            "env": env,
            "cwd": container.working_dir or self._default_working_dir(pod),
        }
        if program := self._settings.shell.program_for(argv[0]):
            request["program"] = program
        own, shared = container.security_context, pod.spec.security_context
        user = own.run_as_user if own.run_as_user is not None else shared.run_as_user
        group = own.run_as_group if own.run_as_group is not None else shared.run_as_group
        # Without root there is only one identity to have: honoured or ignored, never refused.
        if os.geteuid() == 0 and (user is not None or group is not None):
            request["user"] = user
            request["group"] = group if group is not None else (0 if user is None else user)
            fs_group = [] if shared.fs_group is None else [shared.fs_group]
            request["groups"] = [*fs_group, *shared.supplemental_groups]
        return request

    def _default_working_dir(self, pod: NodePod) -> str:
        if self._settings.working_dir is not None:
            return str(self._settings.working_dir)
        return self._scratch.of(pod.uid)

    def _add_mounts(
        self,
        request: dict[str, Any],
        pod: NodePod,
        container: Container,
        ref: AttemptRef,
        settings: FetchedSettings,
    ) -> None:
        folder = Path(f"{self._pods}/{pod.uid}")
        mounts = []
        if container.volume_mounts:
            paths = provide_volumes(pod, container, folder, settings, self._settings.node)
            for mount in container.volume_mounts:
                source = mount_source(mount, paths[mount.name], request["env"])
                mounts.append(Mount(str(source), mount.mount_path, mount.read_only))
        isolates = self._isolates()
        if self._wants_message_file(container, request):
            message = folder / "messages" / f"{ref.container}-{ref.attempt}"
            message.parent.mkdir(parents=True, exist_ok=True)
            message.touch(mode=0o666)
            message.chmod(0o666)
            self._messages[ref] = (message, container)
            if isolates:
                mounts.append(Mount(str(message), container.termination_message_path))
            else:
                _rename(container.termination_message_path, str(message), request)
        elif container.termination_message_policy == "FallbackToLogsOnError":
            self._messages[ref] = (folder / "messages" / "none", container)
        if mounts or ref in self._messages or self._settings.host_read_only:
            self._furnished.add(pod.uid)
        if not isolates:
            self._link(pod, container, mounts)
            return
        if not mounts and not self._settings.host_read_only:
            return
        shell = self._settings.shell
        if shell.program:
            mounts.append(Mount(shell.program, shell.replaces))
        root = folder / "root"
        root.mkdir(parents=True, exist_ok=True)
        plan = plan_mounts(
            mounts,
            str(root),
            host_read_only=self._settings.host_read_only,
            writable=[request["cwd"]],
        )
        request["mounts"] = plan.steps
        request["root"] = plan.root

    def _isolates(self) -> bool:
        if self._settings.isolation is not None:
            return self._settings.isolation
        return self._supervisor.isolates

    def _link(self, pod: NodePod, container: Container, mounts: Sequence[Mount]) -> None:
        if self._settings.host_read_only:
            raise ConfigProblem(
                "this machine has no mount namespaces, so its files cannot be made read-only"
            )
        own = f"{self._pods / pod.uid}/"
        for volume, mount in zip(container.volume_mounts, mounts, strict=True):
            # What a Pod has for itself is only its own to spoil.
            if mount.read_only and not mount.source.startswith(own):
                why = "this machine has no mount namespaces, so it cannot be made read-only"
                raise VolumeProblem(volume.name, why)
            try:
                self._links.take(pod.uid, mount.source, mount.target)
            except LinkRefused as refusal:
                raise VolumeProblem(volume.name, str(refusal)) from refusal

    @staticmethod
    def _wants_message_file(container: Container, request: dict[str, Any]) -> bool:
        """A file at the default path costs a mount namespace with a /dev of its own, so it is
        there only for containers that name the path or have a namespace anyway."""
        path = container.termination_message_path
        if not path:
            return False
        if container.volume_mounts or path != "/dev/termination-log":
            return True
        return any(path in text for text in (*request["argv"], *request["env"].values()))

    # --- the supervisor

    def _new_supervisor(self) -> SupervisorClient:
        return SupervisorClient(
            self._directory,
            owner=self._settings.end_with_owner,
            on_events=self._hear,
            on_lost=self._replace_supervisor,
        )

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if self._outbox:
            items, self._outbox = self._outbox, []
            self._supervisor.send({"do": "spawn", "items": items})
        if self._forgotten:
            uids, self._forgotten = self._forgotten, []
            self._supervisor.send({"do": "forget", "uids": uids})
        if self._rubbish:
            # In a thread of its own: removing waits for the disk, and may have much to remove.
            paths, self._rubbish = self._rubbish, []
            self._cleaner.submit(_remove_trees, paths)

    def _hear(self, records: Sequence[list[Any]]) -> None:
        events = [event for record in records if (event := self._event(record)) is not None]
        if events:
            self._deliver(events)

    def _event(self, record: list[Any]) -> RuntimeEvent | None:
        kind = record[0]
        if kind == "ran":
            answer = self._commands.get(record[1])
            if answer is not None and not answer.done():
                answer.set_result(CommandResult(record[2], record[3]))
            return None
        ref = AttemptRef(record[1], record[2], record[3])
        self._asked.pop(ref, None)
        if kind == "started":
            self._running.add(ref)
            return Started(ref, _moment(record[4])) if record[4] else None
        self._running.discard(ref)
        started_at, at, code, signal, reason, message, *alone = record[4:]
        if alone != [True]:
            self._scratch.never_hand_on(ref.uid)
        if kind == "lost":
            return Lost(ref, _moment(at))
        exit = Exit(
            code,
            _moment(at),
            _moment(started_at) if started_at else None,
            signal,
            reason,
            message or self._last_message(ref, code),
        )
        return Ended(ref, exit)

    def _last_message(self, ref: AttemptRef, code: int) -> str:
        path, container = self._messages.pop(ref, (None, None))
        if path is None or container is None:
            return ""
        try:
            with open(path, "rb") as file:
                text = file.read(_MESSAGE_BYTES).decode("utf-8", "replace")
        except OSError:
            text = ""
        if not text and code and container.termination_message_policy == "FallbackToLogsOnError":
            return last_words(self._log_path(ref), _FALLBACK_LINES, _FALLBACK_BYTES)
        return text

    def _replace_supervisor(self) -> None:
        """It was killed: a new one ends what the old one left and tells what is lost."""
        for answer in self._commands.values():
            if not answer.done():
                answer.set_result(CommandResult(-1, "the supervisor is gone"))
        if self._closing:
            return
        log.warning("the supervisor is gone; starting another")
        self._starting_over = asyncio.create_task(self._start_over())

    async def _start_over(self) -> None:
        await self._supervisor.close(end=False)
        self._supervisor = self._new_supervisor()
        while True:
            try:
                known = (await self._supervisor.connect()).known
                break
            except SupervisorGone as error:
                log.error("%s", error)
                await asyncio.sleep(1)
        self._hear(known)
        self._outbox = list(self._asked.values())
        self._flush()

    # --- files

    def _log_path(self, ref: AttemptRef) -> Path:
        return log_path(self._data_dir, *ref)

    def _remove(self, path: str) -> None:
        self._rubbish.append(path)
        self._flush_soon()


def _give_terminal(request: dict[str, Any]) -> None:
    request["tty"] = True
    request["env"].setdefault("TERM", "xterm")


def _rename(path: str, actual: str, request: dict[str, Any]) -> None:
    """Where nothing can stand at a path for one container alone, its command and environment
    name another one."""
    request["argv"] = [word.replace(path, actual) for word in request["argv"]]
    request["env"] = {name: text.replace(path, actual) for name, text in request["env"].items()}


def _remove_trees(folders: Sequence[str]) -> None:
    for folder in folders:
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            continue
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
