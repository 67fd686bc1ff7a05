"""Work queue metrics, under the names that Kubernetes' controllers use."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from onejob.informers.workqueue import WorkQueue
from onejob.metrics import Metrics

Queues = Mapping[str, WorkQueue[Any]]


def export_queues(metrics: Metrics, queues: Callable[[], Iterable[Queues]]) -> None:
    """Register depth, adds and retries of work queues as metrics.

    `queues` is called at each scrape. Figures of queues with the same name are added up.
    """

    def export(name: str, figure: Callable[[WorkQueue[Any]], int]) -> None:
        def read() -> Mapping[tuple[str, ...], float]:
            found: Counter[tuple[str, ...]] = Counter()
            for named in queues():
                for label, queue in named.items():
                    found[(label,)] += figure(queue)
            return found

        metrics.read(name, read)

    export("workqueue_depth", len)
    export("workqueue_adds_total", lambda queue: queue.adds)
    export("workqueue_retries_total", lambda queue: queue.retries)
