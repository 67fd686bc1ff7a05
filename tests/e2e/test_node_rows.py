"""Behaviour of the node, row by row with real processes.

Through kubectl, through onejob's commands on a server, and through `onejob run`, which needs none.
Each row is a Job. The rows of one way are created together, run concurrently and are read when all
have settled, so a row costs little more than its process.
"""

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from onejob.node.supervisor.spawn import can_isolate
from tests.build import a_job, shell, template
from tests.e2e.serving import KUBECTL, Server, a_server

Document = dict[str, Any]

CAPACITY = ("--capacity", "cpu=64,memory=64Gi,example.com/gpu=2")
SETTINGS: list[Document] = [
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config"},
     "data": {"a": "1", "b": "2"}},
    {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "secret"},
     "data": {"k": "aGlkZGVu"}},
]  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One Job; `spec` and `container` are added to those of a Pod that runs `script` with sh."""

    script: str = ""
    container: Document = field(default_factory=dict)
    spec: Document = field(default_factory=dict)
    #: Expected output; None if it is not checked.
    says: str | None = None
    code: int = 0
    #: Further expected texts: in the Pod's status, and in the messages of its events.
    status: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    #: For rows that never end: text of the status once the expected state is reached.
    stays: str = ""


def mounted(name: str, volume: Document, script: str, says: str, **mount: Any) -> Row:
    where = {"name": name, "mountPath": "/data", **mount}
    return Row(script, {"volumeMounts": [where]}, {"volumes": [{"name": name, **volume}]}, says)


def source(kind: str, **reference: Any) -> Document:
    return {"env": [{"name": "X", "valueFrom": {kind: reference}}]}


MARKED = {"volumes": [{"name": "v", "emptyDir": {}}]}
AT_DATA = {"volumeMounts": [{"name": "v", "mountPath": "/data"}]}
ONCE_MORE = "if [ -e /data/x ]; then echo again; exit 0; fi; touch /data/x; echo first; exit 4"
SIDECAR = {"name": "side", "image": "i", "restartPolicy": "Always",
           "command": ["sh", "-c", "trap 'exit 0' TERM; touch /data/up; while :; do sleep 0.05; "
                       "done"], **AT_DATA}  # fmt: skip

ROWS: dict[str, Row] = {
    # --- lifecycle
    "exit-code": Row("exit 3", code=3, status=("Error", "startedAt", "finishedAt")),
    "signal": Row("kill -KILL $$$$", code=137, status=('"signal": 9',)),
    "restart": Row(ONCE_MORE, AT_DATA, {**MARKED, "restartPolicy": "OnFailure"}, "again\n",
                   status=('"restartCount": 1', '"exitCode": 4')),
    "own-restart-policy": Row(ONCE_MORE, {**AT_DATA, "restartPolicy": "OnFailure"}, MARKED,
                              "again\n", status=('"restartCount": 1',)),
    "conditions": Row("exit 0", status=("PodScheduled", "Initialized", "ContainersReady",
                                        "PodReadyToStartContainers", "PodCompleted")),
    "deadline": Row("exec sleep 600", spec={"activeDeadlineSeconds": 1}, code=143,
                    status=("DeadlineExceeded",)),
    "crash-loop": Row("exit 1", spec={"restartPolicy": "OnFailure"}, stays="CrashLoopBackOff",
                      events=("Back-off restarting failed container main",)),
    # --- placement
    "fits": Row("echo fits", {"resources": {"limits": {"example.com/gpu": "1"}}}, says="fits\n"),
    "too-big": Row("true", {"resources": {"limits": {"example.com/gpu": "3"}}},
                   stays="Unschedulable", events=("Insufficient example.com/gpu",)),
    "elsewhere": Row("true", spec={"nodeSelector": {"kubernetes.io/hostname": "no"}},
                     stays="Unschedulable", events=("didn't match Pod's node affinity",)),
    # --- environment of a process
    "expansion": Row("echo '$(A)'", {"env": [{"name": "B", "value": "b"},
                                             {"name": "A", "value": "$(B)-$(C)-$$(B)"}]},
                     says="b-$(C)-$(B)\n"),
    "settings": Row("echo $a $b $X", {"envFrom": [{"configMapRef": {"name": "config"}}],
                                      **source("secretKeyRef", name="secret", key="k")},
                    says="1 2 hidden\n"),
    "downward": Row("echo $X", source("fieldRef", fieldPath="metadata.labels['row']"),
                    says="downward\n"),
    "working-dir": Row("pwd", {"workingDir": "/usr"}, says="/usr\n"),
    "empty-dir": mounted("v", {"emptyDir": {}}, "ls /data; echo x > /data/f; ls /data", "f\n"),
    "config-map": mounted("v", {"configMap": {"name": "config"}}, "cat /data/a; echo", "1\n"),
    "secret": mounted("v", {"secret": {"secretName": "secret"}}, "cat /data/k; echo", "hidden\n"),
    "downward-file": mounted(
        "v", {"downwardAPI": {"items": [{"path": "f", "fieldRef":
                                         {"fieldPath": "metadata.namespace"}}]}},
        "grep -q . /data/f && echo told", "told\n"),
    "projected": mounted(
        "v", {"projected": {"sources": [{"configMap": {"name": "config"}},
                                        {"secret": {"name": "secret"}}]}}, "cd /data; echo *",
        "a b k\n"),
    "host-path": mounted("v", {"hostPath": {"path": "/etc"}}, "test -e /data/passwd && echo y",
                         "y\n", readOnly=True),
    "optional": Row("echo -${X-unset}-", source("configMapKeyRef", name="no", key="k",
                                                optional=True), says="-unset-\n"),
    "init": Row("cat /data/f", AT_DATA, {**MARKED, "initContainers": [
        {"name": "first", "image": "i", "command": ["sh", "-c", "echo made > /data/f"],
         **AT_DATA}]}, "made\n"),
    "sidecar": Row("until [ -e /data/up ]; do sleep 0.05; done; echo both", AT_DATA,
                   {**MARKED, "initContainers": [SIDECAR]}, "both\n"),
    "message-file": Row("echo -n last > /dev/termination-log; exit 1", code=1,
                        status=('"message": "last"',)),
    "message-from-log": Row("echo the cause; exit 1",
                            {"terminationMessagePolicy": "FallbackToLogsOnError"}, code=1,
                            status=('"message": "the cause\\n"',)),
    "busybox-sh": Row("[[ 1 == 1 ]] && echo capable", says="capable\n"),
    "pause": Row(container={"image": "registry.example/pause:3.10", "command": None},
                 spec={"activeDeadlineSeconds": 1}, code=0, status=("DeadlineExceeded",)),
    "terminal": Row("test -t 1 && echo at one", {"tty": True}, says="at one\n"),
    "hook": Row("until [ -e /data/h ]; do sleep 0.05; done; echo greeted",
                {**AT_DATA, "lifecycle": {"postStart": {"exec": {"command":
                                                                 ["touch", "/data/h"]}}}},
                MARKED, "greeted\n"),
    "failing-hook": Row("exec sleep 600", {"lifecycle": {"postStart": {"exec": {"command":
                                                                                ["false"]}}}},
                        code=143, events=("PostStartHook failed",)),
    "probe": Row("until [ -e /data/go ]; do sleep 0.05; done; touch /data/ok; exec sleep 600",
                 {**AT_DATA, "readinessProbe": {"periodSeconds": 1, "exec": {
                     "command": ["sh", "-c", "touch /data/go; test -e /data/ok"]}}}, MARKED,
                 stays='"ready": true'),
    # --- bad input
    "no-program": Row(container={"command": ["no-such-program"]}, code=128,
                      status=("StartError", "executable file not found in $PATH"),
                      events=("executable file not found",)),
    "not-executable": Row(container={"command": ["/etc/passwd"]}, code=128,
                          status=("StartError", "permission denied"),
                          events=("permission denied",)),
    "no-working-dir": Row("true", {"workingDir": "/no/such"}, code=128,
                          status=("ContainerCannotRun",), events=('workingDir "/no/such"',)),
    "no-stand-in": Row(container={"image": "example.com/x", "command": None}, code=128,
                       status=("StartError",), events=("--runtime podman",)),
    "no-config-map": Row("true", source("configMapKeyRef", name="no", key="k"),
                         stays="CreateContainerConfigError", events=('configmap "no" not found',)),
    "no-secret-key": Row("true", source("secretKeyRef", name="secret", key="no"),
                         stays="CreateContainerConfigError",
                         events=("couldn't find key no in Secret",)),
    "no-volume": Row("true", AT_DATA, {"volumes": [{"name": "v", "nfs":
                                                    {"server": "s", "path": "/"}}]},
                     stays="ContainerCreating",
                     events=('MountVolume.SetUp failed for volume "v"',)),
    "no-claim": Row("true", AT_DATA, {"volumes": [{"name": "v", "persistentVolumeClaim":
                                                   {"claimName": "c"}}]},
                    stays="Unschedulable", events=('persistentvolumeclaim "c" not found',)),
    "ignores-sigterm": Row("trap '' TERM; while :; do sleep 0.05; done",
                           spec={"activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 1},
                           code=137),
    "daemon": Row("(setsid sleep 7654321 &); echo left", says="left\n"),
    "closed-pipes": Row("exec >&- 2>&-; exit 5", code=5, says=""),
    "binary": Row("printf '\\377\\376\\n'; head -c 30000000 /dev/zero | tr '\\0' x; echo; exit 0"),
    "instant": Row(container={"command": ["true"]}, says=""),
}  # fmt: skip

#: `onejob run` refuses a manifest with this one before anything is started: tests/cli/test_run.py.
REFUSED_BY_RUN = "no-stand-in"
ENDING = [name for name, row in ROWS.items() if not row.stays and name != REFUSED_BY_RUN]
#: Volumes at /data, for many Pods at once.
IN_NAMESPACES = {name for name, row in ROWS.items() if "volumeMounts" in row.container}


def job(name: str) -> Document:
    row = ROWS[name]
    container = shell(row.script, **{"name": "main", **row.container})
    if container["command"] is None:
        del container["command"]
    pods = template(container, metadata={"labels": {"row": name}}, **row.spec)
    # For a Pod that is restarted, the Job counts the restarts.
    return a_job(name, backoffLimit=9 if "restartPolicy" in row.spec else 0, template=pods)


def manifests(names: list[str]) -> str:
    text: str = yaml.safe_dump_all([*SETTINGS, *map(job, names)])
    return text


@dataclass
class Way:
    """One way to run the rows, and to query the results."""

    ask: Callable[..., str]
    pods: dict[str, Document] = field(default_factory=dict)
    events: list[Document] = field(default_factory=list)

    def read(self) -> None:
        listed = json.loads(self.ask("get", "pods", "-o", "json"))["items"]
        self.pods = {pod["metadata"]["labels"]["row"]: pod for pod in listed}

    def until_settled(self, names: list[str]) -> None:
        give_up = time.monotonic() + 60
        while True:
            self.read()
            unsettled = [n for n in names if n not in self.pods or not _settled(n, self.pods[n])]
            if not unsettled:
                break
            assert time.monotonic() < give_up, [(n, self.pods.get(n)) for n in unsettled]
            time.sleep(0.2)


def _settled(name: str, pod: Document) -> bool:
    if ROWS[name].stays:
        return ROWS[name].stays in json.dumps(pod["status"])
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def onejob(*arguments: str, stdin: str = "", code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "onejob", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, f"{shlex.join(arguments)}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with a_server(tmp_path_factory.mktemp("rows"), *CAPACITY) as server:
        yield server


@pytest.fixture(scope="module")
def by_kubectl(server: Server) -> Way:
    if KUBECTL is None:
        pytest.skip("kubectl is not on the PATH")
    return _on_server("kubectl", lambda *words, **rest: server.kubectl(*words, **rest))


@pytest.fixture(scope="module")
def by_onejob(server: Server) -> Way:
    place = ("--kubeconfig", str(server.kubeconfig))

    def ask(*words: str, **rest: Any) -> str:
        if words[0] == "-n":
            words = (*words[2:], *words[:2])
        return onejob(*words, *place, **rest)

    return _on_server("onejob", ask)


def _on_server(name: str, ask: Callable[..., str]) -> Way:
    ask("create", "namespace", f"by-{name}")
    way = Way(lambda *words, **rest: ask("-n", f"by-{name}", *words, **rest))
    way.ask("create", "-f", "-", stdin=manifests(list(ROWS)))
    way.until_settled(list(ROWS))
    way.events = json.loads(way.ask("get", "events", "-o", "json"))["items"]
    return way


@pytest.fixture(scope="module")
def by_run(tmp_path_factory: pytest.TempPathFactory) -> Way:
    folder = tmp_path_factory.mktemp("run")
    place = ("--data-dir", str(folder / "state"))
    file = folder / "rows.yaml"
    file.write_text(manifests(ENDING))
    onejob("run", str(file), *place, *CAPACITY, code=1)
    way = Way(lambda *words: onejob(*words, *place))
    way.read()
    way.events = json.loads(way.ask("get", "events", "-o", "json"))["items"]
    return way


WAYS = [(way, name) for way in ("kubectl", "onejob") for name in ROWS]
WAYS += [("run", name) for name in ENDING]


@pytest.mark.parametrize(("way", "name"), WAYS, ids=lambda value: str(value))
def test_a_row_is_as_promised(way: str, name: str, request: pytest.FixtureRequest) -> None:
    if name in IN_NAMESPACES and not can_isolate():
        pytest.skip("this machine has no mount namespaces")
    done: Way = request.getfixturevalue(f"by_{way}")
    row, pod = ROWS[name], done.pods[name]
    told = json.dumps(pod["status"])
    for text in row.status:
        assert text in told
    if not row.stays:
        ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        assert ended["exitCode"] == row.code
    if row.says is not None:
        assert done.ask("logs", pod["metadata"]["name"], "-c", "main") == row.says
    if row.events:
        about = pod["metadata"]["name"]
        messages = [e["message"] for e in done.events if e["involvedObject"]["name"] == about]
        for text in row.events:
            assert any(text in message for message in messages), messages


@pytest.mark.parametrize("way", ["kubectl", "onejob"])
def test_node_row_shows_version_and_capacity(way: str, request: pytest.FixtureRequest) -> None:
    done: Way = request.getfixturevalue(f"by_{way}")
    (node,) = json.loads(done.ask("get", "nodes", "-o", "json"))["items"]
    assert node["status"]["allocatable"]["example.com/gpu"] == "2"
    assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True"
    assert re.match(r"v1\.\d+\.\d+", node["status"]["nodeInfo"]["kubeletVersion"])


@pytest.mark.parametrize("way", ["kubectl", "onejob"])
def test_logs_are_kept_by_restart_and_chosen_from(way: str, request: pytest.FixtureRequest) -> None:
    done: Way = request.getfixturevalue(f"by_{way}")
    restarted = done.pods["restart"]["metadata"]["name"]
    assert done.ask("logs", restarted, "--previous") == "first\n"
    assert done.ask("logs", restarted, "--tail=1", "--since=1h") == "again\n"
    assert re.match(r"20\S+Z again\n", done.ask("logs", restarted, "--timestamps"))
    assert "fits\n" in done.ask("logs", "-l", "row=fits")


def test_nothing_stays_behind(by_kubectl: Way, by_onejob: Way, by_run: Way) -> None:
    assert by_kubectl.pods["daemon"]
    assert by_onejob.pods["daemon"]
    assert by_run.pods["daemon"]
    left = [p for p in Path("/proc").iterdir() if p.name.isdigit() and _runs(p, b"7654321")]
    assert left == []


def _runs(process: Path, word: bytes) -> bool:
    try:
        return word in (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
