"""Process runtime tests as an unprivileged user, with and then without namespaces.

Run by `make unprivileged`. Nothing is changed outside of the processes that run them.
"""

import os
import stat
import sys
import tempfile
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from onejob.node.supervisor import linux
from onejob.node.supervisor.spawn import can_isolate

NOBODY = 65534
ROOT = Path(__file__).resolve().parents[2]
SUITE = ["tests/node", "--ignore=tests/node/podman", "-p", "no:cacheprovider", "-q"]


LEGS = ("with-namespaces", "without-namespaces")


def main(arguments: list[str]) -> int:
    """Run this module again for each leg as user nobody; there, run the tests."""
    if arguments and arguments[0] in LEGS:
        _run_suite(*arguments)
    if os.geteuid() != 0:
        print("unprivileged: not root, so these are the rights of whoever you are")
    return max([_leg(name, arguments) for name in LEGS])


def _leg(name: str, arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="onejob-nobody-") as home:
        pid = os.fork()
        if pid == 0:
            try:
                if os.geteuid() == 0:
                    os.chown(home, NOBODY, NOBODY)
                    open_the_way([Path(sys.base_prefix), Path(sys.prefix), ROOT])
                    become_nobody()
                os.chdir(ROOT)
                mine = {"PYTHONDONTWRITEBYTECODE": "1", "HOME": home, "TMPDIR": home}
                again = [sys.executable, "-m", "tests.node.as_nobody", name, *arguments]
                os.execve(again[0], again, {**os.environ, **mine})
            finally:
                traceback.print_exc()
                os._exit(1)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _run_suite(leg: str, *arguments: str) -> NoReturn:
    if leg == "without-namespaces":
        _forbid_namespaces()
        assert not can_isolate(), "namespaces were to be forbidden"
    print(f"unprivileged: uid {os.getuid()}, {leg}", flush=True)
    command = [sys.executable, "-m", "pytest", *SUITE, *arguments]
    os.execv(command[0], command)


def open_the_way(wanted: Iterable[Path]) -> None:
    """Make paths below root-only folders (an interpreter in its home, for example) accessible.

    In a mount namespace of our own, those folders are replaced by empty ones that hold only the
    wanted paths.
    """
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", linux.MS_REC | linux.MS_SLAVE)
    hidden = [(path, gate) for path in wanted if (gate := _closed_gate(path)) is not None]
    kept = {path: os.open(path, os.O_PATH) for path, _ in hidden}
    for gate in {gate for _, gate in hidden}:
        linux.mount("onejob", str(gate), 0, "tmpfs", "mode=755")
    for path, fd in kept.items():
        path.mkdir(parents=True, exist_ok=True)
        linux.mount(f"/proc/self/fd/{fd}", str(path), linux.MS_BIND | linux.MS_REC)


def _closed_gate(path: Path) -> Path | None:
    for folder in reversed((path, *path.parents)):
        if not folder.stat().st_mode & stat.S_IXOTH:
            return folder
    return None


def become_nobody() -> None:
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def _forbid_namespaces() -> None:
    """Enter a user namespace of our own, whose limits bind only its members."""
    user, group = os.getuid(), os.getgid()
    linux.unshare(linux.CLONE_NEWUSER)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {user} 1")
    _write("/proc/self/gid_map", f"{group} {group} 1")
    _write("/proc/sys/user/max_user_namespaces", "0")
    _write("/proc/sys/user/max_mnt_namespaces", "0")


def _write(path: str, text: str) -> None:
    Path(path).write_text(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
