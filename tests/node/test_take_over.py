"""What a new agent does with what an earlier one left in the runtime's books."""

import asyncio
from pathlib import Path

import msgspec

from onejob.client.base import Bind, Patch
from onejob.clock import SystemClock
from onejob.node.runtime import AttemptRef, Deliver, Ended, Fetch, Inheritance
from onejob.node.simulated import SimulatedRuntime
from onejob.objects.meta import PODS, Key
from onejob.planning.pod.lifecycle import Exit
from tests.node.support import NODE, a_node, a_pod, an_api


class HeirlessRuntime(SimulatedRuntime):
    """Comes with attempts that ended before, and remembers what became of them."""

    def __init__(self, uids: list[str]) -> None:
        super().__init__(SystemClock())
        self._left = uids
        self.released: list[str] = []
        self.discarded: list[str] = []

    async def start(self, deliver: Deliver, fetch: Fetch) -> Inheritance:
        await super().start(deliver, fetch)
        now = SystemClock().now()
        ended = tuple(Ended(AttemptRef(uid, "c", 0), Exit(0, now, now)) for uid in self._left)
        return Inheritance(attempts=ended)

    def release(self, uid: str) -> None:
        self.released.append(uid)

    def discard(self, uid: str) -> None:
        self.discarded.append(uid)


def test_logs_of_a_pod_whose_end_was_written_outlive_the_server(tmp_path: Path) -> None:
    async def main() -> None:
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

    asyncio.run(main())
