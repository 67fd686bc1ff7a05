"""Folders to start in for containers that name none: one per Pod, empty when it begins.

On a busy disk, making and removing a folder takes longer than a small program runs, and few
programs write where they start. So a folder that is as it was made is handed on, once nothing
lives that knows it.
"""

import os
from collections.abc import Callable, Mapping

#: Mode, owner, group and time of the last change: what tells whether a folder was touched.
_Look = tuple[int, int, int, int]


#: Pods are brought into their folder. From there, `..` leads no further, or those of one user could
#: read what those of others have left next to them.
_CLOSED = 0o700


class ScratchFolders:
    """`remove` gets the paths of folders that have served."""

    def __init__(self, root: str, remove: Callable[[str], None]) -> None:
        self._root = root
        self._remove = remove
        self._of: dict[str, str] = {}
        self._idle: list[str] = []
        self._looks: dict[str, _Look] = {}
        self._not_handed_on: set[str] = set()
        self._number = 0

    def inherit(self, started_in: Mapping[str, str]) -> None:
        """Keep the folders that Pods of an earlier run, by uid, were started in, and no other."""
        for uid, path in started_in.items():
            if os.path.dirname(path) == self._root:
                self._of[uid] = path
        used = set(self._of.values())
        if os.path.isdir(self._root):
            # Earlier versions let everybody in who stood in a folder below.
            os.chmod(self._root, _CLOSED)
            for name in os.listdir(self._root):
                path = f"{self._root}/{name}"
                if path not in used:
                    self._remove(path)

    def of(self, uid: str) -> str:
        """The Pod's folder. Raises OSError."""
        path = self._of.get(uid)
        if path is None:
            path = self._of[uid] = self._idle.pop() if self._idle else self._make()
        return path

    def known(self, uid: str) -> str:
        """The Pod's folder; "" if it has none."""
        return self._of.get(uid, "")

    def never_hand_on(self, uid: str) -> None:
        """Something that this Pod started may still live, and hold on to its folder."""
        if uid in self._of:
            self._not_handed_on.add(uid)

    def give_back(self, uid: str) -> None:
        path = self._of.pop(uid, None)
        if path is not None:
            if uid not in self._not_handed_on and self._is_as_made(path):
                self._idle.append(path)
            else:
                self._looks.pop(path, None)
                self._remove(path)
            self._not_handed_on.discard(uid)

    def close(self) -> None:
        """Leave only what is in use."""
        for path in self._idle:
            self._remove(path)
        self._idle.clear()

    def _make(self) -> str:
        while True:
            self._number += 1
            path = f"{self._root}/{self._number}"
            try:
                os.mkdir(path, 0o755)
            except FileNotFoundError:
                os.makedirs(self._root, mode=_CLOSED)
            except FileExistsError:
                # Used by a Pod of an earlier run.
                continue
            else:
                self._looks[path] = _look(path)
                return path

    def _is_as_made(self, path: str) -> bool:
        try:
            return self._looks.get(path) == _look(path) and not os.listdir(path)
        except OSError:
            return False


def _look(path: str) -> _Look:
    found = os.stat(path)
    return found.st_mode, found.st_uid, found.st_gid, found.st_ctime_ns
