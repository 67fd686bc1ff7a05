"""How volumes come to stand at their mountPaths: the steps that a new process carries out.

Where every mountPath exists on the host, binding over it is enough. Where one does not, it
cannot be created for one process alone; then the process gets a root of its own, a small tmpfs
into which the host's directories are bound, opened up along the way to the missing path.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

#: What, source, target, read-only; see `onejob.node.supervisor.spawn`. `host` is a bind of
#: something of the host's that may be gone by then. The source of a `directory` or `file` is the
#: folder that it must not leave, "" in the new root itself, where nobody else can put anything;
#: that of a part of a volume is the volume and the part.
Step: TypeAlias = tuple[
    Literal["proc", "tmpfs", "directory", "file", "symlink", "host", "bind"],
    str | tuple[str, str],
    str,
    bool,
]

#: For a container that needs nothing mounted but the /proc of its own PID namespace.
ONLY_PROC: tuple[Step, ...] = (("proc", "", "/proc", False),)


@dataclass(frozen=True, slots=True)
class Mount:
    source: str
    target: str
    read_only: bool = False
    #: The volume that `source` is a part of; "" if it is all of it.
    volume: str = ""


@dataclass(frozen=True, slots=True)
class MountPlan:
    steps: tuple[Step, ...]
    #: Where to change root to in the end; "" to stay.
    root: str = ""


def plan_mounts(
    mounts: Sequence[Mount],
    root: str,
    *,
    host_read_only: bool = False,
    writable: Iterable[str] = (),
    own_proc: bool = False,
) -> MountPlan:
    """`root` is an empty directory for the new root. `writable` paths stay so on a host that is
    otherwise shown read-only. `own_proc` shows the container's own PID namespace in /proc."""
    # A directory's path is shorter than that of anything in it.
    resolved = sorted(_resolve(mounts), key=lambda mount: len(mount.target))
    around = {mount.target: _around(mount, resolved) for mount in resolved}
    fits = all(_fits(mount) and not around[mount.target] for mount in resolved)
    if not host_read_only and fits:
        first = ONLY_PROC if own_proc else ()
        return MountPlan((*first, *(_bind(mount, "") for mount in resolved)))
    steps: list[Step] = [("tmpfs", "", root, False)]
    opened = _opened(resolved)
    for folder in sorted(opened, key=len):
        steps.extend(_open(folder, root, opened, host_read_only))
    if own_proc:
        steps.append(("proc", "", root + "/proc", False))
    if host_read_only:
        steps.extend(_bind(Mount(path, path), root) for path in writable)
    for mount in resolved:
        steps.append(_place(mount, root, root + around[mount.target]))
        steps.append(_bind(mount, root))
    return MountPlan(tuple(steps), root)


def _resolve(mounts: Sequence[Mount]) -> list[Mount]:
    """With the targets that the mountPaths lead to on this host. What the host has inside of a
    mountPath is hidden by it, and leads nowhere."""
    targets: dict[str, str] = {}
    resolved = []
    for mount in sorted(mounts, key=lambda mount: len(os.path.normpath(mount.target))):
        path = os.path.normpath(mount.target)
        outer = max((p for p in targets if path.startswith(p + "/")), key=len, default="")
        target = targets[outer] + path[len(outer) :] if outer else os.path.realpath(path)
        targets[path] = target
        resolved.append(replace(mount, target=target))
    return resolved


def _fits(mount: Mount) -> bool:
    if os.path.isdir(mount.source):
        return os.path.isdir(mount.target)
    return os.path.exists(mount.target) and not os.path.isdir(mount.target)


def _around(mount: Mount, mounts: Sequence[Mount]) -> str:
    """The innermost mountPath that a mountPath lies in; "" if there is none."""
    others = (other.target for other in mounts if mount.target.startswith(other.target + "/"))
    return max(others, key=len, default="")


def _opened(mounts: Sequence[Mount]) -> set[str]:
    """Host directories that the new root cannot take over whole, because something is missing
    below them."""
    opened = {"/"}
    for mount in mounts:
        # A mountPath inside another volume is created there.
        if os.path.exists(mount.target) or _around(mount, mounts):
            continue
        folder = os.path.dirname(mount.target)
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        while folder != "/":
            opened.add(folder)
            folder = os.path.dirname(folder)
    return opened


#: The kernel's own trees; what may be written there is not the host's files.
_NEVER_READ_ONLY = frozenset({"/proc", "/sys", "/dev"})


def _open(folder: str, root: str, opened: set[str], read_only: bool) -> list[Step]:
    steps: list[Step] = []
    entries = [os.path.join(folder, name) for name in os.listdir(folder)]
    # What holds the new root goes first: bound while that is empty, it is not copied into itself.
    entries.sort(key=lambda path: not root.startswith(path + "/"))
    for path in entries:
        target = root + path
        if os.path.islink(path):
            steps.append(("symlink", os.readlink(path), target, False))
        elif path in opened:
            steps.append(("directory", "", target, False))
        elif os.path.exists(path):
            steps.append(("directory" if os.path.isdir(path) else "file", "", target, False))
            steps.append(("host", path, target, read_only and path not in _NEVER_READ_ONLY))
    return steps


def _place(mount: Mount, root: str, inside: str) -> Step:
    kind: Literal["directory", "file"] = "directory" if os.path.isdir(mount.source) else "file"
    return (kind, inside, root + mount.target, False)


def _bind(mount: Mount, root: str) -> Step:
    source: str | tuple[str, str] = mount.source
    if mount.volume:
        source = (mount.volume, os.path.relpath(mount.source, mount.volume))
    return ("bind", source, root + mount.target, mount.read_only)
