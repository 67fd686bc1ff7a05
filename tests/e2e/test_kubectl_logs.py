"""`kubectl logs` with all its options."""

import subprocess
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.e2e.serving import Server, a_server, needs_kubectl

pytestmark = needs_kubectl

POD = """
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  labels: {{app: {app}}}
spec:
  restartPolicy: {policy}
  containers:
  - name: main
    image: busybox
    command: [sh, -c, {script!r}]
    volumeMounts: [{{name: go, mountPath: /go}}]
  volumes:
  - {{name: go, hostPath: {{path: {go}, type: DirectoryOrCreate}}}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with a_server(tmp_path_factory.mktemp("logs")) as server:
        yield server


def start_pod(
    server: Server, name: str, script: str, go: Path, *, app: str = "", policy: str = "Never"
) -> None:
    text = POD.format(name=name, script=script, go=go, app=app or name, policy=policy)
    server.kubectl("create", "-f", "-", stdin=text)


def until_logged(server: Server, pod: str, text: str, *options: str) -> str:
    give_up = time.monotonic() + 60
    while text not in (seen := _log_so_far(server, pod, *options)):
        assert time.monotonic() < give_up, f"{text!r} never came: {seen!r}"
        time.sleep(0.1)
    return seen


def _log_so_far(server: Server, pod: str, *options: str) -> str:
    """Return the log so far; "" if kubectl fails because the container has not begun."""
    done = subprocess.run(
        ["kubectl", "--kubeconfig", str(server.kubeconfig), "logs", pod, *options],
        capture_output=True,
        text=True,
        env={"HOME": str(server.data_dir), "PATH": "/usr/local/bin:/usr/bin:/bin"},
        check=False,
    )
    return done.stdout


def test_following_shows_lines_as_they_come_and_ends_with_the_container(
    server: Server, tmp_path: Path
) -> None:
    script = "echo first; while [[ ! -e /go/go ]]; do sleep 0.1; done; echo last"
    start_pod(server, "followed", script, tmp_path)
    until_logged(server, "followed", "first")
    follower = subprocess.Popen(
        ["kubectl", "--kubeconfig", str(server.kubeconfig), "logs", "-f", "followed"],
        stdout=subprocess.PIPE,
        text=True,
        env={"HOME": str(tmp_path), "PATH": "/usr/local/bin:/usr/bin:/bin"},
    )
    assert follower.stdout is not None
    with follower.stdout as lines:
        assert lines.readline() == "first\n"
        (tmp_path / "go").touch()
        assert lines.read() == "last\n"
    assert follower.wait(timeout=30) == 0


def test_kubectl_logs_supports_tail_bytes_and_job_names(server: Server, tmp_path: Path) -> None:
    start_pod(server, "counted", "for i in 1 2 3 4 5; do echo line $i; done", tmp_path)
    until_logged(server, "counted", "line 5")
    assert server.kubectl("logs", "counted", "--tail=2") == "line 4\nline 5\n"
    assert server.kubectl("logs", "counted", "--tail=0") == ""
    assert server.kubectl("logs", "counted", "--limit-bytes=7") == "line 1\n"
    server.kubectl("create", "job", "spoken", "--image=busybox", "--", "echo", "by name")
    server.kubectl("wait", "--for=condition=complete", "job/spoken", "--timeout=60s")
    assert server.kubectl("logs", "job/spoken") == "by name\n"


def test_timestamps_and_since_select_by_time(server: Server, tmp_path: Path) -> None:
    script = "echo early; while [[ ! -e /go/go ]]; do sleep 0.1; done; echo late; sleep 600"
    start_pod(server, "timed", script, tmp_path)
    until_logged(server, "timed", "early")
    stamp, text = server.kubectl("logs", "timed", "--timestamps").split()
    early = datetime.fromisoformat(stamp)
    assert text == "early"
    # --since has a resolution of whole seconds.
    time.sleep(2.1)
    (tmp_path / "go").touch()
    until_logged(server, "timed", "late")
    assert "early" not in server.kubectl("logs", "timed", "--since=2s")
    assert server.kubectl("logs", "timed", "--since=1h") == "early\nlate\n"
    stamps = [
        line.split()[0] for line in server.kubectl("logs", "timed", "--timestamps").splitlines()
    ]
    late = datetime.fromisoformat(stamps[1])
    assert late > early
    assert server.kubectl("logs", "timed", f"--since-time={stamps[1]}") == "late\n"
    server.kubectl("delete", "pod", "timed", "--grace-period=0", "--force")


def test_the_previous_container_can_still_be_heard(server: Server, tmp_path: Path) -> None:
    script = "[[ -e /go/x ]] && echo second && sleep 600; touch /go/x; echo first; exit 1"
    start_pod(server, "again", script, tmp_path, policy="OnFailure")
    until_logged(server, "again", "second")
    assert server.kubectl("logs", "again", "--previous") == "first\n"
    assert server.kubectl("logs", "again") == "second\n"
    start_pod(server, "once", "echo once", tmp_path)
    until_logged(server, "once", "once")
    refused = server.kubectl("logs", "once", "--previous", fails=True)
    assert 'previous terminated container "main" in pod "once" not found' in refused
    server.kubectl("delete", "pod", "again", "--grace-period=0", "--force")


def test_a_label_gathers_the_logs_of_many_pods_ten_lines_each(
    server: Server, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        script = f"for i in 01 02 03 04 05 06 07 08 09 10 11 12; do echo {name} $i; done"
        start_pod(server, name, script, tmp_path, app="many")
    for name in ("one", "two"):
        until_logged(server, name, "12")
    lines = server.kubectl("logs", "-l", "app=many").splitlines()
    assert len(lines) == 20
    assert "one 02" not in lines
    assert {"one 03", "one 12", "two 03", "two 12"} < set(lines)
    prefixed = server.kubectl("logs", "-l", "app=many", "--prefix", "--tail=1").splitlines()
    assert sorted(prefixed) == ["[pod/one/main] one 12", "[pod/two/main] two 12"]
    assert "No resources found" in server.kubectl("logs", "-l", "app=none")


def test_kubectl_logs_errors_match_kubernetes(server: Server, tmp_path: Path) -> None:
    start_pod(server, "plain", "echo plain", tmp_path)
    until_logged(server, "plain", "plain")
    unknown = server.kubectl("logs", "plain", "-c", "other", fails=True)
    assert "container other is not valid for pod plain" in unknown
    missing = server.kubectl("logs", "nobody", fails=True)
    assert missing == (
        'error: error from server (NotFound): pods "nobody" not found in namespace "default"\n'
    )
