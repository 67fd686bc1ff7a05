"""Take-over of an earlier agent's attempts by a new one."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from onejob.client.base import Bind, Create, Op, Patch, Result
from onejob.client.local import LocalClient
from onejob.clock import Clock, SystemClock
from onejob.node.runtime import AttemptRef, Deliver, Ended, Fetch, RecoveredState, RuntimeTraits
from onejob.node.simulated import SimulatedRuntime
from onejob.objects.meta import PODS, Key
from onejob.planning.pod.lifecycle import Exit
from onejob.virtual_time import virtual_clock
from onejob.wire.errors import Forbidden
from tests.node.support import NODE, a_node, a_pod, an_api


class HeirlessRuntime(SimulatedRuntime):
    """Runtime with attempts that ended before; it records releases and discards."""

    def __init__(self, uids: list[str]) -> None:
        super().__init__(SystemClock())
        self._left = uids
        self.released: list[str] = []
        self.discarded: list[str] = []

    async def start(self, deliver: Deliver, fetch: Fetch) -> RecoveredState:
        await super().start(deliver, fetch)
        now = SystemClock().now()
        ended = tuple(Ended(AttemptRef(uid, "c", 0), Exit(0, now, now)) for uid in self._left)
        return RecoveredState(attempts=ended)

    def release(self, uid: str) -> None:
        self.released.append(uid)

    def discard(self, uid: str) -> None:
        self.discarded.append(uid)


async def test_logs_of_a_pod_whose_end_was_written_outlive_the_server(tmp_path: Path) -> None:
    async with an_api(tmp_path) as client:
        runtime = HeirlessRuntime([])
        async with a_node(client, runtime, end_pods=False) as node:
            created = await node.create(a_pod("true"))
        uid = created["metadata"]["uid"]
        key = Key(PODS, "default", "p")
        await client.write_many([Bind(key, NODE)])
        body = msgspec.json.encode({"status": {"phase": "Succeeded"}})
        await client.write(Patch(key, body, "strategic", "status"))
        runtime = HeirlessRuntime([uid, "of a Pod that is gone"])
        async with a_node(client, runtime, end_pods=False):
            assert runtime.released == [uid]
            assert runtime.discarded == ["of a Pod that is gone"]


class Rebooted(SimulatedRuntime):
    """Runtime of a machine that was rebooted."""

    traits = RuntimeTraits(runs_programs=True, uses_images=True)

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.is_settled = False

    async def start(self, deliver: Deliver, fetch: Fetch) -> RecoveredState:
        await super().start(deliver, fetch)
        return RecoveredState(rebooted=True)

    def reboot_settled(self) -> None:
        self.is_settled = True


class RefusesStatus(LocalClient):
    """Client that refuses status writes, as for lack of permission or on a full disk."""

    refusing = True

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        if self.refusing and any(isinstance(op, Patch) for op in ops):
            return [Forbidden("a right is missing")] * len(ops)
        return await super().write_many(ops)


@pytest.mark.virtual_time
async def test_reboot_is_persisted_until_its_losses_are_recorded(tmp_path: Path) -> None:
    """Otherwise the next agent would start it a second time."""
    clock = virtual_clock()
    async with an_api(tmp_path, clock, in_this_thread=True) as client:
        await client.write(Create(PODS, "default", msgspec.json.encode(a_pod("true"))))
        await client.write_many([Bind(Key(PODS, "default", "p"), NODE)])
        refusing, runtime = RefusesStatus(client._service), Rebooted(clock)
        async with a_node(refusing, runtime, clock=clock, end_pods=False) as node:
            await asyncio.sleep(60)
            assert not runtime.is_settled
            refusing.refusing = False
            await asyncio.sleep(60)
            assert (await node.pod("p"))["status"]["phase"] == "Failed"
            assert runtime.is_settled
