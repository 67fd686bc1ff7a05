"""The node: takes Pods that wait, runs those bound to it, and reports on them.

It knows the API only through `Client`. Pods bound to other nodes are left alone: somebody else
plays that kubelet.
"""

import asyncio
import heapq
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from random import Random
from typing import Any

from onejob.client.base import Client, Result
from onejob.client.events import EventRecorder, about
from onejob.clock import Clock
from onejob.informers.cache import Delta
from onejob.informers.informer import Informer
from onejob.node.agent.binder import Binder
from onejob.node.agent.capacity import demand_of
from onejob.node.agent.hooks import Hooks
from onejob.node.agent.node_object import NodeObject
from onejob.node.agent.pod_work import PodWork, last_delete
from onejob.node.agent.probes import Prober
from onejob.node.agent.short_track import Run, ShortTrack
from onejob.node.agent.sighting import Sighting
from onejob.node.agent.writer import Change, Writer
from onejob.node.logs.pod_logs import pod_logs, running_container
from onejob.node.runtime import (
    AttemptRef,
    Ended,
    Inheritance,
    OpensSessions,
    Runtime,
    RuntimeEvent,
    TellsConditions,
)
from onejob.node.sessions.exec_session import ExecSession
from onejob.node.setup.environment import ConfigProblem
from onejob.node.setup.volume_refresh import VolumeRefresh
from onejob.objects.meta import PODS, Key, Meta
from onejob.objects.pod import Pod
from onejob.objects.pod_spec import Container, NodePod, read_node_pod
from onejob.planning.pod.placement import Amounts, NodeView
from onejob.planning.pod.status import NodeFacts
from onejob.wire.errors import ApiError, BadRequest
from onejob.wire.quantity import BadQuantity
from onejob.wire.requests import LogOptions

log = logging.getLogger(__name__)

#: Pods looked at before others on the event loop get their turn.
_PODS_PER_TURN = 200
#: How long the node, when it leaves, waits for what should take no time.
_PATIENCE_SECONDS = 10.0


class NodeAgent:
    """`pods` is run by whoever made it, and told of the agent before it is."""

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
    ) -> None:
        """`sources` tell of changes to ConfigMaps and Secrets."""
        self.node_name = node_name
        self.runtime = runtime
        self.facts = NodeFacts(runtime.name, ip)
        self._client = client
        self._clock = clock
        self._writer = Writer(client)
        self._recorder = EventRecorder(client, "kubelet", clock, host=node_name)
        self._scheduler_recorder = EventRecorder(client, "default-scheduler", clock)
        self._node = NodeObject(
            client, clock, rng, node_name, ip, capacity, runtime.name, self._recorder
        )
        if isinstance(runtime, TellsConditions):
            runtime.report_to(self._node.conditions)
        self._binder = Binder(
            self._node.view,
            self._writer,
            self._scheduler_recorder,
            clock,
            self._bound,
            self._not_bound,
        )
        self._node.on_change(self._binder.node_changed)
        self._prober = Prober(runtime, clock, self._probed)
        self._hooks = Hooks(runtime, clock, self.warn)
        self._volumes = VolumeRefresh(runtime, self.warn)
        for informer in sources:
            informer.on_change(self._volumes.sources_changed)
        self._pods = pods
        pods.on_change(self._pods_changed)
        #: Pods that were seen before we had begun, by uid.
        self._before_us: dict[str, Sighting] | None = {}
        #: What the watch told of Pods while they were being bound; None: that they are gone.
        self._while_binding: dict[str, Sighting | None] = {}
        self._work: dict[str, PodWork] = {}
        #: Revisions at which Pods ended, by uid, until the watch has come that far.
        self._over: dict[str, int] = {}
        self._track = ShortTrack(
            runtime, self.facts, self._writer, self.now, self._run_done, self._run_left
        )
        self._due: dict[str, PodWork] = {}
        self._turn_due = False
        #: A Pod is in the middle of a step: what happens meanwhile waits for the next turn.
        self._stepping = False
        self._timers: list[tuple[float, int, PodWork]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._order = itertools.count()
        self._inherited: Inheritance | None = None
        self._early: list[RuntimeEvent] = []
        #: Of the first list: Pods of ours whose end was written in an earlier life.
        self._ended_before: set[str] = set()
        #: Set while leaving: done when the last Pod has ended.
        self._emptied: asyncio.Future[None] | None = None
        self._at_once = False
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Take over what an earlier life left behind, then follow the API."""
        self._inherited = await self.runtime.start(self._happened, self._client.get)
        await self._node.begin()
        running = (
            self._writer.run(),
            self._recorder.run(),
            self._scheduler_recorder.run(),
            self._node.run(),
        )
        self._tasks = [asyncio.create_task(part) for part in running]
        await self._pods.synced()
        seen, self._before_us = self._before_us or {}, None
        for sighting in seen.values():
            self._see(sighting)
        self._take_over(self._inherited)

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """They go on until `stop`; without any one of them the node hangs."""
        return self._tasks

    async def stop(self, *, end_pods: bool) -> None:
        """Leave. Pods go on, or are ended gracefully and reported, as `end_pods` says."""
        self._binder.close()
        self._prober.stop()
        if end_pods:
            await self._end_pods()
        self._hooks.close()
        self._volumes.close()
        await self.runtime.close(end_pods=end_pods)
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._writer.settled()
                await self._recorder.flush()
                await self._scheduler_recorder.flush()
        except TimeoutError:
            log.warning("leaving without the last word: the API does not answer")
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def kill_pods(self) -> None:
        """Whoever waits for `stop` has no patience left: end the Pods without their grace."""
        self._at_once = True
        if self._emptied is not None:
            for work in self._work.values():
                work.at_once = True
                self.soon(work)

    async def _end_pods(self) -> None:
        self._emptied = asyncio.get_running_loop().create_future()
        self._track.leave_all()
        for work in self._work.values():
            work.node_leaves = True
            work.at_once = self._at_once
            self.soon(work)
        self._check_emptied()
        graces = (work.pod.spec.termination_grace_period_seconds for work in self._work.values())
        # Without one of its parts, or with a broken runtime, the node could wait for ever.
        await asyncio.wait(
            [self._emptied, *self._tasks],
            timeout=max(graces, default=0) + _PATIENCE_SECONDS,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if self._work or self._track:
            log.warning("leaving, though not all Pods were heard to end")

    def node_view(self) -> NodeView:
        """This node as the scheduler sees it."""
        return self._node.view()

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

    def expect(self, document: bytes) -> None:
        """A Pod that is about to exist, if all goes well."""
        if self._before_us is not None or self._binder.crowded:
            return
        try:
            pod = read_node_pod(document)
        except ValueError:
            # Nothing is to be said of it before it is there.
            return
        if not pod.spec.node_name:
            self._binder.expect(pod)

    # --- the API tells

    def _pods_changed(self, deltas: Sequence[Delta[Pod]]) -> None:
        for delta in deltas:
            old, new = delta.old, delta.new
            if new is None:
                if old is not None:
                    self._vanished(old)
            elif new.spec.node_name in ("", self.node_name):
                self._see(Sighting(new, delta.document))

    def _see(self, sighting: Sighting) -> None:
        uid = sighting.uid
        if self._before_us is not None:
            self._before_us[uid] = sighting
        elif uid in self._track:
            self._track.sighted(uid, sighting)
        elif (work := self._work.get(uid)) is not None:
            work.sighted(sighting)
        elif self._binder.is_binding(uid):
            # The watch was faster than the answer to our own write.
            self._while_binding[uid] = sighting
        elif self._over and self._is_past(sighting):
            return
        elif sighting.seen.spec.node_name:
            self._seen_bound(sighting)
        elif not sighting.terminal and (pod := sighting.pod()) is not None:
            self._binder.add(pod)

    def _seen_bound(self, sighting: Sighting) -> None:
        """A Pod of this node that nobody works on."""
        if sighting.terminal:
            if self._inherited is not None:
                self._ended_before.add(sighting.uid)
            self._finish_deletion(sighting)
        elif (pod := sighting.pod()) is not None:
            # Bound by somebody else, or by an earlier life of ours.
            self._binder.drop(sighting.uid)
            self._adopt(pod)

    def _is_past(self, sighting: Sighting) -> bool:
        """Whether the watch tells of the life of a Pod whose end we have written since."""
        if sighting.revision < self._over.get(sighting.uid, 0):
            return True
        self._over.pop(sighting.uid, None)
        return False

    def _finish_deletion(self, sighting: Sighting) -> None:
        """A Pod that ended while being deleted, and whose node died before the last step."""
        if sighting.grace_seconds:
            deletion = last_delete(sighting.key, sighting.uid)
            self._writer.submit(deletion, _ignore, sighting.seen.metadata)

    def _vanished(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if self._before_us is not None:
            self._before_us.pop(uid, None)
            return
        self._binder.drop(uid)
        if self._binder.is_binding(uid):
            self._while_binding[uid] = None
        run = self._track.drop(uid)
        if run is not None:
            self._binder.release(run.demand)
        work = self._work.pop(uid, None)
        if work is not None:
            work.gone = True
            self._prober.forget(work)
            self._hooks.forget(work.pod.uid)
            self._volumes.forget(uid)
            self._binder.release(work.demand)
        self._over.pop(uid, None)
        if pod.spec.node_name == self.node_name:
            self.runtime.discard(uid)
        self._check_emptied()

    # --- Pods come and go

    def _bound(self, pod: NodePod, demand: Amounts, revision: int) -> None:
        """The binder took it, and the room for it."""
        newest = None
        if pod.uid in self._while_binding:
            newest = self._while_binding.pop(pod.uid)
            if newest is None:
                self._binder.release(demand)
                self._check_emptied()
                return
        ending = self._emptied is not None or (newest is not None and newest.deleting)
        if not self.runtime.traits.runs_programs and not ending and self._track.takes(pod):
            self._track.begin(pod, demand, revision)
            return
        self._step(self._work_on(pod, demand, revision, newest))

    def _not_bound(self, uid: str) -> None:
        newest = self._while_binding.pop(uid, None)
        if newest is not None:
            # Perhaps somebody else bound it, and to this node.
            self._see(newest)
        self._check_emptied()

    def _work_on(
        self, pod: NodePod, demand: Amounts, revision: int, newest: Sighting | None
    ) -> PodWork:
        work = PodWork(pod, self, demand)
        work.known_revision = revision
        work.node_leaves = self._emptied is not None
        work.at_once = self._at_once
        self._work[pod.uid] = work
        self._volumes.follow(pod)
        if newest is not None:
            work.sighted(newest)
        return work

    def _run_left(self, run: Run) -> None:
        work = self._work_on(run.pod, run.demand, run.revision, run.newest)
        work.seen.update(run.seen())
        self.soon(work)

    def _run_done(self, run: Run) -> None:
        self._ended_at(run.pod.uid, run.revision)
        self._binder.release(run.demand)
        self._check_emptied()

    def _ended_at(self, uid: str, revision: int) -> None:
        if not self._pods.caught_up_to(revision):
            self._over[uid] = revision

    def _adopt(self, pod: NodePod) -> None:
        try:
            demand = demand_of(pod.spec)
        except BadQuantity:
            demand = {"pods": 1}
        self._binder.occupy(demand)
        work = self._work_on(pod, demand, pod.metadata.revision, None)
        if self._inherited is not None:
            # Which of its attempts were made is only known once all Pods are.
            return
        self.soon(work)

    def _take_over(self, inherited: Inheritance) -> None:
        """After the first list: join what runs with what the API says shall run."""
        self._inherited = None
        now = self.now()
        known: dict[str, list[RuntimeEvent]] = {}
        for event in (*inherited.attempts, *self._early):
            known.setdefault(event.ref.uid, []).append(event)
        self._early = []
        for uid, work in self._work.items():
            for event in sorted(known.pop(uid, ()), key=lambda event: event.ref.attempt):
                work.happened(event)
            begun = _has_run(work.pod)
            if (
                not work.seen
                and (begun or inherited.rebooted)
                and self.runtime.traits.runs_programs
            ):
                work.lost(now)
            work.remember()
            # What its volumes come from may have changed while nobody watched.
            self._volumes.refresh(uid)
            self.soon(work)
        for uid in known:
            if uid in self._ended_before:
                # We died between its last word and this: what it said must stay readable.
                self.runtime.release(uid)
            else:
                self.runtime.discard(uid)
        self._ended_before.clear()

    def done(self, work: PodWork) -> None:
        if self._work.pop(work.pod.uid, None) is not None:
            self._ended_at(work.pod.uid, work.known_revision)
            self._prober.forget(work)
            self._hooks.forget(work.pod.uid)
            self._volumes.forget(work.pod.uid)
            self._binder.release(work.demand)
            self.runtime.release(work.pod.uid)
            self._check_emptied()

    def _check_emptied(self) -> None:
        if self._emptied is None or self._emptied.done():
            return
        if not self._work and not self._track and not self._binder.binds:
            self._emptied.set_result(None)

    # --- the runtime tells

    def _happened(self, events: Sequence[RuntimeEvent]) -> None:
        if self._inherited is not None:
            self._early.extend(events)
            return
        for event in events:
            work = self._work.get(event.ref.uid)
            if work is None:
                if isinstance(event, Ended) and event.ref.uid in self._track:
                    self._track.ended(event)
                continue
            work.happened(event)
            if self.runtime.traits.every_status:
                # One step per event: a Pod that takes no time still is seen to run.
                self._step(work)
            else:
                self._due[event.ref.uid] = work
        if self._stepping:
            self._turn_soon()
        else:
            self._turn()

    def pod_changed(self, work: PodWork) -> None:
        self._volumes.pod_changed(work.pod)

    def greet(self, work: PodWork, container: Container, at: datetime) -> bool:
        attempt = work.seen[container.name].attempt
        ref = AttemptRef(work.pod.uid, container.name, attempt)
        return self._hooks.after_start(
            work.pod, container, ref, lambda ok: work.greeting_done(container, attempt, at, ok)
        )

    def stop_container(self, work: PodWork, ref: AttemptRef, grace_seconds: int) -> None:
        self._hooks.stop(work.pod, ref, grace_seconds)

    def container_started(self, work: PodWork, container: Container) -> None:
        self._volumes.container_started(work.pod.uid)
        self._prober.begin(work, container)

    def _probed(self, work: PodWork, message: str) -> None:
        if message:
            self.warn(work.pod, "Unhealthy", message)
        self.soon(work)

    # --- turns and timers

    def now(self) -> datetime:
        return self._clock.now()

    def write(self, op: Change, answer: Callable[[Result], None], of: Meta) -> None:
        self._writer.submit(op, answer, of)

    def warn(self, pod: NodePod, reason: str, message: str) -> None:
        self._recorder.record(about("v1", "Pod", pod.metadata), "Warning", reason, message)

    def look_again(self, work: PodWork, at: datetime) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + max((at - self.now()).total_seconds(), 0)
        heapq.heappush(self._timers, (due, next(self._order), work))
        if self._timers[0][2] is work:
            self._set_timer(loop)

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._timers[0][0], self._ring) if self._timers else None

    def _ring(self) -> None:
        loop = asyncio.get_running_loop()
        while self._timers and self._timers[0][0] <= loop.time():
            self.soon(heapq.heappop(self._timers)[2])
        self._set_timer(loop)

    def clock_jumped(self) -> None:
        """What Pods wait for may be over, or further away; the Node's times are wrong."""
        for _, _, work in self._timers:
            self.soon(work)
        self._timers.clear()
        self._set_timer(asyncio.get_running_loop())
        self._node.beat_soon()

    def soon(self, work: PodWork) -> None:
        self._due[work.pod.uid] = work
        self._turn_soon()

    def _turn_soon(self) -> None:
        if self._due and not self._turn_due:
            self._turn_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        for uid in list(itertools.islice(self._due, _PODS_PER_TURN)):
            self._step(self._due.pop(uid))
        self._turn_soon()

    def _step(self, work: PodWork) -> None:
        self._stepping = True
        try:
            work.step()
        except Exception:
            # A bug in one Pod's handling must not stop the node.
            log.exception("%s: cannot go on", work.pod.key)
        finally:
            self._stepping = False


def _has_run(pod: NodePod) -> bool:
    """By its status. One whose containers only ever waited (for an image, say) may still wait."""
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return pod.status.start_time is not None and not all(
        status.state.waiting is not None and status.last_state.terminated is None
        for status in statuses
    )


def _ignore(result: Result) -> None:
    if isinstance(result, ApiError):
        log.info("%s", result)
