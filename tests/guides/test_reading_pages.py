"""Parser of pages: files, commands and directives in their order."""

from pathlib import Path

import pytest

from tests.guides.pages import Block, blocks
from tests.guides.terminal import Terminal

_PAGE = """
<!-- guide: check
first
-->
Save it:

<!-- guide: file job.yaml -->
```yaml
kind: Job
```

1. Indented:

   ```
   for name in a b; do
     echo $name \\
       more
   done          # says why

   # nothing but words
   cat <<'EOF'
   text
   EOF
   ```

<!-- guide: slow -->
<!-- guide: omit make: it takes hours -->
```sh
$ make all
what it prints
$ second
```
"""


def _read(folder: Path, text: str) -> list[Block]:
    page = folder / "page.md"
    page.write_text(text)
    return blocks(page)


def test_a_page_is_files_and_commands_in_order(tmp_path: Path) -> None:
    check, file, listed, last = _read(tmp_path, _PAGE)
    assert check.commands() == ["first"]
    assert (file.file, file.commands()) == ("job.yaml", [])
    loop = "for name in a b; do\n  echo $name \\\n    more\ndone          # says why"
    assert listed.commands() == [loop, "cat <<'EOF'\ntext\nEOF"]
    assert last.commands() == ["second"]
    assert (last.slow, listed.slow) == (True, False)
    assert last.left_out == "make: it takes hours"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<!-- guide: fly -->\n```\ntrue\n```\n", "page.md:1: there is no directive 'fly'"),
        ("```python\n1\n```\n", "page.md:1: is this block a file or only shown"),
        ("```\nfor a in b; do\n```\n", "not a whole command"),
        ("<!-- guide: exit 1 -->\n", "with no block below"),
        ("<!-- guide: stand-in\ntrue\n-->\n", "page.md:1: a stand-in for what"),
        ("<!-- guide: check\nonejob serve\n-->\n", "page.md:1: a reader needs this command"),
        ("<!-- guide: check\nexport KUBECONFIG=x\n-->\n", "a reader needs this command"),
    ],
)
def test_page_without_instructions_is_rejected(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        [block.commands() for block in _read(tmp_path, text)]


def test_a_command_that_fails_is_found(tmp_path: Path) -> None:
    with Terminal(tmp_path / "home") as terminal:
        terminal.type("export WORD=kept; cd /")
        assert terminal.type('echo "$WORD $PWD"') == "kept /\n"
        with pytest.raises(AssertionError, match="ended with 3, not 0:\nbad"):
            terminal.type("echo bad; (exit 3)")
