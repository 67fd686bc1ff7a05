"""Client of the supervisor: connects to it, starts it if necessary, and exchanges JSON lines."""

import asyncio
import contextlib
import fcntl
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

import msgspec

from onejob import own_process
from onejob.node.exec_session import Finished
from onejob.node.supervisor.journal import NAME as JOURNAL_NAME
from onejob.node.supervisor.listener import address, bind
from onejob.node.supervisor.versions import (
    NewerVersion,
    require_known_journal,
    require_known_protocol,
)

log = logging.getLogger(__name__)

_BOOTSTRAP = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from onejob.node.supervisor.main import main; main()"
)
_PACKAGES = str(Path(own_process.__file__).resolve().parents[1])
_ANSWER_SECONDS = 10.0
_MUCH_OUTPUT_BYTES = 1 << 19
#: Delays between connection attempts; in sum longer than a supervisor takes to notice that its
#: socket was removed.
_PATIENCE_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 1.6)


class SupervisorGone(Exception):
    """The supervisor died or could not be started."""


class SupervisorRefused(SupervisorGone):
    """A newer onejob left data that this version must not touch: retrying is pointless."""


#: A supervisor outlives upgrades, because its Pods do, and then lacks newer features.
OUTDATED_SUPERVISOR_MESSAGE = (
    "the supervisor has an earlier version and is replaced after its last Pod has ended"
)


class Handshake(msgspec.Struct):
    #: All attempts, as events.
    known: list[list[Any]]
    #: Whether this machine permits mount namespaces.
    isolates: bool
    #: Whether the machine rebooted, so that records may be missing.
    rebooted: bool
    #: Reason why there are no PID namespaces; "" if there are, or if none were requested.
    pid_namespace_problem: str = OUTDATED_SUPERVISOR_MESSAGE
    #: Whether the supervisor can drop privileges of processes.
    limits_rights: bool = False
    #: Whether it can put processes into control groups.
    joins_groups: bool = False
    #: Whether it reports `rebooted` until it receives "settled".
    settles: bool = False
    #: Working directories of the processes of each Pod, by UID.
    folders: dict[str, str] = {}
    #: Protocol version; see `supervisor/versions.py`.
    version: int = 0


class _Processes(msgspec.Struct):
    processes: list[tuple[str, str, int, int]]


class Conversation(asyncio.Protocol):
    """Connection that exchanges lines. Lines after the first are buffered until `listen` is
    called."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        #: The first line; empty if the connection ended without one.
        self.first: asyncio.Future[bytes] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._pieces: list[bytes] = []
        self._early: list[bytes] = []
        self._on_line: Callable[[bytes], None] = self._before_listening
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's, but have the same interface.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        first, *more = data.split(b"\n")
        self._pieces.append(first)
        for piece in more:
            line = b"".join(self._pieces)
            self._pieces = [piece]
            self._on_line(line)

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            log.warning("supervisor: %s", error)
        if not self.first.done():
            self.first.set_result(b"")
        if not self.ended.done():
            self.ended.set_result(None)

    def listen(self, on_line: Callable[[bytes], None]) -> None:
        """Call `on_line` with each line, including those received already."""
        self._on_line = on_line
        for line in self._early:
            on_line(line)
        self._early.clear()

    def send_line(self, line: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(line)

    def hang_up(self) -> None:
        self._transport.close()

    def _before_listening(self, line: bytes) -> None:
        if self.first.done():
            self._early.append(line)
        else:
            self.first.set_result(line)


#: Connects to the supervisor of a folder, starting it if there is none: returns the connection, and
#: the process if it was started. Raises SupervisorGone.
Reach: TypeAlias = Callable[[Path], Awaitable[tuple[Conversation, "_Started | None"]]]
_Started: TypeAlias = subprocess.Popen[bytes]


async def reach_by_socket(directory: Path) -> tuple[Conversation, _Started | None]:
    """Connect to the supervisor, starting it if necessary.

    Returns the connection, and the process if it was started. Raises SupervisorGone.
    """
    sock, process = await asyncio.to_thread(_reach, directory)
    loop = asyncio.get_running_loop()
    _, conversation = await loop.create_unix_connection(Conversation, sock=sock)
    return conversation, process


class SupervisorClient:
    """Connection to the supervisor of one data directory.

    `on_events` receives each batch of events; `on_lost` is called if the connection breaks.
    """

    def __init__(
        self,
        directory: Path,
        *,
        owner: bool,
        pid_namespaces: bool = False,
        on_events: Callable[[Sequence[list[Any]]], None],
        on_lost: Callable[[], None],
        reach: Reach = reach_by_socket,
    ) -> None:
        self._directory = directory
        self._owner = owner
        self._pid_namespaces = pid_namespaces
        self._on_events = on_events
        self._on_lost = on_lost
        self._reach = reach
        self._conversation: Conversation | None = None
        self._process: subprocess.Popen[bytes] | None = None
        #: In progress since `reach_early`.
        self._reaching: asyncio.Task[tuple[Conversation, _Started | None]] | None = None
        self.isolates = False
        #: Values from the handshake.
        self.pid_namespace_problem = ""
        self.limits_rights = False
        self.joins_groups = False
        self.settles = False

    def reach_early(self) -> None:
        """Begin to find or start the supervisor, whose start takes as long as a small program runs;
        `connect` uses the result."""
        self._reaching = asyncio.create_task(self._find())

    async def connect(self) -> Handshake:
        """Find or start the supervisor, and return its handshake. Raises SupervisorGone,
        SupervisorRefused."""
        self._make_folder()
        for pause in _PATIENCE_SECONDS:
            try:
                return await self._handshake()
            except SupervisorRefused:
                raise
            except SupervisorGone as error:
                # A supervisor that was just killed keeps its lock and its socket a moment longer.
                log.info("retrying to reach a supervisor: %s", error)
                await asyncio.sleep(pause)
        return await self._handshake()

    def _make_folder(self) -> None:
        """Create the supervisor's folder. Raises SupervisorGone."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise SupervisorGone(
                f"cannot reach the supervisor in {self._directory}: {error}"
            ) from error

    async def _find(self) -> tuple[Conversation, _Started | None]:
        """Connect to the supervisor, starting it if necessary; return the connection, and the
        process if it was started. Raises SupervisorGone."""
        self._make_folder()
        return await self._reach(self._directory)

    async def _handshake(self) -> Handshake:
        """Connect and exchange greetings; return the supervisor's answer. Raises SupervisorGone."""
        reaching, self._reaching = self._reaching, None
        conversation, process = await (self._find() if reaching is None else reaching)
        if process is not None:
            self._process = process
        self._conversation = conversation
        wanted = self._pid_namespaces
        self.send({"do": "hello", "owner": self._owner, "pid_namespaces": wanted})
        line = await conversation.first
        if not line:
            raise SupervisorGone("the supervisor closed the connection before its first message")
        handshake = msgspec.json.decode(line, type=Handshake)
        try:
            require_known_protocol(handshake.version, str(self._directory))
        except NewerVersion as newer:
            self._conversation = None
            conversation.hang_up()
            raise SupervisorRefused(str(newer)) from newer
        self.isolates = handshake.isolates
        self.pid_namespace_problem = handshake.pid_namespace_problem
        self.limits_rights = handshake.limits_rights
        self.joins_groups = handshake.joins_groups
        self.settles = handshake.settles
        # Not before our caller has the handshake.
        asyncio.get_running_loop().call_soon(conversation.listen, self._receive)
        conversation.ended.add_done_callback(lambda _: self._on_connection_lost(conversation))
        return handshake

    def send(self, message: dict[str, Any]) -> None:
        """Send a message; it is dropped if there is no connection."""
        if self._conversation is not None:
            self._conversation.send_line(msgspec.json.encode(message) + b"\n")

    async def execute(self, request: dict[str, Any], streams: tuple[int, int, int]) -> Finished:
        """Run a command on the given descriptors, over a connection of its own whose end also ends
        the command.

        Closes the descriptors: while our copies are open, the streams do not reach end of file.
        """
        message = msgspec.json.encode({"do": "run", "id": 0, **request}) + b"\n"
        try:
            sock = await _dialled(self._directory)
            try:
                sent = socket.send_fds(sock, [message], streams)
            except OSError as error:
                sock.close()
                return Finished(-1, f"the supervisor closed the connection: {error}")
        except SupervisorGone as gone:
            return Finished(-1, str(gone))
        finally:
            for fd in set(streams):
                os.close(fd)
        reader, writer = await asyncio.open_unix_connection(sock=sock)
        try:
            writer.write(message[sent:])
            line = await reader.readline()
        finally:
            writer.close()
        if not line:
            return Finished(-1, "lost the supervisor")
        _, _, code, problem, *_ = msgspec.json.decode(line)["events"][0]
        return _finished(code, problem)

    async def take_stdin(self, claim: Sequence[Any], *, once: bool) -> int | None:
        """Return the write end of a container's stdin; None if it is not available."""
        message = msgspec.json.encode({"do": "attach", "claim": claim, "once": once}) + b"\n"
        return await asyncio.to_thread(_ask_for_stdin, self._directory, message)

    async def first_processes(self) -> list[tuple[str, str, int, int]]:
        """Return UID, container, attempt and PID of each running container. Raises
        SupervisorGone."""
        return await asyncio.to_thread(_ask_for_processes, self._directory)

    async def close(self, *, end: bool, patience_seconds: float = _ANSWER_SECONDS) -> None:
        """Disconnect. With `end`, first have the supervisor stop everything, and wait for that at
        most `patience_seconds`."""
        if (reaching := self._reaching) is not None:
            self._reaching = None
            # Its result is no longer awaited.
            reaching.add_done_callback(_hang_up_on)
        conversation = self._conversation
        if conversation is None:
            return
        if end:
            self.send({"do": "end"})
            await asyncio.wait([conversation.ended], timeout=patience_seconds)
            if not conversation.ended.done():
                log.warning("stopping, although the supervisor has not ended all Pods")
        self._conversation = None
        conversation.hang_up()
        if self._process is not None and self._process.poll() is None:
            # The supervisor outlives us by design; this avoids Python's warning about an unreaped
            # child.
            self._process.returncode = 0

    def _receive(self, line: bytes) -> None:
        """Pass the events in a line on."""
        self._on_events(msgspec.json.decode(line)["events"])

    def _on_connection_lost(self, conversation: Conversation) -> None:
        if conversation is self._conversation:
            self._on_lost()


def _hang_up_on(reached: "asyncio.Task[tuple[Conversation, _Started | None]]") -> None:
    if not reached.cancelled() and reached.exception() is None:
        conversation, process = reached.result()
        conversation.hang_up()
        if process is not None:
            process.returncode = 0


def _reach(directory: Path) -> tuple[socket.socket, _Started | None]:
    """Return a connection to the supervisor of `directory`, and the process if it had to be
    started.

    A supervisor holds two locks as long as it lives, which prove its existence: one on a file, as
    in earlier versions, and one on the folder itself, which is never removed.
    """
    with contextlib.ExitStack() as open_files:
        try:
            folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            open_files.callback(os.close, folder)
            lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            open_files.callback(os.close, lock)
            try:
                _lock_folder(folder)
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return _connect(address(folder)), None
            require_known_journal(str(directory / JOURNAL_NAME))
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                bind(folder, listener)
                process = _start(directory, listener.fileno(), lock, folder)
            return _connect(address(folder)), process
        except NewerVersion as newer:
            raise SupervisorRefused(str(newer)) from newer
        except OSError as error:
            raise SupervisorGone(f"cannot start a supervisor in {directory}: {error}") from error


def _lock_folder(folder: int) -> None:
    """Lock the folder. Raises BlockingIOError if another process has locked it."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        # Network file systems may only lock files; the lock file is then sufficient.
        log.info("cannot lock the directory of the supervisor: %s", error)


def _ask_for_stdin(directory: Path, message: bytes) -> int | None:
    """Return the descriptor that the supervisor sends; None if it sends none. Blocks."""
    with _reconnect(directory) as sock:
        sock.settimeout(_ANSWER_SECONDS)
        sock.sendall(message)
        _, descriptors, _, _ = socket.recv_fds(sock, 4096, 1)
    for fd in descriptors:
        os.set_inheritable(fd, False)
        return fd
    return None


def _ask_for_processes(directory: Path) -> list[tuple[str, str, int, int]]:
    """Return the processes that the supervisor reports. Blocks. Raises SupervisorGone."""
    answer = b""
    try:
        with _reconnect(directory) as sock:
            sock.settimeout(_ANSWER_SECONDS)
            sock.sendall(b'{"do":"processes"}\n')
            while not answer.endswith(b"\n"):
                piece = sock.recv(1 << 16)
                if not piece:
                    raise SupervisorGone("the supervisor closed the connection")
                answer += piece
    except OSError as error:
        raise SupervisorGone(f"the supervisor does not respond: {error}") from error
    return msgspec.json.decode(answer, type=_Processes).processes


def _finished(code: int, problem: str) -> Finished:
    """Return the result of a command. A child that could not execute it reports a reason and a
    message."""
    if not problem:
        return Finished(code if code >= 0 else 128 - code)
    return Finished(-1, problem if code < 0 else msgspec.json.decode(problem)[1])


async def _dialled(directory: Path) -> socket.socket:
    """Connect in a worker thread. If the caller is cancelled meanwhile, close the socket, which
    would otherwise leak."""
    opened: list[socket.socket] = []
    given_up = False

    def dial() -> socket.socket:
        sock = _reconnect(directory)
        opened.append(sock)
        if given_up:
            sock.close()
        return sock

    try:
        return await asyncio.to_thread(dial)
    except asyncio.CancelledError:
        given_up = True
        for sock in opened:
            sock.close()
        raise


def _reconnect(directory: Path) -> socket.socket:
    """Return a new connection to the supervisor. Raises SupervisorGone."""
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return _connect(address(folder))
    except OSError as error:
        raise SupervisorGone(f"cannot start a supervisor in {directory}: {error}") from error
    finally:
        os.close(folder)


def _start(directory: Path, listener: int, lock: int, folder: int) -> subprocess.Popen[bytes]:
    """Start a supervisor that inherits the descriptors."""
    arguments = [_PACKAGES, str(directory), str(listener), str(lock), str(folder)]
    with _output(directory) as output:
        # -S and -I: without site-packages and user settings, it stays small and reproducible.
        process = subprocess.Popen(
            [sys.executable, "-S", "-I", "-c", _BOOTSTRAP, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(listener, lock, folder),
            start_new_session=True,
            cwd="/",
        )
    # Before it starts any process, since children inherit its limits.
    own_process.restore_descriptor_limit(process.pid)
    return process


def _output(directory: Path) -> BinaryIO:
    """Open the supervisor's error output; a full disk must not prevent its start."""
    path = directory / "output"
    try:
        # Output is limited in size: start over if the last supervisor wrote a lot.
        much = path.exists() and path.stat().st_size > _MUCH_OUTPUT_BYTES
        return open(path, "wb" if much else "ab")
    except OSError as error:
        log.warning("messages of the supervisor will be lost: %s", error)
        return open(os.devnull, "ab")


def _connect(path: str) -> socket.socket:
    """Return a non-blocking connection. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(path)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock
