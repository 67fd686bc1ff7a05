"""Safe path resolution below folders that a workload can change, without following links it
planted.

Every function walks one name at a time from a descriptor and never follows a symbolic link on the
way, so that links appearing during the walk do no harm. No function blocks on the other end of a
FIFO.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
#: The kernel's limit, beyond which links are treated as a loop.
_MAX_LINKS = 40


@contextmanager
def folder_of(path: str) -> Iterator[int]:
    """Open a trusted folder as an O_PATH descriptor, for a `with` block: the base of the functions
    below."""
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def open_beneath(base: int, part: str, *, make: int | None = None) -> int:
    """Return an O_PATH descriptor of `part` below the folder `base`.

    `make` is the mode in which missing folders are created; None does not create them. Raises
    OSError, including for a link on the way.
    """
    fd = os.dup(base)
    try:
        for name in _path_components(part):
            if name == "..":
                raise OSError(errno.EINVAL, "not a path below its folder", part)
            made = make is not None and _make_folder(fd, name)
            following = os.open(name, _STEP, dir_fd=fd)
            os.close(fd)
            fd = following
            if stat.S_ISLNK(os.fstat(fd).st_mode):
                raise OSError(errno.ELOOP, "a symbolic link is in the way", part)
            if made:
                # Independent of our umask.
                os.chmod(f"/proc/self/fd/{fd}", make or 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


@contextmanager
def beneath(base: int, part: str, *, make: int | None = None) -> Iterator[int]:
    """Open `part` below the folder `base` as an O_PATH descriptor, for a `with` block."""
    fd = open_beneath(base, part, make=make)
    try:
        yield fd
    finally:
        os.close(fd)


def open_file_beneath(base: int, part: str, flags: int, mode: int = 0o600) -> int:
    """Open a regular file below `base`. Raises OSError for any other kind of file."""
    parent, _, name = part.rpartition("/")
    with beneath(base, parent) as fd:
        return open_regular(name, flags, mode, dir_fd=fd)


def open_regular(path: str, flags: int, mode: int = 0o600, *, dir_fd: int | None = None) -> int:
    """Open a regular file, without following a final link and without blocking. The folders of
    `path` are trusted. Raises OSError."""
    safe = flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    fd = os.open(path, safe, mode, dir_fd=dir_fd)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return fd


def read_file_beneath(base: str, part: str, limit: int) -> bytes:
    """Return the first `limit` bytes of a regular file below `base`. Raises OSError."""
    with folder_of(base) as top:
        fd = open_file_beneath(top, part, os.O_RDONLY)
        try:
            return os.read(fd, limit)
        finally:
            os.close(fd)


def part_inside(base: str, part: str) -> str:
    """Return `part` with its links resolved, if the result is inside `base`. Links may change at
    any time, so the result must be opened with one of these functions. Raises OSError."""
    top = os.path.realpath(base)
    resolved = os.path.realpath(os.path.join(top, part))
    if resolved == top:
        return ""
    if not resolved.startswith(top.rstrip("/") + "/"):
        raise OSError(errno.ELOOP, "a symbolic link leads out of the volume", part)
    return os.path.relpath(resolved, top)


def open_inside(base: str, part: str) -> int:
    """Return an O_PATH descriptor of `part`, following only links that stay inside `base`."""
    with folder_of(base) as top:
        return open_beneath(top, part_inside(base, part))


def open_mount_point(base: str, part: str, *, make: str, links_inside: bool) -> int:
    """Return an O_PATH descriptor of the mount point `part` below `base`, creating it if it is
    missing.

    `make` is "directory", "file", or "" to create nothing. `links_inside` permits links that stay
    inside `base`. Raises OSError.
    """
    if links_inside:
        part = part_inside(base, part)
    with folder_of(base) as top:
        if make == "file":
            parent, _, name = part.rpartition("/")
            with beneath(top, parent, make=0o755) as fd:
                try:
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                    os.close(os.open(name, flags, 0o644, dir_fd=fd))
                except FileExistsError:
                    pass
        return open_beneath(top, part, make=0o755 if make == "directory" else None)


def open_trusted(path: str, *, make: int | None = None) -> int:
    """Return an O_PATH descriptor of an absolute path on the host.

    Only links made by root or our own user are followed: links of other users could lead anywhere.
    `make` is the mode in which missing folders are created; None does not create them. Raises
    OSError.
    """
    fd = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    links = 0
    pending = _path_components(path)[::-1]
    try:
        while pending:
            name = pending.pop()
            if make is not None and name != "..":
                _make_folder(fd, name, make)
            following = os.open(name, _STEP, dir_fd=fd)
            found = os.fstat(following)
            if not stat.S_ISLNK(found.st_mode):
                os.close(fd)
                fd = following
                continue
            try:
                links += 1
                _require_followable(found.st_uid, links, path)
                text = os.readlink("", dir_fd=following)
            finally:
                os.close(following)
            pending.extend(_path_components(text)[::-1])
            if text.startswith("/"):
                os.close(fd)
                fd = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _require_followable(owner: int, links: int, path: str) -> None:
    """Raise OSError unless root or our own user owns the link, and it is within the limit of links
    per path."""
    if owner not in (0, os.geteuid()):
        raise OSError(errno.ELOOP, f"a symbolic link of user {owner} is in the way", path)
    if links > _MAX_LINKS:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def _make_folder(fd: int, name: str, mode: int = 0o700) -> bool:
    """Create a folder; return False if it exists."""
    try:
        os.mkdir(name, mode, dir_fd=fd)
    except FileExistsError:
        return False
    return True


def _path_components(part: str) -> list[str]:
    """Return the names in a path, including "..", without empty ones and "."."""
    return [name for name in part.split("/") if name not in ("", ".")]
