"""Commands in README, tutorial and guides: all can be parsed, those of one guide are typed."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from onejob.cli.errors import CommandError
from onejob.cli.main import cli
from tests.e2e.serving import Server, end_supervisors

ROOT = Path(__file__).resolve().parents[1]
GUIDES = [
    ROOT / "README.md",
    ROOT / "docs" / "tutorial.md",
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
]
COMING_FROM = ROOT / "docs" / "how-to" / "coming-from.md"


def blocks(page: Path, language: str) -> list[str]:
    pattern = rf"^```{language}\n(.*?)^```$"
    return re.findall(pattern, page.read_text(), re.DOTALL | re.MULTILINE)


def command_lines(page: Path) -> list[str]:
    """Lines of code that call onejob, those that a backslash goes on with put together."""
    found = []
    for block in blocks(page, r"\w*"):
        for line in block.replace("\\\n", " ").splitlines():
            line = line.removeprefix("$ ").strip()
            if re.match(r"onejob( [a-z]|$)", line) and not re.match(r"onejob v\d", line):
                found.append(line)
    return found


def parse(line: str) -> None:
    """As the command would, without calling it."""
    words = shlex.split(line, comments=True)
    end = next((n for n, word in enumerate(words) if word in ("|", ">", "&", "&&", ";")), None)
    context = click.Context(cli, info_name="onejob")
    command: click.Command = cli
    rest = words[1:end]
    while isinstance(command, click.Group):
        assert rest, f"{line}: which command?"
        following = command.get_command(context, rest[0])
        assert following is not None, f"{line}: there is no command {rest[0]}"
        command, rest = following, rest[1:]
        context = click.Context(command, context, info_name=command.name)
    command.make_context(command.name, list(rest), parent=context.parent)


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_commands_of_a_guide_have_the_options_that_it_uses(page: Path) -> None:
    for line in command_lines(page):
        if "..." in line:
            continue
        try:
            parse(line)
        except (click.ClickException, CommandError) as error:
            pytest.fail(f"{page.name}: {line}: {error}")


def test_the_workflow_for_github_is_one() -> None:
    (text,) = blocks(ROOT / "docs" / "how-to" / "ci.md", "yaml")
    (job,) = yaml.safe_load(text)["jobs"].values()
    steps = job["steps"]
    assert all(("uses" in step) != ("run" in step) for step in steps)
    typed = [line for step in steps for line in step.get("run", "").splitlines()]
    assert "onejob validate k8s/" in typed


def test_a_guide_with_an_option_that_does_not_exist_is_found(tmp_path: Path) -> None:
    with pytest.raises(click.NoSuchOption):
        parse("onejob run --no-such-option job.yaml")
    with pytest.raises(AssertionError, match="there is no command"):
        parse("onejob fly away")


def test_who_comes_from_elsewhere_can_type_all_of_it(tmp_path: Path) -> None:
    (manifest,) = blocks(COMING_FROM, "yaml")
    (tmp_path / "report.yaml").write_text(manifest)
    data_dir = tmp_path / ".local" / "state" / "onejob"
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
    }
    outputs: dict[str, str] = {}
    data_dir.mkdir(mode=0o700, parents=True)
    server = Server(data_dir)
    server.start()
    try:
        for block in blocks(COMING_FROM, "sh"):
            for line in block.splitlines():
                done = subprocess.run(
                    ["bash", "-c", line],
                    cwd=tmp_path,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                )
                assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
                outputs[line] = done.stdout
    finally:
        server.stop()
        end_supervisors(data_dir)
    assert outputs["onejob results squares -o joblog"].count("\n") == 4
    assert outputs["onejob logs job/migrate"] == "migrating test\n"
