"""What we print to: how wide it is, and whether it shows colours."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO, cast

import msgspec

#: Used where nothing knows the width: a pipe must not wrap or cut anything.
UNLIMITED: Final = 1_000_000


class Terminal(msgspec.Struct, frozen=True):
    interactive: bool
    colour: bool
    width: int

    def paint(self, text: str, style: str) -> str:
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if self.colour and text else text


_CODES: Final = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}


def terminal_of(stream: TextIO | None = None) -> Terminal:
    stream = stream or sys.stdout
    interactive = stream.isatty() and os.environ.get("TERM") != "dumb"
    colour = interactive and not os.environ.get("NO_COLOR")
    width = shutil.get_terminal_size((80, 24)).columns if interactive else UNLIMITED
    return Terminal(interactive, colour, width)


#: Everything that terminals act upon instead of showing it, but for line ends and tabs.
_CONTROLS: Final = {
    **{code: f"^{chr(code + 64)}" for code in range(0x20) if chr(code) not in "\n\t"},
    ord("\r"): "\\r",
    0x7F: "^?",
    **{code: f"\\x{code:02x}" for code in range(0x80, 0xA0)},
}


def visible(text: str) -> str:
    """What others wrote (messages, annotations, output) may hold escape sequences that change a
    terminal or what it seems to say. These are shown, as kubectl does, not obeyed."""
    return text if text.isprintable() else text.translate(_CONTROLS)


class _VisibleStream:
    """A stream that makes everything visible that is written to it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(visible(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def only_visible_output() -> Iterator[None]:
    stdout, stderr = sys.stdout, sys.stderr
    sys.stdout = cast("TextIO", _VisibleStream(stdout))
    sys.stderr = cast("TextIO", _VisibleStream(stderr))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = stdout, stderr


def leave_unread() -> None:
    """Nobody reads what we print any more (a closed terminal, a pipe whose reader left): from
    now on printing goes nowhere, instead of failing at every turn and once more at exit."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)
