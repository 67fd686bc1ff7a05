"""Tar stream of output directories: regular files and directories only, without following links.

A directory is walked by descriptors, so that a link planted during the walk redirects nothing.
Links, devices, sockets and pipes are left out. A file that shrinks while it is read is padded, and
one that grows is cut off, so that the archive stays valid.
"""

import os
import stat
import tarfile
from collections.abc import Iterator, Sequence
from typing import Final

from onejob.node.supervisor.paths import folder_of, open_beneath

_PIECE: Final = 256 * 1024
#: Levels of folders; deeper ones are left out.
_MAX_DEPTH: Final = 100
_LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_BLOCK: Final = tarfile.BLOCKSIZE


def tar_pieces(sources: Sequence[tuple[str, str]], part: str) -> Iterator[bytes]:
    """Yield a tar archive of `part` of each source: a prefix in the archive, and a directory.

    Sources without that part are left out. Yields nothing at all if there is none.
    """
    found = False
    for prefix, folder in sources:
        for piece in _source(prefix, folder, part):
            found = True
            yield piece
    if found:
        yield b"\0" * (2 * _BLOCK)


def _source(prefix: str, folder: str, part: str) -> Iterator[bytes]:
    try:
        with folder_of(folder) as top:
            fd = open_beneath(top, part)
    except OSError:
        return
    try:
        mode = os.fstat(fd).st_mode
        own = part.strip("/").rpartition("/")[2]
        if stat.S_ISDIR(mode):
            listed = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                if prefix:
                    yield _header(prefix, None)
                yield from _tree(listed, prefix, 0)
            finally:
                os.close(listed)
        elif stat.S_ISREG(mode):
            file = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
            yield from _file(file, _joined(prefix, own))
    finally:
        os.close(fd)


def _tree(folder: int, prefix: str, depth: int) -> Iterator[bytes]:
    for name in sorted(os.listdir(folder)):
        path = _joined(prefix, name)
        try:
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode) and depth < _MAX_DEPTH:
                fd = os.open(name, _LIST, dir_fd=folder)
            elif stat.S_ISREG(mode):
                fd = os.open(name, _READ, dir_fd=folder)
            else:
                continue
        except OSError:
            # Removed or replaced meanwhile, or unreadable for us.
            continue
        if stat.S_ISREG(os.fstat(fd).st_mode):
            yield from _file(fd, path)
            continue
        try:
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                yield _header(path, None)
                yield from _tree(fd, path, depth + 1)
        finally:
            os.close(fd)


def _file(fd: int, path: str) -> Iterator[bytes]:
    """Yield one file and close its descriptor."""
    try:
        found = os.fstat(fd)
        size = found.st_size
        yield _header(path, found)
        left = size
        while left:
            piece = os.read(fd, min(_PIECE, left))
            if not piece:
                piece = b"\0" * min(_PIECE, left)
            left -= len(piece)
            yield piece
        if size % _BLOCK:
            yield b"\0" * (_BLOCK - size % _BLOCK)
    finally:
        os.close(fd)


def _header(path: str, found: os.stat_result | None) -> bytes:
    info = tarfile.TarInfo(path)
    if found is None:
        info.type, info.mode = tarfile.DIRTYPE, 0o755
    else:
        info.size, info.mtime = found.st_size, int(found.st_mtime)
        info.mode = 0o755 if found.st_mode & 0o100 else 0o644
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}/{name}" if prefix else name


#: Minimum that an entry of a directory counts with.
_PER_ENTRY: Final = 1024


def used_bytes(folder: str, limit: int) -> int:
    """Return the bytes used below a directory; more than `limit` as soon as that is certain.

    A file counts with its length, so that a sparse one cannot make an archive endless, and each
    entry with a minimum, so that the number of files is bounded, too. Folders nested too deeply to
    be archived count as exceeding the limit. Raises OSError for the directory itself.
    """
    top = os.open(folder, _LIST)
    try:
        return _used(top, limit, 0)
    finally:
        os.close(top)


def _used(fd: int, limit: int, depth: int) -> int:
    if depth > _MAX_DEPTH:
        return limit + 1
    total = 0
    with os.scandir(fd) as entries:
        for entry in entries:
            if total > limit:
                return total
            try:
                found = entry.stat(follow_symlinks=False)
                total += max(_PER_ENTRY, found.st_size, found.st_blocks * 512)
                if not stat.S_ISDIR(found.st_mode):
                    continue
                below = os.open(entry.name, _LIST, dir_fd=fd)
            except OSError:
                # Removed meanwhile, or unreadable for us.
                continue
            try:
                total += _used(below, limit - total, depth + 1)
            finally:
                os.close(below)
    return total
