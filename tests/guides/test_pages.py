"""Execution of each page by a new reader in an empty home folder."""

from pathlib import Path

import pytest

from tests.e2e.serving import needs_kubectl
from tests.guides.pages import PAGES, Block, blocks
from tests.guides.terminal import Terminal

LEFT_OUT = [block for page in PAGES for block in blocks(page) if block.left_out is not None]


def follow(page: Path, home: Path, *, slow: bool) -> str:
    with Terminal(home, patience=900 if slow else 120) as terminal:
        for block in blocks(page):
            if block.skipped is None and (slow or not block.slow):
                _type_block(terminal, block)
        return terminal.text


def _type_block(terminal: Terminal, block: Block) -> None:
    if block.file is not None:
        terminal.save(block.file, block.text)
    commands = block.commands()
    for number, command in enumerate(commands, 1):
        code = block.exit_code if number == len(commands) else 0
        if block.interrupted_after is not None and number == len(commands):
            command, code = f"timeout --signal=INT {block.interrupted_after} {command}", 124
        try:
            terminal.type(command, code)
        except AssertionError as error:
            if "download" in block.directives:
                pytest.skip(f"{block.place}: cannot be had here: {str(error)[-200:]}")
            raise AssertionError(f"{block.place}: {error}") from None


def _name(page: Path) -> str:
    return page.stem


@needs_kubectl
@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_all_of_a_page_can_be_typed(page: Path, tmp_path: Path) -> None:
    follow(page, tmp_path / "home", slow=False)


@needs_kubectl
@pytest.mark.guides
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(block.slow for block in blocks(page))], ids=_name
)
def test_all_of_a_slow_page_can_be_typed(page: Path, tmp_path: Path) -> None:
    follow(page, tmp_path / "home", slow=True)


@pytest.mark.parametrize("block", LEFT_OUT, ids=lambda block: block.place)
def test_guide_commands_that_cannot_run_are_skipped(block: Block) -> None:
    pytest.skip(f"{block.place}: {block.left_out}")
