"""Feature gates that differ from one process of the control plane to the next."""

from collections.abc import Mapping, Sequence
from random import Random

from onejob.gates import FeatureGates

#: How many of the worlds switch any.
_SHARE = 0.1
_SWITCHED: Sequence[Mapping[str, bool]] = (
    {},
    {"JobTrackingWithFinalizers": False},
    {"JobTrackingWithFinalizers": False},
    {"JobTrackingAnnotation": True},
    {"JobTrackingAnnotation": True, "JobTrackingWithFinalizers": False},
    {"JobManagedBy": False},
    {"JobManagedBy": False, "JobTrackingWithFinalizers": False},
    {"TTLAfterFinished": False, "TTLAfterFinishedPods": False},
    {"MutableSchedulingDirectivesForSuspendedJobs": False},
)


class Gates:
    def __init__(self, seed: int, switched: bool | None = None) -> None:
        """`switched` says whether any are; otherwise that is drawn."""
        self._rng = Random(f"{seed} gates")
        drawn = self._rng.random() < _SHARE
        self.switched = drawn if switched is None else switched

    def draw(self, *, calm: bool) -> FeatureGates:
        """Those of the next process; none is switched once all is `calm`."""
        if not self.switched or calm:
            return FeatureGates()
        return FeatureGates(self._rng.choice(_SWITCHED))
