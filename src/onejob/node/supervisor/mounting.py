"""The file system as one container sees it: made by its first process, in a namespace of its own.

What is to be mounted was planned by `onejob.node.mounts`.
"""

import os
from typing import Any

from onejob.node.supervisor import linux, paths
from onejob.node.supervisor.failures import SetupFailed, text_of


def mount_all(steps: list[list[Any]], root: str) -> None:
    """Carry out the steps of `onejob.node.mounts` in a mount namespace of our own."""
    inside: dict[str, str] = {}
    try:
        private_namespace()
        for kind, source, target, read_only in steps:
            if kind == "proc":
                mount_proc(target)
            elif kind == "tmpfs":
                linux.mount("onejob", target, linux.MS_NOSUID | linux.MS_NODEV, "tmpfs", "mode=755")
            elif kind in ("directory", "file") and source:
                inside[target] = source
                os.close(_place(kind, source, target, root))
            elif kind == "directory":
                os.mkdir(target)
            elif kind == "file":
                os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
            elif kind == "symlink":
                os.symlink(source, target)
            elif kind == "bind" or os.path.exists(source):
                _bind(source, target, inside.get(target, ""), root, read_only=read_only)
        if root:
            os.chroot(root)
            os.chdir("/")
    except OSError as error:
        raise SetupFailed("ContainerCannotRun", f"volumes: {text_of(error)}") from error


def join(pid: int) -> None:
    """See the file system as process `pid` does."""
    try:
        root = os.open(f"/proc/{pid}/root", os.O_RDONLY | os.O_DIRECTORY)
        if not may_mount():
            linux.setns(os.open(f"/proc/{pid}/ns/user", os.O_RDONLY), linux.CLONE_NEWUSER)
        linux.setns(os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY), linux.CLONE_NEWNS)
        os.fchdir(root)
        os.chroot(".")
    except OSError as error:
        why = f"the container is gone: {text_of(error)}"
        raise SetupFailed("ContainerCannotRun", why) from error


def private_namespace() -> None:
    if not may_mount():
        _be_root_of_nothing(linux.CLONE_NEWNS)
    else:
        linux.unshare(linux.CLONE_NEWNS)
    # The host's later mounts shall show here, ours never there.
    linux.mount("none", "/", linux.MS_REC | linux.MS_SLAVE)


def enter_user_namespace() -> None:
    """Have, without being root, the rights that namespaces of our own take: for good, and for all
    children. Raises OSError."""
    global _in_user_namespace
    if not may_mount():
        _be_root_of_nothing(0)
        _in_user_namespace = True


def may_mount() -> bool:
    return os.geteuid() == 0 or _in_user_namespace


_in_user_namespace = False


def _be_root_of_nothing(flags: int) -> None:
    """A user namespace in which we are who we were."""
    user, group = os.getuid(), os.getgid()
    linux.unshare(linux.CLONE_NEWUSER | flags)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {user} 1")
    _write("/proc/self/gid_map", f"{group} {group} 1")


def mount_proc(target: str) -> None:
    """Show the processes of the PID namespace that this one is in, and no others."""
    linux.mount("proc", target, linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC, "proc")


def _bind(source: str | list[str], target: str, inside: str, root: str, *, read_only: bool) -> None:
    """Mount `source` over `target`, which must be found inside that folder if one is given."""
    opened: list[int] = []

    def path_of(fd: int) -> str:
        opened.append(fd)
        return f"/proc/self/fd/{fd}"

    if not isinstance(source, str):
        # A part of a volume: what it leads to may have changed since it was looked at.
        source = path_of(paths.open_inside(*source))
    place = path_of(_place("", inside, target, root)) if inside else target
    linux.mount(source, place, linux.MS_BIND | linux.MS_REC)
    if read_only:
        # What is mounted there now is another folder than the one it was mounted over.
        _remount_read_only(path_of(_place("", inside, target, root)) if inside else target)
    for fd in opened:
        # Only for tidiness: whoever fails here never becomes a program, and execution closes them.
        os.close(fd)


def _place(kind: str, inside: str, target: str, root: str) -> int:
    """What is to be mounted over: links of the workload's never lead out of `inside`."""
    part = os.path.relpath(target, inside)
    return paths.place(inside, part, make=kind, links_inside=inside != root)


def _remount_read_only(target: str) -> None:
    # Flags that the source carries must be repeated: an unprivileged namespace may not drop them.
    kept = os.statvfs(target).f_flag & (
        linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC | linux.MS_NOATIME | linux.MS_NODIRATIME
    )
    if os.statvfs(target).f_flag & 0x1000:
        kept |= linux.MS_RELATIME
    linux.mount("none", target, linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | kept)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
