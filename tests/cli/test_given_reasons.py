"""`--reason` of suspend and delete, and the column NEXT RUN."""

from tests.cli.command_line import CommandLine


def test_why_shows_the_reason_of_a_suspended_job_until_it_is_resumed(served: CommandLine) -> None:
    served.run("create", "job", "held", "--", "sleep", "600")
    served.run("suspend", "job/held", "--reason", "disk is being replaced")
    assert "reason given: disk is being replaced" in served.run("why", "held").stdout
    served.run("suspend", "job/held", "--reason", "moved")
    assert "reason given: moved" in served.run("why", "held").stdout
    served.run("resume", "job/held")
    served.run("suspend", "job/held")
    assert "reason given" not in served.run("why", "held").stdout


def test_why_shows_the_reason_of_a_deletion_that_waits(served: CommandLine) -> None:
    manifest = served.home / "doomed.yaml"
    manifest.write_text(
        "{apiVersion: batch/v1, kind: Job, metadata: {name: doomed, finalizers: "
        "[example.com/hold]}, spec: {template: {spec: {restartPolicy: Never, containers: "
        "[{name: c, image: busybox, command: [sleep, '600']}]}}}}"
    )
    assert served.run("create", "-f", str(manifest)).returncode == 0
    words = ("delete", "job/doomed", "--no-wait", "--reason", "wrong input")
    assert served.run(*words).returncode == 0
    assert "deleted because: wrong input" in served.run("why", "doomed").stdout


def test_list_of_cronjobs_has_the_time_of_the_next_run(served: CommandLine) -> None:
    words = ("--schedule", "0 0 1 1 *", "--", "true")
    served.run("create", "cronjob", "yearly", *words)
    served.run("create", "cronjob", "held", *words)
    served.run("suspend", "cronjob/held", "--reason", "not yet")
    header, *rows = served.run("get", "cronjobs").stdout.splitlines()
    at = header.index("NEXT RUN")
    shown = {row.split()[0]: row[at:].split()[0] for row in rows}
    assert shown["yearly"].endswith("d")
    assert shown["held"] == "<none>"
    assert "reason given: not yet" in served.run("why", "cronjob/held").stdout
