"""Admission of Jobs with `onejob.dev/after`: pin what exists, and reject what can never start.

Pins are part of the write that creates the Job, so that a dependency cannot end and disappear
before it is pinned.
"""

from collections.abc import Mapping, Sequence

import msgspec

from onejob.api.strategy import Document
from onejob.objects.job import Job, read_job
from onejob.objects.meta import JOBS, Key
from onejob.planning.names import (
    AFTER_ANNOTATION,
    AFTER_HELD_ANNOTATION,
    AFTER_STATE_ANNOTATION,
)
from onejob.store.base import DamagedDocument, StagingStore
from onejob.wire.errors import Invalid
from onejob.wire.field_errors import FieldError, forbidden, invalid
from onejob.wire.kinds import Kind
from onejob.wire.requests import User

_OWN = (AFTER_STATE_ANNOTATION, AFTER_HELD_ANNOTATION)


class DependencyGuard:
    """Guard that runs before a Job is written.

    Raises Invalid for a cycle of dependencies, and for a change of the annotation. The decision
    about Jobs that exist is left to `planning/dependencies`, which is imported on use.
    """

    def __init__(self, store: StagingStore) -> None:
        self._store = store

    def __call__(
        self, user: User, kind: Kind, namespace: str, new: Document, old: Document | None
    ) -> None:
        after = new["metadata"].get("annotations")
        if old is not None:
            before = old["metadata"].get("annotations")
            if (after is None and before is None) or after is before:
                return
            self._refuse_change(kind, new, after or {}, before or {})
        elif after is not None:
            self._created(kind, namespace, new, after)

    def _refuse_change(
        self,
        kind: Kind,
        new: Document,
        after: Mapping[str, str],
        before: Mapping[str, str],
    ) -> None:
        wanted, present = after.get(AFTER_ANNOTATION), before.get(AFTER_ANNOTATION)
        if wanted is None or wanted == present:
            return
        why = "can be set only when the Job is created, and afterwards only be removed"
        raise _refused(kind, new, forbidden(_FIELD, why))

    def _created(
        self, kind: Kind, namespace: str, doc: Document, annotations: dict[str, str]
    ) -> None:
        for name in _OWN:
            # Of the manifest's original, if it is a copy of a Job.
            annotations.pop(name, None)
        text = annotations.get(AFTER_ANNOTATION)
        if text is None:
            return
        from onejob.planning.dependencies.annotation import parse_after
        from onejob.planning.dependencies.cycles import cycle_text, find_cycle
        from onejob.planning.dependencies.decision import Release, decide
        from onejob.planning.dependencies.state import State, observe

        metadata = doc["metadata"]
        own_name = metadata.get("name", "")
        # Valid: the strategy has checked it.
        after = parse_after(text, own_name)

        def edges(name: str) -> Sequence[str]:
            if name == own_name:
                return [dependency.name for dependency in after]
            return self._edges(namespace, name)

        if names := find_cycle(own_name, edges):
            why = f"dependencies form a cycle: {cycle_text(names)}"
            raise _refused(kind, doc, invalid(_FIELD, text, why))
        state = State(of=metadata["uid"])
        for dependency in after:
            state = observe(state, dependency.name, self._job(namespace, dependency.name))
        decision = decide(after, state, lambda name: self._job(namespace, name))
        if isinstance(decision, Release):
            state = msgspec.structs.replace(state, released=True)
        annotations[AFTER_STATE_ANNOTATION] = state.encode()

    def _edges(self, namespace: str, name: str) -> Sequence[str]:
        from onejob.planning.dependencies.annotation import InvalidAfter, parse_after
        from onejob.planning.dependencies.standing import waits_for_dependencies

        job = self._job(namespace, name)
        if job is None or not waits_for_dependencies(job):
            return ()
        try:
            after = parse_after(job.metadata.annotations[AFTER_ANNOTATION])
        except InvalidAfter:
            return ()
        return [dependency.name for dependency in after]

    def _job(self, namespace: str, name: str) -> Job | None:
        try:
            stored = self._store.newest(Key(JOBS, namespace, name))
        except DamagedDocument:
            return None
        return None if stored is None else read_job(stored.value)


_FIELD = f"metadata.annotations[{AFTER_ANNOTATION}]"


def _refused(kind: Kind, doc: Document, error: FieldError) -> Invalid:
    return Invalid(kind.kind, kind.group, doc["metadata"].get("name", ""), [error])
