"""`onejob logs --deleted` and `--grep` against a real server."""

import pytest

from tests.cli.command_line import CommandLine, job_yaml


@pytest.fixture(scope="module")
def gone(served: CommandLine) -> CommandLine:
    """Return a server whose Job `pair` was deleted together with its namespace."""
    text = job_yaml(
        "pair",
        "echo index $JOB_COMPLETION_INDEX; echo second line",
        spec="completions: 2\nparallelism: 1\ncompletionMode: Indexed",
    ).replace("{name: ", "{namespace: team, name: ")
    (served.home / "pair.yaml").write_text(text)
    (served.home / "team.yaml").write_text(
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n"
    )
    assert served.run("create", "-f", "team.yaml").returncode == 0
    assert served.run("create", "-f", "pair.yaml").returncode == 0
    assert served.run("wait", "-n", "team", "job/pair", "--timeout", "30s").returncode == 0
    deleted = served.run("delete", "namespace/team")
    assert deleted.returncode == 0, deleted.stderr
    waited = served.run("wait", "namespace/team", "--for", "delete", "--timeout", "30s")
    assert waited.returncode == 0, waited.stderr
    return served


def test_logs_outlive_pod_job_and_namespace(gone: CommandLine) -> None:
    asked = gone.run("logs", "-n", "team", "job/pair")
    assert (asked.returncode, asked.stderr) == (
        1,
        'error: jobs.batch "pair" not found (see the kept logs with onejob logs --deleted '
        "job/pair)\n",
    )
    kept = gone.run("logs", "--deleted", "-n", "team", "job/pair", "--no-prefix")
    assert sorted(kept.stdout.splitlines()) == ["index 0", "index 1", "second line", "second line"]
    listed = gone.run("logs", "--deleted").stdout.splitlines()
    assert listed[0].split() == ["NAMESPACE", "POD", "OF", "CONTAINERS", "DELETED"]
    assert [line.split()[0] for line in listed[1:]] == ["team", "team"]
    assert all(line.split()[2:4] == ["job/pair", "main"] for line in listed[1:])
    alone = gone.run("logs", "pair")
    assert (alone.returncode, alone.stderr) == (
        1,
        'error: pods "pair" not found (see the kept logs with onejob logs --deleted job/pair)\n',
    )
    found = gone.run("logs", "--deleted", "pair", "--no-prefix")
    assert sorted(found.stdout.splitlines()) == sorted(kept.stdout.splitlines())
    assert found.stderr == "note: pod/pair does not exist; showing job.batch/pair\n"
    pod = listed[1].split()[1]
    one = gone.run("logs", "--deleted", pod, "--tail", "1")
    assert one.stdout == "second line\n"


def test_logs_outlive_the_pods_of_a_job_that_is_there(served: CommandLine) -> None:
    (served.home / "late.yaml").write_text(
        job_yaml("late", "echo so far; sleep 600", spec="activeDeadlineSeconds: 1")
    )
    assert served.run("create", "-f", "late.yaml").returncode == 0
    assert served.run("wait", "job/late", "--timeout", "30s").returncode == 1
    assert served.run("delete", "pods", "-l", "job-name=late").returncode == 0
    asked = served.run("logs", "job/late")
    assert (asked.returncode, asked.stderr) == (
        1,
        "error: the Pods of job.batch/late no longer exist (see the kept logs with onejob logs "
        "--deleted job/late)\n",
    )
    assert served.run("logs", "--deleted", "job/late").stdout == "so far\n"


def test_kept_logs_are_searched_by_text_and_time(gone: CommandLine) -> None:
    found = gone.run("logs", "--deleted", "job/pair", "--grep", "index [1-9]", "--no-prefix")
    assert found.stdout == "index 1\n"
    assert gone.run("logs", "--deleted", "job/pair", "--since", "1h").stdout.count("\n") == 4
    later = gone.run("logs", "--deleted", "job/pair", "--since-time", "2099-01-01T00:00:00Z")
    assert (later.returncode, later.stdout) == (0, "")


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["job/other"], 1, "no kept logs of job.batch/other found"),
        (["-n", "default", "job/pair"], 1, "no kept logs of job.batch/pair"),
        (["job/pair", "-c", "absent"], 1, "no logs of container absent found"),
        (["job/pair", "--grep", "("], 2, "--grep (: "),
        (["job/pair", "-f"], 2, "--deleted cannot be combined with --follow or --selector"),
        (["cronjob/pair"], 1, "no kept logs of cronjob.batch/pair"),
        (["node/pair"], 2, "Nodes have no logs"),
        (["job/pair", "--since-time", "noon"], 2, "--since-time noon: expected a time"),
    ],
)
def test_what_cannot_be_had_is_said_in_one_line(
    gone: CommandLine, words: list[str], code: int, text: str
) -> None:
    answer = gone.run("logs", "--deleted", *words)
    assert answer.returncode == code
    assert answer.stderr.startswith(f"error: {text}")
    assert answer.stderr.count("\n") == 1


def test_grep_also_filters_logs_of_pods_that_are_there(gone: CommandLine) -> None:
    (gone.home / "here.yaml").write_text(job_yaml("here", "echo one; echo two"))
    assert gone.run("create", "-f", "here.yaml").returncode == 0
    assert gone.run("wait", "job/here", "--timeout", "30s").returncode == 0
    assert gone.run("logs", "job/here", "--grep", "^t").stdout == "two\n"


def test_bad_amounts_are_refused(gone: CommandLine) -> None:
    age = gone.run("run", "--keep-logs", "soon", "--", "true")
    assert (age.returncode, "--keep-logs: 'soon' is not a duration" in age.stderr) == (2, True)
    size = gone.run("run", "--keep-logs-size", "much", "--", "true")
    assert (size.returncode, "--keep-logs-size much" in size.stderr) == (2, True)
