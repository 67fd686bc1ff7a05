"""Simulation of one seed: the world of the control plane, with users of workflows."""

from collections.abc import Collection
from dataclasses import replace

from sim.checks.problems import Problems
from sim.workflows.check import WorkflowCheck
from sim.workflows.users import WorkflowUsers
from sim.world import Verdict, simulate_with


def simulate(seed: int, often: Collection[str] = ()) -> Verdict:
    """Simulate the world of a seed and return the verdict."""
    verdict = simulate_with(seed, often, WorkflowUsers)
    problems = Problems(dict.fromkeys(verdict.problems))
    WorkflowCheck(problems).check(verdict.versions)
    return replace(verdict, problems=tuple(problems.found))
