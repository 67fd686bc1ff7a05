"""All examples: exit code and output."""

import pytest
import yaml

from tests.cli.command_line import EXAMPLES, CommandLine

#: Example -> (exit code of `onejob run`, parts of its output).
RUN = {
    "hello": (0, ["] Hello from hello-", "job/hello: Complete"]),
    "pi": (0, ["] 3.14159265358979323846", "job/pi: Complete"]),
    "map-reduce": (0, ["] part 1 has 5 words", "] all parts have 13 words"]),
    "work-queue": (0, ["peeling one apple", "peeling one sloe", "job/work-queue: Complete"]),
    "retries": (0, ["] the first attempt fails", "] the second attempt works"]),
    "success-policy": (0, ["] runner 1 is there", "job/race: Complete"]),
    "deadline": (1, ["job/deadline: Failed", "DeadlineExceeded"]),
    "sidecar": (0, ["/shipper] step three", "job/sidecar: Complete"]),
    "ttl": (0, ["] soon forgotten", "job/ttl: Complete"]),
    "workflow": (0, ["] press 1 of 12 apples", "task bake skipped: WhenFalse", "] all tidy"]),
    "config": (0, ["] Good morning", "] language en, a password of 14 characters"]),
}
#: These need a server.
SERVED = {"cron", "suspend"}


def test_every_example_is_tried() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.yaml")} == set(RUN) | SERVED


@pytest.mark.parametrize("example", RUN)
def test_it_runs(onejob: CommandLine, example: str) -> None:
    exit_code, expected = RUN[example]
    done = onejob.run("run", str(EXAMPLES / f"{example}.yaml"))
    assert done.returncode == exit_code, done.stdout + done.stderr
    for text in expected:
        assert text in done.stdout


@pytest.mark.parametrize("example", sorted(SERVED))
def test_examples_that_need_server_fail_with_message(onejob: CommandLine, example: str) -> None:
    done = onejob.run("run", str(EXAMPLES / f"{example}.yaml"))
    assert done.returncode == 2
    assert "onejob serve" in done.stderr


def test_a_suspended_job_starts_when_it_is_resumed(served: CommandLine) -> None:
    file = str(EXAMPLES / "suspend.yaml")
    assert served.run("apply", "-f", file).stdout == "job.batch/patient created\n"
    assert served.run("wait", "job/patient", "--for", "condition=suspended").returncode == 0
    assert "is suspended." in served.run("why", "job/patient").stdout
    assert served.run("resume", "job/patient").stdout == "job.batch/patient resumed\n"
    assert served.run("wait", "job/patient").stdout == "job.batch/patient Complete\n"
    assert served.run("logs", "job/patient", "--no-prefix").stdout == "at last\nat last\n"


def test_a_cronjob_can_be_run_at_once(served: CommandLine) -> None:
    file = str(EXAMPLES / "cron.yaml")
    assert served.run("apply", "-f", file).stdout == "cronjob.batch/tick created\n"
    created = served.run("create", "job", "now", "--from=cronjob/tick")
    assert created.stdout == "job.batch/now created\n", created.stderr
    assert served.run("wait", "job/now").returncode == 0
    job = yaml.safe_load(served.run("get", "job", "now", "-o", "yaml").stdout)
    assert job["metadata"]["ownerReferences"][0]["name"] == "tick"
    assert served.run("suspend", "cronjob/tick").stdout == "cronjob.batch/tick suspended\n"
