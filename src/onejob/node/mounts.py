"""How volumes come to stand at their mountPaths: the steps that a new process carries out.

Where every mountPath exists on the host, binding over it is enough. Where one does not, it
cannot be created for one process alone; then the process gets a root of its own, a small tmpfs
into which the host's directories are bound, opened up along the way to the missing path.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

#: What, source, target, read-only; see `onejob.node.supervisor.spawn`. `host` is a bind of
#: something of the host's that may be gone by then.
Step: TypeAlias = tuple[
    Literal["tmpfs", "directory", "file", "symlink", "host", "bind"], str, str, bool
]


@dataclass(frozen=True, slots=True)
class Mount:
    source: str
    target: str
    read_only: bool = False


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
) -> MountPlan:
    """`root` is an empty directory for the new root. `writable` paths stay so on a host that
    is otherwise shown read-only."""
    resolved = sorted(
        (Mount(m.source, os.path.realpath(m.target), m.read_only) for m in mounts),
        # A directory's path is shorter than that of anything in it.
        key=lambda mount: len(mount.target),
    )
    if not host_read_only and all(_fits(mount) for mount in resolved):
        return MountPlan(tuple(_bind(mount, "") for mount in resolved))
    steps: list[Step] = [("tmpfs", "", root, False)]
    opened = _opened(resolved)
    for folder in sorted(opened, key=len):
        steps.extend(_open(folder, root, opened, host_read_only))
    if host_read_only:
        steps.extend(_bind(Mount(path, path), root) for path in writable)
    for mount in resolved:
        steps.append(_place(mount, root))
        steps.append(_bind(mount, root))
    return MountPlan(tuple(steps), root)


def _fits(mount: Mount) -> bool:
    if os.path.isdir(mount.source):
        return os.path.isdir(mount.target)
    return os.path.exists(mount.target) and not os.path.isdir(mount.target)


def _opened(mounts: Sequence[Mount]) -> set[str]:
    """Host directories that the new root cannot take over whole, because something is missing
    below them."""
    opened = {"/"}
    inside = tuple(mount.target + "/" for mount in mounts)
    for mount in mounts:
        if os.path.exists(mount.target):
            continue
        # A mountPath inside another volume is created there.
        if any(mount.target.startswith(other) for other in inside):
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


def _place(mount: Mount, root: str) -> Step:
    if os.path.isdir(mount.source):
        return ("directory", "", root + mount.target, False)
    return ("file", "", root + mount.target, False)


def _bind(mount: Mount, root: str) -> Step:
    return ("bind", mount.source, root + mount.target, mount.read_only)
