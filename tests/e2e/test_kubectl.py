"""Everyday kubectl commands against `onejob serve`, as users type them."""

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.serving import GREETER, Server, a_server, needs_kubectl

pytestmark = needs_kubectl

JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
spec:
  completions: 2
  parallelism: 2
  suspend: {suspend}
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: busybox
        command: [sh, -c, 'echo hello from $HOSTNAME']
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with a_server(tmp_path_factory.mktemp("serve")) as server:
        yield server


def a_manifest(folder: Path, name: str, *, suspend: bool = False) -> str:
    path = folder / f"{name}.yaml"
    path.write_text(JOB.format(name=name, suspend=str(suspend).lower()))
    return str(path)


def test_get_all_shows_the_cluster(server: Server) -> None:
    assert "service/kubernetes" in server.kubectl("get", "all", "-A")


def test_api_resources_lists_every_kind_with_its_short_name(server: Server) -> None:
    lines = [line.split() for line in server.kubectl("api-resources").splitlines()]
    assert ["cronjobs", "cj", "batch/v1", "true", "CronJob"] in lines
    assert ["jobs", "batch/v1", "true", "Job"] in lines
    assert ["nodes", "no", "v1", "false", "Node"] in lines


def test_explain_describes_fields_ours_included(server: Server) -> None:
    text = server.kubectl("explain", "job.spec.backoffLimit")
    assert "FIELD: backoffLimit <integer>" in text
    assert "number of retries" in text
    assert "FIELD: backoffSeconds" in server.kubectl("explain", "job.spec.backoffSeconds")
    assert "concurrencyPolicy" in server.kubectl("explain", "cronjob", "--recursive")


def test_imperative_creates_arrive_as_protobuf(server: Server) -> None:
    assert "created" in server.kubectl("create", "ns", "made")
    server.kubectl("create", "configmap", "made", "--from-literal=key=value", "-n", "made")
    server.kubectl("create", "secret", "generic", "made", "--from-literal=k=v", "-n", "made")
    server.kubectl("create", "job", "made", "--image=busybox", "-n", "made", "--", "true")
    server.kubectl(
        *("create", "cronjob", "made", "--image=busybox", "--schedule=0 0 1 1 *", "-n", "made"),
        *("--", "date"),
    )
    server.kubectl("create", "job", "again", "--from=cronjob/made", "-n", "made")
    value = server.kubectl("get", "cm", "made", "-n", "made", "-o", "jsonpath={.data.key}")
    assert value == "value"
    owner = server.kubectl(
        *("get", "job", "again", "-n", "made"),
        *("-o", "jsonpath={.metadata.ownerReferences[0].kind}"),
    )
    assert owner == "CronJob"
    server.kubectl("wait", "--for=condition=complete", "job/again", "-n", "made", "--timeout=60s")


def test_apply_twice_changes_nothing_the_second_time(server: Server, tmp_path: Path) -> None:
    manifest = a_manifest(tmp_path, "applied")
    assert "job.batch/applied created" in server.kubectl("apply", "-f", manifest)
    assert "job.batch/applied unchanged" in server.kubectl("apply", "-f", manifest)


def test_server_side_apply_takes_over_from_client_side_apply(
    server: Server, tmp_path: Path
) -> None:
    manifest = a_manifest(tmp_path, "ssa", suspend=True)
    server.kubectl("apply", "-f", manifest)
    for _ in range(2):
        printed = server.kubectl("apply", "--server-side", "-f", manifest)
        assert printed == "job.batch/ssa serverside-applied\n", "no warning about migration"
    changed = Path(manifest).read_text().replace("parallelism: 2", "parallelism: 3")
    Path(manifest).write_text(changed)
    server.kubectl("apply", "--server-side", "-f", manifest)
    refused = server.kubectl(
        *("apply", "--server-side", "--field-manager=rival", "-f", "-"),
        stdin=changed.replace("parallelism: 3", "parallelism: 1"),
        fails=True,
    )
    assert 'conflict with "kubectl": .spec.parallelism' in refused
    parallelism = server.kubectl("get", "job", "ssa", "-o", "jsonpath={.spec.parallelism}")
    assert parallelism == "3"


def test_tables_describe_logs_events_and_wait(server: Server, tmp_path: Path) -> None:
    server.kubectl("create", "-f", a_manifest(tmp_path, "shown"))
    assert "condition met" in server.kubectl(
        "wait", "--for=condition=complete", "job/shown", "--timeout=60s"
    )
    wide = server.kubectl("get", "jobs,pods", "-o", "wide", "-l", "job-name=shown")
    assert "job.batch/shown   Complete   2/2" in wide
    assert wide.count("Completed") == 2
    described = server.kubectl("describe", "job", "shown")
    assert "Pods Statuses:    0 Active (0 Ready) / 2 Succeeded / 0 Failed" in described
    assert "SuccessfulCreate" in described
    logs = server.kubectl("logs", "-l", "job-name=shown", "--prefix")
    assert logs.count("hello from shown-") == 2
    events = server.kubectl("get", "events", "--field-selector", "involvedObject.name=shown")
    assert "Job completed" in events
    assert "Completed" in server.kubectl("events", "--for", "job/shown")


def test_labels_annotations_and_patches_of_three_types(server: Server, tmp_path: Path) -> None:
    server.kubectl("create", "-f", a_manifest(tmp_path, "patched", suspend=True))
    server.kubectl("label", "job", "patched", "color=red")
    server.kubectl("annotate", "job", "patched", "note=read me")
    strategic = '{"spec":{"parallelism":5}}'
    server.kubectl("patch", "job", "patched", "-p", strategic)
    merge = '{"metadata":{"labels":{"size":"big"}}}'
    server.kubectl("patch", "job", "patched", "--type", "merge", "-p", merge)
    operations = '[{"op":"replace","path":"/metadata/labels/color","value":"blue"}]'
    server.kubectl("patch", "job", "patched", "--type", "json", "-p", operations)
    job = json.loads(server.kubectl("get", "job", "patched", "-o", "json"))
    assert job["spec"]["parallelism"] == 5
    assert job["metadata"]["labels"]["size"] == "big"
    assert job["metadata"]["labels"]["color"] == "blue"
    assert job["metadata"]["annotations"]["note"] == "read me"


def test_edit_opens_an_editor_and_writes_back(server: Server, tmp_path: Path) -> None:
    server.kubectl("create", "-f", a_manifest(tmp_path, "edited", suspend=True))
    server.environment["EDITOR"] = "sed -i 's/parallelism: 2/parallelism: 4/'"
    assert "job.batch/edited edited" in server.kubectl("edit", "job", "edited")
    assert server.kubectl("get", "job", "edited", "-o", "jsonpath={.spec.parallelism}") == "4"


def test_a_watch_shows_each_change(server: Server, tmp_path: Path) -> None:
    server.kubectl("create", "-f", a_manifest(tmp_path, "watched", suspend=True))
    watch = subprocess.Popen(
        ["kubectl", "--kubeconfig", str(server.kubeconfig), "get", "job", "watched", "-w"],
        stdout=subprocess.PIPE,
        text=True,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin:/usr/local/bin"},
    )
    assert watch.stdout is not None
    lines = [watch.stdout.readline(), watch.stdout.readline()]
    server.kubectl("patch", "job", "watched", "-p", '{"spec":{"suspend":false}}')
    while "Complete" not in lines[-1]:
        lines.append(watch.stdout.readline())
        assert len(lines) < 30, lines
    watch.terminate()
    watch.wait()
    watch.stdout.close()
    assert "Suspended" in lines[1]
    assert any("Running" in line for line in lines)


@pytest.mark.parametrize(
    ("cascade", "pods_left"), [("foreground", 0), ("background", 0), ("orphan", 2)]
)
def test_deletion_cascades_as_asked(
    server: Server, tmp_path: Path, cascade: str, pods_left: int
) -> None:
    name = f"cascade-{cascade}"
    server.kubectl("create", "-f", a_manifest(tmp_path, name))
    server.kubectl("wait", "--for=condition=complete", f"job/{name}", "--timeout=60s")
    server.kubectl("delete", "job", name, f"--cascade={cascade}", "--timeout=60s")
    if not pods_left:
        server.kubectl("wait", "--for=delete", "pod", "-l", f"job-name={name}", "--timeout=60s")
    pods = server.kubectl("get", "pods", "-l", f"job-name={name}", "-o", "name").split()
    pods = [pod for pod in pods if pod.startswith("pod/")]
    assert len(pods) == pods_left
    for pod in pods:
        metadata = json.loads(server.kubectl("get", pod, "-o", "json"))["metadata"]
        assert "ownerReferences" not in metadata
        assert "finalizers" not in metadata


def test_a_deleted_namespace_takes_its_content_along(server: Server) -> None:
    server.kubectl("create", "ns", "doomed")
    server.kubectl("create", "job", "x", "--image=busybox", "-n", "doomed", "--", "sleep", "600")
    server.kubectl("wait", "--for=jsonpath={.status.ready}=1", "job/x", "-n", "doomed")
    server.kubectl("delete", "ns", "doomed", "--timeout=60s")
    assert "not found" in server.kubectl("get", "ns", "doomed", fails=True)
    left = server.kubectl("get", "jobs,pods,configmaps", "-n", "doomed", "-o", "name")
    assert "doomed" not in left
    assert "job.batch" not in left


def test_identity_and_version(server: Server) -> None:
    assert "system:masters" in server.kubectl("auth", "whoami")
    assert server.kubectl("auth", "can-i", "create", "jobs").strip() == "yes"
    assert "Server Version: v1." in server.kubectl("version")


def test_errors_look_as_they_do_on_a_cluster(server: Server, tmp_path: Path) -> None:
    missing = server.kubectl("get", "job", "nowhere", fails=True)
    assert missing == 'Error from server (NotFound): jobs.batch "nowhere" not found\n'
    bad = a_manifest(tmp_path, "bad")
    text = Path(bad).read_text().replace("completions: 2", "completions: -1\n  foo: 1")
    refused = server.kubectl("create", "-f", "-", stdin=text, fails=True)
    assert 'strict decoding error: unknown field "spec.foo"' in refused
    text = text.replace("  foo: 1\n", "")
    refused = server.kubectl("create", "-f", "-", stdin=text, fails=True)
    assert 'The Job "bad" is invalid: spec.completions: Invalid value: -1: must be' in refused


def test_kubectl_top_shows_pod_and_node_usage(server: Server) -> None:
    server.kubectl("run", "busy", "--image=busybox", "--restart=Never", "--", "sleep", "60")
    server.kubectl("wait", "--for=condition=Ready", "pod/busy")
    [head, row] = server.kubectl("top", "pods", "busy").splitlines()
    assert head.split() == ["NAME", "CPU(cores)", "MEMORY(bytes)"]
    assert row.split()[0] == "busy"
    assert "CPU(%)" in server.kubectl("top", "nodes")
    server.kubectl("delete", "pod", "busy", "--now")


def test_kubectl_port_forward_reaches_pod_port(server: Server) -> None:
    server.kubectl(
        *("run", "greeter", "--image=busybox", "--restart=Never", "--"),
        *("python3", "-c", GREETER),
    )
    server.kubectl("wait", "--for=condition=Ready", "pod/greeter")
    port = server.kubectl("logs", "-f", "--limit-bytes=6", "greeter").split()[0]
    forwarding = subprocess.Popen(
        ["kubectl", "port-forward", "pod/greeter", f":{port}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=server.environ(),
    )
    try:
        assert forwarding.stdout is not None
        line = forwarding.stdout.readline()
        assert f"-> {port}" in line
        local = int(line.split(" -> ")[0].rpartition(":")[2])
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", local), timeout=60) as connection:
                assert connection.makefile("rb").read() == b"from the pod"
    finally:
        forwarding.kill()
        forwarding.communicate()
    server.kubectl("delete", "pod", "greeter", "--now")
