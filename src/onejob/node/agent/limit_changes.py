"""Effects of in-place resizes: decisions with the node's facts, and changes of limits.

`resize_rules` has the transitions and `planning.pod.resizing` the decision. Pods are considered in
the order in which they were resized; a deferred one again whenever amounts of the node become free.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from onejob.node.agent.pod_events import ChangeLimits, LimitsChanged, PodEvent, ResizeDecided
from onejob.node.agent.pod_state import Active, PodState
from onejob.node.runtime import AttemptRef, Runtime
from onejob.planning.pod.demand import demand_of
from onejob.planning.pod.placement import Amounts
from onejob.planning.pod.resizing import Resize, affected, refusal
from onejob.planning.pod.room import NodeRoom

log = logging.getLogger(__name__)


class LimitChanges:
    """Resizes of the Pods of one node.

    Concurrency: called on the event loop's thread. Decisions are made in a later turn of the loop
    than the event that requests them, when all Pods known by then are accounted for.
    """

    def __init__(
        self,
        runtime: Runtime,
        room: NodeRoom,
        states: Mapping[str, PodState],
        dispatch: Callable[[str, PodEvent], None],
    ) -> None:
        """`states` are those of the driver, by UID; `dispatch` runs a step of a Pod."""
        self._runtime = runtime
        self._room = room
        self._states = states
        self._dispatch = dispatch
        #: Pods whose resize is not decided, or deferred, oldest first.
        self._undecided: dict[str, None] = {}
        self._turn_scheduled = False
        self._tasks: set[asyncio.Task[None]] = set()

    def consider(self, uid: str) -> None:
        """Decide soon whether to allocate the resources that a Pod wants."""
        self._undecided.setdefault(uid, None)
        self._decide_soon()

    def room_freed(self) -> None:
        """Decide again about deferred resizes."""
        if self._undecided:
            self._decide_soon()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _decide_soon(self) -> None:
        if not self._turn_scheduled:
            self._turn_scheduled = True
            asyncio.get_running_loop().call_soon(self._decide_all)

    def _decide_all(self) -> None:
        self._turn_scheduled = False
        for uid in [*self._undecided]:
            state = self._states.get(uid)
            if not isinstance(state, Active) or state.resize is None:
                del self._undecided[uid]
                continue
            generation = state.resize.wanted.metadata.generation
            decision = refusal(
                demand_of(state.resize.wanted.spec),
                self._allocated_to_others(uid),
                self._room.node.allocatable,
                self._problems(uid, state, state.resize),
            )
            if decision is None or decision.reason == "Infeasible":
                del self._undecided[uid]
            self._dispatch(uid, ResizeDecided(generation, decision))

    def _allocated_to_others(self, uid: str) -> Amounts:
        """Return the amounts allocated to all other Pods, without those that others wait for."""
        others = dict(self._room.used)
        for each in {*self._undecided, uid}:
            state = self._states.get(each)
            if isinstance(state, Active):
                allocated = {} if each == uid else demand_of(state.pod.spec)
                for name, held in state.demand.items():
                    others[name] = others.get(name, 0) - held + allocated.get(name, 0)
        return others

    def _problems(self, uid: str, state: Active, resize: Resize) -> Mapping[str, str]:
        """Return why running containers cannot get the wanted limits, by container name."""
        problems = {}
        for _, container, action in affected(state.pod, resize.wanted):
            seen = state.containers.get(container.name)
            if action == "update" and seen is not None and seen.busy:
                ref = AttemptRef(uid, container.name, seen.attempt)
                if problem := self._runtime.limits_problem(container, ref):
                    problems[container.name] = problem
        return problems

    def change(self, uid: str, effect: ChangeLimits) -> None:
        """Change the limits of a running container, and dispatch the result."""
        task = asyncio.get_running_loop().create_task(self._change(uid, effect))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _change(self, uid: str, effect: ChangeLimits) -> None:
        container = effect.container
        ref = AttemptRef(uid, container.name, effect.attempt)
        try:
            problem = await self._runtime.change_limits(container, ref)
        except Exception as error:
            # A bug of a runtime must not leave the resize in progress for ever.
            log.exception("%s: unexpected error while its limits were changed", effect.pod.key)
            problem = f"onejob: {error!r}"
        self._dispatch(
            uid, LimitsChanged(container.name, effect.attempt, container.resources, problem)
        )
