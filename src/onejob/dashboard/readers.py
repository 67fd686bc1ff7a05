"""What the dashboard computes of the objects of a server, or of a kept run."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from onejob.api.sessions.pod_streams import LogSource
from onejob.api.usage import UsageSource
from onejob.client.base import Client
from onejob.clock import Clock
from onejob.dashboard.causes import Causes
from onejob.dashboard.queues import Queues
from onejob.dashboard.results import Results
from onejob.dashboard.summaries import Summaries
from onejob.dashboard.usage_history import UsageHistory
from onejob.diagnosis.ended import Ended
from onejob.informers.cache import Cache
from onejob.objects.pod import Pod
from onejob.planning.history import PodRecord
from onejob.planning.progress import PodProgress
from onejob.store.base import Store


@dataclass(frozen=True, slots=True)
class Readers:
    """Summaries of objects, each reused for a moment."""

    summaries: Summaries
    queues: Queues
    causes: Causes
    results: Results
    usage: UsageHistory


def readers_of(
    client: Client,
    store: Store,
    pods: Cache[Pod],
    clock: Clock,
    local_zone: str,
    *,
    logs: LogSource | None,
    usage: UsageSource | None = None,
    deleted_pods: Callable[[str, str], Sequence[PodRecord]] = lambda namespace, uid: (),
    progress: Callable[[str, str], Awaitable[Sequence[PodProgress]]] | None = None,
    ended: Ended | None = None,
) -> Readers:
    """Return the readers; the parameters are those of `Summaries` and `UsageHistory`."""
    summaries = Summaries(
        client,
        store,
        pods,
        clock,
        local_zone,
        deleted_pods=deleted_pods,
        progress=progress,
        ended=ended,
    )
    return Readers(
        summaries,
        Queues(client, clock),
        Causes(client, summaries, logs),
        Results(client, store, clock),
        UsageHistory(usage, pods, clock),
    )
