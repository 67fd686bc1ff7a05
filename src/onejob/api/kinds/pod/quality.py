"""Quality of Service class of a Pod, from its requests and limits."""

from collections.abc import Mapping
from typing import Any, Final

from onejob.wire.quantity import parse_quantity

_COUNTED: Final = ("cpu", "memory")


def quality_of_service(spec: Mapping[str, Any]) -> str:
    anything = False
    guaranteed = True
    for field in ("containers", "initContainers"):
        for container in spec.get(field, ()):
            resources = container.get("resources")
            if not resources:
                guaranteed = False
                continue
            requests = _amounts(resources.get("requests", {}))
            limits = _amounts(resources.get("limits", {}))
            anything = anything or bool(requests or limits)
            guaranteed = guaranteed and len(limits) == len(_COUNTED) and requests == limits
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _amounts(resources: Mapping[str, Any]) -> dict[str, int]:
    amounts = {
        name: parse_quantity(resources[name]).nanos for name in _COUNTED if name in resources
    }
    return {name: amount for name, amount in amounts.items() if amount > 0}
