"""Symbolic links as volume mounts, for machines without mount namespaces.

A link is visible to the whole host, so only one Pod at a time can have a link at a given mountPath,
and only if that path does not exist. Links are recorded among the Pod's other files, so that the
links of a node that died are found and removed. Parent directories may belong to any user: links of
other users are not followed on the way, and a link is removed only if it is still ours.
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
    """The mountPath is not available at present; the message gives the reason."""


class _Link(NamedTuple):
    """Owner and target of a link."""

    #: UID of the Pod that the link was made for.
    uid: str
    #: Target of the link; "" if it was recorded by a version that did not store it.
    source: str


class Links:
    """Links in place of volumes, each with the Pod that owns it."""

    def __init__(self, pods: Path) -> None:
        self._pods = pods
        self._links: dict[str, _Link] = {}
        for record in pods.glob("*/links"):
            for target, source in _read(record):
                self._links[target] = _Link(record.parent.name, source)

    def take(self, uid: str, source: str, target: str) -> None:
        """Create a link from `target` to `source` for a Pod. Raises LinkRefused."""
        link = self._links.get(target)
        if link is not None and link.uid != uid:
            raise LinkRefused(
                f"{target} is in use by another Pod, and this machine does not support mount "
                "namespaces"
            )
        if os.path.islink(target) and link is not None:
            if os.readlink(target) == source:
                return
            _unlink(target, link.source)
        if os.path.lexists(target):
            raise LinkRefused(
                f"{target} exists on this host, and without mount namespaces a volume cannot "
                "replace it for one Pod"
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
            raise LinkRefused(f"cannot create {target}: {error.strerror}") from error

    def release(self, uid: str) -> None:
        """Remove the links of a Pod that has ended."""
        targets = [target for target, link in self._links.items() if link.uid == uid]
        if not targets:
            return
        for target in targets:
            _unlink(target, self._links.pop(target).source)
        (self._pods / uid / "links").unlink(missing_ok=True)


def _read(record: Path) -> Iterator[tuple[str, str]]:
    """Yield targets and sources. Invalid lines, such as half a line after a crash, are skipped."""
    try:
        with open(
            open_regular(str(record), os.O_RDONLY), encoding="utf-8", errors="replace"
        ) as file:
            lines = file.read().splitlines()
    except OSError as error:
        log.warning("cannot read %s: %s", record, error)
        return
    for line in lines:
        if line.startswith("/"):
            # Earlier versions recorded only the path.
            yield line, ""
            continue
        try:
            yield msgspec.json.decode(line, type=tuple[str, str])
        except msgspec.DecodeError:
            log.warning("%s: skipped invalid entry: %.100r", record, line)


def _unlink(target: str, source: str) -> None:
    """Remove a link if it is still the one that we created."""
    try:
        parent = open_trusted(os.path.dirname(target))
    except OSError:
        # Its folder is deleted, or replaced by another user's link.
        return
    name = os.path.basename(target)
    try:
        if os.readlink(name, dir_fd=parent) == source or not source:
            os.unlink(name, dir_fd=parent)
    except OSError:
        # The link is deleted or replaced.
        return
    finally:
        os.close(parent)
