"""Graph of a workflow's tasks: edges, topological order, cycles."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from onejob.cel import Program
from onejob.objects.workflow import Task, WorkflowSpec
from onejob.planning.workflow.conditions import compile_when
from onejob.planning.workflow.documents import has_ttl
from onejob.planning.workflow.results import results_read
from onejob.planning.workflow.states import ON_COMPLETE


class InvalidGraph(ValueError):
    """The tasks do not form a graph without cycles. The API rejects such a spec."""


@dataclass(frozen=True)
class Graph:
    """Tasks by position: those of `tasks`, then those of `finally`.

    Build it once per spec: programs of `when` are compiled on first use and kept.
    """

    tasks: tuple[Task, ...]
    #: Number of tasks before those of `finally`.
    ordinary: int
    #: Edges of each task: position of the dependency, and condition.
    edges: tuple[tuple[tuple[int, str], ...], ...]
    #: Positions of the ordinary tasks, dependencies first; otherwise in the order of the spec.
    order: tuple[int, ...]
    #: Whether a failure of the task is awaited by another one, and so does not fail the workflow.
    handled: tuple[bool, ...]

    @cached_property
    def positions(self) -> dict[str, int]:
        return {task.name: position for position, task in enumerate(self.tasks)}

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(task.name for task in self.tasks)

    @cached_property
    def ordinary_bits(self) -> int:
        """All ordinary tasks, as bits by position."""
        return (1 << self.ordinary) - 1

    @cached_property
    def required(self) -> tuple[int, ...]:
        """Tasks that must have ended before each task starts: its own edges, as bits by position.

        Those of `finally` await all ordinary tasks.
        """
        own = [sum(1 << dependency for dependency in {d for d, _ in edges}) for edges in self.edges]
        own[self.ordinary :] = [self.ordinary_bits] * (len(own) - self.ordinary)
        return tuple(own)

    @cached_property
    def full_order(self) -> tuple[int, ...]:
        """Positions of all tasks, dependencies first; those of `finally` last."""
        return (*self.order, *range(self.ordinary, len(self.tasks)))

    @cached_property
    def awaited(self) -> frozenset[int]:
        """Positions of the tasks that others depend on."""
        return frozenset(dependency for edges in self.edges for dependency, _ in edges)

    @cached_property
    def with_ttl(self) -> tuple[Task, ...]:
        """Tasks whose Jobs are to be deleted some time after their end."""
        return tuple(task for task in self.tasks if has_ttl(task))

    @cached_property
    def _programs(self) -> dict[int, Program]:
        return {}

    def when(self, position: int) -> Program:
        """Return the compiled `when` of a task. Raises CompileError."""
        program = self._programs.get(position)
        if program is None:
            program = self._programs[position] = compile_when(self.tasks[position].when)
        return program

    def reads(self, position: int) -> tuple[tuple[str, str], ...]:
        """Return the results that a task's template refers to, as names of task and result."""
        found = self._reads.get(position)
        if found is None:
            found = self._reads[position] = results_read(self.tasks[position])
        return found

    @cached_property
    def _reads(self) -> dict[int, tuple[tuple[str, str], ...]]:
        return {}

    @cached_property
    def ancestors(self) -> tuple[int, ...]:
        """Tasks that have ended before each task starts, as bits by position."""
        found = [0] * len(self.tasks)
        for position in self.order:
            for dependency, _ in self.edges[position]:
                found[position] |= found[dependency] | 1 << dependency
        for position in range(self.ordinary, len(self.tasks)):
            found[position] = (1 << self.ordinary) - 1
        return tuple(found)

    def is_earlier(self, earlier: int, position: int) -> bool:
        return bool(self.ancestors[position] >> earlier & 1)

    @cached_property
    def completed(self) -> tuple[int, ...]:
        """Tasks that have completed, or were skipped by `when`, before each task starts; as bits.

        A task that was started has had its own edges satisfied, so only the last edge of a path
        matters.
        """
        found = [0] * len(self.tasks)
        for position in self.order:
            for dependency, condition in self.edges[position]:
                found[position] |= found[dependency]
                if condition == ON_COMPLETE:
                    found[position] |= 1 << dependency
        return tuple(found)


def build_graph(spec: WorkflowSpec) -> Graph:
    """Return the graph of a spec. Raises InvalidGraph."""
    tasks = (*spec.tasks, *spec.finally_)
    positions = {task.name: position for position, task in enumerate(tasks)}
    if len(positions) != len(tasks):
        raise InvalidGraph("two tasks have the same name")
    ordinary = len(spec.tasks)
    edges: list[tuple[tuple[int, str], ...]] = []
    handled = [False] * len(tasks)
    for task in tasks:
        own: list[tuple[int, str]] = []
        for dependency in task.depends_on:
            position = positions.get(dependency.task, len(tasks))
            if position >= ordinary or len(edges) >= ordinary:
                raise InvalidGraph(f'task "{task.name}" depends on unknown "{dependency.task}"')
            own.append((position, dependency.condition))
            handled[position] = handled[position] or dependency.condition != ON_COMPLETE
        edges.append(tuple(own))
    order = _topological_order(edges[:ordinary])
    if len(order) < ordinary:
        raise InvalidGraph(f"the tasks form a cycle: {' → '.join(find_cycle(spec.tasks))}")
    return Graph(tasks, ordinary, tuple(edges), tuple(order), tuple(handled))


def find_cycle(tasks: Sequence[Task]) -> list[str]:
    """Return the names along one cycle, the first also last; empty if there is none.

    Unknown dependencies are ignored.
    """
    after = {task.name: [edge.task for edge in task.depends_on] for task in tasks}
    ended: set[str] = set()
    for start in after:
        path: list[str] = []
        on_path: set[str] = set()
        # Names to visit; None marks the return from a name.
        waiting: list[str | None] = [start]
        while waiting:
            name = waiting.pop()
            if name is None:
                left = path.pop()
                on_path.discard(left)
                ended.add(left)
            elif name in on_path:
                # Backwards: an edge points at what comes before.
                return [*path[path.index(name) :], name][::-1]
            elif name not in ended and name in after:
                path.append(name)
                on_path.add(name)
                waiting.append(None)
                waiting.extend(after[name])
    return []


def _topological_order(edges: Sequence[Sequence[tuple[int, str]]]) -> list[int]:
    """Return the positions, dependencies first; without those on or after a cycle."""
    missing = [len(own) for own in edges]
    after: list[list[int]] = [[] for _ in edges]
    for position, own in enumerate(edges):
        for dependency, _ in own:
            after[dependency].append(position)
    order = [position for position, count in enumerate(missing) if not count]
    for position in order:
        for dependant in after[position]:
            missing[dependant] -= 1
            if not missing[dependant]:
                order.append(dependant)
    return order
