"""Mount planning: the steps by which a new process mounts volumes at their mountPaths.

If every mountPath exists on the host, bind mounts over them are sufficient. A missing path cannot
be created for one process alone; the process then gets a new root, a small tmpfs into which the
host's directories are bound. Directories on the way to the missing path are recreated there, with
their entries bound individually.
"""

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from onejob.node.setup.volumes import Mount

#: Kind, source, target, read-only; executed by `onejob.node.supervisor.spawn`. `host` is a bind of
#: a host path that may have disappeared by then. The source of a `directory` or `file` is the
#: folder that its path must not leave, or "" in the new root itself, which no other process can
#: write to; for a part of a volume it is the pair of volume and relative path; for a `tmpfs` its
#: options. `seal` makes everything mounted so far read-only.
Step: TypeAlias = tuple[
    Literal["proc", "devpts", "tmpfs", "seal", "directory", "file", "symlink", "host", "bind"],
    str | tuple[str, str],
    str,
    bool,
]

#: For a container that needs no mounts except the /proc of its own PID namespace.
ONLY_PROC: tuple[Step, ...] = (("proc", "", "/proc", False),)


class MountPlan(Struct, frozen=True):
    steps: tuple[Step, ...]
    #: Path to change root to at the end; "" for no change.
    root: str = ""
    #: Whether the container must not reach anything outside the plan.
    sealed: bool = False


class HostView(Struct, frozen=True):
    """The part of the host that a container sees in addition to its volumes."""

    #: The host's files cannot be changed.
    read_only: bool = False
    #: Nor can the host be changed in other ways: devices, sockets and sysctls are absent.
    sealed: bool = False
    #: Folders that a sealed view hides.
    hidden: tuple[str, ...] = ()
    #: Files that it hides as well, as `fnmatch` patterns with wildcards only in the file name.
    hidden_files: tuple[str, ...] = ()
    #: Paths that remain writable.
    writable: tuple[str, ...] = ()
    #: The Pod's own folder inside a hidden one; "" if it has none.
    own_folder: str = ""
    #: /proc shows the container's own PID namespace.
    own_proc: bool = False

    @property
    def separately_mounted_trees(self) -> tuple[str, ...]:
        """Directory trees mounted after the host's files are read-only, since they are not host
        files."""
        if self.sealed:
            return _MADE_ANEW
        return _KERNELS_OWN if self.read_only else ()


def plan_mounts(mounts: Sequence[Mount], root: str, view: HostView) -> MountPlan:
    """Return the steps that mount `mounts`. `root` is an empty directory for the new root."""
    # Sorted by length, a directory precedes its contents.
    resolved = sorted(_resolve(mounts), key=lambda mount: len(mount.target))
    around = {mount.target: _enclosing(mount, resolved) for mount in resolved}
    # A volume mounted over the new root's directory would also cover the other volumes' sources.
    fits = all(
        _is_same_type(mount)
        and not around[mount.target]
        and not root.startswith(mount.target + "/")
        for mount in resolved
    )
    if not view.read_only and fits:
        first = ONLY_PROC if view.own_proc else ()
        return MountPlan((*first, *(_bind(mount, "") for mount in resolved)))
    opened = _opened(resolved)
    late = view.separately_mounted_trees
    steps: list[Step] = [("tmpfs", "", root, False)]
    for folder in sorted(opened, key=len):
        if not _within(folder, late):
            steps.extend(_open(folder, root, opened, late, view.hidden_files))
    if view.read_only:
        # After the root is sealed, no mount points can be created there.
        steps.extend(
            _bind_step(mount, root, root)
            for mount in resolved
            if not around[mount.target] and not _within(mount.target, late)
        )
        steps.append(("seal", "", root, True))
    steps.extend(_kernel_trees(root) if view.sealed else _host_trees(root, opened, late))
    if view.own_proc and not view.sealed:
        steps.append(("proc", "", root + "/proc", False))
    for path in view.writable:
        if tree := _within(path, late):
            kind: Literal["directory", "file"] = "directory" if os.path.isdir(path) else "file"
            steps.append((kind, root + tree, root + path, False))
        steps.append(("bind", path, root + path, False))
    if view.sealed:
        steps.extend(_hide_files(root, view, opened))
        steps.extend(_hiding_steps(root, view))
    for mount in resolved:
        tree = _within(mount.target, late)
        if not view.read_only or around[mount.target] or tree:
            steps.append(_bind_step(mount, root, root + (around[mount.target] or tree)))
        steps.append(_bind_in_view(mount, root, view))
    return MountPlan(tuple(steps), root, sealed=view.sealed)


def _resolve(mounts: Sequence[Mount]) -> list[Mount]:
    """Return the mounts with symbolic links in their targets resolved. Host entries inside a
    mountPath are hidden by that mount, so links among them are not followed."""
    targets: dict[str, str] = {}
    resolved = []
    for mount in sorted(mounts, key=lambda mount: len(os.path.normpath(mount.target))):
        path = os.path.normpath(mount.target)
        outer = max((p for p in targets if path.startswith(p + "/")), key=len, default="")
        target = targets[outer] + path[len(outer) :] if outer else os.path.realpath(path)
        targets[path] = target
        resolved.append(replace(mount, target=target))
    return resolved


def _is_same_type(mount: Mount) -> bool:
    """Return whether source and target are both folders or both files."""
    if os.path.isdir(mount.source):
        return os.path.isdir(mount.target)
    return os.path.exists(mount.target) and not os.path.isdir(mount.target)


def _enclosing(mount: Mount, mounts: Sequence[Mount]) -> str:
    """Return the innermost mountPath that contains this one; "" if there is none."""
    others = (other.target for other in mounts if mount.target.startswith(other.target + "/"))
    return max(others, key=len, default="")


def _opened(mounts: Sequence[Mount]) -> set[str]:
    """Return the host directories that cannot be bound as a whole, because a path below them is
    missing."""
    opened = {"/"}
    for mount in mounts:
        # A mountPath inside another volume is created in that volume.
        if os.path.exists(mount.target) or _enclosing(mount, mounts):
            continue
        folder = os.path.dirname(mount.target)
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        while folder != "/":
            opened.add(folder)
            folder = os.path.dirname(folder)
    return opened


#: Kernel file systems; writing there does not change the host's files.
_KERNELS_OWN = ("/dev", "/proc", "/sys")
#: Recreated in a sealed view, because they give access to the kernel or to the host's daemons.
_MADE_ANEW = ("/dev", "/proc", "/run")


def _open(
    folder: str,
    root: str,
    opened: set[str],
    apart: Sequence[str] = (),
    hidden_files: Sequence[str] = (),
) -> list[Step]:
    """Return the steps that bind the entries of a folder into the root, except hidden ones and
    those mounted apart."""
    steps: list[Step] = []
    # scandir reports the types of entries without a stat of each.
    with os.scandir(folder) as found:
        entries = [entry for entry in found if not _matches(entry.path, hidden_files)]
    # The entry that contains the new root comes first: bound while that is empty, it does not
    # recurse into itself.
    entries.sort(key=lambda entry: not root.startswith(entry.path + "/"))
    for entry in entries:
        path, target = entry.path, root + entry.path
        if entry.is_symlink():
            steps.append(("symlink", os.readlink(path), target, False))
        elif path in opened and path not in apart:
            steps.append(("directory", "", target, False))
        else:
            steps.append(("directory" if entry.is_dir() else "file", "", target, False))
            if path not in apart:
                steps.append(("host", path, target, False))
    return steps


_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {
    "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx",
}  # fmt: skip
#: Same paths as in container engines: root could do harm with them even without capabilities.
_PROC_READ_ONLY = ("bus", "fs", "irq", "sys", "sysrq-trigger")
_PROC_MASKED = ("kcore", "keys", "timer_list")


def _within(path: str, trees: Sequence[str]) -> str:
    """Return the tree that contains `path`; "" if there is none."""
    return next((tree for tree in trees if path == tree or path.startswith(tree + "/")), "")


def _host_trees(root: str, opened: set[str], apart: Sequence[str]) -> Iterator[Step]:
    """Yield steps that bind the kernel file systems of the host, in a view with read-only files."""
    for tree in apart:
        folders = sorted((folder for folder in opened if _within(folder, (tree,))), key=len)
        if not folders:
            yield ("host", tree, root + tree, False)
            continue
        yield ("tmpfs", "", root + tree, False)
        for folder in folders:
            yield from _open(folder, root, opened)


def _matches(path: str, patterns: Sequence[str]) -> bool:
    """Return whether a path matches one of the patterns."""
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def _hide_files(root: str, view: HostView, opened: set[str]) -> Iterator[Step]:
    """Yield steps that recreate the folders of hidden files without them.

    Mounting over a file is not sufficient: when it is replaced, as a rotated log or a renewed key
    is, the new file is visible.
    """
    for folder in sorted({os.path.dirname(pattern) for pattern in view.hidden_files}, key=len):
        absent = _within(folder, (*view.hidden, *_MADE_ANEW)) or folder in opened
        if absent or not os.path.isdir(folder):
            continue
        if _within(folder, view.writable):
            # Files created in this folder have to persist, so it cannot be replaced by a tmpfs.
            with os.scandir(folder) as entries:
                for entry in entries:
                    if _matches(entry.path, view.hidden_files):
                        yield ("bind", "/dev/null", root + entry.path, True)
            continue
        yield ("tmpfs", "", root + folder, False)
        # The data dir contains the new root, and must not be bound into itself.
        yield from _open(folder, root, set(view.hidden), hidden_files=view.hidden_files)
        yield ("seal", "", root + folder, True)


def _hiding_steps(root: str, view: HostView) -> Iterator[Step]:
    for folder in view.hidden:
        if tree := _within(folder, _MADE_ANEW):
            yield ("directory", root + tree, root + folder, False)
        yield ("tmpfs", "", root + folder, False)
        if view.own_folder.startswith(folder + "/"):
            yield ("directory", root + folder, root + view.own_folder, False)
            yield ("bind", view.own_folder, root + view.own_folder, False)


def _kernel_trees(root: str) -> Iterator[Step]:
    """Yield steps for a /proc, /dev and /run that give no means to change the host."""
    yield ("proc", "", root + "/proc", False)
    for name in _PROC_READ_ONLY:
        if os.path.exists(f"/proc/{name}"):
            yield ("bind", f"{root}/proc/{name}", f"{root}/proc/{name}", True)
    for name in _PROC_MASKED:
        if os.path.exists(f"/proc/{name}"):
            yield ("bind", "/dev/null", f"{root}/proc/{name}", True)
    dev = root + "/dev"
    yield ("tmpfs", "", dev, False)
    for name in _DEVICES:
        yield ("file", dev, f"{dev}/{name}", False)
        yield ("bind", f"/dev/{name}", f"{dev}/{name}", False)
    for name, target in _DEVICE_LINKS.items():
        yield ("symlink", target, f"{dev}/{name}", False)
    for name in ("pts", "shm"):
        yield ("directory", dev, f"{dev}/{name}", False)
    yield ("devpts", "", f"{dev}/pts", False)
    yield ("tmpfs", "mode=1777", f"{dev}/shm", False)
    yield from _run_tree(root)


def _run_tree(root: str) -> Iterator[Step]:
    """Yield steps for a /run without the sockets of the host's daemons, but with resolv.conf."""
    if not os.path.isdir("/run"):
        return
    run = root + "/run"
    yield ("tmpfs", "", run, False)
    for entry in os.scandir("/run"):
        if entry.is_symlink():
            yield ("symlink", os.readlink(entry.path), root + entry.path, False)
    resolver = os.path.realpath("/etc/resolv.conf")
    if resolver.startswith("/run/") and os.path.isfile(resolver):
        yield ("file", run, root + resolver, False)
        yield ("bind", resolver, root + resolver, True)


def _bind_in_view(mount: Mount, root: str, view: HostView) -> Step:
    """Return the bind of a volume. In a sealed view, a host path is bound from within the new root,
    so that the volume shows no more than the view itself does."""
    own = any(mount.source.startswith(folder + "/") for folder in view.hidden)
    if not view.sealed or own:
        return _bind(mount, root)
    if mount.volume:
        base = os.path.realpath(mount.volume)
        source = (root + base, os.path.relpath(mount.source, mount.volume))
    else:
        source = (root, os.path.relpath(os.path.realpath(mount.source), "/"))
    return ("bind", source, root + mount.target, mount.read_only)


def _bind_step(mount: Mount, root: str, inside: str) -> Step:
    kind: Literal["directory", "file"] = "directory" if os.path.isdir(mount.source) else "file"
    return (kind, inside, root + mount.target, False)


def _bind(mount: Mount, root: str) -> Step:
    """Return the step that mounts a volume below the root."""
    source: str | tuple[str, str] = mount.source
    if mount.volume:
        source = (mount.volume, os.path.relpath(mount.source, mount.volume))
    return ("bind", source, root + mount.target, mount.read_only)
