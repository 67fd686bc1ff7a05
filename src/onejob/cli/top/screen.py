"""Full-screen terminal loop: redraws a snapshot and reads keys."""

import os
import select
import shutil
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from onejob.cli.display.terminal import visible
from onejob.cli.errors import CommandError
from onejob.cli.top.layout import as_lines
from onejob.cli.top.snapshot import TopSnapshot
from onejob.wire.errors import ApiError

_SORT_BY: Final[Mapping[bytes, str]] = {b"c": "cpu", b"m": "memory", b"a": "age", b"n": "name"}
_QUIT: Final = (b"q", b"Q", b"\x1b", b"\x04")
#: Seconds between two checks of the terminal's size.
_LOOK_SECONDS: Final = 0.25
#: Pause between requests as a multiple of their duration, so that a slow server gets fewer of them.
_REST: Final = 4.0

_ENTER: Final = "\x1b[?1049h\x1b[?25l"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_END_OF_LINE: Final = "\x1b[K"
_END_OF_SCREEN: Final = "\x1b[J"


def follow(read: Callable[[], TopSnapshot], key: str, interval: float, title: str) -> None:
    """Redraw until the user presses q. A failed request is shown and repeated."""
    snapshot: TopSnapshot | None = None
    problem = ""
    with _own_screen():
        while True:
            began = time.monotonic()
            try:
                snapshot, problem = read(), ""
            except (ApiError, CommandError) as error:
                problem = visible(f"error: {error.message}").replace("\n", " ")
            rest = max(interval, (time.monotonic() - began) * _REST)
            until = time.monotonic() + rest
            drawn: tuple[int, int] | None = None
            while time.monotonic() < until:
                size = shutil.get_terminal_size((80, 24))
                if drawn != size:
                    _draw(snapshot, problem, key, size, title)
                    drawn = size
                left = max(0.0, min(_LOOK_SECONDS, until - time.monotonic()))
                pressed = _key(left)
                if pressed in _QUIT:
                    return
                if pressed in _SORT_BY:
                    key, drawn = _SORT_BY[pressed], None


def _draw(
    snapshot: TopSnapshot | None, problem: str, key: str, size: os.terminal_size, title: str
) -> None:
    lines = [problem] if problem else []
    if snapshot is not None:
        lines += as_lines(snapshot, key, size.columns, size.lines - len(lines), title)
    shown = "\n".join(line[: size.columns] + _END_OF_LINE for line in lines[: size.lines])
    sys.stdout.write(_HOME + shown + _END_OF_SCREEN)
    sys.stdout.flush()


def _key(seconds: float) -> bytes:
    """Return the key pressed within `seconds`; b"" for none."""
    stdin = sys.stdin.fileno()
    readable, _, _ = select.select([stdin], [], [], seconds)
    if not readable:
        return b""
    # A closed terminal reads as end of file, which counts as q.
    pressed = os.read(stdin, 64)
    return pressed[:1] if pressed and len(pressed) == 1 else pressed or b"q"


@contextmanager
def _own_screen() -> Iterator[None]:
    """Switch to the alternate screen without echo; restore the terminal on exit and SIGTERM."""
    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    handler = signal.signal(signal.SIGTERM, _interrupt)
    try:
        tty.setcbreak(stdin)
        sys.stdout.write(_ENTER)
        yield
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTERM, handler)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
