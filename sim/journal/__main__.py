"""Replay of recorded planner inputs, `make replay`: compare present decisions with recorded ones.

If a decision was changed on purpose, review the printed differences, then run `make replay-record`.
"""

import argparse
import logging
import os
import sys
from pathlib import Path

import msgspec

from sim.journal.entries import Entry, differences
from sim.journal.recording import Recorder, read_journal, write_journal
from sim.world import simulate

#: Kept with the sources: recorded by the last version whose decisions were meant to differ.
KEPT = Path(__file__).parent / "kept.jsonl.gz"
_HASHING = "PYTHONHASHSEED"
_MAX_REPORTED_CHANGES = 10


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="sim.journal", description=__doc__)
    parser.add_argument("journal", nargs="?", type=Path, default=KEPT)
    parser.add_argument("--record", action="store_true", help="write the journal anew")
    parser.add_argument("--seeds", type=int, default=12, help="worlds to record (default 12)")
    options = parser.parse_args()
    if options.record:
        return _record(options.journal, options.seeds)
    return _replay(options.journal)


def _record(path: Path, seeds: int) -> int:
    if _HASHING not in os.environ:
        # As in `sim`: the order of sets must not differ between processes.
        arguments = [sys.executable, "-m", "sim.journal", *sys.argv[1:]]
        os.execve(sys.executable, arguments, {**os.environ, _HASHING: "0"})
    logging.basicConfig(level=logging.CRITICAL)
    recorder = Recorder()
    with recorder.listening():
        for seed in range(seeds):
            simulate(seed)
    write_journal(path, recorder.entries)
    print(
        f"{path}: {len(recorder.entries)} of {recorder.asked} questions, "
        f"{path.stat().st_size:,} bytes"
    )
    return 0


def _replay(path: Path) -> int:
    entries = read_journal(path)
    changed = list(differences(entries))
    for number, entry, now in changed[:_MAX_REPORTED_CHANGES]:
        print(f"{entry.planner}, question {number}:")
        for line in explained(entry, now):
            print(f"    {line}")
    print(
        f"{len(entries)} questions, {len(changed)} decided otherwise than when they were recorded"
    )
    return 1 if changed else 0


def explained(entry: Entry, now: object) -> list[str]:
    """Return the fields of a decision that differ, before and after."""
    before = entry.decision
    if not isinstance(before, dict) or not isinstance(now, dict):
        return [f"was {_text(before)}", f"is  {_text(now)}"]
    lines: list[str] = []
    for field in dict.fromkeys([*before, *now]):
        if before.get(field) != now.get(field):
            lines.append(f"{field} was {_text(before.get(field))}")
            lines.append(f"{field} is  {_text(now.get(field))}")
    return lines


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


if __name__ == "__main__":
    sys.exit(main())
