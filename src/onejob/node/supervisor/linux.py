"""System calls missing from the standard library of Python 3.11."""

import contextlib
import ctypes
import os
import signal
import time
from functools import lru_cache

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x1, 0x2, 0x4, 0x8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE, MS_SLAVE = 0x20, 0x1000, 0x4000, 0x40000, 0x80000
MS_NOATIME, MS_NODIRATIME, MS_RELATIME = 0x400, 0x800, 0x200000
CLONE_PARENT, CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID = (
    0x00008000, 0x00020000, 0x08000000, 0x10000000, 0x20000000,
)  # fmt: skip
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NAME = 1, 4, 15
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_CAPABILITY_VERSION_3 = 0x20080522
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NODEV = 0x1, 0x4
_MNT_DETACH, _UMOUNT_NOFOLLOW = 0x2, 0x8
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
#: The same numbers on every architecture, unlike older calls.
_SYS_CLONE3, _SYS_CLOSE_RANGE, _SYS_MOUNT_SETATTR = 435, 436, 442

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

_libc = ctypes.CDLL(None, use_errno=True)

#: PyDLL keeps the GIL, which a forked process could not acquire again.
_system_call = ctypes.PyDLL(None, use_errno=True).syscall
_system_call.restype = ctypes.c_long

#: A `sigset_t` with all bits set; no C library has a larger one.
_ALL_SIGNALS = ctypes.create_string_buffer(b"\xff" * 128, 128)


def become_subreaper() -> None:
    """Become the parent of orphaned descendants, in place of init."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends for any reason."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")


def hide_memory() -> None:
    """Deny processes of the same user access to the memory and the descriptors of this one."""
    _check(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "prctl")


@lru_cache(maxsize=1)
def argument_area() -> tuple[int, int]:
    """Return the addresses at which this process's command line starts and ends in memory."""
    with open("/proc/self/stat", "rb") as file:
        fields = _stat_fields(file.read())
    return int(fields[45]), int(fields[46])


def call_process(name: bytes, arguments: tuple[int, int]) -> None:
    """Set the listed name of a forked process, which would otherwise show its parent's command
    line."""
    _check(_libc.prctl(_PR_SET_NAME, name, 0, 0, 0), "prctl")
    start, end = arguments
    ctypes.memmove(start, name.ljust(end - start, b"\0")[: end - start], end - start)


def close_from(first: int, last: int = 0xFFFFFFFF) -> None:
    """Close these and all descriptors between them."""
    if first > last:
        return
    if _libc.syscall(_SYS_CLOSE_RANGE, first, ctypes.c_uint(last), 0) != 0:
        for name in os.listdir("/proc/self/fd"):
            if first <= int(name) <= last:
                with contextlib.suppress(OSError):
                    os.close(int(name))


# Not `signal.pthread_sigmask`: it creates objects for all signals, which in a fresh fork copies
# memory pages and takes longer than starting a program.


def block_signals() -> None:
    _check(_libc.sigprocmask(signal.SIG_BLOCK, _ALL_SIGNALS, None), "sigprocmask")


def unblock_signals() -> None:
    _check(_libc.sigprocmask(signal.SIG_UNBLOCK, _ALL_SIGNALS, None), "sigprocmask")


class _CloneArguments(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("pidfd", ctypes.c_uint64),
        ("child_tid", ctypes.c_uint64),
        ("parent_tid", ctypes.c_uint64),
        ("exit_signal", ctypes.c_uint64),
        ("stack", ctypes.c_uint64),
        ("stack_size", ctypes.c_uint64),
        ("tls", ctypes.c_uint64),
    )


def clone(flags: int) -> int:
    """Fork into new namespaces, or as a sibling (`CLONE_PARENT`); return the child's pid, 0 in the
    child.

    Only for single-threaded processes: the hooks of `os.fork` do not run. Raises OSError.
    """
    arguments = _CloneArguments(
        flags=flags, exit_signal=0 if flags & CLONE_PARENT else signal.SIGCHLD
    )
    pid = int(
        _system_call(
            _SYS_CLONE3, ctypes.byref(arguments), ctypes.c_size_t(ctypes.sizeof(arguments))
        )
    )
    if pid < 0:
        _check(-1, "clone")
    return pid


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def setns(fd: int, kind: int) -> None:
    _check(_libc.setns(fd, kind), "setns")


def mount(source: str, target: str, flags: int, filesystem: str = "", data: str = "") -> None:
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        filesystem.encode() or None,
        ctypes.c_ulong(flags),
        data.encode() or None,
    )
    _check(result, f"mount {source} at {target}")


def detach(target: str) -> None:
    """Unmount lazily: at once from the tree, and fully when it is no longer in use."""
    result = _libc.umount2(os.fsencode(target), _MNT_DETACH | _UMOUNT_NOFOLLOW)
    _check(result, f"unmount {target}")


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user_namespace", ctypes.c_uint64),
    )


def seal(target: str, *, devices: bool) -> None:
    """Make all mounts at a path and below read-only, and disable their device nodes unless
    `devices`. Raises OSError."""
    attributes = _MountAttributes(set=_MOUNT_ATTR_RDONLY | (0 if devices else _MOUNT_ATTR_NODEV))
    result = _libc.syscall(
        _SYS_MOUNT_SETATTR,
        _AT_FDCWD,
        os.fsencode(target),
        _AT_RECURSIVE,
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )
    _check(result, "mount_setattr")


def change_root(root: str) -> None:
    """Replace the root file system, without access to the previous one. Raises OSError."""
    os.chdir(root)
    _check(_libc.pivot_root(b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", _MNT_DETACH), "umount")
    os.chdir("/")


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilityData(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


@lru_cache(maxsize=1)
def last_capability() -> int:
    """Return the number of the kernel's last capability, from a cache."""
    with open("/proc/sys/kernel/cap_last_cap") as file:
        return int(file.read())


def bound_capabilities(allowed: int) -> None:
    """Restrict the capability bounding set, for this process and its children. Raises OSError."""
    for number in range(last_capability() + 1):
        if not allowed >> number & 1:
            _check(_libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0), "prctl")


def give_up_capabilities(allowed: int) -> None:
    """Drop all other capabilities permanently. Raises OSError."""
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    data = (_CapabilityData * 2)()
    _check(_libc.capget(ctypes.byref(header), data), "capget")
    for i in range(2):
        part = allowed >> 32 * i & 0xFFFFFFFF
        kept = data[i].permitted & part
        data[i] = _CapabilityData(kept, kept, 0)
    _check(_libc.capset(ctypes.byref(header), data), "capset")


def gain_no_privileges() -> None:
    """Disable setuid bits and file capabilities from now on (`PR_SET_NO_NEW_PRIVS`)."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")


def system_call(number: int, *arguments: int | bytes | None) -> int:
    """Make a system call without a libc function. Raises OSError."""
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result = int(_system_call(ctypes.c_long(number), *words))
    if result < 0:
        _check(-1, "syscall")
    return result


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def filter_system_calls(instructions: bytes) -> None:
    """Install a seccomp filter, permanently and for all children: instructions of classic BPF,
    eight bytes each. Raises OSError."""
    program = _FilterProgram(len(instructions) // 8, instructions)
    result = _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0)
    _check(result, "seccomp")


def ticks_now() -> int:
    """Return the current time in the unit of processes' start times: clock ticks since boot."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS_PER_SECOND)


def began_at(pid: int, ticks: int) -> bool:
    """Return whether process `pid` is alive and began at about `ticks`. PIDs are not reused within
    that tolerance."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return False
    fields = _stat_fields(stat)
    return fields[0] != b"Z" and abs(int(fields[19]) - ticks) < 10 * _TICKS_PER_SECOND


def _stat_fields(stat: bytes) -> list[bytes]:
    """Return the fields after the program's name, which may contain spaces and brackets: the last
    bracket ends it."""
    return stat[stat.rindex(b")") + 2 :].split()


def own_pid() -> int:
    """Return this process's PID as the supervisor sees it, even from inside another PID namespace:
    by the /proc that both were started with."""
    return int(os.readlink("/proc/self"))


def session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def children(pid: int = 0) -> list[int] | None:
    """Return the children of a single-threaded process, by default of this one; None if the kernel
    does not provide them."""
    pid = pid or os.getpid()
    try:
        # Not `open`: this runs at the end of every container, and `open` costs more than the rest.
        fd = os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY)
    except OSError:
        return None
    try:
        text = b""
        while piece := os.read(fd, 65536):
            text += piece
        return [int(pid) for pid in text.split()]
    except OSError:
        return None
    finally:
        os.close(fd)


def processes() -> list[int]:
    """Return the ids of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def _check(result: int, what: str) -> None:
    """Raise OSError if a system call has failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
