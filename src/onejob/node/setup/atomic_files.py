"""Atomically updated folder of files, in the kubelet's layout (AtomicWriter).

The files are in a subfolder to which the link `..data` leads; users see links through that one. New
contents get a new subfolder, and the link is replaced by a rename, so that a reader sees either the
old files or the new ones. All operations use descriptors, because users of the volume may be able
to change its contents.
"""

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from onejob.node.removal import remove_beneath
from onejob.node.supervisor.paths import beneath, open_regular

_DATA = "..data"
_NEW_LINK = "..new-link"
#: Modes with an fsGroup, as the kubelet sets for read-only volumes: the group can read files and
#: enter folders, and new entries inherit the group.
_GROUP_FILE, _GROUP_FOLDER = 0o440, 0o2550


class File(NamedTuple):
    content: bytes
    mode: int


def write_files(folder: int, files: Mapping[str, File], group: int | None = None) -> bool:
    """Make the folder contain exactly these files, by relative path; return False if it already
    does. Raises OSError."""
    if group is not None:
        files = {path: File(file.content, file.mode | _GROUP_FILE) for path, file in files.items()}
    current = _current(folder)
    changed = not current or not _holds(folder, current, files)
    if changed:
        fresh = _next_name(folder, current)
        _fill(folder, fresh, files, group)
        _point(folder, _DATA, fresh)
        current = fresh
    visible = {path.partition("/")[0] for path in files}
    for name in visible:
        wanted = f"{_DATA}/{name}"
        if _link_text(folder, name) != wanted:
            _point(folder, name, wanted)
    for name in os.listdir(folder):
        outdated = name.startswith("..") and name not in (_DATA, current)
        if outdated or (name not in visible and _link_text(folder, name) == f"{_DATA}/{name}"):
            remove_beneath(folder, name)
    return changed


def _current(folder: int) -> str:
    """Return the name of the folder that `..data` leads to; "" if it is not one of ours."""
    name = _link_text(folder, _DATA)
    return name if name.startswith("..") and name[2:].isdigit() else ""


def _next_name(folder: int, current: str) -> str:
    fresh = f"..{int(current[2:]) + 1 if current else 1}"
    remove_beneath(folder, fresh)
    return fresh


def _fill(folder: int, name: str, files: Mapping[str, File], group: int | None) -> None:
    """Create a folder with these files. Raises OSError."""
    os.mkdir(name, 0o755, dir_fd=folder)
    with beneath(folder, name) as top:
        for path, file in files.items():
            parent, _, base = path.rpartition("/")
            with beneath(top, parent, make=0o755) as where:
                fd = open_regular(base, os.O_WRONLY | os.O_CREAT | os.O_EXCL, dir_fd=where)
            try:
                _write(fd, file.content)
                if group is not None:
                    os.fchown(fd, -1, group)
                os.fchmod(fd, file.mode)
            finally:
                os.close(fd)
    for _, _, _, fd in os.fwalk(name, dir_fd=folder):
        give_folder(fd, 0o755, group)


def give_folder(fd: int, mode: int, group: int | None) -> None:
    """Set the mode of a folder, and its group unless that is None."""
    if group is not None:
        os.fchown(fd, -1, group)
        mode |= _GROUP_FOLDER
    os.fchmod(fd, mode)


def _write(fd: int, content: bytes) -> None:
    """Write all of the content. Raises OSError."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _holds(folder: int, name: str, files: Mapping[str, File]) -> bool:
    """Return whether the folder contains exactly these files in their final form. Reads one at a
    time."""
    found = 0
    with suppress(OSError):
        for where, _, names, fd in os.fwalk(name, dir_fd=folder):
            for base in names:
                file = files.get(os.path.relpath(os.path.join(where, base), name))
                if file is None or _read(fd, base, len(file.content) + 1) != file:
                    return False
                found += 1
    return found == len(files)


def _read(folder: int, name: str, limit: int) -> File:
    """Return a file with up to `limit` bytes; one with mode -1 if it cannot be read."""
    try:
        fd = open_regular(name, os.O_RDONLY, dir_fd=folder)
    except OSError:
        return File(b"", -1)
    try:
        content = b""
        while len(content) < limit and (chunk := os.read(fd, limit - len(content))):
            content += chunk
        return File(content, stat.S_IMODE(os.fstat(fd).st_mode))
    finally:
        os.close(fd)


def _point(folder: int, name: str, text: str) -> None:
    """Create or atomically replace the link `name` with that target, whatever exists there."""
    remove_beneath(folder, _NEW_LINK)
    os.symlink(text, _NEW_LINK, dir_fd=folder)
    try:
        os.replace(_NEW_LINK, name, src_dir_fd=folder, dst_dir_fd=folder)
    except IsADirectoryError:
        remove_beneath(folder, name)
        os.replace(_NEW_LINK, name, src_dir_fd=folder, dst_dir_fd=folder)


def _link_text(folder: int, name: str) -> str:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        return ""
