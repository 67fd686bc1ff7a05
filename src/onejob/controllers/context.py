"""Dependencies of a controller; `onejob.assembly.parts` creates one set per controller."""

from msgspec import Struct

from onejob.client.base import Client
from onejob.client.events import EventRecorder
from onejob.clock import Clock
from onejob.informers.shared import SharedInformers
from onejob.metrics import Metrics


class ControllerContext(Struct, frozen=True):
    client: Client
    #: Shared by all controllers, and started once every controller has registered its handlers.
    informers: SharedInformers
    #: Records Events with this controller as their source.
    recorder: EventRecorder
    clock: Clock
    metrics: Metrics
