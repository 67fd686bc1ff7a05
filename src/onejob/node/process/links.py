"""Where there are no mount namespaces: a volume reached through a link at its mountPath.

A link is there for the whole host, so only one Pod at a time can have one at a path, and only
where nothing is yet. Links are written down next to the Pod's other files, so that those of a
node that died are found and removed. Folders on the way may be anybody's: they are not followed
through links of other users, and only what is still our link is removed.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from onejob.node.supervisor.paths import open_regular, open_trusted

log = logging.getLogger(__name__)


class LinkRefused(Exception):
    """The mountPath cannot be had now; the text says why."""


class _Link(NamedTuple):
    uid: str
    #: What the link says; "" if a version that did not write this down made it.
    source: str


class Links:
    def __init__(self, pods: Path) -> None:
        self._pods = pods
        self._links: dict[str, _Link] = {}
        for record in pods.glob("*/links"):
            for target, source in _read(record):
                self._links[target] = _Link(record.parent.name, source)

    def take(self, uid: str, source: str, target: str) -> None:
        link = self._links.get(target)
        if link is not None and link.uid != uid:
            raise LinkRefused(
                f"{target} is in use by another Pod, and this machine has no mount namespaces "
                "to give each its own"
            )
        if os.path.islink(target) and link is not None:
            if os.readlink(target) == source:
                return
            _unlink(target, link.source)
        if os.path.lexists(target):
            raise LinkRefused(
                f"{target} exists on this host, and without mount namespaces a volume cannot "
                "take its place for one Pod alone"
            )
        record = self._pods / uid / "links"
        record.parent.mkdir(parents=True, exist_ok=True)
        with open(open_regular(str(record), os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as file:
            file.write(msgspec.json.encode((target, source)) + b"\n")
        self._links[target] = _Link(uid, source)
        try:
            parent = open_trusted(os.path.dirname(target))
            try:
                os.symlink(source, os.path.basename(target), dir_fd=parent)
            finally:
                os.close(parent)
        except OSError as error:
            raise LinkRefused(f"{target} cannot be made: {error.strerror}") from error

    def give_back(self, uid: str) -> None:
        """Remove the links of a Pod that is over."""
        targets = [target for target, link in self._links.items() if link.uid == uid]
        if not targets:
            return
        for target in targets:
            _unlink(target, self._links.pop(target).source)
        (self._pods / uid / "links").unlink(missing_ok=True)


def _read(record: Path) -> Iterator[tuple[str, str]]:
    """Targets and sources. What makes no sense (half a line after a crash) is passed over."""
    try:
        with open(
            open_regular(str(record), os.O_RDONLY), encoding="utf-8", errors="replace"
        ) as file:
            lines = file.read().splitlines()
    except OSError as error:
        log.warning("%s cannot be read: %s", record, error)
        return
    for line in lines:
        if line.startswith("/"):
            # Earlier versions wrote the path alone.
            yield line, ""
            continue
        try:
            yield msgspec.json.decode(line, type=tuple[str, str])
        except msgspec.DecodeError:
            log.warning("%s: passed over: %.100r", record, line)


def _unlink(target: str, source: str) -> None:
    """Remove a link if it still is the one that we made."""
    try:
        parent = open_trusted(os.path.dirname(target))
    except OSError:
        # Its folder is gone, or somebody else's link is in its place.
        return
    name = os.path.basename(target)
    try:
        if os.readlink(name, dir_fd=parent) == source or not source:
            os.unlink(name, dir_fd=parent)
    except OSError:
        # It is gone, or something else is in its place.
        return
    finally:
        os.close(parent)
