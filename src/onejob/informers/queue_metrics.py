"""Work queue metrics, under the names that Kubernetes' controllers use."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from onejob.informers.workqueue import WorkQueue
from onejob.metrics import Metrics, Queue, QueueName

Queues = Mapping[QueueName, WorkQueue[Any]]


def export_queues(metrics: Metrics, queues: Callable[[], Iterable[Queues]]) -> None:
    """Register depth, adds and retries of work queues as metrics.

    `queues` is called at each scrape. Figures of queues with the same name are added up.
    """

    def total(figure: Callable[[WorkQueue[Any]], int]) -> Mapping[Queue, int]:
        found: Counter[Queue] = Counter()
        for named in queues():
            for name, queue in named.items():
                found[Queue(name=name)] += figure(queue)
        return found

    metrics.queue_depth.read_each(lambda: total(len))
    metrics.queue_adds.read_each(lambda: total(lambda queue: queue.adds))
    metrics.queue_retries.read_each(lambda: total(lambda queue: queue.retries))
