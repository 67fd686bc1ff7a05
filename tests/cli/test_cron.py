"""`onejob cron`: times of a schedule, and Jobs started by hand."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from onejob.cli.commands.cron import history_lines
from onejob.planning.cronjob.history import Fire
from tests.cli.command_line import CommandLine


def test_the_next_times_follow_summer_time(onejob: CommandLine) -> None:
    words = ("30 2 * * *", "--tz", "Europe/Berlin", "-n", "2", "--after", "2026-03-28T00:00:00Z")
    done = onejob.run("cron", "next", *words, "-o", "json")
    assert done.returncode == 0
    # On the 29th half past two does not exist.
    assert json.loads(done.stdout) == {
        "zone": "Europe/Berlin",
        "times": [
            {"utc": "2026-03-28T01:30:00Z", "local": "2026-03-28T02:30:00+01:00"},
            {"utc": "2026-03-30T00:30:00Z", "local": "2026-03-30T02:30:00+02:00"},
        ],
    }
    shown = onejob.run("cron", "next", *words).stdout.splitlines()
    assert shown[0].split() == ["EUROPE/BERLIN", "UTC", "IN"]
    assert "Mon 2026-03-30 02:30:00 CEST" in shown[2]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("every day",), "invalid schedule 'every day'"),
        (("30 2 31 2 *",), "never fires"),
        (("@daily", "--tz", "Mars/Base"), "--tz Mars/Base: unknown time zone"),
        (("@daily", "--after", "tomorrow"), "--after tomorrow: not a time"),
        (("@daily", "-n", "0"), "-n"),
    ],
)
def test_bad_input_is_one_line(onejob: CommandLine, words: tuple[str, ...], problem: str) -> None:
    done = onejob.run("cron", "next", *words)
    assert done.returncode == 2
    assert problem in done.stderr
    assert len(done.stderr.splitlines()) == 1


CRONJOB = """\
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 3 1 1 *"
  suspend: true
  jobTemplate:
    metadata: {labels: {team: batch}}
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: c, image: busybox, command: [/bin/true]}]
"""


def test_a_job_is_run_by_hand(served: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "cron.yaml"
    file.write_text(CRONJOB)
    assert served.run("apply", "-f", str(file)).returncode == 0
    done = served.run("cron", "run", "cronjob/nightly")
    assert done.returncode == 0, done.stderr
    name = done.stdout.split()[0]
    assert name.startswith("job.batch/nightly-manual-")
    assert served.run("wait", name, "--timeout", "30s").returncode == 0
    job = json.loads(served.run("get", name, "-o", "json").stdout)
    assert job["metadata"]["labels"]["team"] == "batch"
    assert job["metadata"]["annotations"]["cronjob.kubernetes.io/instantiate"] == "manual"
    assert served.run("cron", "run", "job/x").stderr == (
        "error: job.batch/x is not a CronJob (name cronjob/NAME)\n"
    )
    assert "not found" in served.run("cron", "run", "absent").stderr


def test_a_span_is_backfilled_once_and_shown_in_the_history(
    served: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "cron.yaml"
    file.write_text(CRONJOB.replace("name: nightly", "name: filled"))
    assert served.run("apply", "-f", str(file)).returncode == 0
    span = ("--from", "2029-12-31", "--to", "2032-01-02")
    dry = served.run("cron", "backfill", "cronjob/filled", *span, "--dry-run")
    assert dry.returncode == 0, dry.stderr
    lines = dry.stdout.splitlines()
    assert [line.split("would be created ")[1][:5] for line in lines] == ["(2030", "(2031", "(2032"]
    assert "filled-backfill" not in served.run("get", "jobs").stdout
    made = served.run("cron", "backfill", "filled", *span, "--queue", "slow")
    assert made.stdout == dry.stdout.replace("would be created", "created")
    again = served.run("cron", "backfill", "filled", *span)
    assert again.stdout == dry.stdout.replace("would be created", "exists")
    name = lines[0].split()[0]
    job = json.loads(served.run("get", name, "-o", "json").stdout)
    marks = {"onejob.dev/backfill": "filled", "onejob.dev/queue": "slow"}
    assert marks.items() <= job["metadata"]["labels"].items()
    assert job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
    assert "ownerReferences" not in job["metadata"]
    assert served.run("wait", name, "--timeout", "30s").returncode == 0
    history = served.run("cron", "history", "filled")
    assert history.stdout == "The schedule has not fired yet.\n", history.stderr


def test_cronjob_logs_include_all_its_jobs(served: CommandLine, tmp_path: Path) -> None:
    text = CRONJOB.replace("name: nightly", "name: talker").replace("/bin/true", "echo, hello")
    (tmp_path / "cron.yaml").write_text(text)
    assert served.run("apply", "-f", str(tmp_path / "cron.yaml")).returncode == 0
    for _ in range(2):
        name = served.run("cron", "run", "talker").stdout.split()[0]
        assert served.run("wait", name, "--timeout", "30s").returncode == 0
    assert served.run("logs", "cronjob/talker", "--no-prefix").stdout == "hello\nhello\n"


def test_reasons_in_a_history_are_never_cut() -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    why = "Not starting job because prior execution is running and concurrency policy is Forbid"
    found = [
        Fire(at, "Skipped", why=why),
        Fire(at, "Complete", "nightly-1", started_at=at, finished_at=at),
        Fire(at, "Skipped", why=why),
    ]
    assert history_lines(found, 80) == [
        "SCHEDULED              STATE      JOB         LASTED",
        "2030-01-01T00:00:00Z   Skipped",
        "2030-01-01T00:00:00Z   Complete   nightly-1   0s",
        "2030-01-01T00:00:00Z   Skipped",
        "",
        f"Skipped: {why}",
    ]
    assert history_lines(found, 200)[1].endswith(why)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--from", "noon", "--to", "2030-01-01"], "--from noon: not a time"),
        (["--from", "2030-01-02", "--to", "2030-01-01"], "--to 2030-01-01 is not after"),
        (
            ["--from", "0100-01-01", "--to", "2030-01-01"],
            "the period contains more than 1000 times",
        ),
        (
            ["--from", "2030-01-01T10:00:00Z", "--to", "2030-01-01T10:00:01Z"],
            "the schedule does not fire",
        ),
    ],
)
def test_a_span_that_makes_no_sense_is_refused(
    served: CommandLine, tmp_path: Path, words: list[str], text: str
) -> None:
    (tmp_path / "cron.yaml").write_text(CRONJOB)
    assert served.run("apply", "-f", str(tmp_path / "cron.yaml")).returncode == 0
    refused = served.run("cron", "backfill", "nightly", *words)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"error: {text}")
