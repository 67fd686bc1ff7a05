"""Node agent: binds pending Pods to this node, runs them, and writes their status.

The agent reaches the API only through `Client`. It ignores Pods bound to other nodes, because
another kubelet is responsible for them. `pod_machine` decides the next step of a Pod and
`pod_driver` executes it; this module contains the rest: start-up and shutdown of the node, and
logs, exec and attach.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from onejob.client.base import Client
from onejob.client.events import EventRecorder
from onejob.clock import Clock
from onejob.informers.informer import Informer
from onejob.node.agent.node_object import NodeObject
from onejob.node.agent.pod_driver import PodDriver
from onejob.node.agent.writer import Writer
from onejob.node.exec_session import ExecSession
from onejob.node.logs.pod_logs import pod_logs, running_container
from onejob.node.runtime import (
    Fetch,
    Runtime,
    Unsupported,
)
from onejob.node.setup.claims import ClaimPath, ClaimWanted, fetch_with_claims
from onejob.node.setup.environment import ConfigProblem
from onejob.node.setup.tokens import IssueToken, fetch_with_tokens
from onejob.objects.meta import PODS, Key
from onejob.objects.pod import Pod
from onejob.objects.pod_spec import NodePod
from onejob.planning.pod.placement import Amounts, NodeView
from onejob.planning.pod.room import NodeRoom
from onejob.wire.errors import BadRequest
from onejob.wire.requests import LogOptions

if TYPE_CHECKING:
    from onejob.node.agent.claims import ClaimHolds
    from onejob.node.agent.gangs import GangSource

log = logging.getLogger(__name__)

#: Seconds between checks whether all Pods lost to a reboot have their status written.
_SETTLING_SECONDS = 1.0
#: Seconds that shutdown waits for steps that normally finish at once.
_STOP_SECONDS = 10.0


class NodeAgent:
    """Kubelet of one node.

    The caller runs the `pods` informer, and must not start it before the agent is constructed: the
    constructor registers the change handlers.
    """

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
        gangs: "GangSource | None" = None,
        make_claims: "Callable[[], ClaimHolds] | None" = None,
    ) -> None:
        """Create an agent that is not started.

        `sources` are informers of ConfigMaps and Secrets, whose changes update volumes.
        `issue_token` issues the service account tokens that are projected into volumes. `gangs`
        follows the PodGroups, with the feature gate GenericWorkload. `make_claims` returns
        what holds Pods back until their claims are bound, for the first such Pod.
        """
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
        runtime.report_to(self._node.conditions)
        self._driver = PodDriver(
            runtime,
            self._writer,
            self._recorder,
            self._scheduler_recorder,
            clock,
            node_name=node_name,
            ip=ip,
            node=self._node.view(),
            pods=pods,
            gangs=gangs,
            make_claims=make_claims,
        )
        self._gangs = gangs
        self._node.on_change(self._driver.binder.node_changed)
        pods.on_change(self._driver.pods_changed)
        pods.on_relist(self._driver.pods_listed)
        for informer in sources:
            informer.on_change(self._driver.volumes.sources_changed)
        self._tasks: list[asyncio.Task[None]] = []
        self._settling: asyncio.Task[None] | None = None
        self._parts: list[Callable[[], Coroutine[Any, Any, None]]] = [
            self._writer.run,
            self._recorder.run,
            self._scheduler_recorder.run,
            self._node.run,
            *(() if gangs is None else gangs.parts),
        ]

    @property
    def room(self) -> NodeRoom:
        """Capacity of this node, for admission: a new Pod that fits at once is created with the
        node set."""
        return self._driver.binder.room

    def prepare(self) -> None:
        """Start the runtime's preparations, which may overlap other start-up work. Call before
        `start`."""
        self.runtime.prepare()

    async def start(self) -> None:
        """Adopt the containers left by an earlier run of the agent, then follow the API."""
        fetch: Fetch = self._client.get
        if self._issue_token is not None:
            fetch = fetch_with_tokens(fetch, self._issue_token)
        fetch = fetch_with_claims(fetch, _resolve_claim)
        inherited = await self.runtime.start(self._driver.runtime_events, fetch)
        await self._node.begin()
        self._tasks = [asyncio.create_task(run()) for run in self._parts]
        await self._pods.synced()
        if self._gangs is not None:
            # A gang that was interrupted while it was bound comes before other Pods.
            await self._gangs.synced()
        self._driver.begin(inherited)
        if inherited.rebooted:
            self._settling = asyncio.create_task(self._settle_reboot())

    async def _settle_reboot(self) -> None:
        """Call `reboot_settled` once the status of every Pod lost to the reboot is written.

        If the agent dies earlier, the next start has to treat the machine as rebooted again.
        """
        pods = self._driver.active
        while pods:
            while self._driver.has_due_pods:  # noqa: ASYNC110 (each turn takes some of them)
                await asyncio.sleep(0)
            await self._writer.settled()
            pods = self._driver.not_on_record(pods)
            if pods:
                # Refused writes are retried: permissions or disk space may be missing for a while.
                await asyncio.sleep(_SETTLING_SECONDS)
        self.runtime.reboot_settled()

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """Background tasks that run until `stop`. The node hangs if any of them ends earlier."""
        return self._tasks

    @property
    def busy_pods(self) -> int:
        """Number of Pods that are being bound, run, or have an unwritten final status."""
        return self._driver.busy

    async def stop(self, *, end_pods: bool) -> None:
        """Shut the node down. With `end_pods`, terminate Pods gracefully and report their end;
        otherwise leave their containers running."""
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
            log.warning("stopping with pending writes: the API does not respond")
        self._driver.cancel_timer()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def kill_pods(self) -> None:
        """Kill Pods without their grace period (second Ctrl-C during `stop`)."""
        self._driver.kill()

    async def _end_pods(self) -> None:
        emptied = self._driver.leave()
        # A crashed background task or a broken runtime would otherwise block shutdown for ever.
        await asyncio.wait(
            [emptied, *self._tasks],
            timeout=self._driver.longest_grace() + _STOP_SECONDS,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if self._driver.busy:
            log.warning("stopping, although some Pods may still be running")

    def node_view(self) -> NodeView:
        """Return this node as the scheduler sees it."""
        return self._node.view()

    def warn(self, pod: NodePod, reason: str, message: str) -> None:
        """Record a Warning event about a Pod."""
        self._driver.warn(pod, reason, message)

    def clock_jumped(self) -> None:
        """Re-evaluate all timers and refresh the Node's timestamps after the wall clock was set."""
        self._driver.clock_jumped()
        self._node.beat_soon()

    # --- logs, exec and attach

    def logs(
        self, namespace: str, pod: str, container: str, options: LogOptions
    ) -> AsyncIterator[bytes]:
        """Iterate over a container's output. The first step raises the `ApiError`s of `GET
        …/log`."""
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
        """Run a command in the context of a running container (`kubectl exec`). Raises the
        `ApiError`s of `…/exec`."""
        document = await self._client.get(Key(PODS, namespace, pod))
        found, ref = running_container(document, container)
        try:
            return await self.runtime.open_session(found, ref, command, stdin=stdin, tty=tty)
        except ConfigProblem as problem:
            raise BadRequest(problem.message) from problem
        except Unsupported as problem:
            raise BadRequest(str(problem)) from problem

    async def attach(self, namespace: str, pod: str, container: str) -> AsyncIterator[bytes]:
        """Iterate over the output that a running container writes from now on. Raises the
        `ApiError`s of `…/attach`."""
        if not self.runtime.traits.runs_programs:
            raise BadRequest(f"the {self.runtime.name} runtime has no container output")
        document = await self._client.get(Key(PODS, namespace, pod))
        _, ref = running_container(document, container)
        return self.runtime.logs(ref, LogOptions(follow=True, tail_lines=0))


async def _resolve_claim(namespace: str, wanted: ClaimWanted, fetch: Fetch) -> ClaimPath:
    # Imported with the first claim: most nodes have none.
    from onejob.node.agent.claim_resolution import resolve

    return await resolve(namespace, wanted, fetch)
