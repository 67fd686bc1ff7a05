"""The few kernel calls that the standard library of Python 3.11 does not offer."""

import ctypes
import os
import time

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x1, 0x2, 0x4, 0x8
MS_REMOUNT, MS_BIND, MS_REC, MS_SLAVE = 0x20, 0x1000, 0x4000, 0x80000
MS_NOATIME, MS_NODIRATIME, MS_RELATIME = 0x400, 0x800, 0x200000
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
_MNT_DETACH, _UMOUNT_NOFOLLOW = 0x2, 0x8
_PR_SET_CHILD_SUBREAPER = 36

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Orphans of our descendants become our children instead of init's."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


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
    """Unmount, if need be once nobody uses it any longer."""
    result = _libc.umount2(os.fsencode(target), _MNT_DETACH | _UMOUNT_NOFOLLOW)
    _check(result, f"unmount {target}")


def ticks_now() -> int:
    """Now, as the kernel counts the start times of processes."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS_PER_SECOND)


def began_at(pid: int, ticks: int) -> bool:
    """Whether the process `pid` lives and began about then: so soon no pid is used again."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return False
    # The name may hold spaces and brackets: fields are counted from the last one.
    fields = stat[stat.rindex(b")") + 2 :].split()
    return fields[0] != b"Z" and abs(int(fields[19]) - ticks) < 10 * _TICKS_PER_SECOND


def session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def children() -> list[int] | None:
    """The children of this single-threaded process; None where the kernel does not tell."""
    mine = os.getpid()
    try:
        # Not `open`: asked at the end of every container, and its comforts cost more than this.
        fd = os.open(f"/proc/{mine}/task/{mine}/children", os.O_RDONLY)
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
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
