"""Simulation of one seed: the world of the control plane, with users of workflows."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random

from onejob.controllers import workflow as controller
from sim.checks.problems import Problems
from sim.workflows.check import WorkflowCheck
from sim.workflows.users import WorkflowUsers
from sim.world import Verdict, simulate_with


def simulate(seed: int, often: Collection[str] = ()) -> Verdict:
    """Simulate the world of a seed and return the verdict."""
    with _drawn_delay(seed) as long:
        if long:
            often = {*often, "crash after a commit"}
        verdict = simulate_with(seed, often, WorkflowUsers)
    problems = Problems(dict.fromkeys(verdict.problems))
    WorkflowCheck(problems).check(verdict.versions)
    return replace(verdict, problems=tuple(problems.found))


@contextmanager
def _drawn_delay(seed: int) -> Iterator[bool]:
    """Draw the size of workflows whose statuses are held back, and for how long; yield if long.

    Simulated workflows are small; users and crashes rarely hit a fifth of a second.
    """
    rng = Random(f"{seed} delay")
    usual = controller.MANY_TASKS, controller.BATCH_SECONDS
    if rng.random() < 0.5:
        controller.MANY_TASKS = 1
        controller.BATCH_SECONDS = rng.choice((0.2, 20.0, 20.0))
    try:
        yield usual[1] < controller.BATCH_SECONDS
    finally:
        controller.MANY_TASKS, controller.BATCH_SECONDS = usual
