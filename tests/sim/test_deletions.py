"""Check of deletions in the world of races, fed with single changes."""

from typing import Any

import msgspec
import pytest

from onejob.objects.meta import JOBS, Key
from onejob.planning.ownership import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from sim.checks.problems import Problems
from sim.clients.log import Entry, ServerLog
from sim.racing.deletions import OWNERS, DeletionCheck
from sim.racing.users import CONFIG_MAPS

JOB = Key(JOBS, "default", "owner")
DEPENDENT = Key(CONFIG_MAPS, "default", "dependent")
OWNED = {
    "ownerReferences": [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "owner", "uid": "owner-uid"}
    ]
}


class Changes:
    """Log with one owner and one dependent, and the names of the violated checks."""

    def __init__(self) -> None:
        self._log = ServerLog()
        self._check = DeletionCheck(Problems(), self._log)
        # A user deleted the owner, with one propagation policy after the other.
        self._check.unwanted.add("owner-uid")
        self._check.mind_changed.add("owner-uid")

    @property
    def violated(self) -> list[str]:
        return [problem.check for problem in self._check.problems.found]

    def owner(self, at: float, *finalizers: str) -> None:
        deleting: dict[str, Any] = {}
        if finalizers:
            deleting["deletionTimestamp"] = "2026-01-01T12:00:00Z"
        self._change(JOB, at, finalizers=finalizers, **deleting)

    def dependent(self, at: float, *, gone: bool = False) -> None:
        self._change(DEPENDENT, at, gone=gone, **OWNED)

    def _change(self, key: Key, at: float, *, gone: bool = False, **metadata: Any) -> None:
        uid = f"{key.name}-uid"
        named = {"name": key.name, "namespace": "default", "uid": uid}
        document = msgspec.json.encode({"metadata": named | metadata})
        for call in self._log.on_entry:
            call(key, Entry(at, 1, uid, document, gone, quiet=False))


def test_dependent_may_go_if_its_owner_was_in_foreground_deletion_when_it_was_read() -> None:
    changes = Changes()
    changes.owner(0.0)
    changes.owner(50.0, FOREGROUND_FINALIZER)
    changes.dependent(100.0)
    # The garbage collector reads the owner here, and a user changes the propagation policy before
    # the deletion of the dependent is stored.
    changes.owner(100.0, ORPHAN_FINALIZER)
    changes.dependent(100.0, gone=True)
    assert changes.violated == []


@pytest.mark.parametrize("foreground", [True, False])
def test_dependent_stays_if_its_owner_is_not_in_foreground_deletion(foreground: bool) -> None:
    changes = Changes()
    changes.owner(0.0)
    if foreground:
        changes.owner(50.0, FOREGROUND_FINALIZER)
    changes.owner(80.0, ORPHAN_FINALIZER)
    changes.dependent(100.0)
    changes.dependent(101.0, gone=True)
    assert changes.violated == [OWNERS]
