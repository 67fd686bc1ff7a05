"""Escape sequences in others' texts: they cannot take over the reader's terminal."""

import json

import pytest

from onejob.cli.display.tables import render_table
from onejob.cli.display.terminal import visible
from tests.build import a_job, shell
from tests.cli.command_line import CommandLine, job_yaml

CLEAR = "\x1b[2J\x1b]0;title\x07\x9b31m\x7f"
SHOWN = "^[[2J^[]0;title^G\\x9b31m^?"


@pytest.fixture(scope="module")
def hostile(served: CommandLine) -> CommandLine:
    """Create a failed Job that writes escape sequences wherever it can."""
    script = r"printf '\033[2J\033]0;title\007\n'; printf 'over\rwritten \033[2J' > m; exit 3"
    container = shell(
        script.replace("> m", "> $TMPDIR/m"),
        env=[{"name": "EVIL", "value": CLEAR}],
        terminationMessagePolicy="FallbackToLogsOnError",
    )
    annotations = {"note": CLEAR, "two": "a\r\nb"}
    document = a_job("hostile", container, metadata={"annotations": annotations}, backoffLimit=0)
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "evil"},
        "involvedObject": {"kind": "Job", "name": "hostile", "namespace": "default"},
        "reason": "Evil",
        "message": f"{CLEAR}\nsecond line",
        "type": "Warning",
    }
    for number, each in enumerate((document, event)):
        (served.home / f"hostile{number}.json").write_text(json.dumps(each))
        created = served.run("create", "-f", f"hostile{number}.json")
        assert created.returncode == 0, created.stderr
    assert served.run("wait", "job/hostile", "--timeout", "60s").returncode == 1
    return served


@pytest.mark.parametrize(
    "words",
    [
        ("describe", "job/hostile"),
        ("why", "job/hostile"),
        ("get", "events"),
        ("get", "jobs,pods", "-o", "wide"),
        ("get", "job/hostile", "-o", "json"),
        ("get", "job/hostile", "-o", "yaml"),
        ("get", f"job/{CLEAR}"),
        ("delete", f"job/{CLEAR}"),
    ],
    ids=lambda words: "-".join(words[:2]).encode("ascii", "ignore").decode()[:20],
)
def test_no_command_passes_escape_sequences_on(
    hostile: CommandLine, words: tuple[str, ...]
) -> None:
    done = hostile.run(*words)
    for text in (done.stdout, done.stderr):
        assert not [c for c in text if not c.isprintable() and c not in "\n\t"]


def test_object_texts_are_printed_with_escapes(hostile: CommandLine) -> None:
    described = hostile.run("describe", "job/hostile").stdout
    assert SHOWN in described
    assert "a\\r" in described
    assert f"{SHOWN}\\nsecond line" in hostile.run("get", "events").stdout
    assert "^[[2J^[]0;title^G" in hostile.run("why", "job/hostile").stdout
    document = json.loads(hostile.run("get", "job/hostile", "-o", "json").stdout)
    assert document["metadata"]["annotations"]["note"] == CLEAR


def test_logs_are_printed_unmodified(hostile: CommandLine) -> None:
    assert "\x1b[2J\x1b]0;title\x07" in hostile.run("logs", "job/hostile").stdout


def test_run_output_escapes_terminal_sequences(onejob: CommandLine) -> None:
    script = r"printf '\033[2J' > /dev/null; printf 'evil \033[2J\n'; exit 3"
    (onejob.home / "job.yaml").write_text(job_yaml("evil", script, spec="backoffLimit: 0"))
    done = onejob.run("run", "--quiet", "job.yaml")
    assert done.returncode == 1
    assert "\x1b" not in done.stderr
    assert "evil ^[[2J" in done.stderr


def test_tables_keep_their_rows() -> None:
    rows = [["x\ny\t\x1b[0m"], ["é ü 漢"]]
    assert render_table(["A"], rows, 80) == ["A", "x\\ny\\t^[[0m", "é ü 漢"]
    plain = "plain text, ünïcode, 漢字\n\tindented"
    assert visible(plain) == plain
