"""Display of a run: in lines, on a live terminal, and at its end."""

import io
from typing import Any

import pytest
from rich.console import Console

from onejob.cli.display.tables import render_table, without_empty_columns
from onejob.cli.display.terminal import Terminal
from onejob.cli.run.live import LiveDisplay, draw_jobs
from onejob.cli.run.plain import LogLine, PlainDisplay, job_size_text
from onejob.cli.run.progress import RunProgress
from onejob.cli.run.summary import render_summary, result_document
from tests.cli.build import NOON, a_job, a_pod, after, finished

PIPE = Terminal(interactive=False, colour=False, width=1_000_000)
SCREEN = Terminal(interactive=True, colour=True, width=80)


def a_run(**spec: Any) -> RunProgress:
    run = RunProgress()
    run.expect(a_job(spec=spec), NOON)
    return run


def fail(run: RunProgress, name: str = "pi-a", at: float = 0.0, message: str = "") -> None:
    (job,) = run
    pod = a_pod(name, "Failed", exit_code=3, ended_at=after(at), message=message)
    job.saw_pod(a_pod(name), after(at), deleted=False)
    job.saw_pod(pod, after(at + 1.5), deleted=False)


def test_log_lines_carry_their_pod_and_container() -> None:
    stream = io.StringIO()
    PlainDisplay(stream, PIPE).wrote([LogLine("pi-a", "", "x"), LogLine("pi-b", "side", "y")])
    assert stream.getvalue() == "[pi-a] x\n[pi-b/side] y\n"


def test_of_a_progress_bar_a_terminal_gets_the_last_state_and_a_pipe_all() -> None:
    bar = LogLine("pi-a", "", "10%\r50%\r100%\r")
    piped, shown = io.StringIO(), io.StringIO()
    PlainDisplay(piped, PIPE).wrote([bar])
    assert piped.getvalue() == "[pi-a] 10%\r50%\r100%\r\n"
    PlainDisplay(shown, Terminal(interactive=True, colour=False, width=80)).wrote([bar])
    assert shown.getvalue() == "[pi-a] 100%\n"


def test_notes_and_hints_show_escape_sequences_instead_of_obeying_them() -> None:
    stream = io.StringIO()
    display = PlainDisplay(stream, PIPE)
    display.notice("\x1b[2J")
    display.hint("\x1b]0;title\x07")
    assert "\x1b" not in stream.getvalue()
    assert stream.getvalue().count("\n") == 2


def test_colours_tell_pods_apart_on_a_terminal_only() -> None:
    stream = io.StringIO()
    PlainDisplay(stream, SCREEN).wrote([LogLine("pi-a", "", "x"), LogLine("pi-b", "", "y")])
    assert stream.getvalue() == "\x1b[36m[pi-a]\x1b[0m x\n\x1b[35m[pi-b]\x1b[0m y\n"


def test_progress_is_printed_on_change_with_rate_limit() -> None:
    stream, run = io.StringIO(), a_run(completions=10)
    display = PlainDisplay(stream, PIPE)
    (job,) = run
    for second in range(12):
        grown = a_job(spec={"completions": 10}, status={"succeeded": second // 2, "active": 1})
        job.saw_job(grown, after(second), deleted=False)
        display.tick(run, after(second))
    assert stream.getvalue().splitlines() == [
        "job/pi: 2/10 succeeded, 1 active",
        "job/pi: 5/10 succeeded, 1 active",
    ]


def test_retry_is_printed_once_per_wait() -> None:
    stream, run = io.StringIO(), a_run(backoffLimit=6)
    display = PlainDisplay(stream, PIPE)
    fail(run)
    for second in (2, 3, 4):
        display.tick(run, after(second))
    assert stream.getvalue() == "job/pi: retry 1 of 6 in 8s\n"


def test_failures_beyond_twenty_are_left_to_the_summary() -> None:
    stream, run = io.StringIO(), a_run()
    display = PlainDisplay(stream, PIPE)
    fail(run)
    (job,) = run
    for _ in range(30):
        display.pod_failed(job, job.failures[0])
    lines = stream.getvalue().splitlines()
    assert len(lines) == 21
    assert lines[0] == "job/pi: pod pi-a failed: exit code 3"
    assert lines[-1] == "job/pi: further failures are shown in the summary"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"completions": 0}, "0 completions"),
        ({"completions": 1}, "1 completion"),
        ({"completions": 4, "parallelism": 2}, "4 completions, 2 at a time"),
        ({"completions": 3, "completionMode": "Indexed"}, "3 indexes, 1 at a time"),
        ({"completions": 1, "completionMode": "Indexed"}, "1 index"),
        ({"completions": None, "parallelism": 5}, "work queue, 5 at a time"),
    ],
)
def test_job_size_text_shows_completions_and_parallelism(
    spec: dict[str, Any], expected: str
) -> None:
    (job,) = a_run(**spec)
    assert job_size_text(job) == expected


@pytest.mark.parametrize("width", [80, 160])
def test_the_live_lines_fit_the_terminal(width: int) -> None:
    run = a_run(completions=40, parallelism=4, backoffLimit=6)
    (job,) = run
    fail(run)
    grown = {"succeeded": 10, "active": 3, "failed": 1}
    job.saw_job(
        a_job(spec={"completions": 40, "parallelism": 4}, status=grown), after(2), deleted=False
    )
    long_name = "a-job-with-a-name-that-is-much-longer-than-the-room-there-is"
    run.expect(a_job(long_name, spec={"completions": 3}), NOON)
    console = Console(file=io.StringIO(), width=width, height=24)
    with console.capture() as capture:
        console.print(draw_jobs(run, after(3), 24))
    first, second = capture.get().splitlines()
    assert max(len(first), len(second)) <= width
    assert first.startswith("job/pi ")
    assert "10/40 3 active 1 failed retry 1 of 6 in 7s" in first
    assert "…" in second
    assert "0/3 0 active 3.0s" in second


def test_a_rate_and_an_estimate_are_shown_once_there_is_one() -> None:
    run = a_run(completions=100)
    (job,) = run
    job.saw_job(
        a_job(spec={"completions": 100}, status={"succeeded": 20}), after(10), deleted=False
    )
    console = Console(file=io.StringIO(), width=100)
    with console.capture() as capture:
        console.print(draw_jobs(run, after(10), 24))
    assert "20/100 0 active 2.0/s ETA 40s" in capture.get()


def test_more_jobs_than_lines_are_counted() -> None:
    run = RunProgress()
    for number in range(30):
        run.expect(a_job(f"job-{number}"), NOON)
    console = Console(file=io.StringIO(), width=80)
    with console.capture() as capture:
        console.print(draw_jobs(run, after(1), 24))
    lines = capture.get().splitlines()
    assert len(lines) == 13
    assert lines[-1] == "... and 18 more Jobs"


def test_a_short_run_never_draws() -> None:
    stream, run = io.StringIO(), a_run()
    display = LiveDisplay(stream, SCREEN)
    display.job_started(next(iter(run)))
    display.tick(run, after(0))
    display.tick(run, after(0.3))
    display.close()
    assert stream.getvalue() == "\x1b[1mjob/pi\x1b[0m: started (1 completion)\n"


def test_excess_log_lines_are_skipped_with_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream, run = io.StringIO(), a_run()
    display = LiveDisplay(stream, Terminal(interactive=True, colour=False, width=80))
    display.tick(run, after(0))
    display.tick(run, after(1))
    display.wrote([LogLine("pi-a", "", f"line {n}") for n in range(1000)])
    display.tick(run, after(1.1))
    display.close()
    text = stream.getvalue()
    assert "... 700 lines not shown (see onejob logs)" in text
    assert "line 999" in text
    assert "line 699\n" not in text


def test_the_summary_shows_failed_pods_with_their_last_words() -> None:
    run = a_run(backoffLimit=0)
    (job,) = run
    fail(run, message="went wrong")
    status = finished("Failed", "BackoffLimitExceeded", "limit reached")
    job.saw_job(a_job(status=status), after(2), deleted=False)
    text = render_summary(
        run,
        after(2),
        cpu_seconds=1.25,
        last_lines={"uid-of-pi-a": ["one", "two"]},
        terminal=PIPE,
    )
    assert text.splitlines() == [
        "",
        "JOB   STATUS   PODS   RETRIES   WALL   CPU",
        "pi    Failed   1      0         2.0s   1.2s",
        "",
        "Failed pods of job/pi:",
        "  pi-a after 1.5s: exit code 3: went wrong",
        "    | one",
        "    | two",
    ]


@pytest.mark.parametrize(("seconds", "shown"), [(0.5, False), (2.0, True)])
def test_the_slowest_pods_are_named_if_any_was_slow(seconds: float, shown: bool) -> None:
    run = a_run(completions=4)
    (job,) = run
    for name in ("pi-a", "pi-b", "pi-c", "pi-d"):
        job.saw_pod(a_pod(name), NOON, deleted=False)
        pod = a_pod(name, "Succeeded", exit_code=0, ended_at=after(seconds))
        job.saw_pod(pod, after(seconds), deleted=False)
    text = render_summary(run, after(2), cpu_seconds=None, last_lines={}, terminal=PIPE)
    assert ("Slowest pods of job/pi" in text) is shown


def test_summary_of_several_jobs_has_one_cpu_time() -> None:
    run = RunProgress()
    for name in ("a", "b"):
        job = run.expect(a_job(name), NOON)
        job.saw_job(a_job(name, status=finished("Complete", "x")), after(1), deleted=False)
    text = render_summary(run, after(1), cpu_seconds=3.0, last_lines={}, terminal=PIPE)
    assert "CPU\n" not in text
    assert "CPU time of all Jobs: 3.0s" in text


def test_the_result_is_complete_for_scripts() -> None:
    run = a_run()
    (job,) = run
    fail(run)
    job.saw_job(a_job(status=finished("Failed", "R", "m")), after(2), deleted=False)
    result = result_document(
        run, after(2), run_id="id", exit_code=1, outcome="Failed", cpu_seconds=None
    )
    (told,) = result["jobs"]
    assert (told["outcome"], told["reason"], told["wallSeconds"]) == ("Failed", "R", 2.0)
    assert told["failedPods"][0]["exitCode"] == 3


def test_tables_are_cut_to_the_terminal_widest_column_first() -> None:
    headers = ["NAME", "STATUS", "AGE"]
    rows = [["pi-x2k4p", "a-very-long-reason-of-a-pod", "10"]]
    assert render_table(headers, rows, 1000)[1] == "pi-x2k4p   a-very-long-reason-of-a-pod   10"
    lines = render_table(headers, rows, 30)
    assert lines[1] == "pi-x2k4p   a-very-long-…   10"
    assert all(len(line) <= 30 for line in lines)


def test_tables_cut_no_names() -> None:
    """Users copy them."""
    headers = ["NAMESPACE", "NAME", "STATUS"]
    rows = [["team-of-some-people", "a-very-long-name-of-a-pod", "Running"]]
    (_, line) = render_table(headers, rows, 30, whole=2)
    assert line == "team-of-some-people   a-very-long-name-of-a-pod   Running"
    (_, line) = render_table(headers[1:], [row[1:] for row in rows], 20)
    assert line == "a-very-long-name-of-a-pod   Running"
    # A table that is redrawn must not wrap.
    (_, line) = render_table(headers[1:], [row[1:] for row in rows], 20, whole=0)
    assert line == "a-very-lo…   Running"


def test_tables_that_wrap_anyway_are_not_cut() -> None:
    """As kubectl prints them: cutting cells of a table that wraps anyway does not help."""
    headers = ["NAMESPACE", "NAME", "STATUS", "IP", "NODE"]
    rows = [["team-of-some-people", "a-very-long-name", "Completed", "127.0.0.1", "machine-12"]]
    (_, line) = render_table(headers, rows, 50, whole=2)
    assert line == "team-of-some-people   a-very-long-name   Completed   127.0.0.1   machine-12"


def test_empty_columns_can_be_omitted() -> None:
    headers = ["NAME", "TIMEZONE", "ACTIVE", "LAST"]
    rows = [["a", "<none>", "0", ""], ["b", "<none>", "1", "2m"]]
    assert without_empty_columns(headers, rows) == (
        ["NAME", "ACTIVE", "LAST"],
        [["a", "0", ""], ["b", "1", "2m"]],
    )
