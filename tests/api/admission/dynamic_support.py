"""Dynamic admission plugin whose decisions a test provides."""

from collections.abc import Awaitable, Callable

from onejob.api.admission.dynamic.attributes import AdmissionRequest, Operation
from onejob.api.admission.dynamic.plugins import Review
from onejob.api.service import Service
from onejob.store.base import Change
from onejob.wire.kinds import Kind


class Plugin:
    """Plugin that records its requests and calls `decide` for each."""

    resources: frozenset[str] = frozenset()
    active = True

    def __init__(
        self,
        decide: Callable[[Review], Awaitable[None]],
        concerns: Callable[[Operation, Kind, str], bool] = lambda *_: True,
    ) -> None:
        self._decide = decide
        self.concerns = concerns
        self.requests: list[AdmissionRequest] = []

    def staged(self, change: Change) -> None:
        """Do nothing: this plugin is not configured by objects."""

    def reload(self) -> None:
        """Do nothing: this plugin is not configured by objects."""

    async def admit(self, review: Review) -> None:
        self.requests.append(review.request)
        await self._decide(review)


async def accept(review: Review) -> None:
    """Admit everything."""


def install(service: Service, *, mutating: Plugin | None, validating: Plugin | None) -> None:
    service.admission.dynamic.install(
        () if mutating is None else (mutating,), () if validating is None else (validating,)
    )
