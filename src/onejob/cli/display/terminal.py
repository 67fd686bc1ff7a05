"""Terminal capabilities (width, colours) and escaping of control characters."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO, cast

import msgspec

#: Width where none is known: output to a pipe must not be wrapped or truncated.
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


#: Control characters that terminals interpret instead of showing, except newlines and tabs.
_CONTROLS: Final = {
    **{code: f"^{chr(code + 64)}" for code in range(0x20) if chr(code) not in "\n\t"},
    ord("\r"): "\\r",
    0x7F: "^?",
    **{code: f"\\x{code:02x}" for code in range(0x80, 0xA0)},
}


def visible(text: str) -> str:
    """Return text with control characters made visible, as kubectl does.

    Text from elsewhere (messages, annotations, output) may contain escape sequences that change a
    terminal or falsify its contents.
    """
    return text if text.isprintable() else text.translate(_CONTROLS)


class _VisibleStream:
    """Stream wrapper that makes control characters visible in everything written."""

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


def silence_output() -> None:
    """Redirect stdout and stderr to /dev/null after their reader has gone.

    After a closed terminal or pipe, later prints, and the flush at exit, would fail.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)
