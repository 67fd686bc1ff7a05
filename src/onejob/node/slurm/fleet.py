"""Fleet: the allocations of a server, in the role of one supervisor.

`Fleet` receives the requests that the process runtime sends to its supervisor, places each start in
an allocation, and passes the answers of all pilots on. It submits allocations while Pods wait,
returns idle ones, and finds those of an earlier server.
"""

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec

from onejob.clock import Clock
from onejob.node.options import SlurmOptions
from onejob.node.process.supervisor_client import Conversation, SupervisorGone
from onejob.node.runtime import AttemptRef
from onejob.node.slurm.allocation import (
    Allocation,
    News,
    Record,
    Settings,
    known_records,
)
from onejob.node.slurm.commands import SlurmError, SlurmQueue, cancel, submission, submit
from onejob.node.slurm.pilot_script import pilot_script
from onejob.node.slurm.sizing import (
    GPU,
    Needs,
    Offer,
    Shape,
    fits,
    gpus_in,
    lacking,
    minus,
    shapes_to_submit,
)
from onejob.planning.pod.placement import Amounts

log = logging.getLogger(__name__)

#: Poll intervals of the pilots' files: after recent activity, and the longest.
_MIN_POLL_SECONDS: Final = 0.01
_MAX_POLL_SECONDS: Final = 0.25
_MANAGE_SECONDS: Final = 1.0
#: Seconds between signs of life to the pilots.
_ALIVE_SECONDS: Final = 15.0
#: Seconds before a failed submission is repeated; doubled up to the maximum.
_MIN_RETRY_SECONDS: Final = 5.0
_MAX_RETRY_SECONDS: Final = 300.0
#: Successful queries that do not list a job before it counts as absent: slurmctld may have been
#: restarted, and a job may not be listed while it is submitted.
_ABSENCES: Final = 2
#: Seconds in which pilots have to end their Pods beyond the grace period.
_PATIENCE_SECONDS: Final = 15.0
_OUTPUT_BYTES: Final = 400


class Fleet:
    """Allocations of one server.

    `on_delay` is called with attempts that wait for an allocation, and why. Concurrency: all
    methods run on the event loop; files are read in a worker thread.
    """

    def __init__(
        self,
        folder: Path,
        options: SlurmOptions,
        clock: Clock,
        *,
        server: str,
        whole: Amounts,
        ends_with_server: bool,
        isolates: bool,
        on_delay: Callable[[Sequence[AttemptRef], str], None],
    ) -> None:
        self._folder = folder
        self._options = options
        self._clock = clock
        self._prefix = f"onejob-{server}-"
        self._smallest = whole
        self._ends_with_server = ends_with_server
        self._isolates = isolates
        self._on_delay = on_delay
        self._allocations: dict[str, Allocation] = {}
        self._where: dict[AttemptRef, Allocation] = {}
        #: Start requests that wait for room, in order.
        self._waiting: dict[AttemptRef, dict[str, Any]] = {}
        self._needs: dict[str, Needs] = {}
        #: The reason that was last reported for a waiting attempt.
        self._told: dict[AttemptRef, str] = {}
        self._queue = SlurmQueue(self._prefix, options.query_seconds, clock.now)
        self._conversation: _Conversation | None = None
        self._reader = ThreadPoolExecutor(1, "slurm-files")
        self._tasks: list[asyncio.Task[None]] = []
        self._wake = asyncio.Event()
        #: Set when pilots have written.
        self._changed = asyncio.Event()
        self._manage_now = asyncio.Event()
        self._place_due = False
        self._number = 0
        #: Error of the last submission, and when to repeat it.
        self._problem = ""
        self._retry_at = 0.0
        self._retry_seconds = _MIN_RETRY_SECONDS
        self._next_alive = 0.0
        self._unused_since: float | None = None
        self._ending = False

    @property
    def queries(self) -> int:
        """Number of queries that Slurm was asked."""
        return self._queue.queries

    async def reach(self, directory: Path) -> tuple[Conversation, None]:
        """Return a connection to the fleet, after finding the allocations of an earlier server.
        Raises SupervisorGone."""
        if self._conversation is None:
            try:
                self._recover()
            except OSError as error:
                raise SupervisorGone(f"cannot use {self._folder}: {error}") from error
            self._tasks = [asyncio.create_task(self._relay()), asyncio.create_task(self._manage())]
        self._conversation = _Conversation(self._handle)
        return self._conversation, None

    async def close(self) -> None:
        """Stop all work; allocations and their Pods continue."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._reader.shutdown(wait=False)

    def announce(self, uid: str, needs: Needs) -> None:
        """Record the requirements of a Pod before its containers are launched."""
        self._needs[uid] = needs

    def disruption(self, ref: AttemptRef) -> str:
        """Return why an ended attempt was ended from outside; "" if it was not."""
        allocation = self._where.get(ref)
        placed = None if allocation is None else allocation.placed.get(ref)
        if allocation is None or placed is None or not placed.disrupted:
            return ""
        job = self._queue.jobs.get(allocation.name)
        why = job.state if job is not None and job.over else allocation.why or "it was lost"
        return f"Slurm allocation {allocation.job} on node {allocation.node or 'unknown'}: {why}"

    # --- requests of the runtime

    def _handle(self, message: dict[str, Any]) -> None:
        match message["do"]:
            case "hello":
                self._answer_hello()
            case "spawn":
                self._accept(message["items"])
            case "stop":
                self._stop(message["items"])
            case "forget":
                self._forget(set(message["uids"]))
            case "run":
                self._run(message)
            case "try":
                text = "the Slurm runtime does not support it"
                self._report([["ran", message["id"], 1, text]])
            case "end":
                task = asyncio.create_task(self._end_all())
                self._tasks.append(task)
            case _:
                pass

    def _answer_hello(self) -> None:
        assert self._conversation is not None, "it has just been made"
        self._conversation.answer(
            {
                "version": 1,
                "known": known_records(self._allocations),
                "folders": {},
                "rebooted": False,
                "settles": False,
                "isolates": self._isolates,
                "pid_namespace_problem": "",
                "limits_rights": True,
                "joins_groups": False,
            }
        )

    def _accept(self, items: Iterable[dict[str, Any]]) -> None:
        known: list[Record] = []
        for request in items:
            ref = AttemptRef(*request["claim"])
            allocation = self._where.get(ref)
            if allocation is None:
                self._waiting[ref] = request
            elif allocation.placed[ref].request is None:
                known.append(allocation.placed[ref].record)
        self._report(known)
        self._place_soon()

    def _stop(self, items: Iterable[list[Any]]) -> None:
        ended: list[Record] = []
        by_allocation: dict[str, list[list[Any]]] = {}
        for item in items:
            ref = AttemptRef(*item[:3])
            if ref in self._waiting:
                self._drop(ref)
                ended.append(_never_started(ref, self._clock.now().timestamp()))
            elif (allocation := self._where.get(ref)) is not None:
                by_allocation.setdefault(allocation.name, []).append(item)
        for name, stops in by_allocation.items():
            self._send(self._allocations[name], {"do": "stop", "items": stops})
        self._report(ended)

    def _forget(self, uids: set[str]) -> None:
        for ref in [ref for ref in self._waiting if ref.uid in uids]:
            self._drop(ref)
        for uid in uids:
            self._needs.pop(uid, None)
        allocations = {}
        for ref in [ref for ref in self._where if ref.uid in uids]:
            allocation = self._where[ref]
            allocations[allocation.name] = allocation
        for allocation in allocations.values():
            allocation.forget(uids)
            for ref in [ref for ref in self._where if ref.uid in uids]:
                if ref not in allocation.placed and self._where[ref] is allocation:
                    del self._where[ref]
            self._remove_if_done(allocation)
        self._place_soon()

    def _run(self, message: dict[str, Any]) -> None:
        ref = AttemptRef(*message["claim"])
        allocation = self._where.get(ref)
        if allocation is None or not self._send(allocation, message):
            self._report([["ran", message["id"], -1, "the container is not running"]])

    def _send(self, allocation: Allocation, message: dict[str, Any]) -> bool:
        """Send a message to an allocation; return whether that was possible."""
        if allocation.stage not in ("up", "closing"):
            return False
        allocation.send(message)
        self._wake.set()
        return True

    def _drop(self, ref: AttemptRef) -> None:
        del self._waiting[ref]
        self._told.pop(ref, None)

    def _report(self, records: list[Record]) -> None:
        if records and self._conversation is not None:
            self._conversation.answer({"events": records})

    # --- placement

    def _whole(self, shape: Shape) -> Amounts:
        """Return the capacity of an allocation."""
        gpus = gpus_in(shape.gres)
        return {**self._smallest, GPU: gpus} if gpus else self._smallest

    def _place_soon(self) -> None:
        if not self._place_due:
            self._place_due = True
            asyncio.get_running_loop().call_soon(self._place)

    def _place(self) -> None:
        """Give waiting attempts to allocations with room."""
        self._place_due = False
        now = asyncio.get_running_loop().time()
        offers = {each.name: each.offer(now) for each in self._allocations.values() if each.accepts}
        chosen: dict[str, list[tuple[dict[str, Any], Needs | None]]] = {}
        if not self._ending:
            homes = self._homes() if offers else {}
            for ref, request in self._waiting.items():
                name = self._choose(ref, homes, offers)
                if name:
                    chosen.setdefault(name, []).append((request, self._own_needs(ref, homes)))
                    homes[ref.uid] = name
        for name, items in chosen.items():
            self._give(self._allocations[name], items)
        if self._waiting:
            self._manage_now.set()

    def _choose(self, ref: AttemptRef, homes: dict[str, str], offers: dict[str, Offer]) -> str:
        """Return the name of an allocation for an attempt, and take its room; "" if there is none.

        Containers of a Pod that run at the same time run in one allocation; the first one takes the
        room of the Pod."""
        home = homes.get(ref.uid)
        if home is not None:
            return home if home in offers else ""
        needs = self._needs[ref.uid]
        for name, offer in offers.items():
            if fits(needs, offer):
                free = minus(offer.free, needs.demand)
                offers[name] = Offer(offer.shape, free, offer.seconds)
                return name
        return ""

    def _homes(self) -> dict[str, str]:
        """Return the names of allocations in which Pods run, by UID."""
        return {
            ref.uid: each.name for ref, each in self._where.items() if not each.placed[ref].ended
        }

    def _own_needs(self, ref: AttemptRef, homes: dict[str, str]) -> Needs | None:
        return None if ref.uid in homes else self._needs.get(ref.uid)

    def _give(
        self, allocation: Allocation, items: list[tuple[dict[str, Any], Needs | None]]
    ) -> None:
        allocation.spawn(items)
        for request, _ in items:
            ref = AttemptRef(*request["claim"])
            self._drop(ref)
            self._where[ref] = allocation
        self._wake.set()

    # --- messages of the pilots

    async def _relay(self) -> None:
        """Pass the pilots' messages on."""
        loop = asyncio.get_running_loop()
        pause = _MIN_POLL_SECONDS
        while True:
            live = [each for each in self._allocations.values() if each.stage != "over"]
            found = await loop.run_in_executor(self._reader, _read_all, live)
            for allocation, lines in found:
                self._take(allocation, lines)
            pause = _MIN_POLL_SECONDS if found else min(1.5 * pause, _MAX_POLL_SECONDS)
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()
                    pause = _MIN_POLL_SECONDS
                    await asyncio.sleep(pause)

    def _take(self, allocation: Allocation, lines: list[bytes]) -> None:
        before = allocation.stage
        self._changed.set()
        now = asyncio.get_running_loop().time()
        news = allocation.take(lines, now, self._clock.now().timestamp())
        if allocation.stage == "up" and before == "submitted":
            self._retry_seconds, self._problem = _MIN_RETRY_SECONDS, ""
        self._publish(allocation, news)

    def _publish(self, allocation: Allocation, news: News) -> None:
        """Report news of an allocation, and place what it has returned."""
        for request in news.returned:
            ref = AttemptRef(*request["claim"])
            self._where.pop(ref, None)
            self._waiting[ref] = request
        for record in news.records:
            if record[0] == "hindered":
                self._where.pop(AttemptRef(*record[1:4]), None)
        if not allocation.busy:
            allocation.idle_since = asyncio.get_running_loop().time()
        if news.forgotten:
            self._forget(news.forgotten)
        self._report([*news.records, *news.answers])
        if allocation.stage == "over":
            self._remove_if_done(allocation)
        self._place_soon()

    def _remove_if_done(self, allocation: Allocation) -> None:
        """Remove the folder of an allocation that has ended, and whose attempts are all stored."""
        if allocation.stage == "over" and not allocation.placed:
            self._allocations.pop(allocation.name, None)
            self._reader.submit(shutil.rmtree, allocation.folder, True)

    # --- allocations

    async def _manage(self) -> None:
        """Submit, return and check allocations, until the fleet is closed."""
        while True:
            try:
                await self._check_all()
                await self._resize()
                self._explain()
            except Exception:
                log.exception("managing Slurm allocations failed")
            self._manage_now.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_MANAGE_SECONDS):
                    await self._manage_now.wait()
                    # Launches come in batches.
                    await asyncio.sleep(_MIN_POLL_SECONDS)

    @property
    def _live(self) -> list[Allocation]:
        return [each for each in self._allocations.values() if each.stage != "over"]

    async def _check_all(self) -> None:
        """Detect allocations that did not begin, or that were lost."""
        now = asyncio.get_running_loop().time()
        if now >= self._next_alive:
            self._next_alive = now + _ALIVE_SECONDS
            for allocation in self._live:
                self._send(allocation, {"pilot": "alive"})
        for allocation in self._live:
            allocation.flush()
        doubtful = [
            each
            for each in self._live
            if each.stage == "submitted" or now - each.heard_at > self._options.lost_seconds / 2
        ]
        answers = self._queue.answers
        if doubtful and await self._queue.refresh([each.name for each in doubtful]):
            for each in doubtful:
                listed = each.name in self._queue.jobs
                if listed:
                    each.absences = 0
                    each.job = each.job or self._queue.jobs[each.name].id
                elif self._queue.answers > answers:
                    each.absences += 1
        for each in doubtful:
            await self._check(each)

    async def _check(self, allocation: Allocation) -> None:
        """Act on an allocation that was not heard of for a while."""
        now = asyncio.get_running_loop().time()
        silent = now - allocation.heard_at
        job = self._queue.jobs.get(allocation.name)
        gone = job.over if job is not None else allocation.absences >= _ABSENCES
        if not gone:
            stuck = allocation.stage != "submitted" and silent > self._options.cancel_seconds
            if stuck and not allocation.cancelled and allocation.job:
                log.warning("%s: cancelling it, its pilot is silent", allocation.name)
                await self._cancel([allocation])
            return
        if silent < self._options.lost_seconds and allocation.stage != "submitted":
            return
        fence = self._options.lost_seconds + allocation.longest_grace
        try:
            if allocation.stage != "submitted" and silent < fence and not allocation.has_all_ends:
                # Its supervisor, if alive, is ending its Pods.
                return
            begun = allocation.stage != "submitted"
            wall = self._clock.now().timestamp()
            if not allocation.why and job is not None:
                allocation.why = job.state
            lines = await self._read(allocation)
            news = allocation.bury(lines, now, wall)
        except OSError as error:
            log.warning("%s: cannot read its files: %s", allocation.name, error)
            return
        if not begun and not news.records:
            state = job.state if job is not None else "it disappeared"
            self._submission_failed(f"{state}: {_output(allocation)}" if job else state)
        log.warning("%s: allocation %s is lost", allocation.name, allocation.job)
        self._publish(allocation, news)

    async def _read(self, allocation: Allocation) -> list[bytes]:
        """Return new lines of a pilot, in the thread that reads them all. Raises OSError."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reader, allocation.read)

    async def _resize(self) -> None:
        """Submit allocations for waiting Pods; return those that are not needed."""
        if self._ending:
            return
        loop_time = asyncio.get_running_loop().time()
        live = self._live
        waiting = [self._needs[ref.uid] for ref in self._first_of_pods()]
        # Including those that have just begun: waiting Pods are placed a moment later.
        expected = [each.offer(loop_time) for each in live if each.stage in ("submitted", "up")]
        shapes = {needs.shape for needs in waiting}
        new = shapes_to_submit(
            waiting,
            expected,
            {shape: self._whole(shape) for shape in shapes},
            seconds=self._options.walltime_seconds,
            allowed=self._options.max_nodes - len(live),
        )
        missing = self._options.min_nodes - len(live) - len(new)
        new += [default_shape(self._options)] * max(missing, 0)
        if loop_time >= self._retry_at:
            for shape in new:
                if not await self._submit(shape):
                    break
        await self._return_unused(loop_time, waits=bool(waiting))

    def _first_of_pods(self) -> list[AttemptRef]:
        """Return one waiting attempt of each Pod that has no allocation."""
        homes = self._homes()
        first = {ref.uid: ref for ref in reversed(self._waiting) if ref.uid not in homes}
        return list(first.values())

    async def _submit(self, shape: Shape) -> bool:
        """Submit an allocation; return whether Slurm accepted it."""
        self._number += 1
        name = f"{self._prefix}{self._clock.now():%Y%m%dT%H%M%S}-{self._number}"
        settings = Settings(
            name=name,
            shape=shape,
            whole=dict(self._whole(shape)),
            walltime_seconds=self._options.walltime_seconds,
            idle_seconds=self._options.idle_seconds,
            ends_with_server=self._ends_with_server,
            submitted_at=self._clock.now().timestamp(),
        )
        try:
            allocation = Allocation.make(self._folder / name, settings)
        except OSError as error:
            self._submission_failed(f"cannot create {self._folder / name}: {error}")
            return False
        allocation.heard_at = asyncio.get_running_loop().time()
        self._allocations[name] = allocation
        argv = submission(
            shape,
            self._options,
            name=name,
            folder=str(allocation.folder),
            capacity=settings.whole,
        )
        try:
            allocation.submitted_as(await submit(argv, pilot_script(allocation.folder)))
        except (SlurmError, OSError) as error:
            self._submission_failed(str(error))
            if not isinstance(error, SlurmError) or error.unreachable:
                # It may have been submitted: the queue will show that.
                return False
            allocation.stage = "over"
            self._remove_if_done(allocation)
            return False
        log.info("%s: submitted as %s", name, allocation.job)
        return True

    def _submission_failed(self, problem: str) -> None:
        """Delay the next submission."""
        self._problem = problem
        self._retry_at = asyncio.get_running_loop().time() + self._retry_seconds
        self._retry_seconds = min(2 * self._retry_seconds, _MAX_RETRY_SECONDS)
        log.warning("cannot get an allocation: %s", problem)

    async def _return_unused(self, now: float, *, waits: bool) -> None:
        """End allocations that have been idle, and cancel those for which no Pod waits."""
        spare = len(self._live) - self._options.min_nodes
        for each in self._live:
            idle = each.stage == "up" and not each.busy
            if spare > 0 and idle and now - each.idle_since > self._options.idle_seconds:
                spare -= 1
                if self._send(each, {"pilot": "end"}):
                    each.stage = "closing"
        pending = [each for each in self._live if each.stage == "submitted" and each.job]
        if waits or not pending:
            self._unused_since = None
        elif self._unused_since is None:
            self._unused_since = now
        elif now - self._unused_since > self._options.idle_seconds and spare > 0:
            await self._cancel(pending[:spare])

    async def _cancel(self, allocations: list[Allocation]) -> None:
        try:
            await cancel([each.job for each in allocations if each.job])
        except SlurmError as error:
            log.warning("scancel: %s", error)
            return
        for each in allocations:
            each.cancelled = True

    # --- explanations

    def _explain(self) -> None:
        """Report why attempts wait, if that has changed."""
        by_reason: dict[str, list[AttemptRef]] = {}
        for ref in self._waiting:
            needs = self._needs.get(ref.uid)
            reason = "" if needs is None else self._reason(needs)
            if reason and self._told.get(ref) != reason:
                self._told[ref] = reason
                by_reason.setdefault(reason, []).append(ref)
        for reason, refs in by_reason.items():
            self._on_delay(refs, reason)

    def _reason(self, needs: Needs) -> str:
        """Return why a Pod waits, in Slurm's words."""
        if short := lacking(needs.demand, self._whole(needs.shape)):
            return f"it requests more {', '.join(short)} than an allocation has"
        if needs.seconds > self._options.walltime_seconds:
            return "it may run longer than the time limit of an allocation"
        for each in self._live:
            if each.stage == "submitted" and each.settings.shape == needs.shape:
                job = self._queue.jobs.get(each.name)
                if job is not None and job.reason not in ("", "None"):
                    return f"allocation {job.id} is {job.state.lower()}: {job.reason}"
                return f"allocation {each.job} is submitted" if each.job else self._problem
        if self._problem:
            return f"cannot get an allocation: {self._problem}"
        if len(self._live) >= self._options.max_nodes:
            return f"all allocations are in use, at most {self._options.max_nodes} are allowed"
        return ""

    # --- start and end

    def _recover(self) -> None:
        """Find the allocations of an earlier server. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        now = asyncio.get_running_loop().time()
        wall = self._clock.now().timestamp()
        for folder in sorted(self._folder.iterdir()):
            allocation = Allocation.recover(folder)
            if allocation is None:
                shutil.rmtree(folder, ignore_errors=True)
                continue
            allocation.heard_at = now
            self._allocations[allocation.name] = allocation
            while lines := allocation.read():
                news = allocation.take(lines, now, wall)
                for request in news.returned:
                    # The agent launches Pods without records again.
                    log.info("%s: %s was not started", allocation.name, request["claim"])
            if allocation.began_at is not None:
                age = wall - allocation.settings.submitted_at
                allocation.began_at = now - min(max(age, 0.0), allocation.settings.walltime_seconds)
            for ref in allocation.placed:
                self._where[ref] = allocation
            self._remove_if_done(allocation)

    async def _end_all(self) -> None:
        """End all Pods and allocations, then the conversation."""
        self._ending = True
        now = self._clock.now().timestamp()
        self._report([_never_started(ref, now) for ref in self._waiting])
        self._waiting.clear()
        up = [each for each in self._live if self._send(each, {"pilot": "end"})]
        pending = [each for each in self._live if each.stage == "submitted" and each.job]
        if pending:
            await self._cancel(pending)
        patience = max((each.longest_grace for each in up), default=0.0) + _PATIENCE_SECONDS
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while any(each.stage != "over" for each in up):
                    self._changed.clear()
                    await self._changed.wait()
        left = [each for each in up if each.stage != "over"]
        if left:
            await self._cancel(left)
        if self._conversation is not None:
            self._conversation.end()


class _Conversation(Conversation):
    """Connection of the process runtime to the fleet instead of a supervisor's socket."""

    def __init__(self, handle: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self._handle = handle

    def send_line(self, line: bytes) -> None:
        self._handle(msgspec.json.decode(line))

    def answer(self, message: dict[str, Any]) -> None:
        self.data_received(msgspec.json.encode(message) + b"\n")

    def end(self) -> None:
        self.connection_lost(None)

    def hang_up(self) -> None:
        """Do nothing: the fleet is closed separately."""


def default_shape(options: SlurmOptions) -> Shape:
    return Shape(options.partition, options.account, options.qos, options.constraint, options.gres)


def _never_started(ref: AttemptRef, at: float) -> Record:
    """Return the end of an attempt that was stopped while it waited."""
    return ["exited", *ref, 0.0, at, 137, 0, "", "stopped before it could be started", True, 0, 0]


def _read_all(allocations: Sequence[Allocation]) -> list[tuple[Allocation, list[bytes]]]:
    """Return the new lines of the allocations that have any."""
    found = []
    for allocation in allocations:
        try:
            lines = allocation.read()
        except OSError as error:
            log.warning("%s: cannot read its events: %s", allocation.name, error)
            continue
        if lines:
            found.append((allocation, lines))
    return found


def _output(allocation: Allocation) -> str:
    """Return the end of the output of an allocation that did not begin, in one line."""
    try:
        text = (allocation.folder / "output").read_bytes()[-_OUTPUT_BYTES:].decode(errors="replace")
    except OSError as error:
        return f"without output ({error.strerror})"
    return " ".join(text.split()) or "without output"
