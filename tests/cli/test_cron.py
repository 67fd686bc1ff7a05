"""`onejob cron`: times of a schedule, and a Job by hand."""

import json
from pathlib import Path

import pytest

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
        (("every day",), "'every day' is no schedule"),
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
        "error: job.batch/x is no CronJob (name cronjob/NAME)\n"
    )
    assert "not found" in served.run("cron", "run", "absent").stderr
