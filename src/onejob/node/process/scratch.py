"""Scratch directories: default working directories, one per Pod, empty when it starts.

On a busy disk, creating and removing a folder takes longer than a small program runs, and few
programs write to their working directory. An untouched folder is therefore reused, once no process
that had access to it is alive.
"""

import os
from collections.abc import Callable, Mapping

#: Mode, owner, group and change time, which reveal whether a folder was touched.
_Look = tuple[int, int, int, int]


#: Mode of the parent folder. Processes are placed in their folder directly; `..` must lead no
#: further, or one user's Pods could read the files that others' Pods left in adjacent folders.
_CLOSED = 0o700


class ScratchFolders:
    """Pool of scratch folders. `remove` is called with the paths of folders that cannot be
    reused."""

    def __init__(self, root: str, remove: Callable[[str], None]) -> None:
        self._root = root
        self._remove = remove
        self._of: dict[str, str] = {}
        self._idle: list[str] = []
        self._looks: dict[str, _Look] = {}
        self._not_handed_on: set[str] = set()
        self._number = 0

    def inherit(self, started_in: Mapping[str, str]) -> None:
        """Keep the folders in which Pods of an earlier run, by UID, were started; remove all
        others."""
        for uid, path in started_in.items():
            if os.path.dirname(path) == self._root:
                self._of[uid] = path
        used = set(self._of.values())
        if os.path.isdir(self._root):
            # Earlier versions gave access to any process whose working directory was a folder
            # below.
            os.chmod(self._root, _CLOSED)
            for name in os.listdir(self._root):
                path = f"{self._root}/{name}"
                if path not in used:
                    self._remove(path)

    def of(self, uid: str) -> str:
        """Return the Pod's folder, assigning one if necessary. Raises OSError."""
        path = self._of.get(uid)
        if path is None:
            path = self._of[uid] = self._idle.pop() if self._idle else self._make()
        return path

    def known(self, uid: str) -> str:
        """Return the Pod's folder; "" if it has none."""
        return self._of.get(uid, "")

    def exclude_from_reuse(self, uid: str) -> None:
        """Exclude the Pod's folder from reuse: a process that it started may still be alive and
        hold it."""
        if uid in self._of:
            self._not_handed_on.add(uid)

    def release(self, uid: str) -> None:
        """Return the folder of an ended Pod to the pool, or remove it if it cannot be reused."""
        path = self._of.pop(uid, None)
        if path is not None:
            if uid not in self._not_handed_on and self._is_pristine(path):
                self._idle.append(path)
            else:
                self._looks.pop(path, None)
                self._remove(path)
            self._not_handed_on.discard(uid)

    def close(self) -> None:
        """Remove idle folders, keeping only the ones in use."""
        for path in self._idle:
            self._remove(path)
        self._idle.clear()

    def _make(self) -> str:
        """Create a folder of the next free number and return its path. Raises OSError."""
        while True:
            self._number += 1
            path = f"{self._root}/{self._number}"
            try:
                os.mkdir(path, 0o755)
            except FileNotFoundError:
                os.makedirs(self._root, mode=_CLOSED)
            except FileExistsError:
                # In use by a Pod of an earlier run.
                continue
            else:
                self._looks[path] = _fingerprint(path)
                return path

    def _is_pristine(self, path: str) -> bool:
        try:
            return self._looks.get(path) == _fingerprint(path) and not os.listdir(path)
        except OSError:
            return False


def _fingerprint(path: str) -> _Look:
    """Return mode, owner, group and change time, to detect any change of the folder."""
    found = os.stat(path)
    return found.st_mode, found.st_uid, found.st_gid, found.st_ctime_ns
