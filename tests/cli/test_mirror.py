"""`onejob mirror`, and the output of other commands for mirrored Jobs.

The target is the same server, in another namespace.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from onejob.diagnosis.jobs import explain_job
from onejob.planning.mirror.names import MANAGER
from tests.cli.build import NOON, job_document
from tests.cli.command_line import CommandLine

JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: NAME
  annotations: {onejob.dev/mirror-target: TARGET, onejob.dev/mirror-namespace: far}
spec:
  managedBy: onejob.dev/mirror
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: busybox, command: [sh, -c, "echo from afar"]}]
"""
FAR = "{apiVersion: v1, kind: Namespace, metadata: {name: far}}"


@pytest.fixture(scope="module")
def target(served: CommandLine) -> CommandLine:
    (served.home / "far.yaml").write_text(FAR)
    assert served.run("apply", "-f", "far.yaml").returncode == 0
    kubeconfig = served.data_dir / "kubeconfig"
    added = served.run("mirror", "add", "near", "--kubeconfig", str(kubeconfig))
    assert added.returncode == 0, added.stderr
    assert added.stdout.startswith("target near added\n")
    return served


def create(served: CommandLine, name: str, target: str = "near") -> None:
    file = served.home / f"{name}.yaml"
    file.write_text(JOB.replace("NAME", name).replace("TARGET", target))
    created = served.run("create", "-f", str(file))
    assert created.returncode == 0, created.stderr


def test_a_job_there_is_seen_from_here(target: CommandLine) -> None:
    create(target, "seen")
    assert target.run("wait", "job/seen", "--timeout", "30s").returncode == 0
    assert target.run("logs", "job/seen").stdout == "from afar\n"
    pods = json.loads(target.run("get", "pods", "-l", "job-name=seen", "-o", "json").stdout)
    assert [pod["spec"]["nodeName"] for pod in pods["items"]] == ["near.mirror.onejob.dev"]
    there = target.run("get", "pods", "-n", "far", "-l", "job-name=seen", "--no-headers").stdout
    assert "Completed" in there
    listed = json.loads(target.run("mirror", "list", "-o", "json").stdout)["targets"]
    found = next(one for one in listed if one["name"] == "near")
    assert (found["state"], found["unfinished"]) == ("Ready", 0)
    assert found["server"].startswith("https://127.0.0.1:")
    table = target.run("mirror", "list").stdout.splitlines()
    assert table[0].split() == ["NAME", "SERVER", "JOBS", "UNFINISHED", "STATE"]
    refused = target.run("mirror", "remove", "near")
    assert refused.returncode == 1
    assert "job/seen" in refused.stderr
    assert "may have a copy at near" in refused.stderr
    assert target.run("delete", "job/seen").returncode == 0
    assert target.run("get", "jobs", "-n", "far", "-o", "name").stdout == ""


def test_why_names_mirror_target_and_problem(target: CommandLine) -> None:
    create(target, "stuck", target="nowhere")
    shown = target.run("wait", "job/stuck", "--for", "condition=MirrorReady=False",
                       "--timeout", "30s")  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    why = target.run("why", "job/stuck").stdout
    assert "TargetMissing on target nowhere" in why
    assert "onejob mirror add nowhere --kubeconfig FILE" in why
    assert target.run("delete", "job/stuck").returncode == 0


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, "job/pi is waiting to run on target a."),
        ({"conditions": [{"type": "MirrorReady", "status": "True", "message": "copy at a"}]},
         "job/pi is running on target a."),
        ({"conditions": [{"type": "MirrorReady", "status": "False", "reason": "Unreachable",
                          "message": "no answer; attempt 3"}]},
         "job/pi is waiting: Unreachable on target a."),
    ],
)  # fmt: skip
def test_why(status: dict[str, Any], state: str) -> None:
    metadata = {"annotations": {"onejob.dev/mirror-target": "a"}}
    document = job_document(spec={"managedBy": MANAGER}, status=status, metadata=metadata)
    answer = explain_job(document, (), NOON)
    assert answer.state == state
    if status:
        assert answer.cause[0] == status["conditions"][0]["message"]


def test_a_target_is_not_replaced_by_accident(target: CommandLine) -> None:
    kubeconfig = str(target.data_dir / "kubeconfig")
    again = target.run("mirror", "add", "near", "--kubeconfig", kubeconfig)
    assert (again.returncode, "--replace" in again.stderr) == (2, True)
    replaced = target.run("mirror", "add", "near", "--kubeconfig", kubeconfig, "--replace")
    assert replaced.stdout.startswith("target near replaced\n")


CONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"CLUSTER}}]
users: [{name: u, user: {USER}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


@pytest.mark.parametrize(
    ("cluster", "user", "problem"),
    [
        ("", "exec: {command: x, apiVersion: v1}", "exec runs a program"),
        ("", "auth-provider: {name: gcp}", "auth-provider runs a program"),
        ("", "username: u, password: p", "username is no longer supported"),
        ("", "token: t, as: admin", "as impersonates another user"),
        ("", "tokenFile: /etc/hostname", "tokenFile refers to a file"),
        (", insecure-skip-tls-verify: true", "token: t", "disables verification"),
        (', proxy-url: "http://p"', "token: t", "proxy-url would send all requests"),
        ("", "", "the user requires a token"),
        ("", "client-certificate-data: '!'", "client-certificate-data is not valid base64"),
        ("", "token: t", "cannot connect to https://127.0.0.1:1"),
    ],
)
def test_kubeconfigs_that_are_refused(
    served: CommandLine, tmp_path: Path, cluster: str, user: str, problem: str
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(CONFIG.replace("CLUSTER", cluster).replace("USER", user))
    refused = served.run("mirror", "add", "bad", "--kubeconfig", str(file))
    assert refused.returncode == 2
    assert problem in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "not a kubeconfig"),
        ("a: [", "not a kubeconfig"),
        ("", "not a kubeconfig"),
        ("clusters: []", "current-context is not set"),
        ("{clusters: [], current-context: x}", "no context named 'x'"),
        (CONFIG.replace("https://", "http://").replace("USER", "token: t").replace("CLUSTER", ""),
         "must be an https URL"),
    ],
)  # fmt: skip
def test_files_that_are_no_kubeconfig(
    served: CommandLine, tmp_path: Path, text: str, problem: str
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    refused = served.run("mirror", "add", "bad", "--kubeconfig", str(file), "--no-check")
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
    assert problem in refused.stderr
    missing = served.run("mirror", "add", "bad", "--kubeconfig", str(tmp_path / "absent"))
    assert "No such file" in missing.stderr


def test_files_are_put_into_the_text(served: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("an authority")
    file = tmp_path / "kubeconfig"
    file.write_text(
        CONFIG.replace("CLUSTER", ", certificate-authority: ca.pem").replace("USER", "token: t")
    )
    added = served.run("mirror", "add", "files", "--kubeconfig", str(file), "--no-check")
    assert added.returncode == 0, added.stderr
    secret = json.loads(served.run("get", "secret", "files", "-o", "json").stdout)
    assert "ca.pem" not in json.dumps(secret)
    assert served.run("mirror", "remove", "files").stdout == "target files removed\n"
