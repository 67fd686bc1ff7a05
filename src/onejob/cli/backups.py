"""Backup and restore of a server's state as a single file.

A backup is a tar archive: a manifest, a consistent copy of the database, and the small files next
to it (certificates and their keys, tokens). Logs and runtime state are not included: Pods that ran
at the time of the backup are reported as disrupted by a server started from it. Neither are the
keys that Secrets are encrypted with, wherever their file is: a stolen backup must not reveal
Secrets.
"""

import fcntl
import io
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath

import msgspec

from onejob import __version__
from onejob.cli.errors import CommandError
from onejob.cli.scratch_folders import BACKUP_PREFIX, RESTORE_PREFIX, scratch_folder
from onejob.store.base import CannotOpen, StoreLocked
from onejob.store.checking.copies import copy_database, require_whole
from onejob.store.lock_file import LockFile

#: Incremented when older versions of onejob can no longer restore the archive.
FORMAT = 1
DATABASE = "onejob.db"
_MANIFEST = "backup.json"
#: Folders of processes and Pods, useless on another machine.
_LEFT_OUT = frozenset({"supervisor", "pods"})
_MANIFEST_BYTES = 64 * 1024
#: Maximum size of an encryption key file; larger files are not checked for keys.
_KEY_FILE_BYTES = 64 * 1024

#: Constants of Linux' renameat2(2).
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


class Manifest(msgspec.Struct):
    format: int
    onejob: str
    revision: int


def back_up(server: Path, target: Path, *, replace: bool) -> Manifest:
    """Write a backup of the server in this folder, which may be running. Raises CommandError."""
    if target.exists() and not replace:
        raise CommandError(f"{target} exists", "choose another name, or use --replace")
    if not (server / DATABASE).exists():
        raise CommandError(f"no server in {server.parent}", "onejob serve creates one")
    if not target.parent.is_dir():
        raise CommandError(f"cannot write backup: no directory {target.parent}")
    try:
        with scratch_folder(target.parent, BACKUP_PREFIX) as place:
            database, archive = place / DATABASE, place / "archive"
            manifest = Manifest(FORMAT, __version__, copy_database(server / DATABASE, database))
            with open(archive, "wb") as file:
                os.fchmod(file.fileno(), 0o600)
                with tarfile.open(fileobj=file, mode="w") as tar:
                    _add_text(tar, _MANIFEST, msgspec.json.encode(manifest))
                    tar.add(database, DATABASE, recursive=False)
                    for path in _small_files(server):
                        tar.add(path, str(path.relative_to(server)), recursive=False)
                file.flush()
                os.fsync(file.fileno())
            archive.rename(target)
            _sync_folder(target.parent)
    except (CannotOpen, OSError) as error:
        raise CommandError(f"cannot write backup: {error}") from None
    return manifest


def restore(source: Path, server: Path, *, replace: bool) -> tuple[Manifest, Path | None]:
    """Restore a backup into the folder of a server, which must not be running.

    Return the backup's manifest, and the new path of the previous state, if there was any. Raises
    CommandError.
    """
    there = server.exists() and any(server.iterdir())
    if there and not replace:
        raise CommandError(
            f"{server.parent} already contains a server",
            "choose another --data-dir, or use --replace, which keeps the old state in a "
            "backup directory",
        )
    try:
        with (
            _nothing_running(server),
            scratch_folder(server.parent, RESTORE_PREFIX) as place,
        ):
            manifest = _unpack(source, place)
            require_whole(place / DATABASE)
            if there:
                before: Path | None = _replace(server, place)
            else:
                before = None
                # rename(2) replaces an empty folder.
                place.rename(server)
        _sync_folder(server.parent)
    except (CannotOpen, OSError, tarfile.TarError) as error:
        raise CommandError(f"cannot restore: {error}") from None
    return manifest, before


def _small_files(server: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(server):
        if Path(folder) == server:
            folders[:] = [name for name in folders if name not in _LEFT_OUT]
        folders.sort()
        for name in sorted(names):
            path = Path(folder) / name
            if name.startswith(DATABASE) or name.endswith(".lock"):
                continue
            if stat.S_ISREG(path.lstat().st_mode) and not _is_key_file(path):
                yield path


def _is_key_file(path: Path) -> bool:
    """Return whether this is the file of --encryption-key-file, which may be anywhere."""
    if path.lstat().st_size > _KEY_FILE_BYTES:
        return False
    from onejob.store.encryption import holds_key

    return holds_key(path.read_bytes())


def _add_text(tar: tarfile.TarFile, name: str, text: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(text), 0o600
    tar.addfile(member, io.BytesIO(text))


def _unpack(source: Path, place: Path) -> Manifest:
    """Unpack into `place` and return the manifest. Raises CommandError, OSError, TarError."""
    with tarfile.open(source, mode="r:") as tar:
        manifest = _read_manifest(tar, source)
        for member in tar:
            name = PurePosixPath(member.name)
            if member.name == _MANIFEST:
                continue
            if not member.isreg() or name.is_absolute() or ".." in name.parts:
                raise CommandError(f"{source} is not a onejob backup: it contains {member.name!r}")
            content = tar.extractfile(member)
            assert content is not None, "it is a regular file"
            target = place / name
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with content, open(target, "xb") as file:
                os.fchmod(file.fileno(), 0o600)
                shutil.copyfileobj(content, file)
                file.flush()
                os.fsync(file.fileno())
    if not (place / DATABASE).exists():
        raise CommandError(f"{source} is not a onejob backup: it contains no database")
    return manifest


def _read_manifest(tar: tarfile.TarFile, source: Path) -> Manifest:
    """Read the manifest, which is the first member and not one of the server's files."""
    member = tar.next()
    content = None
    if member is not None and member.name == _MANIFEST and member.size <= _MANIFEST_BYTES:
        content = tar.extractfile(member)
    if content is None:
        raise CommandError(f"{source} is not a onejob backup")
    with content:
        try:
            manifest = msgspec.json.decode(content.read(), type=Manifest)
        except msgspec.DecodeError as error:
            raise CommandError(f"{source} is not a onejob backup: {error}") from None
    if manifest.format > FORMAT:
        raise CommandError(
            f"{source} was written by a newer onejob ({manifest.onejob}, format {manifest.format})",
            "upgrade onejob",
        )
    return manifest


@contextmanager
def _nothing_running(server: Path) -> Iterator[None]:
    """Hold the server's lock. Raises CommandError if the server or one of its Pods is running."""
    with ExitStack() as undo:
        if (server / DATABASE).exists():
            try:
                undo.callback(LockFile(server / DATABASE).release)
            except StoreLocked:
                raise CommandError(
                    f"the server in {server.parent} is running", "stop it first"
                ) from None
        if _supervised(server / "supervisor"):
            raise CommandError(
                f"Pods of the server in {server.parent} are still running",
                "start it, then delete them or wait until they end",
            )
        yield


def _supervised(folder: Path) -> bool:
    """Return whether a supervisor is alive, by the lock that it holds for its whole lifetime."""
    try:
        fd = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _replace(server: Path, new: Path) -> Path:
    """Replace the server's folder by `new`; return the new path of the old one.

    Done atomically where possible, because a server started without the folder would begin with
    empty state.
    """
    number = 1
    while (target := server.with_name(f"{server.name}.replaced-{number}")).exists():
        number += 1
    new.rename(target)
    if _exchange(target, server):
        return target
    target.rename(new)
    # The file system does not support the exchange: rename in two steps.
    server.rename(target)
    try:
        new.rename(server)
    except OSError:
        target.rename(server)
        raise
    return target


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names atomically (renameat2); return whether that succeeded."""
    import ctypes

    try:
        rename = ctypes.CDLL(None).renameat2
    except AttributeError:
        return False
    names = os.fsencode(one), os.fsencode(other)
    return bool(rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
