"""`onejob queue`, and other commands for waiting Jobs."""

import json

from tests.cli.command_line import CommandLine, job_yaml


def queued_yaml(name: str) -> str:
    # Long enough to be found running; deleted by the test.
    text = job_yaml(name, "sleep 300", template="terminationGracePeriodSeconds: 0")
    return text.replace("{name: ", "{labels: {onejob.dev/queue: gpu}, name: ")


def test_all_commands_show_queued_job(served: CommandLine) -> None:
    empty = served.run("queue")
    assert "No limits are set" in empty.stdout, empty.stderr
    limits = (
        "apiVersion: v1\nkind: ConfigMap\n"
        "metadata: {name: onejob-queues, namespace: kube-system}\ndata: {limits: 'gpu=1'}\n"
    )
    (served.home / "limits.yaml").write_text(limits)
    assert served.run("create", "-f", "limits.yaml").returncode == 0
    for name in ("first", "second"):
        (served.home / f"{name}.yaml").write_text(queued_yaml(name))
        assert served.run("create", "-f", f"{name}.yaml").returncode == 0
    waited = served.run("wait", "job/second", "--for", "condition=Suspended", "--timeout", "30s")
    assert waited.returncode == 0, waited.stderr
    lines = served.run("queue").stdout.splitlines()
    assert lines[1].split() == ["queue", "gpu", "1", "1", "1"]
    first, second = (line.split() for line in lines[-2:])
    assert first[:5] == ["-", "default", "first", "gpu", "0"]
    assert second[:5] == ["1", "default", "second", "gpu", "0"]
    assert lines[-1].endswith("unknown   queue gpu: limit reached")
    document = json.loads(served.run("queue", "-o", "json").stdout)
    assert document["limits"] == [
        {"scope": "gpu", "title": "queue gpu", "running": 1, "allowed": 1, "waiting": 1}
    ]
    assert [job["waitsFor"] for job in document["jobs"]] == ["", "gpu"]
    assert "Suspended" in served.run("get", "job", "second").stdout
    assert "is queued" in served.run("why", "job/second").stdout
    resumed = served.run("resume", "job/second")
    assert "starts in turn" in resumed.stdout
    assert served.run("suspend", "job/second").stdout == "job.batch/second suspended\n"
    assert "is suspended." in served.run("why", "job/second").stdout
    assert served.run("delete", "job/first").returncode == 0
    assert "second" not in served.run("queue").stdout
    assert served.run("resume", "job/second").stdout == "job.batch/second resumed\n"
    started = served.run(
        "wait", "job/second", "--for", "condition=Suspended=False", "--timeout", "30s"
    )
    assert started.returncode == 0, started.stderr
    assert served.run("delete", "job/second").returncode == 0


def test_a_bad_limit_is_refused_before_anything_starts(served: CommandLine) -> None:
    refused = served.run("run", "--queue", "gpu=many", "--", "true")
    assert refused.returncode == 2
    assert refused.stderr == (
        "error: --queue: invalid limit 'gpu=many': expected QUEUE=N, namespace/NAME=N or *=N, "
        "where N is the maximum number of running Jobs\n"
    )
