"""Memory and CPU limits by control groups: one group per container that has limits.

Version 2 requires a group delegated to us. A group that contains processes cannot set limits for
its children, so our own processes are moved into a sibling of the container groups. Version 1 has a
separate tree for each controller.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from onejob.node.runtime import AttemptRef
from onejob.objects.pod_spec import Container
from onejob.wire.quantity import parse_quantity

_PREFIX: Final = "onejob-"
#: Version 2: group of our own processes, which frees their parent to limit its children.
_OWN: Final = "onejob-server"
_PROCS: Final = "cgroup.procs"
#: CFS period in microseconds.
_CPU_PERIOD: Final = 100_000
#: The kernel's minimum quota, in microseconds.
_MIN_CPU_QUOTA_MICROSECONDS: Final = 1_000
#: Seconds after which empty groups of other servers are removed, as no server can still be about to
#: use them.
_ABANDONED_SECONDS: Final = 3600.0


class ContainerLimits(Struct, frozen=True):
    #: Bytes; None means unlimited, as for the CPU.
    memory_bytes: int | None = None
    cpu_milli: int | None = None

    def __bool__(self) -> bool:
        return self.memory_bytes is not None or self.cpu_milli is not None


class GroupUsage(Struct, frozen=True):
    #: Number of the group's processes that the OOM killer ended.
    oom_kills: int = 0
    #: Peak memory in bytes; 0 if unknown.
    peak_bytes: int = 0
    #: CPU time; 0 if unknown.
    cpu_milliseconds: int = 0


def limits_of(container: Container) -> ContainerLimits:
    """Return the limits of a container, None for absent ones."""
    amounts = container.resources.limits
    memory, cpu = amounts.get("memory"), amounts.get("cpu")
    return ContainerLimits(
        parse_quantity(memory).whole if memory else None,
        parse_quantity(cpu).milli if cpu else None,
    )


class _Tree(Protocol):
    #: Name for display.
    title: str

    def make(self, name: str, limits: ContainerLimits) -> Sequence[Path]:
        """Create the groups of a container; its processes join all of them. Raises OSError."""

    def change(self, name: str, limits: ContainerLimits) -> None:
        """Change the limits of a running container, None for those that stay. Raises OSError."""

    def lacking(self, name: str, limits: ContainerLimits) -> str:
        """Return the limit that the groups of a container cannot get any more: "memory" or "CPU";
        "" if there is none."""

    def memory(self, name: str) -> tuple[int, int]:
        """Return the bytes that a container uses, and their limit; 0 for values that cannot be
        read."""

    def usage(self, name: str) -> GroupUsage:
        """Return the usage of a group; zeros for values that cannot be read."""

    def folders(self) -> Sequence[Path]:
        """Return the parent directories of the container groups."""


class ControlGroups:
    """Container groups of one node. Create it with `find`."""

    def __init__(self, tree: _Tree | None, problem: str) -> None:
        self._tree = tree
        #: Reason why limits cannot be enforced; "" if they can.
        self.problem = problem

    @classmethod
    def find(
        cls, data_dir: Path, now: datetime, *, proc: Path = Path("/proc/self")
    ) -> "ControlGroups":
        """Probe by trial which control groups this machine permits; never raises for lack of
        them."""
        # Imported on demand: it loads OpenSSL, and most runs have no limits.
        import hashlib

        identity = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:12]
        try:
            tree = _find_tree(f"{_PREFIX}{identity}", proc)
        except _Unusable as problem:
            return cls(None, str(problem))
        except OSError as error:
            return cls(None, f"{error.filename}: {error.strerror}")
        _remove_abandoned(tree, now)
        return cls(tree, "")

    @property
    def title(self) -> str:
        """Name of the mechanism; "" if there is none."""
        return "" if self._tree is None else self._tree.title

    def make(self, ref: AttemptRef, limits: ContainerLimits) -> list[str]:
        """Create a container's groups; return the files to which its process writes 0 to join.
        Raises OSError."""
        if self._tree is None or not limits:
            return []
        return [str(group / _PROCS) for group in self._tree.make(group_name(ref), limits)]

    def lacking(self, ref: AttemptRef, limits: ContainerLimits) -> str:
        """Return the limit that a running container cannot get; "" if there is none."""
        return "" if self._tree is None else self._tree.lacking(group_name(ref), limits)

    def change(self, ref: AttemptRef, limits: ContainerLimits) -> str:
        """Change the limits of a running container; return why that failed, "" if it did not."""
        assert self._tree is not None, "limits are changed only where they are enforced"
        name = group_name(ref)
        in_use, limit = self._tree.memory(name)
        if limits.memory_bytes == limit:
            # The usage may be as large as the limit, without anything to refuse.
            limits = replace(limits, memory_bytes=None)
        elif limits.memory_bytes is not None and in_use >= limits.memory_bytes:
            # The kernel would end processes of the container.
            return (
                f'cannot decrease memory limits: attempting to set container "{ref.container}" '
                f"memory limit ({limits.memory_bytes}) below current usage ({in_use})"
            )
        try:
            self._tree.change(name, limits)
        except OSError as error:
            return f"{error.filename}: {error.strerror}"
        return ""

    def files(self, ref: AttemptRef) -> list[str]:
        """Return the files to join the groups of a running container."""
        return [str(group / _PROCS) for group in self._groups(ref)]

    def known(self) -> set[str]:
        """Return the names of all container groups."""
        folders = self._tree.folders() if self._tree is not None else ()
        return {group.name for folder in folders for group in _subfolders(folder)}

    def close(self, ref: AttemptRef) -> GroupUsage:
        """Return the usage of a container that has ended, and remove its groups."""
        groups = self._groups(ref)
        if self._tree is None or not groups:
            return GroupUsage()
        usage = self._tree.usage(group_name(ref))
        for group in groups:
            _remove(group)
        return usage

    def remove_all(self) -> None:
        """Remove all groups, after the last container has ended."""
        for folder in self._tree.folders() if self._tree is not None else ():
            for group in _subfolders(folder):
                _remove(group)
        self.remove_if_empty()

    def remove_if_empty(self) -> None:
        """Remove the parent directories at shutdown, unless they have container groups: those
        containers may still run, or their usage has not been read yet."""
        for folder in self._tree.folders() if self._tree is not None else ():
            if not _subfolders(folder):
                _remove(folder)

    def _groups(self, ref: AttemptRef) -> list[Path]:
        """Return the existing folders of an attempt's group."""
        folders = self._tree.folders() if self._tree is not None else ()
        return [group for folder in folders if (group := folder / group_name(ref)).is_dir()]


class _Unusable(Exception):
    """Control groups exist, but are not usable for us."""


class _Version1:
    """Groups of cgroup v1, one hierarchy per controller."""

    title = "control groups, version 1"

    def __init__(self, by_controller: Mapping[str, Path]) -> None:
        self._memory = by_controller["memory"]
        self._cpu = by_controller.get("cpu")

    def folders(self) -> Sequence[Path]:
        """Return the parent folders of all groups."""
        return [self._memory] if self._cpu is None else [self._memory, self._cpu]

    def make(self, name: str, limits: ContainerLimits) -> Sequence[Path]:
        """Create a group with these limits; return the folders to enter. Raises OSError."""
        made: list[Path] = []
        if limits.memory_bytes is not None:
            group = self._memory / name
            group.mkdir(parents=True, exist_ok=True)
            _write(group / "memory.limit_in_bytes", limits.memory_bytes)
            with contextlib.suppress(OSError):
                # Limits memory and swap together; fails where swap is not accounted.
                _write(group / "memory.memsw.limit_in_bytes", limits.memory_bytes)
            made.append(group)
        if limits.cpu_milli is not None and self._cpu is not None:
            group = self._cpu / name
            group.mkdir(parents=True, exist_ok=True)
            _write(group / "cpu.cfs_period_us", _CPU_PERIOD)
            _write(group / "cpu.cfs_quota_us", _quota(limits.cpu_milli))
            made.append(group)
        return made

    def lacking(self, name: str, limits: ContainerLimits) -> str:
        # Processes join their groups when they start, so that none can be added later.
        if limits.memory_bytes is not None and not (self._memory / name).is_dir():
            return "memory"
        missing = self._cpu is None or not (self._cpu / name).is_dir()
        return "CPU" if limits.cpu_milli is not None and missing else ""

    def change(self, name: str, limits: ContainerLimits) -> None:
        if limits.memory_bytes is not None:
            group = self._memory / name
            limit, with_swap = (
                group / "memory.limit_in_bytes",
                group / "memory.memsw.limit_in_bytes",
            )
            # The limit of memory and swap together must not be the smaller one at any time.
            for file in (
                (limit, with_swap)
                if _number(limit) > limits.memory_bytes
                else (
                    with_swap,
                    limit,
                )
            ):
                if file is limit or with_swap.exists():
                    _write(file, limits.memory_bytes)
        if limits.cpu_milli is not None and self._cpu is not None:
            _write(self._cpu / name / "cpu.cfs_quota_us", _quota(limits.cpu_milli))

    def memory(self, name: str) -> tuple[int, int]:
        group = self._memory / name
        return _number(group / "memory.usage_in_bytes"), _number(group / "memory.limit_in_bytes")

    def usage(self, name: str) -> GroupUsage:
        group = self._memory / name
        kills = _field(group / "memory.oom_control", "oom_kill")
        return GroupUsage(kills, _number(group / "memory.max_usage_in_bytes"))


class _Version2:
    """Groups of cgroup v2."""

    title = "control groups, version 2"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def folders(self) -> Sequence[Path]:
        """Return the parent folder of all groups."""
        return [self._folder]

    def make(self, name: str, limits: ContainerLimits) -> Sequence[Path]:
        """Create a group with these limits; return the folders to enter. Raises OSError."""
        group = self._folder / name
        group.mkdir(parents=True, exist_ok=True)
        self.change(name, limits)
        if limits.memory_bytes is not None:
            with contextlib.suppress(OSError):
                _write(group / "memory.swap.max", 0)
            with contextlib.suppress(OSError):
                # As in Kubernetes, the OOM killer ends a container as a whole.
                _write(group / "memory.oom.group", 1)
        return [group]

    def lacking(self, name: str, limits: ContainerLimits) -> str:
        if (self._folder / name).is_dir():
            return ""
        return "memory" if limits.memory_bytes is not None else "CPU" if limits else ""

    def change(self, name: str, limits: ContainerLimits) -> None:
        group = self._folder / name
        if limits.memory_bytes is not None:
            _write(group / "memory.max", limits.memory_bytes)
        if limits.cpu_milli is not None:
            _write(group / "cpu.max", f"{_quota(limits.cpu_milli)} {_CPU_PERIOD}")

    def memory(self, name: str) -> tuple[int, int]:
        group = self._folder / name
        return _number(group / "memory.current"), _number(group / "memory.max")

    def usage(self, name: str) -> GroupUsage:
        group = self._folder / name
        return GroupUsage(
            _field(group / "memory.events", "oom_kill"),
            _number(group / "memory.peak"),
            _field(group / "cpu.stat", "usage_usec") // 1000,
        )


# --- detection --------------------------------------------------------------------------------


class _Mount(Struct, frozen=True):
    root: str
    point: Path
    type: str
    options: frozenset[str]


def _find_tree(name: str, proc: Path) -> _Tree:
    """Return the groups' parent, created if necessary. Raises _Unusable, OSError."""
    mounts = list(_mounts(proc))
    own = _own_groups(proc)
    trees: dict[str, Path] = {
        controller: _own_folder(mount, own[controller])
        for mount in mounts
        if mount.type == "cgroup"
        for controller in ("memory", "cpu")
        if controller in mount.options and controller in own
    }
    if "memory" in trees:
        return _use_version_1(trees, name)
    for mount in mounts:
        if mount.type == "cgroup2" and "" in own:
            return _use_version_2(_own_folder(mount, own[""]), name, proc)
    raise _Unusable("this machine has no control groups")


def _use_version_1(trees: Mapping[str, Path], name: str) -> _Tree:
    """Return the groups' parent in the v1 hierarchies. Raises _Unusable."""
    usable: dict[str, Path] = {}
    for controller, folder in trees.items():
        try:
            (folder / name).mkdir(exist_ok=True)
            usable[controller] = folder / name
        except OSError as error:
            if controller == "memory":
                raise _Unusable(f"{folder}: {error.strerror}") from None
    return _Version1(usable)


def _use_version_2(folder: Path, name: str, proc: Path) -> _Tree:
    """Return the groups' parent in the v2 hierarchy, with its controllers enabled. Raises
    _Unusable, OSError."""
    if folder.name == _OWN:
        # This process, or the one that started it, was moved here before.
        folder = folder.parent
    available = (folder / "cgroup.controllers").read_text().split()
    wanted = [controller for controller in ("memory", "cpu") if controller in available]
    if "memory" not in wanted:
        raise _Unusable(f"{folder} has no memory controller: it is not delegated")
    control = folder / "cgroup.subtree_control"
    if not set(wanted) <= set(control.read_text().split()):
        _make_way(folder, proc)
        _write(control, " ".join(f"+{controller}" for controller in wanted))
    (folder / name).mkdir(exist_ok=True)
    _write(folder / name / "cgroup.subtree_control", " ".join(f"+{one}" for one in wanted))
    return _Version2(folder / name)


def _make_way(folder: Path, proc: Path) -> None:
    """Move our processes out of the group. Raises _Unusable if it also contains foreign processes,
    since it belongs to them, too."""
    processes = set(map(int, (folder / _PROCS).read_text().split()))
    others = {pid for pid in processes if pid != os.getpid() and not _is_below_us(pid, proc)}
    if others:
        raise _Unusable(
            f"{folder} is shared with other processes (start onejob in its own group: "
            "systemd-run --user --scope -p Delegate=yes onejob ...)"
        )
    own = folder / _OWN
    own.mkdir(exist_ok=True)
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            _write(own / _PROCS, pid)


def _is_below_us(pid: int, proc: Path) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        try:
            text = (proc.parent / str(pid) / "stat").read_text()
        except OSError:
            return True
        pid = int(text.rpartition(")")[2].split()[1])
    return False


def _mounts(proc: Path) -> Iterator[_Mount]:
    """Yield the mounted cgroup hierarchies."""
    for line in (proc / "mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if kind[0] in ("cgroup", "cgroup2"):
            options = frozenset(kind[2].split(",")) if len(kind) > 2 else frozenset()
            yield _Mount(fields[3], Path(fields[4]), kind[0], options)


def _own_groups(proc: Path) -> Mapping[str, str]:
    """Return the paths of this process's groups by controller; "" for version 2."""
    found: dict[str, str] = {}
    for line in (proc / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = path
    return found


def _own_folder(mount: _Mount, path: str) -> Path:
    """Return the directory of our own group, or the mount point if the group is not visible below
    it."""
    if path == mount.root or not path.startswith(mount.root.rstrip("/") + "/"):
        return mount.point
    folder = mount.point / path.removeprefix(mount.root).lstrip("/")
    return folder if folder.is_dir() else mount.point


# --- files ------------------------------------------------------------------------------------


def group_name(ref: AttemptRef) -> str:
    return f"{ref.uid}_{ref.container}_{ref.attempt}"


def _quota(cpu_milli: int) -> int:
    """Return the CPU time per period, in microseconds."""
    return max(cpu_milli * _CPU_PERIOD // 1000, _MIN_CPU_QUOTA_MICROSECONDS)


def _write(path: Path, value: int | str) -> None:
    """Write a value into a control file. Raises OSError."""
    path.write_text(f"{value}\n")


def _number(path: Path) -> int:
    """Return the number in a control file; 0 if it cannot be read."""
    return _read(path, lambda text: int(text))


def _field(path: Path, name: str) -> int:
    """Return the number after `name`, in a file of lines with a name and a number each."""
    return _read(path, lambda text: int(dict(map(str.split, text.splitlines()))[name]))


def _read(path: Path, parse: Callable[[str], int]) -> int:
    """Return the parsed content of a file, or 0 where the kernel does not provide it."""
    try:
        return parse(path.read_text())
    except (OSError, ValueError, KeyError):
        return 0


def _subfolders(folder: Path) -> list[Path]:
    """Return the folders in a folder; none if it cannot be read."""
    try:
        return [entry for entry in folder.iterdir() if entry.is_dir()]
    except OSError:
        return []


def _remove(group: Path) -> None:
    """Remove a group, unless processes are still in it; it is then removed later."""
    with contextlib.suppress(OSError):
        group.rmdir()


def _remove_abandoned(tree: _Tree, now: datetime) -> None:
    """Remove the groups of servers that were killed, once none of their processes is left."""
    for folder in tree.folders():
        for other in _subfolders(folder.parent):
            if other.name.startswith(_PREFIX) and other not in (folder, folder.parent / _OWN):
                with contextlib.suppress(OSError):
                    if now.timestamp() - other.stat().st_mtime > _ABANDONED_SECONDS:
                        for group in _subfolders(other):
                            _remove(group)
                        _remove(other)
