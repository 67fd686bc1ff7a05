"""Writes under dynamic admission: evaluate without holding the store, verify, stage.

Policies and webhooks are asynchronous, and `Writes` is not. A write is therefore rehearsed
(`rehearsal`): it runs against the objects as they are, and ends at the first point at which
admission has to decide. That decision is awaited, and the write runs again with it, from the same
objects, random numbers and time, up to the next such point. Once all decisions are known, the
write is staged if the objects that it read are unchanged; otherwise everything is evaluated again,
as upstream does. Nothing is held in the meantime, so no other request waits.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from random import Random

from msgspec.structs import replace

from onejob.api.admission.dynamic.attributes import AdmissionRequest, Operation, Requester
from onejob.api.admission.dynamic.chain import DynamicAdmission, Verdict
from onejob.api.admission.dynamic.plugins import Settle
from onejob.api.documents import deep_copy
from onejob.api.strategy import Document
from onejob.api.writing.writes import Writes
from onejob.clock import Clock
from onejob.wire.errors import ApiError
from onejob.wire.requests import Outcome, Target


class _Undecided(Exception):
    """A decision of dynamic admission is required."""

    def __init__(self, request: AdmissionRequest, settle: Settle | None) -> None:
        super().__init__("dynamic admission has to decide")
        self.request = request
        #: None in the validating phase.
        self.settle = settle


class _Decisions:
    """The `Reviewer` of one rehearsed write: repeats known decisions, and asks for the next."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester
        self._known: list[Verdict] = []
        self._next = 0

    def rewind(self) -> None:
        """Start again with the first decision, for another run of the write."""
        self._next = 0

    def add(self, verdict: Verdict) -> None:
        """Record the decision that the last run lacked."""
        self._known.append(verdict)

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings of all decisions."""
        return [warning for verdict in self._known for warning in verdict.warnings]

    def mutated(
        self,
        operation: Operation,
        target: Target,
        document: Document | None,
        old: Document | None,
        settle: Settle,
    ) -> Document | None:
        found = self._decision(operation, target, document, old, settle).object
        # The write may modify it, and a later run needs it again.
        return None if found is None else deep_copy(found)

    def validated(
        self,
        operation: Operation,
        target: Target,
        document: Document | None,
        old: Document | None,
    ) -> None:
        self._decision(operation, target, document, old, None)

    def _decision(
        self,
        operation: Operation,
        target: Target,
        document: Document | None,
        old: Document | None,
        settle: Settle | None,
    ) -> Verdict:
        """Return the next decision. Raises _Undecided if it is not recorded yet."""
        if self._next == len(self._known):
            raise _Undecided(
                admission_request(operation, target, document, old, self._requester), settle
            )
        verdict = self._known[self._next]
        self._next += 1
        return verdict


class _FixedClock:
    """Clock that stands still during one evaluation."""

    def __init__(self, clock: Clock) -> None:
        self._now = clock.now()
        self.monotonic = clock.monotonic

    def now(self) -> datetime:
        return self._now


def admission_request(
    operation: Operation,
    target: Target,
    document: Document | None,
    old: Document | None,
    requester: Requester,
) -> AdmissionRequest:
    deletion = requester.deletion
    return AdmissionRequest(
        operation,
        target.kind,
        target.namespace,
        "" if deletion is not None and deletion.collective else target.name,
        requester.user,
        target.subresource,
        document,
        old,
        requester.options(operation),
        requester.dry_run,
        requester.requested,
    )


async def evaluated(
    writes: Writes,
    dynamic: DynamicAdmission,
    requester: Requester,
    run: Callable[[Writes], Awaitable[Outcome]],
) -> Outcome:
    """Run a write until all decisions of dynamic admission are known, and return its outcome.

    `writes` must be a rehearsal. Raises ApiError of the write, or of a policy or webhook.
    """
    decisions = _Decisions(requester)
    seed = writes.rng.getrandbits(64)
    clock = _FixedClock(writes.clock)
    while True:
        decisions.rewind()
        alone = replace(writes, reviewer=decisions, rng=Random(seed), clock=clock)
        try:
            try:
                outcome = await run(alone)
            except _Undecided as undecided:
                request, settle = undecided.request, undecided.settle
                if settle is None:
                    decisions.add(await dynamic.validate(request))
                else:
                    decisions.add(await dynamic.mutate(request, settle))
                continue
        except ApiError as error:
            error.warnings = (*decisions.warnings, *error.warnings)
            raise
        else:
            return replace(outcome, warnings=(*outcome.warnings, *decisions.warnings))


async def admitted_body(
    dynamic: DynamicAdmission,
    requester: Requester,
    operation: Operation,
    target: Target,
    body: Document,
    old: Document | None = None,
) -> tuple[Document, tuple[str, ...]]:
    """Evaluate a request to a subresource whose body is not stored, such as an eviction.

    Returns the body, mutated or not, and warnings. Raises ApiError.
    """
    request = admission_request(operation, target, body, old, requester)
    mutated = await dynamic.mutate(request, lambda document: document)
    if mutated.object is not None:
        request = replace(request, object=mutated.object)
    validated = await dynamic.validate(request)
    assert request.object is not None, "a mutation never removes the body"
    return request.object, (*mutated.warnings, *validated.warnings)
