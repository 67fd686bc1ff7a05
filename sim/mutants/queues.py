"""Mutants of the queue of Jobs and of CronJobs."""

from collections.abc import Mapping

from onejob.controllers.queueing.controller import QueueController
from onejob.planning.cronjob import planner
from onejob.planning.queue import order
from onejob.planning.queue.order import JobQueue
from sim.mutants.planting import Plant, edit

QUEUE: Mapping[str, Plant] = {
    "slot leaked by a change of queue": edit(
        JobQueue.put_running, ("self.drop(uid)", "self._waiting.pop(uid, None)")
    ),
    "slot of a finished Job kept": edit(QueueController._forget, ("self._line.drop(uid)", "pass")),
    "slot kept after a refused release": edit(
        QueueController._write_batch, ("self._line.drop(uid)", "pass")
    ),
    "changed limits ignored": edit(
        QueueController._read_limits, ("if limits != self._limits:", "if not self._limits:")
    ),
    "order of the queue reversed": edit(
        order.rank, ("Rank(-priority, entered)", "Rank(-priority, -entered)")
    ),
    "priority ignored": edit(order.rank, ("Rank(-priority, entered)", "Rank(0, entered)")),
}
CRONJOBS: Mapping[str, Plant] = {
    "last slot started again": edit(
        planner._obstacle, ("status.last_schedule_time == slot or", "")
    ),
    "known Job recorded as active again": edit(
        planner.settle, ("or job.metadata.uid in update.uids()", "")
    ),
    "namesake recorded as the CronJob's own": edit(
        planner.settle, ("not controls(plan.current.cronjob, job) or", "")
    ),
}
MUTANTS: Mapping[str, Plant] = {**QUEUE, **CRONJOBS}
