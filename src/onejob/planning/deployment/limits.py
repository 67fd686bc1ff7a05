"""How far a roll-out may deviate from the number of replicas."""

import math
from typing import Final

from onejob.objects.deployment import Deployment, Share

RECREATE: Final = "Recreate"


def limits(deployment: Deployment) -> tuple[int, int]:
    """Return the Pods allowed beyond the replicas, and the replicas allowed to be unavailable."""
    spec = deployment.spec
    if spec.strategy.type == RECREATE:
        return 0, 0
    update = spec.strategy.rolling_update
    surge = _share(update.max_surge, spec.replicas, up=True)
    unavailable = _share(update.max_unavailable, spec.replicas, up=False)
    if not surge and not unavailable:
        # Percentages of few replicas may both be rounded to 0: then nothing would ever change.
        unavailable = 1
    return surge, min(unavailable, spec.replicas)


def _share(share: Share, whole: int, *, up: bool) -> int:
    if isinstance(share, int):
        return share
    exact = int(share.removesuffix("%")) * whole / 100
    return math.ceil(exact) if up else math.floor(exact)
