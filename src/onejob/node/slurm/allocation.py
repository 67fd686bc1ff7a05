"""One allocation: its folder, its files, and its state as read from them.

Everything that a restarted server needs is in the folder: the shape in `settings.json`, the
requests in `requests`, what became of them in `events`, and after the death of the pilot the rest
in the supervisor's journal.
"""

import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct, field

from onejob.node.runtime import AttemptRef
from onejob.node.slurm.mailbox import Inbox, Outbox
from onejob.node.slurm.sizing import Needs, Offer, Shape, minus
from onejob.node.supervisor.event_batching import describe
from onejob.node.supervisor.journal import NAME as JOURNAL
from onejob.node.supervisor.journal import Identity, Journal
from onejob.planning.pod.placement import Amounts

log = logging.getLogger(__name__)

#: A record of an attempt, as the supervisor reports it: kind, UID, container, attempt, and more.
Record: TypeAlias = list[Any]
#: submitted: sbatch was or is being called. up: its pilot works. closing: it starts no more Pods.
#: over: nothing of it runs any more.
Stage: TypeAlias = Literal["submitted", "up", "closing", "over"]

#: Kinds of records that are the end of an attempt.
ENDS: Final = frozenset({"exited", "refused", "lost"})


class Settings(Struct, frozen=True):
    """Contents of `settings.json`, which the pilot reads, too."""

    name: str
    shape: Shape
    whole: dict[str, int]
    walltime_seconds: float
    idle_seconds: float
    ends_with_server: bool
    pid_namespaces: bool = False
    submitted_at: float = 0.0


class Placed(Struct):
    """An attempt that an allocation was given."""

    #: Its start request, until the allocation has answered it.
    request: dict[str, Any] | None
    #: End of that request in the file; None if it was not written at once.
    offset: int | None
    #: Last record about it.
    record: Record
    demand: Amounts = field(default_factory=dict)
    grace_seconds: float = 0.0
    #: Whether the allocation's end is the reason for the attempt's.
    disrupted: bool = False
    #: Whether it is only remembered until it has ended.
    forgotten: bool = False

    @property
    def ended(self) -> bool:
        return self.record[0] in ENDS


class News(NamedTuple):
    """What a read of the events has brought."""

    records: list[Record]
    #: Answers to commands.
    answers: list[Record]
    #: Requests that will not be executed.
    returned: list[dict[str, Any]]
    #: UIDs of forgotten Pods of which an attempt has ended.
    forgotten: set[str]


class Allocation:
    """An allocation of one node, and the attempts in it."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder = folder
        self.settings = settings
        self.name = settings.name
        self.stage: Stage = "submitted"
        self.job = ""
        self.node = ""
        #: Reason why it is about to end or has ended, in Slurm's words or the pilot's.
        self.why = ""
        #: Whether Slurm or the pilot ends its Pods: their failures are then disruptions.
        self.disrupts = False
        #: Time of this process at which its pilot was last heard, or it was submitted; and since
        #: when it has been idle.
        self.heard_at = 0.0
        self.idle_since = 0.0
        #: Time of this process at which it began, as estimated from its first line.
        self.began_at: float | None = None
        #: Seconds by which this machine's clock is ahead of the node's.
        self.skew: float | None = None
        #: Queries of Slurm without failure that did not list it.
        self.absences = 0
        self.cancelled = False
        self.placed: dict[AttemptRef, Placed] = {}
        self._requests = Outbox(str(folder / "requests"))
        #: Lines that the file system has refused so far.
        self._unwritten: list[bytes] = []
        self._events = Inbox(str(folder / "events"))

    @classmethod
    def make(cls, folder: Path, settings: Settings) -> "Allocation":
        """Create the folder of a new allocation. Raises OSError."""
        folder.mkdir(mode=0o700)
        # Created before the other side looks for them: network file systems cache absence, too.
        for name in ("requests", "events"):
            (folder / name).touch(mode=0o600)
        made = cls(folder, settings)
        made.write_settings()
        return made

    @classmethod
    def recover(cls, folder: Path) -> "Allocation | None":
        """Return the allocation of an earlier server; None if its folder is incomplete, so that it
        was never submitted. Raises OSError."""
        try:
            text = (folder / "settings.json").read_bytes()
            settings = msgspec.json.decode(text, type=Settings)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        found = cls(folder, settings)
        if (folder / "job").exists():
            found.job = (folder / "job").read_text().strip()
        found._replay_requests()
        return found

    def write_settings(self) -> None:
        (self.folder / "settings.json").write_bytes(msgspec.json.encode(self.settings))

    def submitted_as(self, job: str) -> None:
        """Record the ID of its job."""
        self.job = job
        (self.folder / "job").write_text(job + "\n")

    # --- room

    @property
    def accepts(self) -> bool:
        return self.stage == "up"

    def offer(self, now: float) -> Offer:
        """Return its free room. `now` is the time of this process."""
        free: Amounts = self.settings.whole
        for placed in self.placed.values():
            if not placed.ended:
                free = minus(free, placed.demand)
        since = now if self.began_at is None else self.began_at
        return Offer(self.settings.shape, free, since + self.settings.walltime_seconds - now)

    @property
    def longest_grace(self) -> float:
        """Return the seconds that its supervisor needs at most to end its Pods."""
        running = (each.grace_seconds for each in self.placed.values() if not each.ended)
        return max(running, default=0.0)

    @property
    def has_all_ends(self) -> bool:
        """Return whether the files contain the end of every attempt. Blocks. Raises OSError."""
        ended = {AttemptRef(*each[1:4]) for each in self._journal_records() if each[0] in ENDS}
        return all(placed.ended or ref in ended for ref, placed in self.placed.items())

    @property
    def busy(self) -> bool:
        """Whether an attempt runs or may run in it."""
        return any(not placed.ended for placed in self.placed.values())

    # --- requests

    def spawn(self, items: list[tuple[dict[str, Any], Needs | None]]) -> None:
        """Request starts."""
        requests = [request for request, _ in items]
        demands = [{} if needs is None else needs.demand for _, needs in items]
        self.send({"do": "spawn", "items": requests, "demands": demands})
        offset = None if self._unwritten else self._requests.end
        for request, demand in zip(requests, demands, strict=True):
            self._place(request, demand, offset)

    def _place(self, request: dict[str, Any], demand: Amounts, offset: int | None) -> None:
        ref = AttemptRef(*request["claim"])
        record = ["started", *ref, 0.0]
        grace = float(request.get("grace", 0))
        self.placed[ref] = Placed(request, offset, record, demand, grace)

    def send(self, message: dict[str, Any]) -> None:
        """Append a message for the supervisor or the pilot, as soon as that is possible."""
        self._unwritten.append(msgspec.json.encode(message) + b"\n")
        self.flush()

    def flush(self) -> None:
        """Write the lines that could not be written before.

        Some of them may be repeated, which has no effect: the supervisor starts an attempt once.
        """
        if not self._unwritten:
            return
        try:
            self._requests.append(b"".join(self._unwritten))
        except OSError as error:
            log.warning("%s: cannot write requests, retrying: %s", self.name, error)
            return
        self._unwritten.clear()

    def forget(self, uids: set[str]) -> None:
        """Forget the attempts of Pods, once they have ended."""
        for ref in [ref for ref in self.placed if ref.uid in uids]:
            if self.placed[ref].ended or self.stage == "over":
                del self.placed[ref]
            else:
                self.placed[ref].forgotten = True
        if self.stage in ("up", "closing"):
            self.send({"do": "forget", "uids": sorted(uids)})

    def _replay_requests(self) -> None:
        """Restore the attempts from the file of requests. Raises OSError."""
        inbox = Inbox(str(self.folder / "requests"))
        while lines := inbox.read():
            for line, offset in lines:
                try:
                    message = json.loads(line)
                except ValueError:
                    # The last line of a server that was killed: its Pods are launched again.
                    continue
                self._replay_request(message, offset)

    def _replay_request(self, message: dict[str, Any], offset: int) -> None:
        if message.get("do") == "spawn":
            for item, demand in zip(message["items"], message["demands"], strict=True):
                self._place(item, demand, offset)
        elif message.get("do") == "forget":
            gone = set(message["uids"])
            self.placed = {ref: each for ref, each in self.placed.items() if ref.uid not in gone}

    # --- events

    def read(self) -> list[bytes]:
        """Return new lines of its pilot. Blocks. Raises OSError."""
        return [line for line, _ in self._events.read()]

    def take(self, lines: list[bytes], now: float, wall: float) -> News:
        """Apply lines of the pilot. `now` is the time of this process, `wall` that of its clock."""
        news = News([], [], [], set())
        for line in lines:
            try:
                message = json.loads(line)
            except ValueError:
                log.warning("%s: skipped an incomplete line of its pilot", self.name)
                continue
            self.heard_at = now
            self._take_one(message, news, now, wall)
        return news

    def _take_one(self, message: dict[str, Any], news: News, now: float, wall: float) -> None:
        if "now" in message or "up" in message:
            sent = message.get("now") or message["up"]["now"]
            behind = wall - sent
            # The sample with the least delay is the best one.
            if self.skew is None or abs(behind) < abs(self.skew):
                self.skew = behind
        if "up" in message:
            up = message["up"]
            self.job, self.node = up["job"] or self.job, up["node"]
            self.began_at = now if self.began_at is None else self.began_at
            self.idle_since = now
        elif "closing" in message:
            self.stage = "closing"
            if message["why"]:
                self.why, self.disrupts = message["why"], True
            end = message["closing"]
            news.returned.extend(
                self._return(lambda placed: placed.offset is not None and placed.offset > end)
            )
        elif "bye" in message:
            self.stage = "over"
            # Whatever was executed has been reported by now.
            news.returned.extend(self._return(lambda placed: True))
        elif "known" in message:
            if self.stage == "submitted":
                self.stage = "up"
            self._apply(message["known"], news)
        elif "events" in message:
            self._apply(message["events"], news)

    def _apply(self, records: list[Record], news: News) -> None:
        for record in records:
            if record[0] == "ran":
                news.answers.append(record)
                continue
            ref = AttemptRef(*record[1:4])
            placed = self.placed.get(ref)
            if placed is None:
                continue
            self._correct_times(record)
            placed.request = None
            if record[0] == "hindered":
                del self.placed[ref]
            elif placed.ended:
                # Reported twice: by a second supervisor, for instance.
                continue
            else:
                placed.record = record
                placed.disrupted = self.disrupts and _is_failure(record)
                if placed.forgotten and placed.ended:
                    del self.placed[ref]
                    news.forgotten.add(ref.uid)
            news.records.append(record)

    def _return(self, unread: Callable[[Placed], bool]) -> list[dict[str, Any]]:
        """Remove and return the unanswered requests that were not read."""
        refs = [
            ref
            for ref, placed in self.placed.items()
            if placed.request is not None and unread(placed)
        ]
        requests = [self.placed.pop(ref).request for ref in refs]
        return [request for request in requests if request is not None]

    def _correct_times(self, record: Record) -> None:
        """Convert the times in a record to this machine's clock, if the node's differs."""
        if self.skew is None or abs(self.skew) < _TOLERATED_SKEW_SECONDS:
            return
        for position in (4, 5) if record[0] in ENDS else (4,):
            if len(record) > position and isinstance(record[position], float | int):
                record[position] += self.skew if record[position] else 0.0

    def bury(self, lines: list[bytes], now: float, wall: float) -> News:
        """Apply the last lines of a dead pilot, then the journal; attempts without an end are lost.
        Raises OSError."""
        news = self.take(lines, now, wall)
        # What its processes did after its pilot's death followed from that.
        self.disrupts = True
        for attempt in self._journal_records():
            if attempt[0] in ENDS:
                self._apply([attempt], news)
        for ref, placed in self.placed.items():
            if not placed.ended:
                placed.record = ["lost", *ref, placed.record[4], wall, 0, 0, "", ""]
                placed.disrupted = True
                news.records.append(placed.record)
        self.stage = "over"
        return news

    def _journal_records(self) -> list[Record]:
        """Return the supervisor's records. Raises OSError."""
        with tempfile.TemporaryDirectory(prefix="onejob-journal-") as copy:
            path = Path(copy) / JOURNAL
            try:
                # A copy, because reading a journal compacts it.
                shutil.copyfile(self.folder / JOURNAL, path)
            except FileNotFoundError:
                return []
            journal = Journal(str(path), Identity("", 0, ""))
            return [describe(attempt) for attempt in journal.each()]


#: Differences between clocks below this are not distinguished from delays.
_TOLERATED_SKEW_SECONDS: Final = 2.0


def _is_failure(record: Record) -> bool:
    """Return whether an attempt has not ended with 0."""
    return record[0] == "lost" or (record[0] in ENDS and record[6] != 0)


def known_records(allocations: Mapping[str, Allocation]) -> list[Record]:
    """Return the last record of every attempt, ends after others."""
    records = [placed.record for each in allocations.values() for placed in each.placed.values()]
    return sorted(records, key=lambda record: record[0] in ENDS)
