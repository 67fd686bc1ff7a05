"""Feature gates: named switches, fixed at start."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files

#: Name -> default. The reasons for each default are in docs/reference/feature-gates.md.
DEFAULTS: Mapping[str, bool] = {
    "CronJobsNextScheduleTime": False,
    "GenericWorkload": False,
    "JobPodReplacementOnNodeMaintenance": False,
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
    "WorkloadWithJob": False,
}


class UnknownGate(ValueError):
    """A gate that does not exist or lacks one it requires, or a value that is not a boolean."""


@dataclass(frozen=True, slots=True)
class FeatureGates:
    overrides: Mapping[str, bool] = field(default_factory=dict)
    #: Gates of Kubernetes that were set and change nothing here.
    without_effect: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.overrides:
            if name not in DEFAULTS:
                known = ", ".join(sorted(DEFAULTS))
                raise UnknownGate(f"unknown feature gate {name!r}; known gates: {known}")
        if self.enabled("WorkloadWithJob") and not self.enabled("GenericWorkload"):
            raise UnknownGate("WorkloadWithJob=true requires GenericWorkload=true")

    def enabled(self, name: str) -> bool:
        return self.overrides.get(name, DEFAULTS[name])


def parse_gates(text: str) -> FeatureGates:
    """Parse `A=true,B=false`. Raises UnknownGate."""
    overrides: dict[str, bool] = {}
    without_effect: list[str] = []
    for item in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = item.partition("=")
        if not equals or value.lower() not in ("true", "false"):
            raise UnknownGate(f"{item!r} is not NAME=true or NAME=false")
        name = name.strip()
        if name not in DEFAULTS and name in kubernetes_gates():
            without_effect.append(name)
        else:
            overrides[name] = value.lower() == "true"
    return FeatureGates(overrides, tuple(without_effect))


def kubernetes_gates() -> frozenset[str]:
    """Return the names of all gates of the served release of Kubernetes."""
    lines = (files("onejob") / "kubernetes_gates.txt").read_text().splitlines()
    return frozenset(line for line in lines if not line.startswith("#"))


def note_without_effect(gates: FeatureGates) -> str:
    """Return one line about the gates that change nothing here; "" if there are none."""
    if not gates.without_effect:
        return ""
    return f"feature gates that change nothing here: {', '.join(gates.without_effect)}"
