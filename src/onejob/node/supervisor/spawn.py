"""Process creation: fork, set up the child, exec the program. No second exec.

The agent makes all decisions and puts them into the request; this module applies them in the child,
and reports the first failure.
"""

import binascii
import errno
import fcntl
import json
import os
import resource
import signal
import termios
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from onejob.node.supervisor import init, keyrings, linux, mounting, pid_namespaces
from onejob.node.supervisor.failures import SetupFailed, text_of
from onejob.node.supervisor.journal import Claim, Journal
from onejob.node.supervisor.pressure import PRESSURES, pressure_of

Request = dict[str, Any]

_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Signals reset to their defaults: Python ignores some, and our parent may ignore others (nohup,
#: background jobs of a shell). Programs expect the kernel's defaults.
_RESET_SIGNALS = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGCHLD,
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
)

_SET_UP_IN_CHILD = frozenset({
    "mounts", "join", "user", "group", "groups", "limits", "tty", "capabilities",
    "no_new_privileges", "groups_to_join",
})  # fmt: skip
#: Of these, what a process cannot undo, or a terminal, which belongs to a session.
_CHANGES_PROCESS = (_SET_UP_IN_CHILD | {"sealed"}) - {"mounts"}


#: Exit code of a child that could not execute the program.
NOT_BEGUN = 128


class Streams(NamedTuple):
    """Descriptors for a new process."""

    stdin: int
    output: int
    errors: int
    #: Receives the error of a failed setup; closed automatically on exec.
    report: int


def needs_fork(request: Request) -> bool:
    """Return whether the request needs setup that only code in the child can do."""
    return not _SET_UP_IN_CHILD.isdisjoint(request)


def changes_init(request: Request) -> bool:
    """Return whether the request changes its init for good, so that no other container can have
    it."""
    return not _CHANGES_PROCESS.isdisjoint(request)


def spawn_plain(request: Request, streams: Streams) -> int:
    """Start a program that needs only a session, a directory and its output.

    Half the cost of `fork`: the child is never a copy of this process. Raises SetupFailed.
    """
    enter(request["cwd"])
    return _find_and_start(_spawn_function(streams), request)


def mark(request: Request) -> int:
    """Return a checksum of the environment, by which a process can be recognized if its PID was
    never recorded. HOSTNAME makes it sufficiently unique."""
    variables = request["env"].items()
    block = "\0".join(map("=".join, variables)) + "\0" if variables else ""
    return binascii.crc32(os.fsencode(block))


def find_marked(wanted: int) -> int:
    """Return the session leader whose environment has this checksum; 0 if there is none."""
    for pid in linux.processes():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if binascii.crc32(file.read()) == wanted and os.getsid(pid) == pid:
                    return pid
        except OSError:
            continue
    return 0


def hostname_of(pid: int) -> str | None:
    """Return the HOSTNAME that a process was started with, its Pod's name; None if it hides it."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            for entry in file.read().split(b"\0"):
                if entry.startswith(b"HOSTNAME="):
                    return os.fsdecode(entry.partition(b"=")[2])
    except OSError:
        return None
    return None


def fork(request: Request, streams: Streams, journal: Journal | None, *, pids_of: int = 0) -> int:
    """Start the process described by the request, in the PID namespace of process `pids_of` if that
    is given; return its PID."""
    pid = pid_namespaces.fork_in_namespace(pids_of) if pids_of else pid_namespaces.fork_here()
    if pid == 0:
        try:
            _exec_request(request, streams, journal)
        finally:
            # In any event, there must be only one supervisor.
            os._exit(NOT_BEGUN)
    return pid


def fork_init(request: Request, streams: Streams, journal: Journal, status: int) -> int:
    """Start the process as the only command of a new PID namespace; return the PID of its init,
    which writes the command's wait status to `status`."""
    # Computed in the parent, where the result stays cached.
    pid_namespaces.spacing()
    arguments = linux.argument_area()
    pid = pid_namespaces.fork_first()
    if pid == 0:
        try:
            linux.call_process(init.NAME, arguments)
            _run_as_init(request, streams, journal, status)
        finally:
            os._exit(NOT_BEGUN)
    return pid


def reported_pressure(text: str) -> str:
    """Return the node's shortage according to a failed child's report; "" if `text` is no such
    report. A program may produce the same output and exit code."""
    try:
        _, _, pressure = json.loads(text)
    except (ValueError, TypeError):
        return ""
    return pressure if pressure in PRESSURES else ""


def can_isolate() -> bool:
    """Return whether this machine permits mount namespaces, found out by a trial."""
    pid = os.fork()
    if pid == 0:
        try:
            mounting.private_namespace()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def try_out(request: Request) -> str:
    """Set up a trial process as a container that must not change the host's files; return the
    reason if that fails or is ineffective, else ""."""
    read, write = os.pipe2(os.O_CLOEXEC)
    try:
        pid = pid_namespaces.fork_first()
        if pid == 0:
            _or_report(lambda: _verify_setup(request), write)
            os._exit(0)
    except OSError as error:
        os.close(read)
        return text_of(error)
    finally:
        os.close(write)
    with open(read, encoding="utf-8") as file:
        problem = file.read()
    os.waitpid(pid, 0)
    return str(json.loads(problem)[1]) if problem else ""


def _verify_setup(request: Request) -> None:
    """Raise SetupFailed if the view of the host could be changed."""
    _set_up(request, Streams(-1, -1, -1, -1))
    if found := mounting.changeable(request["writable"]):
        raise SetupFailed("", f"can still be changed: {', '.join(found)}")


def _exec_request(request: Request, streams: Streams, journal: Journal | None) -> NoReturn:
    def start() -> None:
        os.setsid()
        if journal is not None:
            _record_start(journal, request)
        _set_up(request, streams)
        _exec(request, streams)

    _or_report(start, streams.report)
    raise AssertionError("a program that began does not return")


def _run_as_init(request: Request, streams: Streams, journal: Journal, status: int) -> NoReturn:
    command = 0

    def start() -> None:
        nonlocal command
        os.setsid()
        _record_start(journal, request)
        init.hide()
        pid_namespaces.spread_pids(linux.own_pid())
        _set_up(request, streams)
        command = start_below(request, streams)

    _or_report(start, streams.report)
    init.serve(command, status)


def _or_report(start: Callable[[], None], report: int) -> None:
    """Run `start`; on failure, report the error and exit."""
    try:
        start()
        return
    except BaseException as error:
        problem = problem_of(error)
    try:
        os.write(report, json.dumps(problem).encode())
    finally:
        os._exit(NOT_BEGUN)


def problem_of(error: BaseException) -> tuple[str, str, str]:
    """Return the reason and message of a failed start, and the node's shortage that caused it or
    ""."""
    if isinstance(error, SetupFailed):
        return error.reason, error.message, pressure_of(error)
    if isinstance(error, OSError):
        return "ContainerCannotRun", text_of(error), pressure_of(error)
    return "ContainerCannotRun", f"{type(error).__name__}: {error}", ""


def _record_start(journal: Journal, request: Request) -> None:
    at = time.time_ns() / 1e9
    journal.record_own_start(Claim(*request["claim"]), linux.own_pid(), at)


def _set_up(request: Request, streams: Streams) -> None:
    """Set up everything that the program inherits, apart from its streams."""
    _join_groups(request.get("groups_to_join", ()))
    if request.get("tty") and request.get("user") is not None:
        # Otherwise it could write to its terminal, but not open it by name.
        os.fchown(streams.stdin, request["user"], -1)
    # Before the Pod's volumes are mounted.
    own_folder = os.stat(request["cwd"]) if request.get("enter_first") else None
    if "join" in request:
        mounting.join(request["join"], sealed="sealed" in request)
    elif "mounts" in request:
        root, sealed = request.get("root", ""), "sealed" in request
        mounting.mount_all(request["mounts"], root, sealed=sealed)
    if "sealed" in request:
        keyrings.keep_out()
    _set_limits(request.get("limits", {}))
    if own_folder is not None:
        _enter_own(request["cwd"], own_folder)
    allowed = request.get("capabilities") if os.geteuid() == 0 else None
    if allowed is not None:
        linux.bound_capabilities(allowed)
    _set_identity(request.get("user"), request.get("group"), request.get("groups", ()))
    os.umask(0o022)
    if own_folder is None:
        enter(request["cwd"])
    if allowed is not None:
        linux.give_up_capabilities(allowed)
    if request.get("no_new_privileges"):
        linux.gain_no_privileges()


def start_below(request: Request, streams: Streams) -> int:
    """Start the command of an init in its own session; return its PID in the namespace."""
    if not request.get("tty"):
        return _find_and_start(_spawn_function(streams, setsigmask=()), request)
    pid = os.fork()
    if pid == 0:
        _or_report(lambda: _exec_in_session(request, streams), streams.report)
    return pid


def _exec_in_session(request: Request, streams: Streams) -> None:
    os.setsid()
    _exec(request, streams)


def _exec(request: Request, streams: Streams) -> None:
    """Replace this process by the program, with its streams."""
    for number in _RESET_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    linux.unblock_signals()
    os.dup2(streams.stdin, 0)
    os.dup2(streams.output, 1)
    os.dup2(streams.errors, 2)
    if request.get("tty"):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    _find_and_start(os.execve, request)


_Start = Callable[[str, list[str], dict[str, str]], int]


def _spawn_function(streams: Streams, **how: Any) -> _Start:
    actions = [
        (os.POSIX_SPAWN_DUP2, streams.stdin, 0),
        (os.POSIX_SPAWN_DUP2, streams.output, 1),
        (os.POSIX_SPAWN_DUP2, streams.errors, 2),
    ]

    def attempt(path: str, argv: list[str], env: dict[str, str]) -> int:
        return os.posix_spawn(
            path, argv, env, file_actions=actions, setsid=True, setsigdef=_RESET_SIGNALS, **how
        )

    return attempt


def _find_and_start(start: _Start, request: Request) -> int:
    """Look the program up as a shell would, in the environment it will have."""
    argv, env = request["argv"], request["env"]
    name = request.get("program") or argv[0]
    searched = "/" not in name
    if searched:
        path = env.get("PATH") or _DEFAULT_PATH
        candidates = [os.path.join(folder or ".", name) for folder in path.split(":")]
    else:
        candidates = [name]
    denied = False
    for candidate in candidates:
        if searched and _is_missing(candidate):
            continue
        try:
            return start(candidate, argv, env)
        except (FileNotFoundError, NotADirectoryError) as error:
            if os.path.exists(candidate):
                raise SetupFailed(
                    "StartError", f'exec: "{name}": its interpreter was not found'
                ) from error
        except PermissionError:
            # An inaccessible folder of the PATH is skipped, as by a shell.
            denied = denied or not searched or os.path.isfile(candidate)
        except ValueError as error:
            # A NUL in an argument, or "=" in the name of a variable.
            raise SetupFailed("StartError", f'exec: "{name}": {error}') from error
        except OSError as error:
            if error.errno == errno.ENOEXEC:
                raise SetupFailed("StartError", f'exec: "{name}": exec format error') from error
            raise SetupFailed("StartError", f'exec: "{name}": {text_of(error)}') from error
    if denied:
        raise SetupFailed("StartError", f'exec: "{name}": permission denied')
    where = "executable file not found in $PATH" if searched else "no such file or directory"
    raise SetupFailed("StartError", f'exec: "{name}": {where}')


def _is_missing(path: str) -> bool:
    """Return whether a path does not exist. Finding that out in a new process takes a hundred times
    as long."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        # The attempt to start it will report the error.
        return False
    return False


def _join_groups(files: Sequence[str]) -> None:
    """Join control groups, given by their `cgroup.procs` files. Must precede any mounts."""
    for name in files:
        fd = os.open(name, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"0")
        finally:
            os.close(fd)


def enter(folder: str) -> None:
    """Change the working directory. Raises SetupFailed."""
    try:
        os.chdir(folder)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise SetupFailed("ContainerCannotRun", f'workingDir "{folder}": {why}') from error


def _enter_own(folder: str, expected: os.stat_result) -> None:
    """Enter the Pod's own folder as root, and verify that the path still leads to it: a volume on
    the way may contain a link to a folder that its user may not enter."""
    enter(folder)
    if not os.path.samestat(expected, os.stat(".")):
        why = f"{folder}: a volume replaces the Pod's own directory"
        raise SetupFailed("ContainerCannotRun", why)


def _set_identity(user: int | None, group: int | None, groups: list[int]) -> None:
    if user is None and group is None and not groups:
        return
    try:
        if os.geteuid() == 0:
            os.setgroups(groups)
        if group is not None:
            os.setresgid(group, group, group)
        if user is not None:
            os.setresuid(user, user, user)
    except OSError as error:
        raise SetupFailed(
            "ContainerCannotRun", f"cannot run as user {user}, group {group}: {text_of(error)}"
        ) from error


def _set_limits(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (ceiling, ceiling))
