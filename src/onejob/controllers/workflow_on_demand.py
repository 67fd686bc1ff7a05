"""Lazy start of the workflow controller.

Without a workflow there is no controller and no import, and Jobs and Pods have no further handler.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from onejob.client.write_series import WriteSeries
from onejob.controllers.context import ControllerContext
from onejob.informers.cache import Delta
from onejob.informers.workqueue import WorkQueue
from onejob.metrics import QueueName
from onejob.objects.meta import Key

if TYPE_CHECKING:
    from onejob.controllers.workflow import WorkflowController
    from onejob.objects.workflow import Workflow


class WorkflowsOnDemand:
    def __init__(
        self,
        context: ControllerContext,
        *,
        new_series: Callable[[], WriteSeries] | None = None,
    ) -> None:
        self._context = context
        self._new_series = new_series
        self._wanted = asyncio.Event()
        #: The controller; None until the first workflow.
        self.controller: WorkflowController | None = None
        context.informers.workflows.on_change(self._changed)

    async def run(self) -> None:
        await self._wanted.wait()
        from onejob.controllers.workflow import WorkflowController

        self.controller = WorkflowController(self._context, new_series=self._new_series)
        await self.controller.run()

    @property
    def queues(self) -> Mapping[QueueName, WorkQueue[Key]]:
        return {} if self.controller is None else self.controller.queues

    @property
    def idle(self) -> bool:
        if self.controller is None:
            return not self._wanted.is_set()
        return self.controller.idle

    def note(self, key: Key) -> str:
        return "" if self.controller is None else self.controller.note(key)

    def clock_jumped(self) -> None:
        if self.controller is not None:
            self.controller.clock_jumped()

    def _changed(self, deltas: "Sequence[Delta[Workflow]]") -> None:
        if any(delta.new is not None for delta in deltas):
            self._wanted.set()
