"""File system view of one container, set up by its first process in its own mount namespace.

`onejob.node.process.mounts` plans the steps.
"""

import os
from typing import Any

from onejob.node.supervisor import linux, paths
from onejob.node.supervisor.failures import SetupFailed, text_of


def mount_all(steps: list[list[Any]], root: str, *, sealed: bool = False) -> None:
    """Execute the steps of `node.process.mounts` in a new mount namespace. If `sealed`, the
    container has no access to anything of the host beyond these mounts."""
    inside: dict[str, str] = {}
    try:
        private_namespace(sealed=sealed)
        for kind, source, target, read_only in steps:
            if kind == "proc":
                mount_proc(target)
            elif kind == "tmpfs":
                flags = linux.MS_NOSUID | linux.MS_NODEV
                linux.mount("onejob", target, flags, "tmpfs", source or "mode=755")
            elif kind == "devpts":
                options = "newinstance,ptmxmode=0666,mode=0620"
                linux.mount("devpts", target, linux.MS_NOSUID, "devpts", options)
            elif kind == "seal":
                linux.seal(target, devices=not sealed)
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
        if root and sealed:
            linux.change_root(root)
        elif root:
            os.chroot(root)
            os.chdir("/")
    except OSError as error:
        raise SetupFailed("ContainerCannotRun", f"volumes: {text_of(error)}") from error


def changeable(writable: list[str]) -> list[str]:
    """Return the writable mounts of a sealed view, except for its own pseudo file systems and
    tmpfs, and for the paths in `writable`. Raises OSError."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        lines = [line.split() for line in file]
    found = []
    for fields in lines:
        target, options = fields[4], fields[5].split(",")
        filesystem, source = fields[fields.index("-") + 1 :][:2]
        own = filesystem in ("proc", "devpts") or source == "onejob"
        if "ro" in options or own or target.startswith("/dev/"):
            continue
        if not any(target == path or target.startswith(path + "/") for path in writable):
            found.append(target)
    return found


def join(pid: int, *, sealed: bool) -> None:
    """Join the mount namespace and root of process `pid`."""
    try:
        root = os.open(f"/proc/{pid}/root", os.O_RDONLY | os.O_DIRECTORY)
        if not may_mount():
            linux.setns(os.open(f"/proc/{pid}/ns/user", os.O_RDONLY), linux.CLONE_NEWUSER)
        if sealed:
            linux.setns(os.open(f"/proc/{pid}/ns/ipc", os.O_RDONLY), linux.CLONE_NEWIPC)
        linux.setns(os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY), linux.CLONE_NEWNS)
        os.fchdir(root)
        os.chroot(".")
    except OSError as error:
        why = f"the container has ended: {text_of(error)}"
        raise SetupFailed("ContainerCannotRun", why) from error


def private_namespace(*, sealed: bool = False) -> None:
    """Create a mount namespace and, if `sealed`, an IPC namespace. Raises OSError."""
    flags = linux.CLONE_NEWNS | (linux.CLONE_NEWIPC if sealed else 0)
    if not may_mount():
        _enter_identity_user_namespace(flags)
    else:
        linux.unshare(flags)
    # Our mounts never propagate to the host. Its later ones propagate here, unless `sealed`, as
    # they might be writable.
    linux.mount("none", "/", linux.MS_REC | (linux.MS_PRIVATE if sealed else linux.MS_SLAVE))


def enter_user_namespace() -> None:
    """Acquire, without being root, the privileges to create namespaces: permanently and for all
    children. Raises OSError."""
    global _in_user_namespace
    if not may_mount():
        _enter_identity_user_namespace(0)
        _in_user_namespace = True


def may_mount() -> bool:
    return os.geteuid() == 0 or _in_user_namespace


_in_user_namespace = False


def _enter_identity_user_namespace(flags: int) -> None:
    """Enter a user namespace that maps our own user and group to themselves."""
    user, group = os.getuid(), os.getgid()
    linux.unshare(linux.CLONE_NEWUSER | flags)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {user} 1")
    _write("/proc/self/gid_map", f"{group} {group} 1")


def mount_proc(target: str) -> None:
    """Mount a /proc that shows only the processes of this process's PID namespace."""
    linux.mount("proc", target, linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC, "proc")


def _bind(source: str | list[str], target: str, inside: str, root: str, *, read_only: bool) -> None:
    """Mount `source` over `target`, which must resolve to a path inside the folder `inside`, if
    that is given."""
    opened: list[int] = []

    def path_of(fd: int) -> str:
        opened.append(fd)
        return f"/proc/self/fd/{fd}"

    if not isinstance(source, str):
        # A part of a volume: its links may have changed since it was checked.
        source = path_of(paths.open_inside(*source))
    place = path_of(_place("", inside, target, root)) if inside else target
    linux.mount(source, place, linux.MS_BIND | linux.MS_REC)
    if read_only:
        # The path now refers to the mounted folder, not to the mount point opened before.
        _remount_read_only(path_of(_place("", inside, target, root)) if inside else target)
    for fd in opened:
        # Only for tidiness: a process that fails here never runs a program, and exec closes them.
        os.close(fd)


def _place(kind: str, inside: str, target: str, root: str) -> int:
    """Return a descriptor of the mount point; links made by the workload never lead out of
    `inside`."""
    part = os.path.relpath(target, inside)
    return paths.open_mount_point(inside, part, make=kind, links_inside=inside != root)


def _remount_read_only(target: str) -> None:
    # Repeat the source's flags: an unprivileged namespace may not drop them.
    kept = os.statvfs(target).f_flag & (
        linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC | linux.MS_NOATIME | linux.MS_NODIRATIME
    )
    if os.statvfs(target).f_flag & 0x1000:
        kept |= linux.MS_RELATIME
    linux.mount("none", target, linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | kept)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
