"""Sequence of the dynamic admission plugins of one server."""

from collections.abc import Callable, Sequence

import msgspec

from onejob.api.admission.dynamic.attributes import AdmissionRequest, Operation, is_exempt
from onejob.api.admission.dynamic.plugins import DynamicPlugin, Review, Settle
from onejob.api.audit_notes import note
from onejob.api.strategy import Document
from onejob.store.base import Change
from onejob.wire.errors import ApiError
from onejob.wire.kinds import Kind


class Verdict(msgspec.Struct, frozen=True):
    """Result of one phase that did not reject the request."""

    #: The mutated object; None if no plugin changed it.
    object: Document | None
    warnings: tuple[str, ...]


class DynamicAdmission:
    """Plugins in the order in which they run: policies before webhooks in each phase."""

    def __init__(self) -> None:
        self._mutating: Sequence[DynamicPlugin] = ()
        self._validating: Sequence[DynamicPlugin] = ()
        #: Installs all plugins; None once it was called.
        self._provide: Callable[[], None] | None = None
        #: Whether any configuration exists. All that a write costs without one is this check.
        self.active = False

    def provide(self, install: Callable[[], None]) -> None:
        """Set the function that installs all plugins.

        It is called with the first configuration, because most servers have none.
        """
        self._provide = install

    def install_now(self) -> None:
        """Install the plugins, unless that has been done."""
        provide, self._provide = self._provide, None
        if provide is not None:
            provide()

    def install(
        self, mutating: Sequence[DynamicPlugin], validating: Sequence[DynamicPlugin]
    ) -> None:
        """Add plugins behind those of their phase, and read their configurations."""
        self._mutating = (*self._mutating, *mutating)
        self._validating = (*self._validating, *validating)
        self.reload()

    def staged(self, change: Change) -> None:
        """Handle a staged write of any configuration."""
        self.install_now()
        for plugin in self._plugins():
            if change.key.resource in plugin.resources:
                plugin.staged(change)
        self._update()

    def reload(self) -> None:
        """Have all plugins reload their configuration."""
        for plugin in self._plugins():
            plugin.reload()
        self._update()

    def concerns(self, operation: Operation, kind: Kind, subresource: str = "") -> bool:
        """Return whether a write has to be evaluated."""
        return not is_exempt(kind) and any(
            plugin.concerns(operation, kind, subresource) for plugin in self._plugins()
        )

    async def mutate(self, request: AdmissionRequest, settle: Settle) -> Verdict:
        """Run the mutating phase; twice, if a plugin requires it. Raises ApiError."""
        review = Review(request, settle)
        await _run(self._mutating, review)
        if review.must_reinvoke:
            review.reinvoking = True
            await _run(self._mutating, review)
        changed = review.request.object is not request.object
        return Verdict(review.request.object if changed else None, tuple(review.warnings))

    async def validate(self, request: AdmissionRequest) -> Verdict:
        """Run the validating phase. Raises ApiError."""
        review = Review(request, _unchanged)
        await _run(self._validating, review)
        return Verdict(None, tuple(review.warnings))

    def _plugins(self) -> Sequence[DynamicPlugin]:
        """Return all plugins in the order of their calls."""
        return (*self._mutating, *self._validating)

    def _update(self) -> None:
        """Note whether any plugin is active."""
        self.active = any(plugin.active for plugin in self._plugins())


async def _run(plugins: Sequence[DynamicPlugin], review: Review) -> None:
    """Have all active plugins admit the review in turn; their annotations go to the audit log.

    Raises the error of the first plugin that rejects it.
    """
    for plugin in plugins:
        if plugin.active:
            try:
                await plugin.admit(review)
            except ApiError as error:
                error.warnings = (*review.warnings, *error.warnings)
                raise
            finally:
                for name, text in review.annotations.items():
                    note(name, text)


def _unchanged(document: Document) -> Document:
    """Return the document itself."""
    return document
