"""Screen of the terminal: control sequences become lines of cells; keys become what xterm sends."""

import json
from collections.abc import Sequence
from typing import Any

from tests.ui.page_modules import evaluate

_SHOW = """
const textOf = (line) => line.map((cell) => cell.text).join("").trimEnd();
const runOf = ({ text, look }) => [text, look.fg, look.bg, look.bold];
return JSON.map((texts) => {
  const replies = [];
  const screen = new page.Screen(10, 4, (text) => replies.push(text));
  for (const text of texts) screen.write(text);
  return {
    lines: screen.lines.map(textOf), above: screen.above.map(textOf),
    cursor: [screen.row, screen.column], replies, shown: screen.cursorShown,
    runs: screen.lines.map((line) => page.runsOf(line).map(runOf)),
  };
});
"""


def _all_shown(*cases: Sequence[str]) -> list[dict[str, Any]]:
    """Return the screen after each sequence of writes."""
    texts = [list(case) for case in cases]
    found: list[dict[str, Any]] = evaluate("terminal", _SHOW.replace("JSON", json.dumps(texts)))
    return found


def _shown(*texts: str) -> dict[str, Any]:
    return _all_shown(texts)[0]


def test_lines_wrap_scroll_and_are_kept_above() -> None:
    found = _shown("one\r\ntwo\r\n0123456789abc\r\nlast\r\n")
    assert found["above"] == ["one", "two"]
    assert found["lines"] == ["0123456789", "abc", "last", ""]
    assert found["cursor"] == [3, 0]


_SEQUENCES = [
    ("abc\b\bX", ["aXc", "", "", ""]),
    ("a\tb", ["a       b", "", "", ""]),
    ("abc\x1b[2D\x1b[K", ["a", "", "", ""]),
    ("abc\x1b[1K", ["", "", "", ""]),
    ("abc\r\x1b[P", ["bc", "", "", ""]),
    ("abc\r\x1b[2@", ["  abc", "", "", ""]),
    ("abcd\r\x1b[2X", ["  cd", "", "", ""]),
    ("a\r\nb\r\nc\x1b[H\x1b[L", ["", "a", "b", "c"]),
    ("a\r\nb\r\nc\x1b[H\x1b[M", ["b", "c", "", ""]),
    ("a\r\nb\x1b[2J", ["", "", "", ""]),
    ("\x1b[3;5Hx\x1b[Ay", ["", "     y", "    x", ""]),
    ("a\r\nb\r\nc\r\nd\x1b[2;3r\x1b[3;1H\n", ["a", "c", "", "d"]),
    ("a\x1b[H\x1bMb", ["b", "a", "", ""]),
    ("shell\x1b[?1049hvim\x1b[?1049l", ["shell", "", "", ""]),
    ("\x1b]0;title\x07x", ["x", "", "", ""]),
    ("\x1b(0lqk\x1b(B!", ["┌─┐!", "", "", ""]),
    ("\x1b7ab\x1b8c", ["cb", "", "", ""]),
    ("safe\u202egnp", ["safe\ufffdgnp", "", "", ""]),
]


def test_control_sequences() -> None:
    written = [text for text, _ in _SEQUENCES]
    wanted = [lines for _, lines in _SEQUENCES]
    # Also in the smallest pieces.
    found = _all_shown(*([text] for text in written), *written)
    assert [one["lines"] for one in found] == wanted * 2


def test_colours_replies_and_the_cursor() -> None:
    found = _shown("a\x1b[1;31mb\x1b[0;48;5;200mc\x1b[38;2;1;2;3md\x1b[m\x1b[6n\x1b[?25l")
    rgb = 0x1000000 + 0x010203
    assert found["runs"][0] == [
        ["a", -1, -1, False],
        ["b", 1, -1, True],
        ["c", -1, 200, False],
        ["d", rgb, 200, False],
    ]
    assert found["replies"] == ["\x1b[1;5R"]
    assert not found["shown"]


def test_hostile_sequences_end() -> None:
    found = _shown("\x1b[999999999999S\x1b[999999999L\x1b[9999999999@\x1b[" + "9" * 9000, "mx")
    assert "x" in "".join(found["lines"])


def test_keys() -> None:
    script = """
    const key = (key, more = {}, app = false) => page.keyText(
      { key, ctrlKey: false, altKey: false, metaKey: false, shiftKey: false, ...more }, app);
    return [
      key("a"), key("c", { ctrlKey: true }), key("Enter"), key("ArrowUp"), key("ArrowUp", {}, true),
      key("ArrowLeft", { ctrlKey: true }), key("Delete"), key("x", { altKey: true }), key("Shift"),
      key("v", { metaKey: true }), key(" ", { ctrlKey: true }),
    ];"""
    assert evaluate("terminal", script) == [
        *("a", "\x03", "\r", "\x1b[A", "\x1bOA", "\x1b[1;5D", "\x1b[3~", "\x1bx", "", "", "\0"),
    ]


def test_smaller_screen_keeps_the_line_of_the_cursor() -> None:
    script = """
    const screen = new page.Screen(10, 4);
    screen.write("a\\r\\nb\\r\\nc\\r\\nd");
    screen.resize(10, 2);
    screen.write("!");
    const textOf = (line) => line.map((cell) => cell.text).join("");
    return [screen.above.length, screen.lines.map(textOf)];
    """
    assert evaluate("terminal", script) == [2, ["c", "d!"]]
