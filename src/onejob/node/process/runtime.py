"""Process runtime: containers as host processes, owned by a supervisor so that they outlive the
server.

This module manages requests to the supervisor and translates its reports into runtime events.
`requests` defines the properties of each process.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from onejob.clock import Clock
from onejob.node.conditions import NodeCondition, NodeConditions
from onejob.node.descriptors import Sink
from onejob.node.exec_session import ExecSession, Finished
from onejob.node.images import NoStandIn
from onejob.node.logs.reading import log_path, read_logs
from onejob.node.options import NodeOptions
from onejob.node.process.container_setup import ContainerSetup, Volumes
from onejob.node.process.devices import Devices, NoDevice
from onejob.node.process.limits import LimitEnforcer
from onejob.node.process.pressure import Pressures, short_of_space
from onejob.node.process.requests import ProcessRequests, enable_terminal
from onejob.node.process.runtime_settings import ProcessSettings, process_settings, variable_problem
from onejob.node.process.supervisor_client import (
    OUTDATED_SUPERVISOR_MESSAGE,
    Reach,
    SupervisorClient,
    SupervisorGone,
    reach_by_socket,
)
from onejob.node.removal import remove_trees
from onejob.node.runtime import (
    AttemptRef,
    CommandResult,
    Deliver,
    Ended,
    Fetch,
    LimitsInForce,
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
    Starting,
    Warned,
)
from onejob.node.setup.container_sources import NO_SETTINGS, FetchedSettings, fetch_settings
from onejob.node.setup.environment import ConfigProblem, settings_used
from onejob.node.setup.volumes import VolumeProblem, mounts_files, settings_in_volumes
from onejob.node.supervisor.pressure import DISK, pressure_of
from onejob.objects.pod_spec import Container, NodePod
from onejob.planning.pod.lifecycle import Exit
from onejob.planning.pod.security import Privileges, privileges_of
from onejob.wire.requests import LogOptions
from onejob.worker_threads import WorkerThreads

if TYPE_CHECKING:
    from concurrent.futures import Future

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds for which the removal of ended Pods' files is delayed, to batch it: no caller waits for
#: it.
_REMOVE_AFTER_SECONDS = 0.02
#: Seconds beyond the longest grace period in which the supervisor has to end everything.
_PATIENCE_SECONDS = 10.0


class ProcessRuntime(Runtime):
    """Runtime of host processes, which belong to the supervisor and outlive the server.

    Guarantees: starts are idempotent, because the supervisor records each attempt before its
    process exists. If the supervisor dies, another is started: running attempts are reported as
    Lost, and unanswered starts are requested again. After `close`, processes keep running unless
    `end_pods` or the option `pods_end_with_server` is set.
    """

    name = "process"
    traits = RuntimeTraits(on_host=True, has_outputs=True)

    def __init__(
        self,
        data_dir: Path,
        clock: Clock,
        settings: ProcessSettings,
        reach: Reach = reach_by_socket,
    ) -> None:
        self._data_dir = data_dir
        self._directory = data_dir / "supervisor"
        self._clock = clock
        self._settings = settings
        self._reach = reach
        self._options = settings.options
        self._deliver: Deliver
        self._fetch: Fetch
        self._supervisor = self._new_supervisor()
        #: Unanswered start requests by Pod UID; repeated if the supervisor has to be replaced,
        #: unless the Pod has ended by then.
        self._asked: dict[str, dict[AttemptRef, dict[str, Any]]] = {}
        self._running: set[AttemptRef] = set()
        self._setup = ContainerSetup(data_dir, settings, self._isolates, self._remove)
        self._to_remove: list[str] = []
        self._to_spawn: list[dict[str, Any]] = []
        #: There is no supervisor, or it has not received the pending starts yet: requests are
        #: queued meanwhile, with stops after starts.
        self._reconnecting = False
        self._to_stop: list[list[Any]] = []
        #: Cached result of `_short_of_space` for the containers that are started together.
        self._seen_space: str | None = None
        self._to_forget: list[str] = []
        #: UIDs of ended Pods whose files are still to be removed.
        self._released: list[str] = []
        self._removal_timer: asyncio.TimerHandle | None = None
        self._flush_due = False
        #: Attempts whose settings are being fetched.
        self._launching: dict[AttemptRef, asyncio.Task[None]] = {}
        self._restarting: asyncio.Task[None] | None = None
        self._commands: dict[int, asyncio.Future[CommandResult]] = {}
        self._command_number = 0
        self._longest_grace = 0
        self._closing = False
        self._conditions: NodeConditions | None = None
        self._pressures = Pressures(self._short_of_space)
        self._devices = Devices(data_dir / "devices.json", settings.node.allocatable)
        self._limits = LimitEnforcer(
            data_dir,
            clock,
            settings.options.enforce_limits,
            lambda: self._supervisor.joins_groups,
        )
        self._requests = ProcessRequests(
            data_dir,
            settings,
            self._setup,
            self._devices,
            self._limits,
            clock,
            isolates=self._isolates,
            numbers_processes=lambda: self._has_pid_namespaces,
            limits_rights=lambda: self._supervisor.limits_rights,
        )
        #: Writes the files in volumes. Separate from the thread that removes them, so that a start
        #: does not wait for the removal of a large tree.
        self._writer = WorkerThreads(1, "pod-volumes")
        self._has_writer = False
        self._large_settings = asyncio.Lock()
        self._cleaner = WorkerThreads(1, "pod-cleaner")

    @property
    def limits_in_force(self) -> LimitsInForce:
        return LimitsInForce(self._limits.title, not self._limits.problem)

    def report_to(self, conditions: NodeConditions) -> None:
        self._conditions = conditions
        self._pressures.report_to(conditions)

    def prepare(self) -> None:
        self._supervisor.reach_early()

    async def start(self, deliver: Deliver, fetch: Fetch) -> RecoveredState:
        self._deliver, self._fetch = deliver, fetch
        try:
            found = await self._supervisor.connect()
        except SupervisorGone as error:
            raise RuntimeUnavailable(str(error)) from error
        if self._wants_pid_namespaces:
            await self._report_pid_namespaces(found.pid_namespace_problem)
        if self._settings.node.issues_tokens:
            self._report_mount_namespaces()
        self._pressures.watch_disk()
        self._setup.start(found.folders)
        if found.known:
            self._limits.inherit()
        self._devices.inherit({record[1] for record in found.known})
        if self._options.host_read_only:
            await self._try_read_only()
        return RecoveredState(
            [event for record in found.known if (event := self._event(record)) is not None],
            found.rebooted,
        )

    def reboot_settled(self) -> None:
        if self._supervisor.settles:
            self._supervisor.send({"do": "settled"})

    async def _try_read_only(self) -> None:
        """Verify that containers cannot change files of this host. Raises RuntimeUnavailable if
        they could."""
        if not self._supervisor.limits_rights:
            await self._supervisor.close(end=False)
            raise RuntimeUnavailable(
                f"cannot enforce --host-fs ro now: {OUTDATED_SUPERVISOR_MESSAGE}"
            )
        request = self._setup.empty_request()
        rights = privileges_of(NodePod(), Container(), host_read_only=True)
        assert isinstance(rights, Privileges), "a container that asks for nothing is not refused"
        request["capabilities"], request["no_new_privileges"] = rights.capabilities, True
        request["writable"] = self._options.writable
        problem = await self._ask("try", {"request": request})
        if problem.code:
            await self._supervisor.close(end=False)
            raise RuntimeUnavailable(
                f"cannot enforce --host-fs ro on this machine: {problem.output}"
            )

    async def _ask(self, what: str, request: dict[str, Any]) -> CommandResult:
        """Send a request to the supervisor, and return its answer."""
        self._command_number += 1
        number = self._command_number
        answer: asyncio.Future[CommandResult] = asyncio.get_running_loop().create_future()
        self._commands[number] = answer
        self._supervisor.send({"do": what, "id": number, **request})
        try:
            return await answer
        finally:
            self._commands.pop(number, None)

    async def _report_pid_namespaces(self, problem: str) -> None:
        """Set the SharedProcesses condition. Raises RuntimeUnavailable if PID namespaces are
        required but not available."""
        must = self._options.pid_namespace == "on" or self._options.host_read_only
        if problem and must:
            await self._supervisor.close(end=False)
            option = "--host-fs ro" if self._options.host_read_only else "--pid-namespace on"
            raise RuntimeUnavailable(f"{option}: PID namespaces are not available: {problem}")
        reason, message = "PidNamespaces", "each container has its own PID namespace"
        if problem:
            reason = "NoPidNamespaces"
            message = (
                f"no PID namespaces ({problem}): containers see all processes of this host, and "
                "can signal those of their user, or all as root"
            )
        if self._conditions is not None:
            self._conditions.set(NodeCondition("SharedProcesses", bool(problem), reason, message))

    def _report_mount_namespaces(self) -> None:
        absent = not self._isolates()
        reason, message = "MountNamespaces", "Pods have the token of their service account"
        if absent:
            reason = "NoMountNamespaces"
            message = "no mount namespaces: Pods do not have the token of their service account"
        if self._conditions is not None:
            self._conditions.set(NodeCondition("TokensUnavailable", absent, reason, message))

    def launch(self, pod: NodePod, container: Container, attempt: int) -> None:
        ref = AttemptRef(pod.uid, container.name, attempt)
        keys = [*settings_used(pod, container)]
        if container.volume_mounts:
            keys.extend(settings_in_volumes(pod))
        if keys or mounts_files(pod, container):
            task = asyncio.create_task(self._launch_with(pod, container, ref, keys))
            self._launching[ref] = task
            task.add_done_callback(lambda _: self._launching.pop(ref, None))
        else:
            self._request(pod, container, ref, NO_SETTINGS)

    def send_starts(self) -> None:
        if self._to_spawn:
            self._flush()

    def stop(self, ref: AttemptRef, grace_seconds: float) -> None:
        if (launching := self._launching.get(ref)) is not None:
            launching.cancel()
        if launching is not None or self._withdraw_start(ref):
            never = Exit(137, self._clock.now(), message="stopped before it could be started")
            self._deliver([Ended(ref, never)])
            return
        stop = [*ref, grace_seconds]
        if self._reconnecting:
            self._to_stop.append(stop)
            return
        self._flush()
        self._supervisor.send({"do": "stop", "items": [stop]})

    def release(self, uid: str) -> None:
        if self._closing:
            # Removed by the next run of the server, like any Pod whose end this run did not see.
            return
        self._forget_requests(uid)
        self._devices.release(uid)
        self._setup.unlink(uid)
        self._released.append(uid)
        if self._removal_timer is None:
            loop = asyncio.get_running_loop()
            self._removal_timer = loop.call_later(_REMOVE_AFTER_SECONDS, self._remove_released)

    def discard(self, uid: str) -> None:
        if self._closing:
            return
        self._forget_requests(uid)
        self._devices.release(uid)
        self._setup.remove_all(uid)
        self._to_forget.append(uid)
        self._flush_soon()

    def limits_problem(self, container: Container, ref: AttemptRef) -> str:
        return self._limits.change_problem(container, ref)

    async def change_limits(self, container: Container, ref: AttemptRef) -> str:
        return await asyncio.to_thread(self._limits.change, container, ref)

    async def run_command(
        self, pod: NodePod, ref: AttemptRef, command: Sequence[str], timeout_seconds: float
    ) -> CommandResult:
        try:
            request = await self._like_container(pod, ref, command)
        except (ConfigProblem, OSError) as problem:
            return CommandResult(-1, str(problem))
        if timeout_seconds < math.inf:
            request["timeout"] = timeout_seconds
        return await self._ask("run", request)

    async def open_session(
        self, pod: NodePod, ref: AttemptRef, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> ExecSession:
        """Run a command in the context of a container, with streams held by the caller. Raises
        ConfigProblem."""
        request = await self._like_container(pod, ref, command)
        # Taken literally: `$(VAR)` is expanded only in a container's own command.
        request["argv"] = list(command)
        if tty:
            enable_terminal(request)

        async def execute(streams: tuple[int, int, int]) -> Finished:
            return await self._supervisor.execute(request, streams)

        return ExecSession.open(execute, stdin=stdin, tty=tty)

    async def open_stdin(self, ref: AttemptRef, *, once: bool) -> Sink | None:
        fd = await self._supervisor.take_stdin(ref, once=once)
        return None if fd is None else Sink(fd)

    async def refresh_volumes(self, pod: NodePod) -> None:
        settings = await fetch_settings(self._fetch, settings_in_volumes(pod))
        # In the thread that also removes volumes, so that nothing is written to a removed folder.
        await asyncio.get_running_loop().run_in_executor(
            self._cleaner, self._setup.refresh, pod, settings
        )

    async def first_processes(self) -> Mapping[AttemptRef, int]:
        found = await self._supervisor.first_processes()
        return {AttemptRef(uid, container, attempt): pid for uid, container, attempt, pid in found}

    def logs(self, ref: AttemptRef, options: LogOptions) -> AsyncIterator[bytes]:
        path = log_path(self._data_dir, *ref)
        return read_logs(path, options, self._clock.now(), lambda: self.running(ref))

    def is_silent(self, ref: AttemptRef) -> bool:
        # The file is created with the first line.
        return not log_path(self._data_dir, *ref).exists()

    def running(self, ref: AttemptRef) -> bool:
        return ref in self._running

    async def close(self, *, end_pods: bool) -> None:
        self._closing = True
        under_way = [*self._launching.values()]
        if self._restarting is not None:
            under_way.append(self._restarting)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        self._remove_released()
        self._pressures.close()
        self._setup.close()
        self._flush()
        end = end_pods or self._options.pods_end_with_server
        patience = self._longest_grace + _PATIENCE_SECONDS
        await self._supervisor.close(end=end, patience_seconds=patience)
        await asyncio.to_thread(self._writer.shutdown)
        await asyncio.to_thread(self._cleaner.shutdown)
        self._limits.close(ended=end)

    def _withdraw_start(self, ref: AttemptRef) -> bool:
        """Withdraw an unsent start request. Return False if it was already sent or does not
        exist."""
        others = [request for request in self._to_spawn if request["claim"] != ref]
        if len(others) == len(self._to_spawn):
            return False
        self._to_spawn = others
        self._drop_request(ref)
        self._running.discard(ref)
        self._devices.ended(ref.uid, ref.container)
        self._limits.forget(ref)
        return True

    def _forget_requests(self, uid: str) -> None:
        """Drop all pending starts of a Pod that has ended."""
        for ref, launching in self._launching.items():
            if ref.uid == uid:
                launching.cancel()
        asked = self._asked.pop(uid, ())
        if asked and self._to_spawn:
            self._to_spawn = [item for item in self._to_spawn if item["claim"] not in asked]
        self._running.difference_update(asked)

    def _remove_released(self) -> None:
        if self._removal_timer is not None:
            self._removal_timer.cancel()
            self._removal_timer = None
        released, self._released = self._released, []
        for uid in released:
            self._setup.take_back(uid)
            self._requests.ended(uid)
        self._to_forget += released
        self._flush()

    # --- start requests

    async def _like_container(
        self, pod: NodePod, ref: AttemptRef, command: Sequence[str]
    ) -> dict[str, Any]:
        """Return a request for a process in the context of a running container. Raises
        ConfigProblem, OSError."""
        container = pod.container(ref.container)
        if container is None:
            raise ConfigProblem(f"no container {ref.container}")
        settings = await fetch_settings(self._fetch, settings_used(pod, container))
        async with self._decoded(settings):
            if ref not in self._running:
                raise ConfigProblem("the container is not running")
            return self._requests.beside(pod, container, ref, settings, tuple(command))

    async def _launch_with(
        self, pod: NodePod, container: Container, ref: AttemptRef, keys: Sequence[Any]
    ) -> None:
        try:
            settings = await fetch_settings(self._fetch, keys)
            async with self._decoded(settings):
                volumes: Volumes | None = None
                if mounts_files(pod, container):
                    if self._is_blocked(ref):
                        return
                    self._setup.announce_folder(pod.uid)
                    make = self._setup.make_volumes
                    volumes = await self._write_in_thread(make, pod, container, settings)
                self._request(pod, container, ref, settings, volumes)
        except ConfigProblem as problem:
            self._deliver([StartBlocked(ref, problem.reason, problem.message)])
        except VolumeProblem as problem:
            self._deliver([StartBlocked(ref, "ContainerCreating", problem.message)])

    @asynccontextmanager
    async def _decoded(self, settings: FetchedSettings) -> AsyncIterator[None]:
        """Decode large settings in a worker thread, for one container at a time: the decoded data
        is held until the container's request is made. Raises ConfigProblem."""
        if not settings.is_large:
            yield
            return
        async with self._large_settings:
            await self._write_in_thread(settings.decode)
            yield

    async def _write_in_thread(self, work: Callable[..., T], *args: Any) -> T:
        """Run `work` in the thread that writes volumes. Raises ConfigProblem if no thread can be
        started."""
        loop = asyncio.get_running_loop()
        try:
            running = loop.run_in_executor(self._writer, work, *args)
            self._has_writer = True
        except RuntimeError as error:
            reason = "ContainerCreating"
            raise ConfigProblem(f"onejob cannot start a thread: {error}", reason) from error
        return await running

    def _written(self) -> "Future[None] | None":
        """Return a future that completes once all volumes requested so far are written; None if
        there are none.

        No file is written into a folder after its removal: starts of a Pod are cancelled before its
        folder is removed.
        """
        return self._writer.submit(_nothing) if self._has_writer else None

    def _is_blocked(self, ref: AttemptRef) -> bool:
        """Return whether the disk is short of space, and if so report the attempt as blocked."""
        if self._seen_space is None:
            self._seen_space = self._short_of_space()
            # `_flush` clears the cached result.
            self._flush_soon()
        if self._seen_space:
            self._deliver([self._report_blocked(ref, DISK, self._seen_space)])
        return bool(self._seen_space)

    def _request(
        self,
        pod: NodePod,
        container: Container,
        ref: AttemptRef,
        settings: FetchedSettings,
        volumes: Volumes | None = None,
    ) -> None:
        """Queue the start of an attempt; failures are delivered as events."""
        if self._is_blocked(ref):
            return
        try:
            request, notes = self._requests.start(pod, container, ref, settings, volumes)
        except NoStandIn as problem:
            if pod.spec.restart_policy == "Always":
                # To start it again would change nothing: it waits until the image map has changed.
                self._deliver([StartBlocked(ref, "ErrImageNeverPull", str(problem))])
                return
            failed = Exit(128, self._clock.now(), reason="StartError", message=str(problem))
            self._deliver([Ended(ref, failed)])
            return
        except ConfigProblem as problem:
            self._deliver([StartBlocked(ref, problem.reason, problem.message)])
            return
        except VolumeProblem as problem:
            self._deliver([StartBlocked(ref, "ContainerCreating", problem.message)])
            return
        except NoDevice as problem:
            self._deliver([StartBlocked(ref, "ContainerCreating", str(problem))])
            return
        except OSError as error:
            if pressure := pressure_of(error):
                self._deliver([self._report_blocked(ref, pressure, str(error))])
                return
            reason = "ContainerCannotRun"
            failed = Exit(128, self._clock.now(), reason=reason, message=str(error))
            self._deliver([Ended(ref, failed)])
            return
        if notes:
            self._deliver([Warned(ref, "NotAsAsked", note) for note in notes])
        self._longest_grace = max(self._longest_grace, request["grace"])
        self._asked.setdefault(pod.uid, {})[ref] = request
        self._running.add(ref)
        self._to_spawn.append(request)
        self._flush_soon()

    # --- the supervisor

    @property
    def _wants_pid_namespaces(self) -> bool:
        return self._options.pid_namespace != "off" or self._options.host_read_only

    @property
    def _has_pid_namespaces(self) -> bool:
        return self._wants_pid_namespaces and not self._supervisor.pid_namespace_problem

    def _isolates(self) -> bool:
        """Return whether mount namespaces are available."""
        if self._settings.isolation is not None:
            return self._settings.isolation
        return self._supervisor.isolates

    def _new_supervisor(self) -> SupervisorClient:
        return SupervisorClient(
            self._directory,
            owner=self._options.pods_end_with_server,
            pid_namespaces=self._wants_pid_namespaces,
            on_events=self._receive,
            on_lost=self._replace_supervisor,
            reach=self._reach,
        )

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Send queued starts, removals and other requests to the supervisor."""
        self._flush_due = False
        self._seen_space = None
        if self._to_spawn and not self._reconnecting:
            items, self._to_spawn = self._to_spawn, []
            self._supervisor.send({"do": "spawn", "items": items})
        if self._to_forget:
            uids, self._to_forget = self._to_forget, []
            self._supervisor.send({"do": "forget", "uids": uids})
        if self._to_remove:
            # In a separate thread: removal waits for the disk, and trees may be large.
            paths, self._to_remove = self._to_remove, []
            self._cleaner.submit(_remove_after, self._written(), paths)

    def _short_of_space(self) -> str:
        try:
            return short_of_space(self._data_dir)
        except OSError as error:
            return str(error)

    def _report_blocked(self, ref: AttemptRef, pressure: str, message: str) -> StartBlocked:
        self._pressures.report(pressure, message)
        return StartBlocked(ref, pressure, message)

    def _receive(self, records: Sequence[list[Any]]) -> None:
        """Deliver the events in records of the supervisor."""
        events = [event for record in records if (event := self._event(record)) is not None]
        if events:
            self._deliver(events)

    def _event(self, record: list[Any]) -> RuntimeEvent | None:
        """Return the event of a record; None if it concerns a command.

        Also updates the state that is kept per attempt.
        """
        kind = record[0]
        if kind == "ran":
            answer = self._commands.get(record[1])
            _, _, code, output, *short_of = record
            for pressure in short_of:
                self._pressures.report(pressure, output)
            if answer is not None and not answer.done():
                answer.set_result(CommandResult(code, output, *short_of))
            return None
        ref = AttemptRef(record[1], record[2], record[3])
        self._drop_request(ref)
        if kind == "started":
            self._running.add(ref)
            return Started(ref, _from_timestamp(record[4])) if record[4] else Starting(ref)
        self._running.discard(ref)
        self._devices.ended(ref.uid, ref.container)
        # Name in the protocol, which supervisors of earlier versions also use.
        if kind == "hindered":
            return self._report_blocked(ref, record[4], record[5])
        # Supervisors of other versions send fewer fields, or more.
        started_at, at, code, signal, reason, message, *more = record[4:]
        alone, peak_kib, cpu_ms = [*more, *_NOT_MEASURED[len(more) :]][:3]
        if not alone:
            self._setup.may_be_in_use(ref.uid)
        if kind == "lost":
            self._limits.forget(ref)
            return Lost(ref, _from_timestamp(at))
        exit = Exit(
            code,
            _from_timestamp(at),
            _from_timestamp(started_at) if started_at else None,
            signal,
            reason,
            message or self._setup.take_message(ref, code),
            peak_bytes=peak_kib * 1024,
            cpu_milliseconds=cpu_ms,
            milliseconds=round(max(0.0, at - started_at) * 1000) if started_at else 0,
        )
        return Ended(ref, self._limits.ended(ref, exit))

    def _drop_request(self, ref: AttemptRef) -> None:
        """Forget the request of an attempt."""
        asked = self._asked.get(ref.uid)
        if asked is not None:
            asked.pop(ref, None)
            if not asked:
                del self._asked[ref.uid]

    def _replace_supervisor(self) -> None:
        """Start a new supervisor, which ends the processes left by the killed one and reports lost
        attempts."""
        for answer in self._commands.values():
            if not answer.done():
                answer.set_result(CommandResult(-1, "lost the supervisor"))
        if self._closing:
            return
        log.warning("lost the supervisor; starting another")
        self._reconnecting = True
        self._restarting = asyncio.create_task(self._restart_supervisor())

    async def _restart_supervisor(self) -> None:
        await self._supervisor.close(end=False)
        self._supervisor = self._new_supervisor()
        while True:
            try:
                known = (await self._supervisor.connect()).known
                break
            except SupervisorGone as error:
                log.error("%s", error)
                await asyncio.sleep(1)
        events = [event for record in known if (event := self._event(record)) is not None]
        # Pending starts wait here while the losses are delivered: an attempt that is stopped in
        # response is not requested again, and a stop sent ahead of its start would find no process.
        self._to_spawn = [request for asked in self._asked.values() for request in asked.values()]
        if events:
            self._deliver(events)
        self._reconnecting = False
        self._flush()
        if self._to_stop:
            stops, self._to_stop = self._to_stop, []
            self._supervisor.send({"do": "stop", "items": stops})

    # --- files

    def _remove(self, path: str) -> None:
        """Have the supervisor remove a path."""
        self._to_remove.append(path)
        self._flush_soon()


def _remove_after(written: "Future[None] | None", paths: Sequence[str]) -> None:
    if written is not None:
        written.result()
    remove_trees(paths)


#: Defaults of the last fields of an end: whether no process was left, peak memory, CPU time.
_NOT_MEASURED: Final[tuple[Any, ...]] = (False, 0, 0)


def _nothing() -> None: ...


def _from_timestamp(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _make(options: NodeOptions, data_dir: Path, clock: Clock, context: NodeContext) -> Runtime:
    return ProcessRuntime(data_dir, clock, process_settings(options, context))


KIND: Final = RuntimeKind(ProcessRuntime.traits, _make, variable_problem)
