"""Checks of the developer tools: pre-commit hooks and `make help`."""

import re
import shlex
import subprocess
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()


def _hooks() -> list[dict[str, str]]:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    return [hook for repo in config["repos"] for hook in repo["hooks"]]


def test_pre_commit_hooks_run_locked_tools_without_network() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert {repo["repo"] for repo in config["repos"]} == {"local"}
    assert {hook["language"] for hook in _hooks()} == {"system"}
    locked = set(re.findall(r"^([\w-]+)==", (ROOT / "requirements" / "dev.txt").read_text(), re.M))
    package = {"lint-imports": "import-linter"}
    tools = [Path(shlex.split(hook["entry"])[0]) for hook in _hooks()]
    assert {tool.parent.as_posix() for tool in tools} == {".venv/bin"}
    assert {package.get(tool.name, tool.name) for tool in tools} <= locked


def test_pre_commit_runs_every_tool_of_lint_and_types() -> None:
    recipes = re.findall(r"^(?:lint|types):.*\n((?:\t.*\n)+)", MAKEFILE, re.M)
    assert len(recipes) == 2
    tools = set(re.findall(r"\$\(BIN\)/((?:ruff )?[\w-]+)", "".join(recipes)))
    hooked = {
        " ".join(word for word in shlex.split(hook["entry"])[:2] if not word.startswith("-"))
        for hook in _hooks()
    }
    assert {f".venv/bin/{tool}" for tool in tools} == hooked


def test_make_help_lists_every_described_target_once() -> None:
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    described = re.findall(r"^([a-z0-9-]+):.*## ", MAKEFILE, re.M)
    assert sorted(re.findall(r"^  ([a-z0-9-]+)", shown, re.M)) == sorted(described)
    groups = re.findall(r"^\w+$", shown, re.M)
    assert groups[:2] == ["Run", "Develop"]
    assert len(groups) == len(set(groups))
