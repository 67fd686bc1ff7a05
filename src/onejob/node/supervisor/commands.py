"""Commands in the context of a container, in its view of the file system: probes and `kubectl
exec`."""

import contextlib
import os
from collections.abc import Callable

from onejob.node.supervisor import spawn
from onejob.node.supervisor.connections import Connection, Connections
from onejob.node.supervisor.loop import Loop
from onejob.node.supervisor.pressure import pressure_of
from onejob.node.supervisor.processes import kill_session

_OUTPUT_BYTES = 10 * 1024


class Command:
    """A running command. Its result is sent to the connection `requester`, with the request's
    `number`."""

    __slots__ = ("beside", "number", "output", "pid", "pids", "pipe", "requester", "timed_out")

    def __init__(
        self, pid: int, beside: int, requester: Connection, number: int, pipe: int
    ) -> None:
        self.pid = pid
        #: Owner of its PID namespace, as for the container: "container", "pod", or "" for the
        #: host's.
        self.pids = ""
        #: First process of the container, at whose end the command is killed.
        self.beside = beside
        self.requester = requester
        self.number = number
        #: Read end of its output, or of the report of a failed start.
        self.pipe = pipe
        self.output = b""
        self.timed_out = False


class Commands:
    """Commands in progress, and the answers to their clients."""

    def __init__(self, loop: Loop, connections: Connections, null: int) -> None:
        self._loop = loop
        self._connections = connections
        self._null = null
        self._running: set[Command] = set()

    def run(
        self,
        connection: Connection,
        request: spawn.Request,
        beside: int,
        *,
        isolated: bool,
        pids: str,
    ) -> Command | None:
        """Start a command next to the first process of a container; return None, after sending an
        error, if that fails.

        It joins the container's mount namespace if `isolated`, and its PID namespace if `pids` is
        not empty. Its output is sent to the connection, unless the request came with streams.
        """
        if isolated:
            request["join"] = beside
        streams, connection.descriptors = connection.descriptors, []
        try:
            read, write = os.pipe2(os.O_CLOEXEC)
        except OSError as error:
            for fd in streams:
                os.close(fd)
            self._refuse_os_error(connection, request["id"], error)
            return None
        stdin, output, errors = streams or (self._null, write, write)
        try:
            pid = spawn.fork(
                request,
                spawn.Streams(stdin, output, errors, write),
                None,
                pids_of=beside if pids else 0,
            )
        except OSError as error:
            os.close(read)
            self._refuse_os_error(connection, request["id"], error)
            return None
        finally:
            for fd in (write, *streams):
                os.close(fd)
        os.set_blocking(read, False)
        command = Command(pid, beside, connection, request["id"], read)
        command.pids = pids
        self._running.add(command)
        self._loop.watch(read, lambda _: self._read_output(command))
        if "timeout" in request:
            self._loop.after(float(request["timeout"]), lambda: self._time_out(command))
        return command

    def refuse(self, connection: Connection, number: int, why: str) -> None:
        """Answer that a command cannot be run."""
        self._answer(connection, number, -1, why)

    def _refuse_os_error(self, connection: Connection, number: int, error: OSError) -> None:
        why = f"cannot start a process: {error.strerror}"
        self._answer(connection, number, -1, why, pressure_of(error))

    def ended(self, command: Command, code: int) -> None:
        """Report the exit code and output of a command."""
        self._running.discard(command)
        if self._loop.watches(command.pipe):
            with contextlib.suppress(OSError):
                rest = os.read(command.pipe, 65536)
                command.output = (command.output + rest)[:_OUTPUT_BYTES]
            self._loop.unwatch(command.pipe)
        os.close(command.pipe)
        output = command.output.decode("utf-8", "replace")
        pressure = ""
        if command.timed_out:
            code, output = -1, "command timed out"
        elif code == spawn.NOT_BEGUN:
            pressure = spawn.reported_pressure(output)
        self._answer(command.requester, command.number, code, output, pressure)

    def kill_commands_of(self, pid: int) -> bool:
        """Kill the commands of a container that has ended; return whether there were any."""
        return self._end(lambda command: command.beside == pid)

    def end_asked_by(self, connection: Connection) -> None:
        self._end(lambda command: command.requester is connection)

    def _end(self, concerned: Callable[[Command], bool]) -> bool:
        """Kill the commands for which `concerned` returns True; return whether there was one."""
        ended = [command for command in self._running if concerned(command)]
        for command in ended:
            kill_session(command.pid)
        return bool(ended)

    def _read_output(self, command: Command) -> None:
        """Read available output up to the limit; close the pipe at its end."""
        try:
            chunk = os.read(command.pipe, 65536)
        except BlockingIOError:
            return
        if chunk:
            command.output = (command.output + chunk)[:_OUTPUT_BYTES]
        else:
            self._loop.unwatch(command.pipe)

    def _time_out(self, command: Command) -> None:
        """Kill a command if it is still running."""
        if command in self._running:
            command.timed_out = True
            kill_session(command.pid)

    def _answer(
        self, connection: Connection, number: int, code: int, output: str, pressure: str = ""
    ) -> None:
        """Send the result of a command."""
        event = ["ran", number, code, output, *([pressure] if pressure else ())]
        self._connections.send(connection, {"events": [event]})
