"""Flow control stage: share the server's capacity fairly between users (see `fairness`)."""

from onejob.api.access.authentication import ANONYMOUS, fairness_principal
from onejob.api.http.fairness import FairQueue
from onejob.api.http.progress import Progress
from onejob.api.http.routing import RequestPath
from onejob.api.yielding import REQUESTER
from onejob.metrics import Metrics
from onejob.wire.requests import User


class FlowControl:
    """Holds a seat of the fair queue for each request from `enter` to `leave`.

    Public pages need no seat, so that health checks succeed on a busy server.
    """

    def __init__(self, seats: FairQueue, metrics: Metrics) -> None:
        self.seats = seats
        metrics.requests_waited.read(lambda: self.seats.waited)
        metrics.requests_refused.read(lambda: self.seats.refused)

    async def enter(self, progress: Progress, path: RequestPath, user: User) -> None:
        """Wait for a seat if the path needs one. Raises TooManyRequests if the queue is full."""
        if path.is_public and (user is ANONYMOUS or not path.is_dashboard_api):
            return
        holder = fairness_principal(user.name)
        if not self.seats.enter_at_once(holder):
            await self.seats.wait(holder)
        progress.seat = holder
        REQUESTER.set(holder)

    def leave(self, progress: Progress) -> None:
        """Release the seat that the request holds."""
        self.seats.leave(progress.seat)
        progress.seat = ""
