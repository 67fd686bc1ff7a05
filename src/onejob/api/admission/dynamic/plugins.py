"""Interface between the write path and the plugins of dynamic admission."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from msgspec.structs import replace

from onejob.api.admission.dynamic.attributes import AdmissionRequest, Operation
from onejob.api.strategy import Document
from onejob.store.base import Change
from onejob.wire.kinds import Kind
from onejob.wire.requests import Target

#: Prunes a mutated object to its schema, checks its types and adds defaults. Raises ApiError.
Settle: TypeAlias = Callable[[Document], Document]


class Review:
    """Evaluation of one request in one phase, passed from plugin to plugin.

    In the mutating phase the whole sequence of plugins may run a second time (`reinvoking`), if a
    plugin set `must_reinvoke` in the first.
    """

    def __init__(self, request: AdmissionRequest, settle: Settle) -> None:
        #: The request with the current state of its object.
        self.request = request
        self._settle = settle
        self.warnings: list[str] = []
        #: Audit annotations by name.
        self.annotations: dict[str, str] = {}
        self.reinvoking = False
        self.must_reinvoke = False
        #: Values that plugins keep between the two runs, by name of the plugin.
        self.memory: dict[str, Any] = {}

    def replace_object(self, document: Document) -> bool:
        """Set the mutated object, with its defaults; return whether it differs from the current
        one."""
        settled = self._settle(document)
        if settled == self.request.object:
            return False
        self.request = replace(self.request, object=settled)
        return True


class DynamicPlugin(Protocol):
    """Admission policies or webhooks of one kind, in one phase.

    Configurations are read from staged writes, so a decision includes all writes before it.
    """

    #: Resources of the objects that configure the plugin.
    resources: frozenset[str]

    @property
    def active(self) -> bool:
        """Whether any configuration exists."""

    def staged(self, change: Change) -> None:
        """Handle a staged write of one of `resources`."""

    def reload(self) -> None:
        """Read all configurations from the store: after the start and after a rollback."""

    def concerns(self, operation: Operation, kind: Kind, subresource: str) -> bool:
        """Return whether any configuration may match; cheap, because it is called per write."""

    async def admit(self, review: Review) -> None:
        """Evaluate a request. Raises ApiError to reject it.

        A plugin of the mutating phase may call `Review.replace_object`.
        """


class Reviewer(Protocol):
    """Dynamic admission as the synchronous write path calls it: see `api.writing.reviewed`."""

    def mutated(
        self,
        operation: Operation,
        target: Target,
        document: Document | None,
        old: Document | None,
        settle: Settle,
    ) -> Document | None:
        """Return the mutated object, or None if it is unchanged. Raises ApiError."""

    def validated(
        self,
        operation: Operation,
        target: Target,
        document: Document | None,
        old: Document | None,
    ) -> None:
        """Raise ApiError if the object is rejected."""

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings of both phases."""
