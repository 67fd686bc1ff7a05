"""`onejob run --watch`: repeated runs of changed files."""

import os
import signal
from pathlib import Path

import pytest

from onejob.cli.run.watching import differing, snapshot
from tests.cli.command_line import CommandLine


def test_run_is_repeated_after_a_change_until_interrupted(onejob: CommandLine) -> None:
    script = onejob.home / "task.sh"
    script.write_text("echo first version\n")
    process = onejob.start("run", "--watch", "--plain", "--", "sh", "task.sh")
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert any("] first version" in line for line in process.stdout)
        script.write_text("echo the second version\n")
        assert any("] the second version" in line for line in process.stdout)
    finally:
        process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    process.stdout.close()
    assert "task.sh changed: running again" in process.stderr.read()
    process.stderr.close()


@pytest.mark.parametrize("words", [("--", "true"), ("-",), ("http://localhost/job.yaml",)])
def test_watch_requires_a_local_file(onejob: CommandLine, words: tuple[str, ...]) -> None:
    refused = onejob.run("run", "--watch", *words)
    assert refused.returncode == 2
    assert "--watch requires local files" in refused.stderr


def test_differing_finds_changed_and_added_manifests_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a")
    (tmp_path / "notes.txt").write_text("a")
    before = snapshot([str(tmp_path)])
    (tmp_path / "notes.txt").write_text("changed")
    assert differing(before, snapshot([str(tmp_path)])) == ""
    os.utime(tmp_path / "a.yaml", ns=(1, 1))
    assert differing(before, snapshot([str(tmp_path)])).endswith("a.yaml")
    before = snapshot([str(tmp_path)])
    (tmp_path / "b.yaml").write_text("b")
    assert differing(before, snapshot([str(tmp_path)])).endswith("b.yaml")


def test_differing_ignores_a_file_that_an_editor_replaces(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("a")
    before = snapshot([str(file)])
    file.unlink()
    assert differing(before, snapshot([str(file)])) == ""
