"""Mirror controller: observe a Job and its remote copy, execute the planner's next step, repeat."""

import asyncio
import base64
import binascii
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from onejob.client.base import Client
from onejob.client.events import EventRecorder
from onejob.client.inline_kubeconfig import read_inline_kubeconfig
from onejob.client.kubeconfig import Connection, InvalidKubeconfig
from onejob.clock import Clock
from onejob.controllers.mirror.intake import Intake
from onejob.controllers.mirror.pods import StandIns
from onejob.controllers.mirror.remote import Remote, backoff, describe
from onejob.controllers.mirror.steps import Stuck, Work
from onejob.informers.cache import Delta
from onejob.informers.shared import SharedInformers
from onejob.informers.workqueue import WorkQueue, work
from onejob.objects.job import Job, read_job
from onejob.objects.meta import Key
from onejob.objects.pod import Pod
from onejob.planning.mirror import names
from onejob.planning.mirror.annotations import CopyLocation
from onejob.planning.mirror.need import needs_mirror
from onejob.planning.mirror.planner import (
    Absent,
    Facts,
    FoundCopy,
    NothingToDo,
    NotQueried,
    Release,
    RemoteUnreachable,
    ReportStatus,
    Wait,
    location_to_query,
    plan,
)
from onejob.planning.mirror.planner import Remote as Observed
from onejob.planning.mirror.status import time_text
from onejob.planning.ownership import ORPHAN_FINALIZER
from onejob.wire.errors import ApiError, Conflict, NotFound

log = logging.getLogger(__name__)

Document = dict[str, Any]

_WORKERS: Final = 8
#: Steps taken for one Job before the worker turns to others.
_STEPS: Final = 12
#: Seconds to wait for further changes: remote changes come in bursts.
_BUNCH_SECONDS: Final = 0.05
#: Seconds after which a copy is read again even without a change.
RESYNC_SECONDS = 30.0
_SECRETS: Final = "secrets"


@dataclass(slots=True)
class _Memory:
    """State of a Job between syncs; all of it may be lost."""

    uid: str
    stand_ins: StandIns | None = None
    remote: tuple[str, str, str] | None = None
    #: Consecutive failures for a reason of this Job's own, that reason, and the time of the next
    #: attempt (monotonic and wall clock).
    stuck: int = 0
    stuck_reason: str = ""
    next_try: float = 0.0
    next_try_at: datetime | None = None
    #: Monotonic time since which the remote server has been unreachable.
    lost_since: float | None = None
    #: The last change made to the copy, and its number of repetitions.
    last_change: str = ""
    repeated: int = 0


class MirrorController:
    """Controller of mirrored Jobs."""

    def __init__(
        self,
        client: Client,
        informers: SharedInformers,
        *,
        clock: Clock,
        connect: Callable[[Connection], Client],
        stand_ins: bool = True,
    ) -> None:
        self._client = client
        self._clock = clock
        self._connect = connect
        self._with_stand_ins = stand_ins
        self._recorder = EventRecorder(client, "onejob-mirror", clock)
        self._queue: WorkQueue[Key] = WorkQueue(first_delay=1.0, longest_delay=60.0)
        self._memories: dict[Key, _Memory] = {}
        self._keys: dict[str, Key] = {}
        #: By namespace and name of the target, and remote namespace.
        self._remotes: dict[tuple[str, str, str], Remote] = {}
        self._intake = Intake()
        #: Remotes being closed.
        self._closing: list[Remote] = []
        #: Version of the Secret that each remote was created from.
        self._versions: dict[tuple[str, str, str], str] = {}
        if stand_ins:
            informers.pods.on_change(self._pods_changed)

    async def run(self) -> None:
        """Process the queue until cancelled, then close the connections to all targets."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._recorder.run())
                group.create_task(work(self._queue, self.sync, workers=_WORKERS, name="mirror"))
        finally:
            self._queue.close()
            for remote in [*self._remotes.values(), *self._closing]:
                await remote.close()

    def jobs_changed(self, deltas: Sequence[Delta[Job]]) -> None:
        for delta in deltas:
            if (delta.new is not None and needs_mirror(delta.new)) or delta.new is None:
                self._queue.add(delta.key)

    def _pods_changed(self, deltas: Sequence[Delta[Pod]]) -> None:
        """Sync the Job of a stand-in Pod that another client deletes."""
        for delta in deltas:
            pod = delta.new or delta.old
            if pod is None or not names.target_of_node(pod.spec.node_name):
                continue
            key = self._keys.get(pod.metadata.labels.get(names.ORIGIN, ""))
            if key is not None and (delta.new is None or pod.metadata.deleting):
                memory = self._memories.get(key)
                if memory is not None and memory.stand_ins is not None:
                    memory.stand_ins.forget()
                self._queue.add_after(key, _BUNCH_SECONDS)

    def _enqueue_origin(self, origin: str) -> None:
        """Sync the Job with this UID, after a short delay."""
        key = self._keys.get(origin)
        if key is not None:
            self._queue.add_after(key, _BUNCH_SECONDS)

    # --- one Job ----------------------------------------------------------------------------

    async def sync(self, key: Key) -> float | None:
        """Sync one Job. Return the seconds after which to sync again, or None."""
        for _ in range(_STEPS):
            try:
                document = await self._client.get(key)
            except NotFound:
                await self._drop_state(key)
                return None
            job = read_job(document)
            if not needs_mirror(job):
                await self._drop_state(key)
                return None
            memory = self._memory_of(key, job)
            try:
                finished, again = await self._step(job, msgspec.json.decode(document), memory)
            except Conflict as conflict:
                log.info("%s: refreshing: %s", key, conflict)
                continue
            if finished:
                return again
        return 0.0

    async def _step(
        self, job: Job, document: Document, memory: _Memory
    ) -> tuple[bool, float | None]:
        """Observe and take one step.

        Return whether the sync is finished, and the seconds until the next one.
        """
        now = self._clock.now()
        record = location_to_query(job)
        remote: Remote | None = None
        observed: Observed = NotQueried()
        if record is not None:
            remote, observed = await self._observe(job, record, memory)
        stand_ins = self._stand_ins(document, record, memory)
        orphaning = ORPHAN_FINALIZER in job.metadata.finalizers
        if job.metadata.deleting and stand_ins is not None and not orphaning:
            orphaning = await stand_ins.orphaned()
        step = plan(Facts(job, document, observed, orphaning))
        todo = Work(self._client, self._recorder, job, document, remote, stand_ins, now)
        try:
            match step:
                case NothingToDo():
                    await self._drop_state(job.key)
                    return True, None
                case Wait(reason, message):
                    await todo.follow(observed)
                    return True, await self._report_trouble(todo, memory, remote, reason, message)
                case ReportStatus(copy):
                    finished = await todo.report(copy)
                    memory.stuck_reason, memory.repeated = "", 0
                    if remote is not None:
                        await remote.check_watch(copy)
                    return True, 0.0 if finished else RESYNC_SECONDS
                case Release():
                    await todo.release(step)
                    return True, None
                case _:
                    self._check_progress(memory, step)
                    await todo.take(step)
                    return False, None
        except Stuck as stuck:
            again = await self._report_trouble(todo, memory, remote, stuck.reason, stuck.message)
            return True, again
        except ApiError as error:
            if remote is None or not todo.asking_remote:
                raise
            if isinstance(error, Conflict):
                return False, None
            reason, message = describe(error, remote.target, remote.server)
            again = await self._report_trouble(todo, memory, remote, reason, message)
            return True, again

    async def _report_trouble(
        self, todo: Work, memory: _Memory, remote: Remote | None, reason: str, message: str
    ) -> float:
        """Report a problem in the Job's condition and by an Event; return the seconds until the
        next attempt."""
        moment, now = self._clock.monotonic(), self._clock.now()
        health = remote.health if remote is not None else None
        if health is not None and health.attempts:
            attempts = health.attempts
            seconds = max(health.next_try - moment, 0.05)
            due = now + timedelta(seconds=seconds)
        else:
            if reason != memory.stuck_reason:
                memory.stuck, memory.stuck_reason, memory.next_try_at = 0, reason, None
            if memory.next_try_at is None or moment >= memory.next_try:
                memory.stuck += 1
                memory.next_try = moment + backoff(memory.stuck)
                memory.next_try_at = now + timedelta(seconds=backoff(memory.stuck))
            attempts, due = memory.stuck, memory.next_try_at
            seconds = memory.next_try - moment
        text = f"{message}; attempt {attempts}, retrying at {time_text(due)}"
        await todo.trouble(reason, text, brief=message)
        return seconds

    def _check_progress(self, memory: _Memory, step: object) -> None:
        """Count repetitions of a change; raise Stuck at the third one.

        A remote client may undo our changes again and again, and must not cause a busy loop.
        """
        text = todo_text(step)
        if not text:
            return
        memory.repeated = memory.repeated + 1 if text == memory.last_change else 0
        memory.last_change = text
        if memory.repeated >= 3:
            memory.last_change = ""
            raise Stuck(
                "CopyIsChanged",
                f"another client of the remote cluster repeatedly reverts this: {text}",
            )

    # --- the remote side --------------------------------------------------------------------

    async def _observe(
        self, job: Job, record: CopyLocation, memory: _Memory
    ) -> tuple[Remote | None, Observed]:
        """Return the connection to the target and the observed copy; the connection is None without
        a usable kubeconfig."""
        try:
            remote = await self._remote(job, record, memory)
        except InvalidKubeconfig as error:
            reason = "TargetMissing" if isinstance(error, _TargetMissing) else "InvalidKubeconfig"
            return None, self._unreachable(job, memory, reason, str(error))
        health = remote.health
        if health.attempts and self._clock.monotonic() < health.next_try:
            return remote, self._unreachable(job, memory, health.reason, health.message)
        try:
            found = await remote.job(record.name)
            others = found is None or found["metadata"]["uid"] != record.uid
            pods_left = 0
            if record.uid and others:
                pods_left = await remote.pods_left(job.metadata.uid)
        except Conflict:
            raise
        except ApiError as error:
            reason, message = describe(error, remote.target, remote.server)
            return remote, self._unreachable(job, memory, reason, message)
        memory.lost_since = None
        remote.start()
        if found is None:
            return remote, Absent(pods_left, remote.server)
        return remote, FoundCopy(found, pods_left, remote.server)

    def _unreachable(
        self, job: Job, memory: _Memory, reason: str, message: str
    ) -> RemoteUnreachable:
        """Return the observation of an unreachable remote, with the seconds it has been so.

        They are the minimum of the monotonic time observed by this process and the wall-clock time
        since the condition changed, so that a jump of one clock does not exhaust the patience.
        """
        moment = self._clock.monotonic()
        if memory.lost_since is None:
            memory.lost_since = moment
        condition = job.condition(names.READY)
        if condition is None or condition.status == "True" or not condition.last_transition_time:
            by_wall = 0.0
        else:
            by_wall = (self._clock.now() - condition.last_transition_time).total_seconds()
        seconds = max(min(moment - memory.lost_since, by_wall), 0.0)
        return RemoteUnreachable(reason, message, seconds)

    async def _remote(self, job: Job, record: CopyLocation, memory: _Memory) -> Remote:
        """Return the connection for a Job, opened anew if the Secret changed.

        Raises InvalidKubeconfig.
        """
        place = (job.metadata.namespace, record.target, record.namespace)
        if memory.remote is not None and memory.remote != place:
            await self._release_remote(memory)
        memory.remote = place
        known = self._remotes.get(place)
        try:
            connection, version = await read_target(self._client, place[0], record.target)
        except _TargetMissing:
            if known is not None and job.metadata.deleting:
                # The namespace is being deleted, and its Secrets are deleted first.
                return known
            raise
        if known is not None:
            if self._versions[place] == version:
                return known
            await self._close_remote(place)
        remote = self._remotes[place] = Remote(
            record.target,
            record.namespace,
            connection,
            clock=self._clock,
            connect=self._connect,
            wake=self._enqueue_origin,
            intake=self._intake,
        )
        self._versions[place] = version
        return remote

    # --- memory -----------------------------------------------------------------------------

    def _memory_of(self, key: Key, job: Job) -> _Memory:
        """Return the state of the Job, creating it on first use."""
        memory = self._memories.get(key)
        if memory is None or memory.uid != job.metadata.uid:
            memory = self._memories[key] = _Memory(job.metadata.uid)
            self._keys[job.metadata.uid] = key
        return memory

    def _stand_ins(
        self, document: Document, record: CopyLocation | None, memory: _Memory
    ) -> StandIns | None:
        """Return the stand-in Pods of a Job, kept in `memory`; None if there are none."""
        if not self._with_stand_ins or record is None:
            return None
        if memory.stand_ins is None or memory.stand_ins.target != record.target:
            memory.stand_ins = StandIns(self._client, document, record.target)
        memory.stand_ins.job = document
        return memory.stand_ins

    async def _drop_state(self, key: Key) -> None:
        self._queue.drop(key)
        memory = self._memories.pop(key, None)
        if memory is not None:
            self._keys.pop(memory.uid, None)
            await self._release_remote(memory)

    async def _release_remote(self, memory: _Memory) -> None:
        """Close the Job's connection unless another Job uses it."""
        place, memory.remote = memory.remote, None
        if place is None or any(other.remote == place for other in self._memories.values()):
            return
        await self._close_remote(place)

    async def _close_remote(self, place: tuple[str, str, str]) -> None:
        remote = self._remotes.pop(place, None)
        if remote is not None:
            self._closing.append(remote)
            await remote.close()
            self._closing.remove(remote)


def _is_relevant(delta: Delta[Job]) -> bool:
    """Return whether more changed than the status, which this controller writes itself."""
    return delta.old is None or _relevant_state(delta.old) != _relevant_state(delta.new)


def _relevant_state(job: Job | None) -> object:
    """Return the parts of a Job to which this controller reacts."""
    metadata = job.metadata if job is not None else None
    return metadata and (
        metadata.uid,
        metadata.generation,
        metadata.annotations,
        metadata.finalizers,
        metadata.deletion_timestamp,
    )


class _TargetMissing(InvalidKubeconfig):
    """The target's Secret does not exist."""


async def read_target(client: Client, namespace: str, name: str) -> tuple[Connection, str]:
    """Return the connection described by a Secret, and the Secret's version.

    Raises InvalidKubeconfig.
    """
    try:
        document = await client.get(Key(_SECRETS, namespace, name))
    except NotFound as missing:
        raise _TargetMissing(
            f"target {name} not found: no such Secret in namespace {namespace}; create it with "
            f"onejob mirror add {name} --kubeconfig FILE"
        ) from missing
    secret: Document = msgspec.json.decode(document)
    place = f"secret {namespace}/{name}"
    data = secret.get("data", {}).get(names.KUBECONFIG_KEY)
    if data is None:
        raise InvalidKubeconfig(
            f"{place}: missing kubeconfig (key {names.KUBECONFIG_KEY}); run onejob mirror add "
            f"{name} --replace --kubeconfig FILE"
        )
    try:
        text = base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise InvalidKubeconfig(f"{place}: {names.KUBECONFIG_KEY} is not valid base64") from error
    return read_inline_kubeconfig(text, place), secret["metadata"]["resourceVersion"]


def todo_text(step: object) -> str:
    changes = getattr(step, "changes", None)
    return ", ".join(map(str, changes)) if changes else ""
