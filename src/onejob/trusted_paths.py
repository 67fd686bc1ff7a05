"""Ownership and permission checks of the data directory and configuration files.

The data directory decides who is admin (its token), which certificates are trusted and which
programs run (the supervisor's socket): a user who can write there can do everything that the server
can. So it is used only if no other user can have put anything into it, as OpenSSH does with its
trusted files. Imports nothing of onejob; `pwd` and `grp` only when a message or an exception needs
them.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

#: Symbolic links followed on the way to a directory; the kernel's own limit.
_MAX_LINKS: Final = 40
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_REACHABLE_BY_OTHERS: Final = stat.S_IXGRP | stat.S_IXOTH
_OVERFLOW_USER: Final = Path("/proc/sys/kernel/overflowuid")


class NotTrusted(Exception):
    """A path is not trustworthy.

    The message is one line with the path, the problem and the remedy.
    """


def require_trusted_folder(path: Path, user: int | None = None) -> None:
    """Raise NotTrusted unless the directory belongs to `user`, by default the current one.

    No other user may be able to write to it or replace it. Links in its path must belong to that
    user or root.
    """
    user = os.geteuid() if user is None else user
    with _walk(path, user) as folder:
        _check_folder(path, os.fstat(folder), user)


def make_trusted_folder(path: Path) -> None:
    """Create the directory (mode 0700) if it is missing, and require that it is trusted.

    Raises NotTrusted.
    """
    missing = [path]
    while not os.path.lexists(missing[-1].parent):
        missing.append(missing[-1].parent)
    place, user = missing[-1].parent, os.geteuid()
    with _walk(place, user) as parent:
        _check_parent(place, os.fstat(parent), user)
    for folder in reversed(missing):
        if not os.path.lexists(folder):
            folder.mkdir(mode=0o700, exist_ok=True)
    require_trusted_folder(path)


def make_own_folder(path: Path) -> None:
    """Create a directory inside of a trusted one; it must not be a link.

    An existing directory of ours that a permissive umask left open to others is closed;
    `require_own_files` finds files that others put there. Raises NotTrusted.
    """
    path.mkdir(mode=0o700, exist_ok=True)
    with _open_checked(path, os.O_RDONLY | os.O_DIRECTORY) as folder:
        found = os.fstat(folder)
        _check_owner(path, found, os.geteuid())
        if found.st_mode & _WRITABLE_BY_OTHERS:
            os.fchmod(folder, stat.S_IMODE(found.st_mode) & ~0o077)


def require_own_files(folder: Path, below: Iterable[str] = ()) -> None:
    """Raise NotTrusted if an entry of `folder` is not exclusively ours.

    Entries of the subdirectories named in `below` are checked, too. An entry is rejected if it is a
    link, belongs to another user or is writable by others.
    """
    user = os.geteuid()
    for place in (folder, *(folder / name for name in below)):
        with _open_checked(place, os.O_RDONLY | os.O_DIRECTORY, absent_ok=True) as directory:
            if directory is None:
                continue
            found = os.fstat(directory)
            _check_owner(place, found, user)
            reachable = bool(found.st_mode & _REACHABLE_BY_OTHERS)
            for name in os.listdir(directory):
                try:
                    entry = os.stat(name, dir_fd=directory, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                _check_entry(place / name, entry, user, reachable=reachable)


def read_own_file(path: Path) -> bytes:
    """Return the content of a regular file of ours that others cannot have written.

    Never follows a link, never blocks on a FIFO. Raises NotTrusted, or OSError as `open` does.
    """
    with _open_checked(path, os.O_RDONLY | os.O_NONBLOCK) as file:
        _check_entry(path, os.fstat(file), os.geteuid(), reachable=True, regular=True)
        with os.fdopen(os.dup(file), "rb") as content:
            try:
                return content.read()
            except OSError as error:
                error.filename = str(path)
                raise


def read_trusted_file(path: Path) -> bytes:
    """Return the content of a file of ours or root's that others can neither write nor replace.

    Links of ours or root's are followed, because administrators often use them for configuration.
    Raises NotTrusted, or OSError as `open` does.
    """
    user = os.geteuid()
    target = Path(os.path.realpath(path))
    for folder in (path.parent, target.parent):
        with _walk(folder, user) as parent:
            _check_parent(folder, os.fstat(parent), user)
    with _open_checked(target, os.O_RDONLY | os.O_NONBLOCK) as file:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise NotTrusted(f"{path} is not a regular file; specify one")
        if not _is_trusted_owner(found.st_uid, user):
            raise NotTrusted(f"{path} belongs to {_name_of(found.st_uid)}; use your own file")
        if _others_may_write(found, user):
            raise NotTrusted(f"other users can write to {path}; prevent it with chmod go-w {path}")
        with os.fdopen(os.dup(file), "rb") as content:
            return content.read()


# --- path traversal -----------------------------------------------------------------------


@contextmanager
def _walk(path: Path, user: int) -> Iterator[int]:
    """Yield a descriptor of the directory, reached through trusted directories and links only.

    Raises NotTrusted.
    """
    components = list(reversed(path.absolute().parts[1:]))
    shown = Path("/")
    links = 0
    current = os.open("/", os.O_PATH | os.O_DIRECTORY)
    try:
        while components:
            name = components.pop()
            parent = os.fstat(current)
            _check_parent(shown, parent, user)
            step = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=current)
            found = os.fstat(step)
            if not stat.S_ISLNK(found.st_mode):
                os.close(current)
                current, shown = step, shown / name
                continue
            target = os.readlink(b"", dir_fd=step).decode(errors="surrogateescape")
            os.close(step)
            links += 1
            if links > _MAX_LINKS:
                raise NotTrusted(
                    f"{path} contains too many symbolic links; specify the directory itself"
                )
            if parent.st_mode & stat.S_ISVTX and not _is_trusted_owner(found.st_uid, user):
                raise NotTrusted(
                    f"{shown / name} is a symbolic link of {_name_of(found.st_uid)}; use your "
                    "own directory"
                )
            parts = Path(target).parts
            if target.startswith("/"):
                os.close(current)
                current, shown = os.open("/", os.O_PATH | os.O_DIRECTORY), Path("/")
                parts = parts[1:]
            components.extend(reversed(parts))
        yield current
    except NotADirectoryError:
        raise NotTrusted(f"{shown} is not a directory; use another one") from None
    finally:
        os.close(current)


def _check_parent(path: Path, found: os.stat_result, user: int) -> None:
    if not _is_trusted_owner(found.st_uid, user):
        raise NotTrusted(
            f"{path} belongs to {_name_of(found.st_uid)}, who could replace its contents; use "
            "your own directory, below one that belongs to you or to root"
        )
    if _others_may_write(found, user) and not found.st_mode & stat.S_ISVTX:
        raise NotTrusted(
            f"other users can write to {path} and could replace its contents; prevent it with "
            f"chmod go-w {path}, or use another directory"
        )


def _check_folder(path: Path, found: os.stat_result, user: int) -> None:
    if not stat.S_ISDIR(found.st_mode):
        raise NotTrusted(f"{path} is not a directory; use another one")
    _check_owner(path, found, user)
    if _others_may_write(found, user):
        raise NotTrusted(
            f"other users can write to {path}, so its contents cannot be trusted; use a new "
            "directory"
        )


# --- its contents -------------------------------------------------------------------------


@contextmanager
def _open_checked(path: Path, flags: int, *, absent_ok: bool = False) -> Iterator[int]:
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        if not absent_ok:
            raise
        yield None  # type: ignore[misc]
        return
    except OSError:
        if not path.is_symlink():
            raise
        raise NotTrusted(_link(path)) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _check_entry(
    path: Path, found: os.stat_result, user: int, *, reachable: bool, regular: bool = False
) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise NotTrusted(_link(path))
    if regular and not stat.S_ISREG(found.st_mode):
        raise NotTrusted(f"{path} is not a regular file; remove it")
    _check_owner(path, found, user)
    if stat.S_ISREG(found.st_mode) and reachable and _others_may_write(found, user):
        raise NotTrusted(f"other users can write to {path}, so it cannot be trusted; remove it")


def _check_owner(path: Path, found: os.stat_result, user: int) -> None:
    if found.st_uid != user:
        raise NotTrusted(
            f"{path} belongs to {_name_of(found.st_uid)}, not to {_name_of(user)}; its owner "
            "could act as admin, so use your own directory"
        )


def _link(path: Path) -> str:
    return f"{path} is a symbolic link, which is not followed; replace it by its target"


# --- permissions ---------------------------------------------------------------------------


def _others_may_write(found: os.stat_result, user: int) -> bool:
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_group_of_one(found.st_gid, user)


def _is_group_of_one(group: int, user: int) -> bool:
    """Return whether the group has no member but the user.

    Distributions create a group of the same name for each user, and let it write by default. A
    group without an entry (as container platforms assign them) has no other members either.
    """
    import grp
    import pwd

    try:
        entry = grp.getgrgid(group)
    except KeyError:
        return True
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        return False
    return entry.gr_name == name and set(entry.gr_mem) <= {name}


def _is_trusted_owner(owner: int, user: int) -> bool:
    return owner in (0, user) or _stands_for_root(owner)


def _stands_for_root(owner: int) -> bool:
    """Return whether the owner is the unmapped root.

    In a user namespace without the machine's root, files of root appear to belong to the overflow
    user.
    """
    try:
        mapped = Path("/proc/self/uid_map").read_text().split()
        return mapped != ["0", "0", "4294967295"] and owner == int(_OVERFLOW_USER.read_text())
    except (OSError, ValueError):
        return False


def _name_of(user: int) -> str:
    import pwd

    try:
        return f"user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"user {user}"
