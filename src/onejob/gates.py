"""Feature gates: named switches, fixed at start."""

from collections.abc import Mapping
from dataclasses import dataclass, field

#: Name -> default. The reasons for each default are in docs/reference/feature-gates.md.
DEFAULTS: Mapping[str, bool] = {
    "JobTrackingWithFinalizers": True,
    "JobTrackingAnnotation": False,
    "JobManagedBy": True,
    "JobLifecycleEvents": True,
    "JobOriginalStatusFields": False,
    "JobManagedByColumn": False,
    "MutablePodResourcesForSuspendedJobs": True,
    "MutableSchedulingDirectivesForSuspendedJobs": True,
    "TTLAfterFinished": True,
    "TTLAfterFinishedPods": True,
}


class UnknownGate(ValueError):
    """The name of a gate that does not exist, or a value that is not a boolean."""


@dataclass(frozen=True, slots=True)
class FeatureGates:
    overrides: Mapping[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.overrides:
            if name not in DEFAULTS:
                known = ", ".join(sorted(DEFAULTS))
                raise UnknownGate(f"unknown feature gate {name!r}; known gates: {known}")

    def enabled(self, name: str) -> bool:
        return self.overrides.get(name, DEFAULTS[name])


def parse_gates(text: str) -> FeatureGates:
    """Parse `A=true,B=false`. Raises UnknownGate."""
    overrides: dict[str, bool] = {}
    for item in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = item.partition("=")
        if not equals or value.lower() not in ("true", "false"):
            raise UnknownGate(f"{item!r} is not NAME=true or NAME=false")
        overrides[name.strip()] = value.lower() == "true"
    return FeatureGates(overrides)
