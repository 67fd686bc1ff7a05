"""The node: takes Pods that wait, runs those bound to it, and reports on them.

It knows the API only through `Client`. Pods bound to other nodes are left alone: somebody else
plays that kubelet. `pod_machine` decides what happens to a Pod, `pod_driver` does it; here is what
surrounds them: the start and the end of the node, and what people ask of running containers.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from random import Random
from typing import Any

from onejob.client.base import Client
from onejob.client.events import EventRecorder
from onejob.client.local import LocalClient
from onejob.clock import Clock
from onejob.informers.informer import Informer
from onejob.node.agent.node_object import NodeObject
from onejob.node.agent.pod_driver import PodDriver
from onejob.node.agent.writer import Writer
from onejob.node.logs.pod_logs import pod_logs, running_container
from onejob.node.runtime import (
    Fetch,
    OpensSessions,
    RemembersReboots,
    ReportsConditions,
    Runtime,
    TakesAMoment,
)
from onejob.node.sessions.exec_session import ExecSession
from onejob.node.setup.environment import ConfigProblem
from onejob.node.setup.tokens import IssueToken, fetch_with_tokens
from onejob.objects.meta import PODS, Key
from onejob.objects.pod import Pod
from onejob.objects.pod_spec import NodePod
from onejob.planning.pod.placement import Amounts, NodeView
from onejob.wire.errors import BadRequest
from onejob.wire.requests import LogOptions

log = logging.getLogger(__name__)

#: How often it is looked whether what a reboot took is on record, after a refusal.
_SETTLING_SECONDS = 1.0
#: How long the node, when it leaves, waits for what should take no time.
_STOP_SECONDS = 10.0


class NodeAgent:
    """`pods` is run by whoever made it, and only after the agent was made."""

    def __init__(
        self,
        client: Client,
        pods: Informer[Pod],
        runtime: Runtime,
        *,
        node_name: str,
        clock: Clock,
        rng: Random,
        capacity: Amounts,
        ip: str = "127.0.0.1",
        sources: Sequence[Informer[Any]] = (),
        issue_token: IssueToken | None = None,
    ) -> None:
        """`sources` show changes to ConfigMaps and Secrets; `issue_token` makes the tokens that
        are projected into volumes."""
        self.node_name = node_name
        self.runtime = runtime
        self._client = client
        self._issue_token = issue_token
        self._pods = pods
        self._writer = Writer(client)
        self._recorder = EventRecorder(client, "kubelet", clock, host=node_name)
        self._scheduler_recorder = EventRecorder(client, "default-scheduler", clock)
        self._node = NodeObject(
            client, clock, rng, node_name, ip, capacity, runtime.name, self._recorder
        )
        if isinstance(runtime, ReportsConditions):
            runtime.report_to(self._node.conditions)
        self._driver = PodDriver(
            runtime,
            self._writer,
            self._recorder,
            self._scheduler_recorder,
            clock,
            node_name=node_name,
            ip=ip,
            node=self._node.view,
            pods=pods,
        )
        self._node.on_change(self._driver.binder.node_changed)
        pods.on_change(self._driver.pods_changed)
        for informer in sources:
            informer.on_change(self._driver.volumes.sources_changed)
        self._tasks: list[asyncio.Task[None]] = []
        self._settling: asyncio.Task[None] | None = None
        self._parts: list[Callable[[], Coroutine[Any, Any, None]]] = [
            self._writer.run,
            self._recorder.run,
            self._scheduler_recorder.run,
            self._node.run,
        ]

    def place_created_pods(self, client: LocalClient) -> None:
        """Give Pods that are created through this client their node in the same write, if there is
        room at once. Before `start`."""
        creations = self._driver.creations
        client.place_created_pods(creations)
        self._parts.append(lambda: creations.run(client.durable))

    def prepare(self) -> None:
        """Have the runtime begin with what can be done beside other work, before `start`."""
        if isinstance(self.runtime, TakesAMoment):
            self.runtime.prepare()

    async def start(self) -> None:
        """Take over what an earlier run of the agent left behind, then follow the API."""
        fetch: Fetch = self._client.get
        if self._issue_token is not None:
            fetch = fetch_with_tokens(fetch, self._issue_token)
        inherited = await self.runtime.start(self._driver.runtime_events, fetch)
        await self._node.begin()
        self._tasks = [asyncio.create_task(run()) for run in self._parts]
        await self._pods.synced()
        self._driver.begin(inherited)
        if inherited.rebooted and isinstance(self.runtime, RemembersReboots):
            self._settling = asyncio.create_task(self._settle_reboot(self.runtime))

    async def _settle_reboot(self, runtime: RemembersReboots) -> None:
        """If we die before all that was lost is written, the next start has to know of it, too."""
        pods = self._driver.active
        while pods:
            while self._driver.has_due_pods:  # noqa: ASYNC110 (each turn takes some of them)
                await asyncio.sleep(0)
            await self._writer.settled()
            pods = self._driver.not_on_record(pods)
            if pods:
                # What was refused is tried again: for want of a right, or of room on the disk.
                await asyncio.sleep(_SETTLING_SECONDS)
        runtime.reboot_settled()

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """They go on until `stop`; without any one of them the node hangs."""
        return self._tasks

    @property
    def busy_pods(self) -> int:
        """How many Pods are being bound, run, or have an end that is not on record yet."""
        return self._driver.busy

    async def stop(self, *, end_pods: bool) -> None:
        """Leave. Pods go on, or are ended gracefully and reported, as `end_pods` says."""
        self._driver.stop_taking()
        if self._settling is not None:
            self._settling.cancel()
        if end_pods:
            await self._end_pods()
        self._driver.close()
        await self.runtime.close(end_pods=end_pods)
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._writer.settled()
                await self._recorder.flush()
                await self._scheduler_recorder.flush()
        except TimeoutError:
            log.warning("leaving with writes undone: the API does not answer")
        self._driver.cancel_timer()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def kill_pods(self) -> None:
        """Whoever waits for `stop` has no patience left: end the Pods without their grace."""
        self._driver.kill()

    async def _end_pods(self) -> None:
        emptied = self._driver.leave()
        # Without one of its parts, or with a broken runtime, the node could wait for ever.
        await asyncio.wait(
            [emptied, *self._tasks],
            timeout=self._driver.longest_grace() + _STOP_SECONDS,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if self._driver.busy:
            log.warning("leaving, though not all Pods are known to have ended")

    def node_view(self) -> NodeView:
        """This node as the scheduler sees it."""
        return self._node.view()

    def warn(self, pod: NodePod, reason: str, message: str) -> None:
        """Record an event about a Pod."""
        self._driver.warn(pod, reason, message)

    def clock_jumped(self) -> None:
        """What Pods wait for may be over, or further away; the Node's times are wrong."""
        self._driver.clock_jumped()
        self._node.beat_soon()

    # --- what people ask of running containers

    def logs(
        self, namespace: str, pod: str, container: str, options: LogOptions
    ) -> AsyncIterator[bytes]:
        """What a container wrote. The first step raises `ApiError`s as `GET …/log` has them."""
        key = Key(PODS, namespace, pod)
        return pod_logs(self._client, self.runtime, key, container, options)

    async def open_session(
        self,
        namespace: str,
        pod: str,
        container: str,
        command: Sequence[str],
        *,
        stdin: bool,
        tty: bool,
    ) -> ExecSession:
        """Run a command beside a container. Raises `ApiError`s as `…/exec` has them."""
        if not isinstance(self.runtime, OpensSessions):
            raise BadRequest(f"the {self.runtime.name} runtime runs no commands beside containers")
        document = await self._client.get(Key(PODS, namespace, pod))
        found, ref = running_container(document, container)
        try:
            return await self.runtime.open_session(found, ref, command, stdin=stdin, tty=tty)
        except ConfigProblem as problem:
            raise BadRequest(problem.message) from problem

    async def attach(self, namespace: str, pod: str, container: str) -> AsyncIterator[bytes]:
        """What a running container writes from now on. Raises `ApiError`s as `…/attach` has
        them."""
        if not self.runtime.traits.runs_programs:
            raise BadRequest(f"containers of the {self.runtime.name} runtime write nothing")
        document = await self._client.get(Key(PODS, namespace, pod))
        _, ref = running_container(document, container)
        return self.runtime.logs(ref, LogOptions(follow=True, tail_lines=0))
