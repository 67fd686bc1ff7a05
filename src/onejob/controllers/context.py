"""What every controller is built with; `onejob.server` makes one per controller."""

from msgspec import Struct

from onejob.client.base import Client
from onejob.client.events import EventRecorder
from onejob.clock import Clock
from onejob.informers.shared import SharedInformers
from onejob.metrics import Metrics


class ControllerContext(Struct, frozen=True):
    client: Client
    #: Shared by all controllers, and started once all have asked for what they follow.
    informers: SharedInformers
    #: Records Events with this controller as their source.
    recorder: EventRecorder
    clock: Clock
    metrics: Metrics
