"""What was started and how it ended, on disk before anybody acts on it.

A claim is written before its process exists, so whatever happens to this process or to the
server, an attempt is never made twice: a claim with neither exit nor living process is lost.

Claims are written at once, the rest by `flush`, before anybody is told. Lines are not synced:
they survive the death of every process. Only the machine's own end can lose them, and that is
noticed by the boot id in the first line: after a reboot nothing of this node can still run,
whatever the journal says.
"""

import json
import os
from collections.abc import Iterator
from typing import NamedTuple

from onejob.node.supervisor import linux

_json = json.JSONEncoder().encode


class Claim(NamedTuple):
    uid: str
    container: str
    attempt: int


class Attempt:
    """One claim and what became of it. `outcome` is None while it runs or may run."""

    __slots__ = ("claim", "folder", "mark", "named", "outcome", "pid", "start_ticks", "started_at")

    def __init__(self, claim: Claim, mark: int = 0, folder: str = "") -> None:
        self.claim = claim
        #: The claim as every line about the attempt has it.
        self.named = _named(claim)
        #: Where it starts.
        self.folder = folder
        #: How to recognise the process should its pid never be written down; 0 if it always is.
        self.mark = mark
        self.pid = 0
        #: The kernel's start time of the process: with the pid, it names it for good.
        self.start_ticks = 0
        self.started_at = 0.0
        self.outcome: Outcome | None = None


class Outcome(NamedTuple):
    """`kind`: exited (code, signal), refused (never began: reason, message) or lost."""

    kind: str
    at: float
    code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    #: Nothing that it started can still live.
    alone: bool = False


#: Rewrite the file once it has this many lines that no longer matter.
_COMPACT_AFTER = 4096


class Journal:
    def __init__(self, path: str, boot_id: str) -> None:
        self.path = path
        self.boot_id = boot_id
        self.attempts: dict[str, dict[str, dict[int, Attempt]]] = {}
        #: The machine went down since these records were made.
        self.rebooted = False
        self._lines = 0
        self._unwritten: list[bytes] = []
        self._replay()
        self.fd = -1
        self._rewrite()

    def claim(self, claim: Claim, mark: int, folder: str = "") -> Attempt:
        attempt = self._add(Attempt(claim, mark, folder))
        self._append(_claim_line(attempt))
        self.flush()
        return attempt

    def began(self, attempt: Attempt) -> None:
        attempt.start_ticks = linux.ticks_now()
        self._append(_pid_line(attempt.named, attempt.pid, attempt.start_ticks, 0.0))

    def flush(self) -> None:
        """Have everything that was said so far on record."""
        if self._unwritten:
            lines, self._unwritten = self._unwritten, []
            os.write(self.fd, b"".join(lines))

    def find(self, claim: Claim) -> Attempt | None:
        return self.attempts.get(claim.uid, {}).get(claim.container, {}).get(claim.attempt)

    def each(self) -> Iterator[Attempt]:
        for uid in self.attempts:
            yield from self.of(uid)

    def of(self, uid: str) -> Iterator[Attempt]:
        for attempts in self.attempts.get(uid, {}).values():
            yield from attempts.values()

    def pid_line(self, claim: Claim, pid: int, ticks: int, at: float) -> bytes:
        """Written to `fd` by a forked child itself, before it becomes the workload."""
        return _pid_line(_named(claim), pid, ticks, at)

    def end(self, attempt: Attempt, outcome: Outcome) -> None:
        attempt.outcome = outcome
        self._append(_end_line(attempt.named, outcome))

    def forget(self, uid: str) -> None:
        if self.attempts.pop(uid, None) is not None:
            self._append(f'["forget",{_json(uid)}]\n'.encode())
            if self._lines > _COMPACT_AFTER + 4 * len(self.attempts):
                self._rewrite()

    def _add(self, attempt: Attempt) -> Attempt:
        uid, container, number = attempt.claim
        self.attempts.setdefault(uid, {}).setdefault(container, {})[number] = attempt
        return attempt

    def _append(self, line: bytes) -> None:
        self._unwritten.append(line)
        self._lines += 1

    def _replay(self) -> None:
        try:
            with open(self.path, "rb") as file:
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return
        for line in lines:
            try:
                record = json.loads(line)
                self._apply(record[0], record[1:])
            except (ValueError, IndexError, TypeError):
                # A torn last line: its write was never acted upon.
                continue

    def _apply(self, kind: str, fields: list[object]) -> None:
        if kind == "boot":
            self.rebooted = fields[0] != self.boot_id
            return
        if kind == "forget":
            self.attempts.pop(str(fields[0]), None)
            return
        claim = Claim(str(fields[0]), str(fields[1]), int(str(fields[2])))
        if kind == "claim":
            # Earlier versions did not write the folder.
            folder = str(fields[4]) if len(fields) > 4 else ""
            self._add(Attempt(claim, int(str(fields[3])), folder))
            return
        attempt = self.find(claim)
        if attempt is None:
            return
        rest = fields[3:]
        if kind == "pid":
            attempt.pid, attempt.start_ticks = int(str(rest[0])), int(str(rest[1]))
            attempt.started_at = float(str(rest[2]))
        elif kind == "end":
            attempt.outcome = Outcome(
                str(rest[0]),
                float(str(rest[1])),
                int(str(rest[2])),
                int(str(rest[3])),
                str(rest[4]),
                str(rest[5]),
                rest[6:7] == [True],
            )

    def _rewrite(self) -> None:
        """Replace the file by one that says the same in fewer lines."""
        lines = [f'["boot",{_json(self.boot_id)}]\n'.encode()]
        for attempt in self.each():
            lines.append(_claim_line(attempt))
            if attempt.pid:
                ticks, at = attempt.start_ticks, attempt.started_at
                lines.append(_pid_line(attempt.named, attempt.pid, ticks, at))
            if attempt.outcome is not None:
                lines.append(_end_line(attempt.named, attempt.outcome))
        fresh = self.path + ".new"
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        os.write(fd, b"".join(lines))
        os.fsync(fd)
        os.rename(fresh, self.path)
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = fd
        self._lines = len(lines)
        # All of it is in the lines above.
        self._unwritten.clear()


# Put together by hand: four lines per container are a good part of what a short one costs.


def _named(claim: Claim) -> str:
    return f"{_json(claim.uid)},{_json(claim.container)},{claim.attempt}"


def _claim_line(attempt: Attempt) -> bytes:
    return f'["claim",{attempt.named},{attempt.mark},{_json(attempt.folder)}]\n'.encode()


def _pid_line(named: str, pid: int, ticks: int, at: float) -> bytes:
    return f'["pid",{named},{pid},{ticks},{at!r}]\n'.encode()


def _end_line(named: str, outcome: Outcome) -> bytes:
    kind, at, code, signal, reason, message, alone = outcome
    how = f"{_json(kind)},{at!r},{code},{signal},{_json(reason)},{_json(message)}"
    return f'["end",{named},{how},{"true" if alone else "false"}]\n'.encode()
