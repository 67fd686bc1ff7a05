"""Parser of pages: files to save and commands to run, from top to bottom.

Comments in a page's source, which its readers do not see, hold directives for the tests:

    <!-- guide: file job.yaml -->     the block below is saved under this name
    <!-- guide: skip REASON -->       the block below is not typed here
    <!-- guide: output -->            the block below shows something, nothing is typed
    <!-- guide: exit 1 -->            the last command of the block below ends with this code
    <!-- guide: needs go docker -->   the block below is typed where these programs are
    <!-- guide: download -->          the page is skipped if the block below fails
    <!-- guide: slow -->              the block below is typed by `make guides` only
    <!-- guide: slow rest -->         and so is the rest of the page
    <!-- guide: omit COMMAND: REASON -->  commands of the block below that begin so are not typed
    <!-- guide: interrupt 3 -->       the last command of the block gets Ctrl-C after 3 seconds
    <!-- guide: stand-in for REASON   commands that replace something that readers have: another
    COMMANDS                          cluster, a program or an image of theirs
    -->
    <!-- guide: check                 commands that look at the result, or wait for it
    COMMANDS
    -->

`stand-in slow: REASON` and `check slow` are for `make guides` only. Comments must not hide anything
that a reader has to type: a check that starts a server, creates objects or selects a kubeconfig is
refused.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "quickstart.md",
    ROOT / "docs" / "tutorial.md",
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
]

#: Languages of blocks that are typed; blocks in others must be files or be skipped.
_SHELL = ("", "sh")

_PART = re.compile(
    r"^ *<!-- guide: (?P<directive>.*?)-->$"
    r"|^(?P<indent> *)```(?P<language>\w*)\n(?P<block>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)
_DIRECTIVES = (
    *("file", "skip", "output", "exit", "needs", "slow", "omit", "interrupt", "download"),
    *("stand-in", "check"),
)
#: Commands that change the reader's environment, so that a page must show them.
_READERS_COMMAND = re.compile(
    r"\bonejob (serve|create|apply|run|delete)\b|\bkubectl (create|apply|run|label|delete)\b"
    r"|\bexport KUBECONFIG\b"
)


@dataclass(frozen=True)
class Block:
    """A fenced block, or the commands of a hidden comment, with its directives."""

    page: str
    line: int
    text: str
    language: str = ""
    #: Directives of the comments above it, by the first word.
    directives: dict[str, str] = field(default_factory=dict)
    #: Whether only `make guides` types it.
    slow: bool = False

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def skipped(self) -> str | None:
        """Return why it is not typed on this machine, or None."""
        if "skip" in self.directives:
            return self.directives["skip"]
        missing = [name for name in self.directives.get("needs", "").split() if not there(name)]
        return f"there is no {' and no '.join(missing)} here" if missing else None

    @property
    def left_out(self) -> str | None:
        """Return why it, or a part of it, is not typed here, or None."""
        return self.skipped or self.directives.get("omit")

    @property
    def file(self) -> str | None:
        return self.directives.get("file")

    @property
    def exit_code(self) -> int:
        """Return the exit code of its last command; all others succeed."""
        return int(self.directives.get("exit", "0"))

    @property
    def interrupted_after(self) -> int | None:
        """Return the seconds until its last command gets Ctrl-C, or None."""
        return int(self.directives["interrupt"]) if "interrupt" in self.directives else None

    def commands(self) -> list[str]:
        if "output" in self.directives or self.file is not None:
            return []
        if self.language not in _SHELL:
            raise ValueError(f"{self.place}: is this block a file or only shown? Say so above")
        omitted, _, _ = self.directives.get("omit", "").partition(": ")
        statements = _statements(_typed_lines(self.text))
        return [line for line in statements if not (omitted and line.startswith(omitted))]


def there(program: str) -> bool:
    return shutil.which(program) is not None


def blocks(page: Path) -> list[Block]:
    """Return all blocks of a page, in order."""
    return list(_blocks(page.name, page.read_text()))


def _blocks(name: str, text: str) -> Iterator[Block]:
    pending: dict[str, str] = {}
    slow_rest = False
    for match in _PART.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match["directive"] is None:
            block = _outdented(match["block"], len(match["indent"]))
            yield Block(
                name, line, block, match["language"], pending, slow_rest or "slow" in pending
            )
            pending = {}
            continue
        word, _, rest = match["directive"].strip().partition("\n")
        word, _, argument = word.partition(" ")
        if word not in _DIRECTIVES:
            raise ValueError(f"{name}:{line}: there is no directive {word!r}")
        slow_rest = slow_rest or (word, argument) == ("slow", "rest")
        if word in ("stand-in", "check"):
            if word == "stand-in" and not argument:
                raise ValueError(f"{name}:{line}: a stand-in for what?")
            if word == "check" and _READERS_COMMAND.search(rest):
                raise ValueError(f"{name}:{line}: a reader needs this command: show it")
            yield Block(name, line, rest + "\n", slow=slow_rest or argument.startswith("slow"))
        else:
            pending[word] = argument.strip()
    if pending.keys() - {"slow"}:
        raise ValueError(f"{name}: {sorted(pending)} at the end, with no block below")


def _outdented(text: str, width: int) -> str:
    return "".join(line[width:] or "\n" for line in text.splitlines(keepends=True))


def _typed_lines(text: str) -> list[str]:
    """Return the lines after a prompt, or all lines of a block without prompts."""
    lines = text.splitlines()
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")] or lines


def _statements(lines: list[str]) -> list[str]:
    """Join lines that are continued by a backslash, a here-document or a loop."""
    statements: list[str] = []
    begun = ""
    for line in lines:
        begun += line + "\n"
        if _is_whole(begun):
            if not begun.lstrip().startswith("#") and begun.strip():
                statements.append(begun.strip("\n"))
            begun = ""
    if begun:
        raise ValueError(f"not a whole command: {begun}")
    return statements


def _is_whole(text: str) -> bool:
    if text.endswith("\\\n"):
        return False
    checked = subprocess.run(
        ["bash", "-n"], input=text, capture_output=True, text=True, check=False
    )
    return checked.returncode == 0 and "here-document" not in checked.stderr
