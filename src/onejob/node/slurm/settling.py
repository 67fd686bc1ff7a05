"""End of an allocation whose pilot has died. Limited to the standard library.

The journal has all attempts that were started. So no request without an entry there was executed,
or ever will be, once the supervisor is dead.
"""

import json
import os
import signal
import time
from typing import Any

from onejob.node.slurm.mailbox import Outbox
from onejob.node.supervisor import journal, linux
from onejob.node.supervisor.event_batching import describe
from onejob.node.supervisor.journal import Journal, identity_of
from onejob.node.supervisor.processes import kill_survivors, wait_until_gone

_POLL_SECONDS = 0.1
_NAME = "supervisor"
#: Beyond the end of any file: nothing is returned before the journal was read.
_NO_OFFSET = 1 << 62


def record_supervisor(folder: str, pid: int) -> None:
    """Record the supervisor of an allocation."""
    with open(os.path.join(folder, _NAME), "w", encoding="ascii") as file:
        file.write(f"{pid} {linux.ticks_now()}")


def settle_allocation(folder: str, beat_seconds: float) -> None:
    """Wait until the supervisor has ended all Pods, or do that in its place; then report all
    attempts."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    outbox = Outbox(os.path.join(folder, "events"))
    _say(outbox, {"closing": _NO_OFFSET, "why": "its pilot was killed"})
    _wait_for_supervisor(folder, outbox, beat_seconds)
    known: list[Any] = []
    if os.path.exists(os.path.join(folder, journal.NAME)):
        records = Journal(os.path.join(folder, journal.NAME), identity_of(folder))
        survivors = kill_survivors(records, time.time_ns() / 1e9)
        records.flush()
        for pid in survivors:
            wait_until_gone(pid)
        known = [describe(attempt) for attempt in records.each()]
    _say(outbox, {"known": known})
    _say(outbox, {"bye": 0})


def _wait_for_supervisor(folder: str, outbox: Outbox, beat_seconds: float) -> None:
    try:
        with open(os.path.join(folder, _NAME), encoding="ascii") as file:
            pid, ticks = map(int, file.read().split())
    except (FileNotFoundError, ValueError):
        # The pilot was killed before it had started one.
        return
    next_beat = 0.0
    number = 0
    while linux.began_at(pid, ticks):
        if time.monotonic() >= next_beat:
            next_beat = time.monotonic() + beat_seconds
            number -= 1
            _say(outbox, {"beat": number, "now": time.time_ns() / 1e9})
        time.sleep(_POLL_SECONDS)


def _say(outbox: Outbox, line: dict[str, Any]) -> None:
    """Write a line, as soon as that is possible."""
    text = json.dumps(line, separators=(",", ":")).encode() + b"\n"
    while True:
        try:
            outbox.append(text)
            return
        except OSError:
            time.sleep(1)
