"""What we print to: how wide it is, and whether it shows colours."""

import os
import shutil
import sys
from typing import Final, TextIO

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


def leave_unread() -> None:
    """Nobody reads what we print any more (a closed terminal, a pipe whose reader left): from
    now on printing goes nowhere, instead of failing at every turn and once more at exit."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)
