"""Probe runner: runs `python -m onejob.benchmarks MODULE:FUNCTION SIZES` in a fresh process."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from onejob.benchmarks.results import Measurement

_TICK_SECONDS = 0.5
#: Timeout in seconds, far longer than any probe takes; a hung probe must not block the others for
#: ever.
_TIMEOUT_SECONDS = 1_800.0


class ProbeFailed(Exception):
    """A probe could not measure. The message is its last line of stderr."""


def run_probe(
    probe: str,
    sizes: Mapping[str, int],
    tick: Callable[[float], None] = lambda seconds: None,
    *,
    before: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Measurement:
    """Run a probe and return its measurement. Raises ProbeFailed.

    `tick` is called periodically with the elapsed seconds. `before` is a command prefix, like `perf
    stat`; the environment is inherited unless given.
    """
    command = [
        *before,
        sys.executable,
        "-m",
        "onejob.benchmarks",
        probe,
        msgspec.json.encode(sizes).decode(),
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    start = time.monotonic()
    try:
        while True:
            try:
                output, errors = process.communicate(timeout=_TICK_SECONDS)
                break
            except subprocess.TimeoutExpired:
                elapsed = time.monotonic() - start
                if elapsed > _TIMEOUT_SECONDS:
                    raise ProbeFailed(f"{probe} takes too long") from None
                tick(elapsed)
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        raise ProbeFailed(_last_line(errors.decode("utf-8", "replace")) or f"{probe} failed")
    return msgspec.json.decode(output, type=Measurement)


def _last_line(errors: str) -> str:
    """Return the last non-empty line; exception groups end in a frame."""
    lines = [line.strip(" |+-") for line in errors.splitlines()]
    return next((line for line in reversed(lines) if line), "")
