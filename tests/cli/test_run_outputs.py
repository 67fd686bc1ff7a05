"""Machine-readable output of a run: raw output, a file for each Pod, JUnit, annotations."""

import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from onejob.cli.run.github import annotations
from onejob.cli.run.junit import junit_xml
from onejob.cli.run.outputs import FolderOutput
from onejob.cli.run.progress import RunProgress
from tests.cli.build import NOON, a_job, a_pod, after, finished
from tests.cli.command_line import CommandLine


def a_failed_run() -> RunProgress:
    run = RunProgress()
    job = run.expect(a_job(spec={"backoffLimit": 0}), NOON)
    job.saw_pod(a_pod("pi-a"), NOON, deleted=False)
    pod = a_pod("pi-a", "Failed", exit_code=3, ended_at=after(1), message="50% done: stop, now")
    job.saw_pod(pod, after(1), deleted=False)
    status = finished("Failed", "BackoffLimitExceeded", "limit\nreached")
    job.saw_job(a_job(status=status), after(2), deleted=False)
    return run


def test_raw_output_is_unmodified(onejob: CommandLine) -> None:
    script = r"printf '10%%\r100%%\n\377\000 no end'; echo problem >&2"
    done = subprocess.run(
        onejob.arguments("run", "-o", "raw", "--", "sh", "-c", script),
        capture_output=True,
        env=onejob.environment,
        cwd=onejob.home,
        timeout=60,
        check=True,
    )
    assert done.stdout.replace(b"problem\n", b"") == b"10%\r100%\n\xff\x00 no end"
    assert done.stdout.count(b"problem\n") == 1
    assert b"job/sh: Complete" in done.stderr


def test_raw_output_is_whole_however_much_it_is(onejob: CommandLine) -> None:
    done = onejob.run("run", "-q", "-o", "raw", "--", "seq", "400000")
    assert done.returncode == 0
    assert done.stdout == "".join(f"{n}\n" for n in range(1, 400001))
    assert done.stderr == ""


def test_each_pod_gets_a_file_and_the_run_a_report(onejob: CommandLine) -> None:
    done = onejob.run(
        *("run", "--output-dir", "logs/new", "--junit", "report.xml", "--completions", "2"),
        *("--indexed", "--name", "pi", "--", "sh", "-c"),
        'echo "i am $JOB_COMPLETION_INDEX"; exit $JOB_COMPLETION_INDEX',
        GITHUB_ACTIONS="true",
    )
    assert done.returncode == 1
    texts = {path.name[:4]: path.read_text() for path in (onejob.home / "logs/new").iterdir()}
    assert texts == {"pi-0": "i am 0\n", "pi-1": "i am 1\n"}
    (suite,) = Xml.parse(onejob.home / "report.xml").getroot()
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == (
        "default/pi",
        "2",
        "1",
    )
    good, bad = suite
    assert (good.get("name"), list(good)) == ("pi[0]", [])
    assert bad.get("name") == "pi[1]"
    assert bad[0].text == "| i am 1"
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("::")]
    assert line.startswith("::error title=job/pi Failed::FailedIndexes: ")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--junit", "no/such/report.xml"), "--junit no/such/report.xml: no such directory"),
        (("--output-dir", "file/logs"), "--output-dir file/logs: Not a directory"),
        (("--dry-run", "client", "-o", "raw"), "-o raw prints container output"),
    ],
)
def test_places_that_cannot_be_written_are_named_first(
    onejob: CommandLine, words: tuple[str, ...], error: str
) -> None:
    (onejob.home / "file").write_text("in the way")
    done = onejob.run("run", *words, "--", "touch", "ran")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {error}")
    assert not (onejob.home / "ran").exists()


def test_a_folder_that_cannot_be_written_to_is_named_once(tmp_path: Path) -> None:
    notices: list[str] = []
    output = FolderOutput(tmp_path / "gone", notices.append)
    for _ in range(2):
        output.write("pi-a", "", b"x")
        output.end("pi-a", "")
    assert notices == [f"cannot write to {tmp_path / 'gone'} any more: No such file or directory"]


def test_containers_of_one_pod_have_files_of_their_own(tmp_path: Path) -> None:
    output = FolderOutput(tmp_path, lambda text: pytest.fail(text))
    for container in ("main", "side", "main"):
        output.write("pi-a", container, container.encode())
        output.end("pi-a", container)
    assert (tmp_path / "pi-a.main.log").read_bytes() == b"mainmain"
    assert sorted(os.listdir(tmp_path)) == ["pi-a.main.log", "pi-a.side.log"]


def test_annotations_are_escaped_as_github_wants_it() -> None:
    assert annotations(a_failed_run(), {"uid-of-pi-a": ["a::b"]}) == (
        "::error title=job/pi Failed::BackoffLimitExceeded: limit reached%0A"
        "pod pi-a: exit code 3: 50%25 done: stop, now%0A| a::b\n"
    )


def test_a_run_that_went_well_has_no_annotations() -> None:
    run = RunProgress()
    job = run.expect(a_job(), NOON)
    job.saw_job(a_job(status=finished("Complete", "x")), after(1), deleted=False)
    assert annotations(run, {}) == ""
    (suite,) = Xml.fromstring(junit_xml(run, after(1), {}))
    assert (suite.get("tests"), suite.get("failures"), suite.get("time")) == ("1", "0", "1.000")


def test_junit_report_is_valid_xml_for_any_output() -> None:
    lines = ["\x1b[31m<red> & \x00", "\ufffe\uffff"]
    (suite,) = Xml.fromstring(junit_xml(a_failed_run(), after(2), {"uid-of-pi-a": lines}))
    failure = suite[0][0]
    assert failure.get("message") == "BackoffLimitExceeded: limit reached"
    assert failure.text is not None
    assert "| ^[[31m<red> & ^@\n| \ufffd\ufffd" in failure.text


def test_python_output_is_unbuffered_unless_manifest_sets_it(onejob: CommandLine) -> None:
    show = ("--", "sh", "-c", 'echo "<$PYTHONUNBUFFERED>"')
    assert onejob.run("run", "-o", "raw", *show).stdout == "<1>\n"
    assert onejob.run("run", "-o", "raw", "-e", "PYTHONUNBUFFERED=", *show).stdout == "<>\n"
