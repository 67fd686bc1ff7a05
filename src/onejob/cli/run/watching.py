"""`onejob run --watch`: repeat a run in a child process when one of its files changes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from onejob.cli.errors import EXIT_INTERRUPTED, CommandError

_POLL_SECONDS: Final = 0.2
_SUFFIXES: Final = (".yaml", ".yml", ".json")

#: Modification time and size of each watched file.
Snapshot = dict[str, tuple[int, int]]


def run_on_changes(words: Sequence[str], files: Sequence[str], command: Sequence[str]) -> int:
    """Run until Ctrl-C: at once, and after each change.

    Manifests are watched, and the files that a command names. A run that is under way ends
    gracefully first, as with Ctrl-C.
    """
    watched = [*files, *(word for word in command if os.path.isfile(word))]
    if not watched or any(name == "-" or "://" in name for name in watched):
        raise CommandError("--watch requires local files", "specify a file or a folder")
    at = words.index("--") if "--" in words else len(words)
    own = [*(word for word in words[:at] if word != "--watch"), *words[at:]]
    try:
        while True:
            before = snapshot(watched)
            with subprocess.Popen([sys.executable, "-P", "-m", "onejob", *own]) as child:
                try:
                    _follow(child, watched, before)
                except KeyboardInterrupt:
                    # The terminal has interrupted the child, too.
                    child.wait()
                    raise
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _follow(child: "subprocess.Popen[bytes]", watched: Sequence[str], before: Snapshot) -> None:
    """Return after a change, when the child has ended."""
    announced = False
    while True:
        if changed := differing(before, snapshot(watched)):
            print(f"note: {changed} changed: running again", file=sys.stderr, flush=True)
            if child.poll() is None:
                child.send_signal(signal.SIGINT)
            child.wait()
            return
        if not announced and child.poll() is not None:
            print("note: waiting for a change (Ctrl-C ends)", file=sys.stderr, flush=True)
            announced = True
        time.sleep(_POLL_SECONDS)


def snapshot(watched: Sequence[str]) -> Snapshot:
    """Return the state of all files, with those inside of folders. Absent files are left out."""
    found: Snapshot = {}
    for name in watched:
        place = Path(name)
        inside = place.iterdir() if place.is_dir() else (place,)
        for file in inside:
            if file != place and file.suffix not in _SUFFIXES:
                continue
            try:
                status = file.stat()
            except OSError:
                continue  # Editors replace files: it is back a moment later.
            found[str(file)] = (status.st_mtime_ns, status.st_size)
    return found


def differing(before: Snapshot, now: Snapshot) -> str:
    """Return the first file that was changed or added; "" if there is none."""
    return next((name for name, state in sorted(now.items()) if before.get(name) != state), "")
