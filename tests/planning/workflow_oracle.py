"""What a workflow does, written from its specification and not from the planner.

Tasks are Complete, Failed or Skipped in the end. The oracle knows in advance how each Job would end
(`outcomes`), whose `when` is false, and in which order running Jobs end (`rank`: the lowest first).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

COMPLETE, FAILED, SKIPPED = "Complete", "Failed", "Skipped"


@dataclass(frozen=True)
class OracleTask:
    name: str
    #: Name and condition: Complete, Failed or Finished.
    edges: Sequence[tuple[str, str]] = ()
    #: Names of the tasks whose result "r" it reads; they write it unless told otherwise.
    reads: Collection[str] = ()


@dataclass(frozen=True)
class Case:
    tasks: Sequence[OracleTask]
    finals: Sequence[OracleTask] = ()
    #: Complete or Failed, by task; Complete if absent.
    outcomes: Mapping[str, str] = field(default_factory=dict)
    when_false: Collection[str] = ()
    #: Tasks that complete without writing their result, and those whose result has a default.
    silent: Collection[str] = ()
    with_default: Collection[str] = ()
    rank: Mapping[str, int] = field(default_factory=dict)
    parallelism: int = 10**9
    #: The deadline passes when this many Jobs have ended; running tasks fail then.
    deadline_after: int | None = None


@dataclass
class Result:
    ends: dict[str, str]
    succeeded: bool
    started: list[str]


def run(case: Case) -> Result:
    ends: dict[str, str] = {}
    on_purpose: set[str] = set()
    running: list[str] = []
    started: list[str] = []
    awaited = {name for task in case.tasks for name, condition in task.edges
               if condition != "Complete"}  # fmt: skip
    finals = {task.name for task in case.finals}
    failing = False
    jobs_ended = 0

    def edge(name: str, condition: str) -> bool | None:
        """Return whether the edge is satisfied; None if that is not decided yet."""
        end = ends.get(name)
        if end is None:
            return None
        if end == SKIPPED:
            return name in on_purpose and condition != "Failed"
        return condition == "Finished" or condition == end

    def missing(task: OracleTask) -> bool:
        return any(
            name not in case.with_default and (ends[name] != COMPLETE or name in case.silent)
            for name in task.reads
        )

    def settle(tasks: Sequence[OracleTask], *, final: bool) -> None:
        """Decide all that needs no Job; then a failure takes effect; then start Jobs."""
        nonlocal failing
        stopping = failing and not final
        changed = True
        while changed:
            changed = False
            ready = []
            for task in tasks:
                if task.name in ends or task.name in running:
                    continue
                edges = [edge(*each) for each in task.edges]
                if False in edges or stopping:
                    ends[task.name] = SKIPPED
                elif None in edges:
                    continue
                elif task.name in case.when_false:
                    ends[task.name] = SKIPPED
                    on_purpose.add(task.name)
                elif missing(task):
                    ends[task.name] = FAILED
                    failing = failing or (not final and task.name not in awaited)
                else:
                    ready.append(task.name)
                    continue
                changed = True
        if failing and not final and not stopping:
            settle(tasks, final=False)
            return
        new = ready[: max(case.parallelism - len(running), 0)]
        running.extend(new)
        started.extend(new)

    def end_one() -> None:
        nonlocal failing, jobs_ended
        name = min(running, key=lambda each: case.rank.get(each, 0))
        running.remove(name)
        ends[name] = case.outcomes.get(name, COMPLETE)
        jobs_ended += 1
        if ends[name] == FAILED and name not in awaited and name not in finals:
            failing = True

    settle(case.tasks, final=False)
    while running:
        if jobs_ended == case.deadline_after:
            # All running tasks are ended, and fail, handled or not.
            failing = True
            for name in running:
                ends[name] = FAILED
            running.clear()
        else:
            end_one()
        settle(case.tasks, final=False)
    settle(case.finals, final=True)
    while running:
        end_one()
        settle(case.finals, final=True)
    failed_finally = any(ends[task.name] == FAILED for task in case.finals)
    return Result(ends, not failing and not failed_finally, started)
