"""Where there are no mount namespaces: a volume reached through a link at its mountPath.

A link is there for the whole host, so only one Pod at a time can have one at a path, and only
where nothing is yet. Links are written down next to the Pod's other files, so that those of a
node that died are found and removed.
"""

import os
from pathlib import Path


class LinkRefused(Exception):
    """The mountPath cannot be had now; the text says why."""


class Links:
    def __init__(self, pods: Path) -> None:
        self._pods = pods
        self._owners: dict[str, str] = {}
        for record in pods.glob("*/links"):
            for target in record.read_text().splitlines():
                self._owners[target] = record.parent.name

    def take(self, uid: str, source: str, target: str) -> None:
        owner = self._owners.get(target)
        if owner not in (None, uid):
            raise LinkRefused(
                f"{target} is in use by another Pod, and this machine has no mount namespaces "
                "to give each its own"
            )
        if os.path.islink(target) and owner == uid:
            if os.readlink(target) == source:
                return
            os.unlink(target)
        if os.path.lexists(target):
            raise LinkRefused(
                f"{target} exists on this host, and without mount namespaces a volume cannot "
                "take its place for one Pod alone"
            )
        record = self._pods / uid / "links"
        record.parent.mkdir(parents=True, exist_ok=True)
        with open(record, "a") as file:
            file.write(target + "\n")
        self._owners[target] = uid
        try:
            os.symlink(source, target)
        except OSError as error:
            raise LinkRefused(f"{target} cannot be made: {error.strerror}") from error

    def give_back(self, uid: str) -> None:
        """Remove the links of a Pod that is over."""
        targets = [target for target, owner in self._owners.items() if owner == uid]
        if not targets:
            return
        for target in targets:
            del self._owners[target]
            if os.path.islink(target):
                os.unlink(target)
        (self._pods / uid / "links").unlink(missing_ok=True)
