"""`onejob report`: one self-contained HTML file about a run or Job."""

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

from onejob.cli.reports.html_report import html_report
from onejob.cli.reports.job_report import Attempt, FailedPod, JobReport
from tests.cli.command_line import CommandLine

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
HOSTILE = "<script>alert(1)</script>&\"'"


class Outline(HTMLParser):
    """Elements, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_report_of_a_run_has_timeline_failures_and_results(onejob: CommandLine) -> None:
    script = "echo working on $x; echo r-$x > $ONEJOB_RESULT; [ $x != 2 ]"
    ran = onejob.run("run", "--name", "sweep", "--param", "x=1,2,3", "--", "sh", "-c", script)
    assert ran.returncode == 1
    (run,) = re.findall(r"^(\d{8}-\S+)", onejob.run("runs").stdout, re.MULTILINE)
    done = onejob.run("report", f"run/{run}", "-o", "report.html")
    assert done.stdout == "report.html written\n", done.stderr
    page = Outline((onejob.home / "report.html").read_text())
    assert page.tags.count("rect") == 3
    for text in ("job/sweep", "working on 2", "r-3", "x=1", "Slowest", "Failures", "Why"):
        assert text in page.text
    assert "working on 1" not in page.text


def test_report_of_a_job_goes_to_standard_output(served: CommandLine) -> None:
    served.run("create", "job", "fine", "--", "true")
    served.run("wait", "job/fine")
    page = Outline(served.run("report", "fine").stdout)
    assert "job/fine is Complete" in page.text
    assert "Failures" not in page.text


def test_report_contains_no_script_and_no_reference() -> None:
    job = JobReport(
        name=HOSTILE,
        namespace=HOSTILE,
        why=[HOSTILE, HOSTILE],
        succeeded=False,
        finished=True,
        results=[],
        attempts=[Attempt(HOSTILE, HOSTILE, NOON, None)],
        failures=[FailedPod(HOSTILE, [HOSTILE])],
        more_failures=2,
    )
    page = Outline(html_report(HOSTILE, [job], NOON + timedelta(seconds=5)))
    assert "script" not in page.tags
    assert not page.attributes & {"src", "href", "onload", "onerror", "alert(1)"}
    assert page.text.count("alert(1)") >= 5
    assert "2 more failed Pods" in page.text


def test_report_of_another_kind_is_refused(served: CommandLine) -> None:
    refused = served.run("report", "pod/x")
    assert refused.returncode == 2
    assert "name job/NAME, workflow/NAME or run/ID" in refused.stderr
