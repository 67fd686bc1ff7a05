"""Feature gates that change between successive processes of the control plane."""

from collections.abc import Mapping, Sequence
from random import Random

from onejob.gates import FeatureGates

#: Fraction of worlds that change feature gates.
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
    """Source of the feature gates of each process in a world."""

    def __init__(self, seed: int, switched: bool | None = None) -> None:
        """Draw whether this world changes gates, unless `switched` decides it."""
        self._rng = Random(f"{seed} gates")
        drawn = self._rng.random() < _SHARE
        self.switched = drawn if switched is None else switched

    def draw(self, *, calm: bool) -> FeatureGates:
        """Return the gates of the next process: all defaults once the world is `calm`."""
        if not self.switched or calm:
            return FeatureGates()
        return FeatureGates(self._rng.choice(_SWITCHED))
