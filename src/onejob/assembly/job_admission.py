"""What may hold a Job back: its dependencies and the queue."""

from functools import partial

from onejob.assembly.parts import Parts
from onejob.controllers.queueing.controller import QueueController
from onejob.controllers.selection import JOB, QUEUE
from onejob.controllers.start_gates import AllGates, DependencyGate, StartGate
from onejob.planning.job.operator_settings import Settings as JobSettings
from onejob.planning.job.operator_settings import is_ours


def job_settings(parts: Parts) -> JobSettings:
    return JobSettings.under(
        parts.settings.gates,
        tracking_finalizer=parts.settings.tracking_finalizer,
        default_failed_pods_limit=parts.settings.default_failed_pods_limit,
    )


def add_start_gates(parts: Parts) -> StartGate:
    """Return the gate of the Job controller, and run what opens it.

    To be called before the Job controller is made: it must see the changes after its gates do.
    """
    runs_here = partial(is_ours, settings=job_settings(parts))
    service = parts.service
    dependencies = DependencyGate(
        parts.controller_context(JOB),
        is_ours=runs_here,
        recorded_end=lambda *job: service.history.end_of(*job),
    )

    def answer_from_now_on() -> None:
        service.awaits_end = dependencies.awaits

    # Not earlier: with incomplete caches it does not know of all waiting Jobs.
    parts.on_begin(answer_from_now_on)
    gates: list[StartGate] = [dependencies]
    parts.controllers.add(dependencies.run())
    if QUEUE in parts.settings.controllers:
        queue = QueueController(
            parts.controller_context(QUEUE),
            # A Job enters the queue once its dependencies are met.
            is_ours=lambda job: runs_here(job) and not dependencies.waits(job),
        )
        gates.append(queue)
        parts.controllers.add(queue.run())
    return AllGates(gates)
