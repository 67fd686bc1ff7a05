"""Mutants of the node agent, the process runtime and its supervisor."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from onejob.node.agent import container_rules
from onejob.node.process.runtime import ProcessRuntime
from onejob.node.supervisor.journal import Attempt, Claim
from onejob.node.supervisor.main import Supervisor
from sim.mutants.planting import Plant, replace


def _forget_what_was_asked(undo: ExitStack) -> None:
    """Requests that the old supervisor had not answered are not repeated to the new one."""
    original = ProcessRuntime._restart_supervisor

    async def restart(self: ProcessRuntime) -> None:
        self._asked.clear()
        await original(self)

    replace(undo, ProcessRuntime, "_restart_supervisor", restart)


def _launch_without_trace(undo: ExitStack) -> None:
    """A Pod that ran, but is missing from the records of the runtime, is started again."""
    replace(undo, container_rules, "_lose_unrecorded", lambda state, now, *, rebooted: None)


def _tell_before_flushing(undo: ExitStack) -> None:
    def send(self: Supervisor, events: list[list[Any]]) -> bool:
        self._connections.notify_subscribers(events)
        self._write_down()
        return True

    replace(undo, Supervisor, "_send_events", send)
    # The loop's turn would flush the journal first.

    def turn_without_flush(self: Supervisor) -> None:
        write_down = self._write_down
        self._write_down = lambda: True  # type: ignore[method-assign]
        self._loop.turn()
        self._write_down = write_down  # type: ignore[method-assign]
        self._news.tell()

    replace(undo, Supervisor, "turn", turn_without_flush)


def _run_a_claim_twice(undo: ExitStack) -> None:
    """A repeated request for a running claim is treated as a new one."""
    original = Supervisor._spawn

    def spawn(self: Supervisor, request: dict[str, Any]) -> None:
        journal, asked = self._journal, Claim(*request["claim"])
        find = journal.find

        def find_nothing_at_first(claim: Claim) -> Attempt | None:
            journal.find = find  # type: ignore[method-assign]
            return None if claim == asked else find(claim)

        journal.find = find_nothing_at_first  # type: ignore[method-assign]
        original(self, request)

    replace(undo, Supervisor, "_spawn", spawn)


MUTANTS: Mapping[str, Plant] = {
    "asked Pods not sent again to a new supervisor": _forget_what_was_asked,
    "Pod without trace launched again": _launch_without_trace,
    "end told before the journal is flushed": _tell_before_flushing,
    "running claim asked for twice runs twice": _run_a_claim_twice,
}
