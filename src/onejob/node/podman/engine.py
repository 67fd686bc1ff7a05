"""Client of the container engine's command line: Podman, or Docker where its interface is the same.

Every call is a short-lived client process; exits are observed through one `events` stream. A
container must never be started twice, so clients that start one hold a lock that outlives the
server: the next run of the node waits until they are done.
"""

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from onejob.node.podman.logs import OutputCommands
from onejob.node.podman.records import Found, read_containers, read_death
from onejob.node.runtime import RuntimeUnavailable
from onejob.node.supervisor.pressure import pressure_of

log = logging.getLogger(__name__)

#: Limits of concurrent clients; each costs a few tens of megabytes and most of a core. They are
#: separate, so that many starts do not delay inspections.
_STARTS = 3
_CALLS = 3
_PULLS = 2
_COMMANDS = 8
#: Longer argument lists are split into several calls.
_NAMES_PER_CALL = 100
#: Seconds that a client of an earlier run may still take to start its container.
_SETTLE_SECONDS = 120
_LINE_BYTES = 1 << 20

#: Exit codes of a client: its own failure, and a program that could not be started.
CLIENT_FAILED, CANNOT_INVOKE, NOT_FOUND = 125, 126, 127


@dataclass(frozen=True, slots=True)
class EngineResult:
    """Result of an engine command."""

    code: int
    output: bytes
    complaint: str
    #: Shortage of this machine that prevented the client from being started; "" if none.
    pressure: str = ""

    @property
    def problem(self) -> str:
        """The client's error message, without its warnings and prefixes."""
        lines = [line.strip() for line in self.complaint.splitlines() if line.strip()]
        errors = [line.partition("Error: ")[2] for line in lines if line.startswith("Error: ")]
        text = (errors or lines or [f"exit code {self.code}"])[-1]
        return text.removeprefix("docker: ").removeprefix("Error response from daemon: ")


@dataclass(frozen=True, slots=True)
class Abilities:
    """Limits that the engine can enforce on this machine."""

    memory: bool = True
    cpus: bool = True


class Engine:
    """Command line of the container engine, with limits on concurrent commands."""

    def __init__(self, command: Sequence[str], lock: Path, mark: str) -> None:
        """`mark` is the label of all containers of this node, as NAME=VALUE."""
        self.command = tuple(command)
        self.is_docker = os.path.basename(self.command[0]).startswith("docker")
        self._lock = lock
        #: File in which the guard of a killed server saves the containers' state before removing
        #: them.
        self._last_seen = lock.with_name("engine.last-seen")
        self._mark = mark
        self._starts = asyncio.Semaphore(_STARTS)
        self._calls = asyncio.Semaphore(_CALLS)
        self._pulls = asyncio.Semaphore(_PULLS)
        self._commands = asyncio.Semaphore(_COMMANDS)

    async def prepare(self) -> Abilities:
        """Wait for the clients of an earlier run, and return the engine's abilities. Raises
        RuntimeUnavailable."""
        if shutil.which(self.command[0]) is None:
            raise RuntimeUnavailable(not_installed(self.command[0]))
        if shutil.which("flock") is None:
            raise RuntimeUnavailable("flock is not installed: apt install util-linux")
        answer = await self._call("info", "--format", "{{json .}}")
        if answer.code:
            raise RuntimeUnavailable(f"{self.command[0]} does not work: {answer.problem}")
        self._lock.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        settled = await _client(
            ["flock", "--exclusive", "--wait", str(_SETTLE_SECONDS), str(self._lock), "true"]
        )
        if settled.code:
            raise RuntimeUnavailable(
                f"{self.command[0]} is still processing requests of an earlier server"
            )
        return _parse_abilities(msgspec.json.decode(answer.output))

    async def containers(self) -> list[Found]:
        """Return all containers of this node, in any state, including the ones removed by a guard.
        Raises RuntimeUnavailable."""
        answer = await self._call("ps", "--all", "--quiet", "--no-trunc", *self._own_filter())
        if answer.code:
            raise RuntimeUnavailable(f"{self.command[0]} does not work: {answer.problem}")
        found = await self.inspect(answer.output.decode().split())
        names = {container.name for container in found}
        return [*found, *(gone for gone in self._removed() if gone.name not in names)]

    def _removed(self) -> list[Found]:
        """Return the ended containers that a guard removed, in their last state."""
        try:
            content = self._last_seen.read_bytes()
        except FileNotFoundError:
            return []
        removed: dict[str, Found] = {}
        # The file contains consecutive JSON lists, each with its brackets on separate lines. The
        # last may be cut off, if the guard was killed or the disk was full.
        for part in content.split(b"\n]"):
            with contextlib.suppress(msgspec.DecodeError):
                removed |= {found.name: found for found in read_containers(part + b"\n]")}
        return [found for found in removed.values() if not found.unborn and not found.alive]

    async def inspect(self, names: Sequence[str]) -> list[Found]:
        """Return the named containers that exist. Raises RuntimeUnavailable."""
        found: list[Found] = []
        for some in _batches(names):
            answer = await self._call("container", "inspect", *some)
            # Only an explicit "no such container" counts: a failing engine reports nothing.
            if answer.code and "no such" not in answer.complaint.lower():
                raise RuntimeUnavailable(f"{self.command[0]} does not work: {answer.problem}")
            try:
                found.extend(read_containers(answer.output))
            except msgspec.DecodeError as error:
                raise RuntimeUnavailable(
                    f"unexpected output of {self.command[0]}: {error}"
                ) from error
        return found

    async def run(
        self, arguments: Sequence[str], env: Mapping[str, str], folder: Path
    ) -> EngineResult:
        """Create and start a container; `env` is added to the client's own environment.

        The container's monitor (conmon) runs in `folder` and writes its notes there.
        """
        held = ("flock", "--close", "--shared", str(self._lock))
        async with self._starts:
            return await _client([*held, *self.command, "run", *arguments], env, folder)

    async def signal(self, name: str, signal: str) -> EngineResult:
        """Send a signal to a container, ahead of queued commands."""
        # Not queued behind starts: stopping is more urgent.
        return await _client([*self.command, "kill", "--signal", signal, name])

    async def update(self, name: str, limits: Sequence[str]) -> EngineResult:
        """Change the limits of a running container, given as arguments of `run`."""
        return await self._call("update", *limits, name)

    async def memory_in_use(self, name: str) -> str:
        """Return the memory that a container uses, such as `1.5MiB`; "" if it is unknown."""
        answer = await self._call("stats", "--no-stream", "--format", "{{.MemUsage}}", name)
        return answer.output.decode().partition("/")[0].strip() if answer.code == 0 else ""

    async def remove(self, names: Iterable[str]) -> None:
        """Kill and remove containers with their anonymous volumes; failures are logged."""
        patience = () if self.is_docker else ("--time", "0", "--ignore")
        for some in _batches(list(names)):
            answer = await self._call("rm", "--force", "--volumes", *patience, *some)
            if answer.code and "no such container" not in answer.complaint.lower():
                log.warning("cannot remove containers: %s", answer.problem)

    async def execute(self, name: str, command: Sequence[str]) -> EngineResult:
        """Run a command in a container."""
        async with self._commands:
            return await _client([*self.command, "exec", name, *command])

    async def attend(
        self, name: str, command: Sequence[str], streams: tuple[int, int, int], *, tty: bool
    ) -> int:
        """Run a command in a container on these descriptors, close them, and return its exit
        code. Raises OSError or ValueError if the client cannot be started."""
        # A client that owns its terminal receives window size changes (SIGWINCH).
        owner = ("setsid", "--ctty") if tty else ()
        flags = ("--interactive", "--tty") if tty else ("--interactive",)
        stdin, stdout, stderr = streams
        try:
            process = await asyncio.create_subprocess_exec(
                *owner, *self.command, "exec", *flags, name, *command,
                stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=not tty,
            )  # fmt: skip
        finally:
            for descriptor in set(streams):
                os.close(descriptor)
        try:
            return await process.wait()
        except asyncio.CancelledError:
            await _kill_and_wait(process)
            raise

    def output_of(self, name: str) -> OutputCommands:
        return OutputCommands(
            follow=(*self.command, "logs", "--timestamps", "--follow", name),
            whole=(*self.command, "logs", "--timestamps", name),
        )

    async def image(self, name: str) -> EngineResult:
        """Return the engine's record of a local image."""
        return await self._call("image", "inspect", "--", name)

    async def pull(self, name: str) -> EngineResult:
        """Pull an image."""
        async with self._pulls:
            return await _client([*self.command, "pull", "--quiet", "--", name])

    async def deaths(self, since: datetime) -> AsyncGenerator[str, None]:
        """Yield the names of this node's containers as they exit, until the engine's stream
        ends."""
        ended = "die" if self.is_docker else "died"
        wanted = ("--since", str(int(since.timestamp())), "--filter", f"event={ended}")
        try:
            process = await asyncio.create_subprocess_exec(
                *self.command, "events", "--format", "{{json .}}", *wanted, *self._own_filter(),
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL, start_new_session=True, limit=_LINE_BYTES,
            )  # fmt: skip
        except OSError as error:
            log.warning("cannot listen to %s: %s", self.command[0], error)
            return
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                if name := read_death(line):
                    yield name
        finally:
            await _kill_and_wait(process)

    async def guard(self) -> asyncio.subprocess.Process:
        """Start a watchdog that stops all containers of this node, gracefully, when this process
        dies. Raises RuntimeUnavailable."""
        try:
            return await asyncio.create_subprocess_exec(
                "sh", "-c", _GUARD, "sh", str(self._lock), _END_ALL, str(self._last_seen),
                f"label={self._mark}", *self.command,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise RuntimeUnavailable(
                f"the process that ends containers with this one cannot be started: {error}"
            ) from error

    async def _call(self, *arguments: str) -> EngineResult:
        """Run an engine command, queued behind others."""
        async with self._calls:
            return await _client([*self.command, *arguments])

    def _own_filter(self) -> tuple[str, str]:
        """Return the arguments that select our own containers."""
        return ("--filter", f"label={self._mark}")


#: Its stdin reaches end of file when this process ends for any reason. The next server waits for
#: the lock.
_GUARD = """
cat > /dev/null
lock=$1 end_all=$2; shift 2
flock --close --exclusive "$lock" sh -c "$end_all" sh "$@"
"""
#: Each container has its own stop timeout. Their exit states are saved, as they may not have been
#: read yet.
_END_ALL = """
last_seen=$1 filter=$2; shift 2
umask 077
"$@" ps --quiet --filter "$filter" | xargs -r "$@" stop
"$@" ps --all --quiet --filter "$filter" |
  xargs -r "$@" container inspect >> "$last_seen"
"$@" ps --all --quiet --filter "$filter" | xargs -r "$@" rm --force --volumes
"""


def not_installed(program: str) -> str:
    package = "docker.io" if os.path.basename(program).startswith("docker") else program
    return (
        f"{program} is not installed: apt install {package}, or use --runtime process with "
        "--image-map"
    )


async def _client(
    command: Sequence[str], env: Mapping[str, str] | None = None, folder: Path | None = None
) -> EngineResult:
    """Run a command and return its result; a command that cannot be started has one, too."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, **(env or {})}, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, start_new_session=True,
            cwd=folder,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        # The argument list is too long or contains a NUL, or no process can be created.
        return EngineResult(CLIENT_FAILED, b"", str(error), pressure_of(error))
    try:
        output, complaint = await process.communicate()
    except asyncio.CancelledError:
        await _kill_and_wait(process)
        raise
    assert process.returncode is not None
    return EngineResult(process.returncode, output, complaint.decode("utf-8", "replace"))


async def _kill_and_wait(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


def _batches(names: Sequence[str]) -> Iterable[Sequence[str]]:
    """Yield the names in parts that fit on a command line."""
    for start in range(0, len(names), _NAMES_PER_CALL):
        yield names[start : start + _NAMES_PER_CALL]


class _PodmanHost(msgspec.Struct, rename="camel"):
    cgroup_controllers: list[str] | None = None


class _Info(msgspec.Struct):
    """Output of `info`: Podman lists controllers, Docker has a flag for each limit."""

    host: _PodmanHost | None = None
    MemoryLimit: bool = True
    CpuCfsQuota: bool = True


def _parse_abilities(answer: object) -> Abilities:
    info = msgspec.convert(answer, _Info)
    if info.host is None:
        return Abilities(info.MemoryLimit, info.CpuCfsQuota)
    controllers = info.host.cgroup_controllers or []
    return Abilities("memory" in controllers, "cpu" in controllers)
