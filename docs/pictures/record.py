"""Makes the README's picture from a real run: `python docs/pictures/record.py` (needs tmux)."""

import io
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
COLUMNS, LINES = 92, 18
SECONDS_INTO_THE_RUN = 1.9


def main() -> None:
    with tempfile.TemporaryDirectory() as state:
        command = f"{sys.executable} -m onejob run --data-dir {state} {HERE / 'demo.yaml'}"
        tmux("new-session", "-d", "-s", "picture", "-x", str(COLUMNS), "-y", str(LINES), command)
        time.sleep(SECONDS_INTO_THE_RUN)
        screen = tmux("capture-pane", "-e", "-p", "-t", "picture")
        tmux("kill-session", "-t", "picture")
    lines = [line for line in screen.rstrip("\n").split("\n") if "running as root" not in line]
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi("$ onejob run demo.yaml\n" + "\n".join(lines)))
    svg = console.export_svg(title="onejob run")
    # The picture shall need nothing from elsewhere.
    (HERE / "run.svg").write_text(re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL))


def tmux(*words: str) -> str:
    return subprocess.run(["tmux", *words], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
