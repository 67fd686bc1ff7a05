"""What a controller works with: given to it once, by whoever composes the server."""

from dataclasses import dataclass

from onejob.client.base import Client
from onejob.client.events import EventRecorder
from onejob.clock import Clock
from onejob.informers.shared import SharedInformers
from onejob.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Surroundings:
    client: Client
    #: Shared by all controllers, and started once all have asked for what they follow.
    informers: SharedInformers
    #: Speaks in this controller's name.
    recorder: EventRecorder
    clock: Clock
    metrics: Metrics
