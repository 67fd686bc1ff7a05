"""From a request to a running program: fork, set the child up, exec. No second exec.

Everything a child needs was decided by the agent and comes in the request; this module makes
it so, in the child, and reports the first thing that fails.
"""

import binascii
import contextlib
import errno
import fcntl
import json
import os
import resource
import signal
import termios
import time
from collections.abc import Callable
from typing import Any, NoReturn

from onejob.node.supervisor import linux, paths
from onejob.node.supervisor.journal import Claim, Journal
from onejob.node.supervisor.pressure import PRESSURES, pressure_of

Request = dict[str, Any]

_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Python ignores some of these, and whoever started us may ignore the others (nohup, a shell's
#: background). A program expects to find them as the kernel made them.
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

_SET_UP_IN_CHILD = frozenset({"mounts", "join", "user", "group", "groups", "limits", "tty"})


#: How a child ends that could not become the program.
NOT_BEGUN = 128


class SetupFailed(Exception):
    """The container could not be brought up; `reason` is what its status will say."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


def needs_fork(request: Request) -> bool:
    """Whether something has to be set up that only code running in the child can."""
    return not _SET_UP_IN_CHILD.isdisjoint(request)


def spawn_plain(request: Request, *, stdin: int, output: int) -> int:
    """Start a program that needs nothing but a session, a directory and its output.

    Half the price of `fork`: the child never is a copy of us. Raises SetupFailed.
    """
    _enter(request["cwd"])
    actions = [
        (os.POSIX_SPAWN_DUP2, stdin, 0),
        (os.POSIX_SPAWN_DUP2, output, 1),
        (os.POSIX_SPAWN_DUP2, output, 2),
    ]

    def attempt(path: str, argv: list[str], env: dict[str, str]) -> int:
        return os.posix_spawn(
            path, argv, env, file_actions=actions, setsid=True, setsigdef=_RESET_SIGNALS
        )

    return _find_and_start(attempt, request)


def mark(request: Request) -> int:
    """What the environment of a process tells of who it is; HOSTNAME alone makes it unique
    enough to find a process whose pid nobody had the time to write down."""
    block = "".join(f"{name}={value}\0" for name, value in request["env"].items())
    return binascii.crc32(os.fsencode(block))


def find_marked(wanted: int) -> int:
    for pid in linux.processes():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if binascii.crc32(file.read()) == wanted and os.getsid(pid) == pid:
                    return pid
        except OSError:
            continue
    return 0


def hostname_of(pid: int) -> str | None:
    """The HOSTNAME that a process was started with: the name of its Pod. None if it hides it."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            for entry in file.read().split(b"\0"):
                if entry.startswith(b"HOSTNAME="):
                    return os.fsdecode(entry.partition(b"=")[2])
    except OSError:
        return None
    return None


def fork(
    request: Request,
    *,
    stdin: int,
    output: int,
    report: int,
    journal: Journal | None,
    errors: int = -1,
) -> int:
    """Start what the request describes; returns the child's pid.

    The child writes what went wrong, if anything, to `report`, which closes by itself when the
    program begins.
    """
    pid = os.fork()
    if pid == 0:
        _become(request, stdin, output, output if errors < 0 else errors, report, journal)
    return pid


def reported_pressure(text: str) -> str:
    """What the node was short of when a child could not become the program, if this is such a
    report; a program may say and end likewise."""
    try:
        _, _, pressure = json.loads(text)
    except (ValueError, TypeError):
        return ""
    return pressure if pressure in PRESSURES else ""


def can_isolate() -> bool:
    """Whether this machine lets a child have mounts of its own; found out by trying."""
    pid = os.fork()
    if pid == 0:
        try:
            _private_namespace()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def _become(
    request: Request, stdin: int, output: int, errors: int, report: int, journal: Journal | None
) -> NoReturn:
    try:
        os.setsid()
        if journal is not None:
            journal.record_own_start(Claim(*request["claim"]), os.getpid(), time.time_ns() / 1e9)
        for number in _RESET_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        os.dup2(stdin, 0)
        os.dup2(output, 1)
        os.dup2(errors, 2)
        if request.get("tty"):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            if request.get("user") is not None:
                # Or it could write to its terminal, but not open it by name.
                os.fchown(0, request["user"], -1)
        if "join" in request:
            _join(request["join"])
        elif "mounts" in request:
            _mount_all(request["mounts"], request.get("root", ""))
        _limit(request.get("limits", {}))
        if request.get("enter_first"):
            _enter(request["cwd"])
        _take_identity(request.get("user"), request.get("group"), request.get("groups", ()))
        os.umask(0o022)
        if not request.get("enter_first"):
            _enter(request["cwd"])
        _find_and_start(os.execve, request)
    except SetupFailed as failure:
        problem = [failure.reason, failure.message, pressure_of(failure)]
    except OSError as error:
        problem = ["ContainerCannotRun", _text(error), pressure_of(error)]
    except BaseException as error:
        problem = ["ContainerCannotRun", f"{type(error).__name__}: {error}", ""]
    try:
        os.write(report, json.dumps(problem).encode())
    finally:
        os._exit(NOT_BEGUN)


_Start = Callable[[str, list[str], dict[str, str]], int]


def _find_and_start(start: _Start, request: Request) -> int:
    """Look the program up as a shell would, in the environment it will have."""
    argv, env = request["argv"], request["env"]
    name = request.get("program") or argv[0]
    if "/" in name:
        candidates = [name]
    else:
        path = env.get("PATH") or _DEFAULT_PATH
        candidates = [os.path.join(folder or ".", name) for folder in path.split(":")]
    denied = False
    for candidate in candidates:
        try:
            return start(candidate, argv, env)
        except (FileNotFoundError, NotADirectoryError) as error:
            if os.path.exists(candidate):
                raise SetupFailed(
                    "StartError", f'exec: "{name}": its interpreter was not found'
                ) from error
        except PermissionError:
            # A folder of the PATH that may not be entered is passed over, as a shell does.
            denied = denied or "/" in name or os.path.isfile(candidate)
        except ValueError as error:
            # A NUL in an argument, a name with "=" in the environment.
            raise SetupFailed("StartError", f'exec: "{name}": {error}') from error
        except OSError as error:
            if error.errno == errno.ENOEXEC:
                raise SetupFailed("StartError", f'exec: "{name}": exec format error') from error
            raise SetupFailed("StartError", f'exec: "{name}": {_text(error)}') from error
    if denied:
        raise SetupFailed("StartError", f'exec: "{name}": permission denied')
    where = "no such file or directory" if "/" in name else "executable file not found in $PATH"
    raise SetupFailed("StartError", f'exec: "{name}": {where}')


def _enter(folder: str) -> None:
    try:
        os.chdir(folder)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise SetupFailed("ContainerCannotRun", f'workingDir "{folder}": {why}') from error


def _take_identity(user: int | None, group: int | None, groups: list[int]) -> None:
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
            "ContainerCannotRun", f"cannot run as user {user}, group {group}: {_text(error)}"
        ) from error


def _limit(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (ceiling, ceiling))


def _mount_all(steps: list[list[Any]], root: str) -> None:
    """Carry out the steps of `onejob.node.mounts` in a mount namespace of our own."""
    inside: dict[str, str] = {}
    try:
        _private_namespace()
        for kind, source, target, read_only in steps:
            if kind == "tmpfs":
                linux.mount("onejob", target, linux.MS_NOSUID | linux.MS_NODEV, "tmpfs", "mode=755")
            elif kind in ("directory", "file"):
                inside[target] = source
                os.close(_place(kind, source, target, root))
            elif kind == "symlink":
                os.symlink(source, target)
            elif kind == "bind" or os.path.exists(source):
                _bind(source, target, inside.get(target, ""), root, read_only=read_only)
        if root:
            os.chroot(root)
            os.chdir("/")
    except OSError as error:
        raise SetupFailed("ContainerCannotRun", f"volumes: {_text(error)}") from error


def _bind(source: str | list[str], target: str, inside: str, root: str, *, read_only: bool) -> None:
    """Mount `source` over `target`, which must be found inside that folder if one is given."""
    with contextlib.ExitStack() as opened:

        def found() -> str:
            if not inside:
                return target
            fd = _place("", inside, target, root)
            opened.callback(os.close, fd)
            return f"/proc/self/fd/{fd}"

        if not isinstance(source, str):
            # A part of a volume: what it leads to may have changed since it was looked at.
            fd = paths.open_inside(*source)
            opened.callback(os.close, fd)
            source = f"/proc/self/fd/{fd}"
        linux.mount(source, found(), linux.MS_BIND | linux.MS_REC)
        if read_only:
            _remount_read_only(found())


def _place(kind: str, inside: str, target: str, root: str) -> int:
    """What is to be mounted over: links of the workload's never lead out of `inside`."""
    part = os.path.relpath(target, inside)
    return paths.place(inside, part, make=kind, links_inside=inside != root)


def _private_namespace() -> None:
    user, group = os.getuid(), os.getgid()
    if os.geteuid() == 0:
        linux.unshare(linux.CLONE_NEWNS)
    else:
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    # The host's later mounts shall show here, ours never there.
    linux.mount("none", "/", linux.MS_REC | linux.MS_SLAVE)


def _remount_read_only(target: str) -> None:
    # Flags that the source carries must be repeated: an unprivileged namespace may not drop them.
    kept = os.statvfs(target).f_flag & (
        linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC | linux.MS_NOATIME | linux.MS_NODIRATIME
    )
    if os.statvfs(target).f_flag & 0x1000:
        kept |= linux.MS_RELATIME
    linux.mount("none", target, linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | kept)


def _join(pid: int) -> None:
    """See the file system as process `pid` does."""
    try:
        root = os.open(f"/proc/{pid}/root", os.O_RDONLY | os.O_DIRECTORY)
        if os.geteuid() != 0:
            linux.setns(os.open(f"/proc/{pid}/ns/user", os.O_RDONLY), linux.CLONE_NEWUSER)
        linux.setns(os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY), linux.CLONE_NEWNS)
        os.fchdir(root)
        os.chroot(".")
    except OSError as error:
        raise SetupFailed("ContainerCannotRun", f"the container is gone: {_text(error)}") from error


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _text(error: OSError) -> str:
    text = error.strerror or str(error)
    return f"{error.filename}: {text}" if error.filename else text
