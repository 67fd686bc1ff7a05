"""Write-ahead journal of attempts: claims, starts and ends, recorded before they are acted upon.

A claim is written before its process exists, so an attempt is never made twice, even if the
supervisor or the server dies: a claim with neither an end nor a living process is lost.

Claims are written immediately, other records by `flush`, before they are reported to a client. Each
claim reserves disk space for all further records about it, so a full disk can only prevent new
claims. Records that cannot be written nevertheless are kept in memory, and `flush` tries again.

The first record identifies the machine's boot, the PID namespace and the folder of the claims. PIDs
of another boot or namespace are meaningless here, and PIDs in a copy of the folder belong to the
original: their claims are lost, and their processes are not searched for.

Records are JSON objects. Unknown fields are ignored and absent fields have a default, so fields can
be added. `versions.py` covers incompatible changes.
"""

import json
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from onejob.node.supervisor import linux
from onejob.node.supervisor.record_file import Record, RecordFile, frame
from onejob.node.supervisor.versions import JOURNAL, require_known_journal

#: Name of the file in the supervisor's folder.
NAME = "claims"

#: The text encoder of `JSONEncoder`, without its type check.
_text = json.encoder.encode_basestring_ascii


class Claim(NamedTuple):
    """Identity of an attempt."""

    uid: str
    container: str
    attempt: int


class Identity(NamedTuple):
    """Scope in which the PIDs of a journal are valid."""

    boot: str
    #: Inode of the PID namespace.
    namespace: int = 0
    #: Device and inode: different for a copy, unchanged if the folder is moved.
    folder: str = ""


class Attempt:
    """A claim and its result. `outcome` is None while it runs or may run."""

    __slots__ = ("claim", "command", "command_ticks", "folder", "foreign", "mark", "number",
                 "outcome", "pid", "slot", "start_ticks", "started_at")  # fmt: skip

    def __init__(self, claim: Claim, number: int, mark: int = 0, folder: str = "") -> None:
        self.claim = claim
        #: Number by which records refer to the claim.
        self.number = number
        #: Working directory.
        self.folder = folder
        #: Checksum to recognize the process if its PID is never recorded; 0 if it always is.
        self.mark = mark
        self.pid = 0
        #: Kernel start time of the process; together with the PID, it is unique.
        self.start_ticks = 0
        #: PID and start time of the command, if `pid` is the init of its PID namespace.
        self.command = 0
        self.command_ticks = 0
        self.started_at = 0.0
        self.outcome: Outcome | None = None
        #: Claimed in another scope, so that its PIDs are not valid here.
        self.foreign = False
        #: Offset at which a child records its own start; 0 if there is none, or after it has.
        self.slot = 0


class Outcome(NamedTuple):
    """`kind` is exited (code, signal), refused (never began: reason, message) or lost."""

    kind: str
    at: float
    code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    #: Whether no process started by it can still be alive.
    alone: bool = False
    #: Peak memory and CPU time of its processes; 0 if unknown.
    peak_kib: int = 0
    cpu_ms: int = 0


#: Number of obsolete records after which the file is rewritten.
_COMPACT_AFTER = 4096
#: Bytes reserved for the further records of an attempt without an outcome.
_ROOM_PER_ATTEMPT = 640
#: Share of it for the end record; its message is cut to fit if there is no other space.
_END_BYTES = 448
#: Bytes for a child's record of its own start.
SLOT_BYTES = 192


class Journal:
    """Attempts of the supervisor, in memory and in a write-ahead file.

    Guarantees: `claim` has written its record when it returns, and raises OSError if it could not.
    Other records are queued in memory and written by `flush`; space for the start and end of an
    attempt is reserved with its claim. A journal of another boot, PID namespace or folder sets
    `rebooted`.

    Requirements: call `flush` before reporting a start or an end to a client.
    """

    def __init__(self, path: str, identity: Identity) -> None:
        """Read the journal and compact it. Raises NewerVersion, leaving the file untouched."""
        require_known_journal(path)
        self.identity = identity
        self.attempts: dict[str, dict[str, dict[int, Attempt]]] = {}
        #: Records are of another boot, namespace or folder, or damaged, so that some may be
        #: missing; stays True until `settle`.
        self.rebooted = False
        #: Error of the last write; None if it succeeded.
        self.trouble: OSError | None = None
        self._path = path
        self._file = RecordFile(path)
        self._by_number: dict[int, Attempt] = {}
        self._last_number = 0
        self._found_identity: Identity | None = None
        #: Number of attempts without an outcome.
        self._open = 0
        self._records = 0
        self._unwritten: list[bytes] = []
        self._unwritten_bytes = 0
        #: Numbers of attempts whose end is not written yet.
        self._unrecorded_ends: set[int] = set()
        #: Numbers of attempts being started by a child, whose record goes to the present file.
        self._starting: set[int] = set()
        self._replay()
        #: Whether records were lost other than by an interrupted write.
        self.damaged = self._file.damaged
        # Synced, including a new file: a power failure may lose claims, but not their scope.
        if not self._rewrite() and self._found_identity != identity:
            self._append(_header_record(identity, unsettled=self.rebooted))

    @property
    def descriptor(self) -> int:
        """Descriptor of the file; -1 if there is none."""
        return self._file.fd

    def claim(
        self,
        claim: Claim,
        mark: int,
        folder: str = "",
        *,
        by_child: bool = False,
        init: tuple[int, int] | None = None,
    ) -> Attempt:
        """Record a claim; it is in the file, though not synced, when this returns. Raises OSError
        if the claim was not made.

        `by_child`: the process will record its own start, with `record_own_start`. `init`: PID and
        start time of the running init that will start the process.
        """
        attempt = Attempt(claim, self._last_number + 1, mark, folder)
        record = _claim_record(attempt, SLOT_BYTES if by_child else 0)
        if init is not None:
            attempt.pid, attempt.start_ticks = init
            record += frame(_start_payload(attempt))
        try:
            end = self._write(record, (self._open + 1) * _ROOM_PER_ATTEMPT)
        except OSError as error:
            self.trouble = error
            raise
        if by_child:
            attempt.slot = end - SLOT_BYTES
            self._starting.add(attempt.number)
        self._records += 1 if init is None else 2
        return self._add(attempt)

    def withdraw(self, attempt: Attempt) -> None:
        """Undo a claim for which no process was started; it may be claimed again."""
        self._close(attempt)
        self._remove(attempt)
        self._append(frame(b'{"k":"withdraw","n":%d}' % attempt.number))

    def began(self, attempt: Attempt) -> None:
        """Record the start of a process, given by `pid` and `started_at`, that does not do so
        itself."""
        attempt.start_ticks = linux.ticks_now()
        self._append(frame(_start_payload(attempt)))

    def command_began(self, attempt: Attempt, pid: int) -> None:
        """Record the command started by the init that was recorded before."""
        attempt.command, attempt.command_ticks = pid, linux.ticks_now()
        self._append(frame(_start_payload(attempt)))

    def record_own_start(self, claim: Claim, pid: int, at: float) -> None:
        """Record the start of the calling child, before it executes the workload. Raises
        OSError."""
        attempt = self.find(claim)
        assert attempt is not None, "only what is claimed is started"
        attempt.pid, attempt.start_ticks, attempt.started_at = pid, linux.ticks_now(), at
        self._file.fill_slot(attempt.slot, SLOT_BYTES, _start_payload(attempt))

    def child_settled(self, attempt: Attempt) -> None:
        """Read the child's own record, once it has executed the workload or has failed to."""
        if attempt.number in self._starting:
            self._starting.discard(attempt.number)
            try:
                self._apply_slot(attempt, self._file.slot_at(attempt.slot, SLOT_BYTES))
            except OSError as error:
                self.trouble = error
            attempt.slot = 0

    def flush(self) -> bool:
        """Write all pending records; return False if that is not possible at present."""
        if not self._unwritten:
            return True
        try:
            self._write(b"", 0)
        except OSError as error:
            self.trouble = error
            return False
        return True

    def is_reportable(self, attempt: Attempt) -> bool:
        """Return whether the attempt's state can be reported, because the next supervisor would
        derive the same from the file. A lost attempt can: it follows from a claim without an
        end."""
        outcome = attempt.outcome
        lost = outcome is not None and outcome.kind == "lost"
        return lost or attempt.number not in self._unrecorded_ends

    def find(self, claim: Claim) -> Attempt | None:
        """Return the attempt of a claim; None if it is unknown."""
        return self.attempts.get(claim.uid, {}).get(claim.container, {}).get(claim.attempt)

    def each(self) -> Iterator[Attempt]:
        """Yield all attempts."""
        for uid in self.attempts:
            yield from self.of(uid)

    def of(self, uid: str) -> Iterator[Attempt]:
        """Yield the attempts of a Pod."""
        for attempts in self.attempts.get(uid, {}).values():
            yield from attempts.values()

    def end(self, attempt: Attempt, outcome: Outcome) -> None:
        """Record the end of an attempt; its texts are shortened if there is no space for them."""
        self._close(attempt)
        attempt.outcome = outcome
        self._unrecorded_ends.add(attempt.number)
        record = _end_record(attempt.number, outcome)
        if len(record) > _END_BYTES and not self._has_spare(len(record)):
            record = _end_record(attempt.number, _truncate(outcome))
        self._append(record)

    def settle(self) -> None:
        """Record that the consequences of a reboot are stored elsewhere, and clear `rebooted`."""
        if self.rebooted:
            self.rebooted = False
            self._append(_header_record(self.identity, unsettled=False))

    def forget(self, uid: str) -> None:
        """Drop all attempts of a Pod. Recorded only if disk space permits: the server repeats the
        request."""
        if uid not in self.attempts:
            return
        self._drop(uid)
        record = frame(f'{{"k":"forget","uid":{_text(uid)}}}'.encode())
        if self._has_spare(len(record)):
            self._append(record)
        if self._records > _COMPACT_AFTER + 4 * len(self.attempts):
            self._rewrite()

    # --- state in memory

    def _add(self, attempt: Attempt) -> Attempt:
        """Register an attempt and return it."""
        uid, container, number = attempt.claim
        self.attempts.setdefault(uid, {}).setdefault(container, {})[number] = attempt
        self._by_number[attempt.number] = attempt
        self._last_number = max(self._last_number, attempt.number)
        self._open += 1
        return attempt

    def _close(self, attempt: Attempt) -> None:
        """Mark an attempt as finished."""
        if attempt.outcome is None:
            self._open -= 1
        self._starting.discard(attempt.number)

    def _remove(self, attempt: Attempt) -> None:
        """Forget an attempt."""
        uid, container, number = attempt.claim
        containers = self.attempts[uid]
        del containers[container][number]
        if not containers[container]:
            del containers[container]
        if not containers:
            del self.attempts[uid]
        del self._by_number[attempt.number]

    def _drop(self, uid: str) -> None:
        """Forget all attempts of a Pod."""
        for attempt in list(self.of(uid)):
            self._close(attempt)
            self._remove(attempt)

    # --- file

    def _append(self, record: bytes) -> None:
        """Queue a record for the next write."""
        self._unwritten.append(record)
        self._unwritten_bytes += len(record)
        self._records += 1

    def _write(self, record: bytes, reserve: int) -> int:
        """Write pending records followed by `record`, and reserve space for `reserve` more bytes;
        return the end offset. Raises OSError, in which case nothing was written."""
        if not self._file.usable and not self._rewrite():
            assert self.trouble is not None, "a rewrite that failed has said why"
            raise self.trouble
        data = b"".join(self._unwritten) + record
        if reserve:
            self._file.reserve(len(data) + reserve)
        end = self._file.append(data)
        self._all_written()
        return end

    def _has_spare(self, size: int) -> bool:
        """Return whether `size` bytes can be written without using the space reserved for open
        attempts."""
        wanted = self._unwritten_bytes + size + self._open * _ROOM_PER_ATTEMPT
        if self._file.room() >= wanted:
            return True
        try:
            self._file.reserve(wanted)
        except OSError:
            return False
        return True

    def _replay(self) -> None:
        """Read the existing file."""
        try:
            with open(self._path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return
        if data.startswith(b"["):
            self._replay_lines(data)
        else:
            for record in self._file.load(data):
                self._replay_record(record)
        moved = self._found_identity is not None and self._found_identity != self.identity
        self.rebooted = self.rebooted or moved or self._file.damaged

    def _replay_record(self, record: Record) -> None:
        fields = json.loads(record.payload)
        kind = fields["k"]
        if kind == "header":
            boot, namespace, folder = fields["boot"], fields["namespace"], fields["folder"]
            self._found_identity = Identity(boot, namespace, folder)
            self.rebooted = fields.get("unsettled", False)
        elif kind == "forget":
            self._drop(fields["uid"])
        elif kind == "claim":
            claim = Claim(fields["uid"], fields["container"], fields["attempt"])
            mark, folder = fields.get("mark", 0), fields.get("folder", "")
            attempt = self._add_replayed(Attempt(claim, fields["n"], mark, folder))
            self._apply_slot(attempt, record.slot)
        else:
            found = self._by_number.get(fields["n"])
            if found is not None:
                self._replay_change(found, kind, fields)
        self._records += 1

    def _add_replayed(self, attempt: Attempt) -> Attempt:
        """Register an attempt of the journal's earlier records, which may be of another boot."""
        attempt.foreign = self._found_identity != self.identity
        return self._add(attempt)

    def _replay_change(self, attempt: Attempt, kind: str, fields: dict[str, Any]) -> None:
        """Apply a record about an attempt."""
        if kind == "start":
            _apply_start(attempt, fields)
        elif kind == "end":
            self._close(attempt)
            attempt.outcome = Outcome(
                **{name: fields[name] for name in Outcome._fields if name in fields}
            )
        elif kind == "withdraw":
            self._close(attempt)
            self._remove(attempt)

    def _apply_slot(self, attempt: Attempt, text: bytes) -> None:
        if text:
            _apply_start(attempt, json.loads(text))

    def _rewrite(self) -> bool:
        """Replace the file by a compacted one of equal content; return False if that is not
        possible."""
        if self._starting:
            return False
        records = [_header_record(self.identity, unsettled=self.rebooted)]
        for attempt in self.each():
            records.append(_claim_record(attempt, 0))
            if attempt.pid:
                records.append(frame(_start_payload(attempt)))
            if attempt.outcome is not None:
                records.append(_end_record(attempt.number, attempt.outcome))
        try:
            self._file.replace(b"".join(records), self._open * _ROOM_PER_ATTEMPT)
        except OSError as error:
            self.trouble = error
            # Otherwise every forgotten Pod would trigger another try.
            self._records = 0
            return False
        self._records = len(records)
        # All pending records are contained in the ones above.
        self._all_written()
        return True

    def _all_written(self) -> None:
        self.trouble = None
        self._unwritten.clear()
        self._unwritten_bytes = 0
        self._unrecorded_ends.clear()

    # --- format of earlier versions

    def _replay_lines(self, data: bytes) -> None:
        """Read one JSON array per line. The last may be torn; its write was never acted upon."""
        for line in data.split(b"\n"):
            try:
                record = json.loads(line)
                self._replay_line(record[0], record[1:])
            except (ValueError, IndexError, TypeError):
                continue

    def _replay_line(self, kind: str, fields: list[Any]) -> None:
        if kind == "boot":
            # This version did not record its folder.
            self._found_identity = self.identity._replace(boot=fields[0])
        elif kind == "forget":
            self._drop(fields[0])
        elif kind == "claim":
            claim = Claim(str(fields[0]), str(fields[1]), int(fields[2]))
            folder = str(fields[4]) if len(fields) > 4 else ""
            self._add_replayed(Attempt(claim, self._last_number + 1, int(fields[3]), folder))
        elif (attempt := self.find(Claim(fields[0], fields[1], fields[2]))) is None:
            return
        elif kind == "pid":
            attempt.pid, attempt.start_ticks = int(fields[3]), int(fields[4])
            attempt.started_at = float(fields[5])
        elif kind == "end":
            how, at, code, signal, reason, message = fields[3:9]
            self._close(attempt)
            alone = fields[9:10] == [True]
            attempt.outcome = Outcome(
                how, float(at), int(code), int(signal), reason, message, alone
            )


def identity_of(folder: str) -> Identity:
    place = os.stat(folder)
    namespace = os.stat("/proc/self/ns/pid").st_ino
    return Identity(linux.boot_id(), namespace, f"{place.st_dev}:{place.st_ino}")


def _apply_start(attempt: Attempt, fields: dict[str, Any]) -> None:
    attempt.pid, attempt.start_ticks = fields["pid"], fields["ticks"]
    attempt.started_at = fields["at"]
    attempt.command, attempt.command_ticks = fields.get("command", 0), fields.get("cticks", 0)


def _truncate(outcome: Outcome) -> Outcome:
    """Return the outcome with texts so short that its record always fits."""
    # In the worst case, each character takes six bytes.
    return outcome._replace(reason=outcome.reason[:16], message=outcome.message[:24])


# Formatted by hand: encoding three records per container is a considerable part of the cost of a
# short one.


def _header_record(identity: Identity, *, unsettled: bool) -> bytes:
    fields = {"k": "header", "version": JOURNAL, **identity._asdict()}
    if unsettled:
        fields["unsettled"] = True
    return frame(json.dumps(fields).encode())


def _claim_record(attempt: Attempt, slot_bytes: int) -> bytes:
    uid, container, number = attempt.claim
    named = f'"uid":{_text(uid)},"container":{_text(container)},"attempt":{number}'
    how = f'"mark":{attempt.mark},"folder":{_text(attempt.folder)}'
    return frame(f'{{"k":"claim","n":{attempt.number},{named},{how}}}'.encode(), slot_bytes)


def _start_payload(attempt: Attempt) -> bytes:
    pid, ticks, at = attempt.pid, attempt.start_ticks, attempt.started_at
    command = ""
    if attempt.command:
        command = f',"command":{attempt.command},"cticks":{attempt.command_ticks}'
    start = f'"pid":{pid},"ticks":{ticks},"at":{at!r}{command}'
    return f'{{"k":"start","n":{attempt.number},{start}}}'.encode()


def _end_record(number: int, outcome: Outcome) -> bytes:
    kind, at, code, signal, reason, message, alone, peak_kib, cpu_ms = outcome
    how = f'"kind":{_text(kind)},"at":{at!r},"code":{code},"signal":{signal}'
    why = f'"reason":{_text(reason)},"message":{_text(message)}'
    used = f',"peak_kib":{peak_kib},"cpu_ms":{cpu_ms}' if peak_kib else ""
    rest = f'"alone":{"true" if alone else "false"}{used}'
    return frame(f'{{"k":"end","n":{number},{how},{why},{rest}}}'.encode())
