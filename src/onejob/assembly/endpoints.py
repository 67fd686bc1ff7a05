"""Controller of Endpoints and EndpointSlices, imported with the first Service that selects Pods."""

from typing import TYPE_CHECKING, Any

from onejob.assembly.parts import Controller, Parts
from onejob.controllers.on_demand import OnDemand
from onejob.controllers.selection import ENDPOINTS

if TYPE_CHECKING:
    from onejob.controllers.endpoints.controller import EndpointsController


def endpoints_controller(parts: Parts) -> Controller:
    context = parts.controller_context(ENDPOINTS)

    def make() -> "EndpointsController":
        from onejob.controllers.endpoints.controller import EndpointsController

        return EndpointsController(context)

    return OnDemand(parts.informers.services, make, _selects_pods)


def _selects_pods(view: Any) -> bool:
    return bool(view.selects_pods)
