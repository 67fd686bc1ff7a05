"""Every command of the tutorial, typed in its order by somebody new."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.e2e.serving import KUBECTL, Server, end_supervisors

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"

#: Commands that are meant to fail, and how.
FAILING = {"onejob run --name flaky": 1, "onejob run -- ./squares.py": 1}


def commands(text: str) -> list[str]:
    """What the reader types: lines behind a prompt, or all lines of a block without prompts."""
    typed: list[str] = []
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        if language:
            continue
        lines = block.splitlines()
        prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        typed += prompted or [line for line in lines if not line.startswith("error:")]
    return [line for line in typed if not line.startswith("pip ")]


def test_the_tutorial_works_from_top_to_bottom(tmp_path: Path) -> None:
    text = TUTORIAL.read_text()
    (manifest,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "squares.yaml").write_text(manifest)
    data_dir = tmp_path / ".local" / "state" / "onejob"
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
    }
    server: Server | None = None
    typed = commands(text)
    assert len(typed) > 10, typed
    try:
        for line in typed:
            if line.startswith("kubectl") and KUBECTL is None:
                continue
            if line.startswith("export "):
                name, _, value = line.removeprefix("export ").partition("=")
                environment[name] = value.replace("~", str(tmp_path))
            elif line == "onejob serve":
                server = Server(data_dir)
                server.start()
            else:
                type_in(line, tmp_path, environment)
                if line.startswith("kubectl apply"):
                    # A reader is slower than a test: the Pods have started by then.
                    type_in("onejob wait job/squares", tmp_path, environment)
    finally:
        if server is not None:
            server.stop()
        end_supervisors(data_dir)


def type_in(line: str, folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    expected = next((code for start, code in FAILING.items() if line.startswith(start)), 0)
    assert done.returncode == expected, f"{line}\n{done.stdout}{done.stderr}"
