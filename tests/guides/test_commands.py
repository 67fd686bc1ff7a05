"""Syntax of all onejob commands in README, tutorial and guides, also of those not run here."""

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from onejob.cli.errors import CommandError
from onejob.cli.main import cli
from tests.guides.pages import PAGES, ROOT, blocks


def command_lines(page: Path) -> list[str]:
    """Return the lines of code that call onejob, with continued lines joined."""
    found = []
    for block in blocks(page):
        for line in block.text.replace("\\\n", " ").splitlines():
            line = line.removeprefix("$ ").strip()
            if re.match(r"onejob( [a-z]|$)", line) and not re.match(r"onejob v\d", line):
                found.append(line)
    return found


def parse(line: str) -> None:
    """Parse a command line without running it."""
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_of_a_guide_have_the_options_that_it_uses(page: Path) -> None:
    for line in command_lines(page):
        if "..." in line:
            continue
        try:
            parse(line)
        except (click.ClickException, CommandError) as error:
            pytest.fail(f"{page.name}: {line}: {error}")


def test_the_workflow_for_github_is_one() -> None:
    page = ROOT / "docs" / "how-to" / "ci.md"
    texts = [block.text for block in blocks(page) if block.file == ".github/workflows/jobs.yaml"]
    (text,) = texts
    (job,) = yaml.safe_load(text)["jobs"].values()
    assert all(("uses" in step) != ("run" in step) for step in job["steps"])


def test_a_guide_with_an_option_that_does_not_exist_is_found(tmp_path: Path) -> None:
    with pytest.raises(click.NoSuchOption):
        parse("onejob run --no-such-option job.yaml")
    with pytest.raises(AssertionError, match="there is no command"):
        parse("onejob fly away")
