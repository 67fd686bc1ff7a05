"""The twelve rules that upstream's specs check on a node, through the API alone."""

import asyncio
import tempfile
from pathlib import Path

import pytest

from tests.e2e.serving import pid_on_host
from tests.e2e.specs.api import EVENTS, NODES, PODS, Api, Document, until
from tests.e2e.specs.job import PAUSE, a_schedulable_node
from tests.e2e.specs.pod import (
    a_pod,
    conditions,
    container_status,
    ended_pod,
    keep,
    let_go,
    mounting,
    output,
    pod_when,
    running_pod,
)
from tests.e2e.specs.running import Runs, Spec, Suite

suite = Suite(level="privileged")


@suite.it("rule 1: the pause image ends when told to; busybox alone ends at once")
async def _(api: Api, namespace: str) -> None:
    await api.create(PODS, namespace, a_pod("pause", image=PAUSE))
    await running_pod(api, namespace, "pause")
    await keep(api, namespace, "pause")
    await api.delete(PODS, namespace, "pause")
    ended = await ended_pod(api, namespace, "pause")
    assert container_status(ended)["state"]["terminated"]["exitCode"] == 0
    await let_go(api, namespace, "pause")
    assert await output(api, namespace, a_pod("busybox")) == ""


@suite.it("rule 2: sh is a shell that knows more than dash")
async def _(api: Api, namespace: str) -> None:
    script = "trap 'echo caught; exit 0' SIGTERM; [[ $RANDOM -ge 0 ]] && kill $$$$; sleep 1; exit 1"
    assert await output(api, namespace, a_pod("shell", script)) == "caught\n"


@suite.it("rule 3: each pod has its own empty directory; a path of the host is shared")
async def _(api: Api, namespace: str) -> None:
    mine = "test ! -e /data/mine; echo $HOSTNAME > /data/mine; sleep 0.5; cat /data/mine"
    pods = [mounting(a_pod(name, f"set -e; {mine}"), {"emptyDir": {}}) for name in ("a", "b")]
    printed = await asyncio.gather(*(output(api, namespace, pod) for pod in pods))
    assert printed == ["a\n", "b\n"]
    with tempfile.TemporaryDirectory(prefix="job-e2e-") as folder:
        path = f"{folder}/made/when/needed"
        shared = {"hostPath": {"path": path, "type": "DirectoryOrCreate"}}
        await output(api, namespace, mounting(a_pod("c", "echo here > /data/there"), shared))
        pod = mounting(a_pod("d", "cat /data/there"), shared)
        assert await output(api, namespace, pod) == "here\n"
        assert _written(path, "there") == "here\n"


@suite.it("rule 4: the environment tells of the pod, and variables expand")
async def _(api: Api, namespace: str) -> None:
    fields = {
        "LABEL": "metadata.labels['k']",
        "NOTE": "metadata.annotations['n']",
        "NAME": "metadata.name",
        "NAMESPACE": "metadata.namespace",
        "NODE": "spec.nodeName",
        "IP": "status.podIP",
    }
    env: list[Document] = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in fields.items()
    ]
    env.append({"name": "ALL", "value": "$(LABEL) $(NOTE) $(NAME) $(NAMESPACE) $(NODE) $(IP)"})
    pod = a_pod("told", "echo $ALL $HOSTNAME", env=env)
    pod["metadata"] |= {"labels": {"k": "v"}, "annotations": {"n": "w"}}
    pod["spec"]["hostname"] = "chosen"
    text = await output(api, namespace, pod)
    node = await a_schedulable_node(api)
    status = (await api.get(PODS, namespace, "told"))["status"]
    assert text.split() == ["v", "w", "told", namespace, node, status["podIP"], "chosen"]


@suite.it("rule 5: SIGTERM for the first process, SIGKILL for all after the grace")
async def _(api: Api, namespace: str) -> None:
    script = (
        "sh -c 'trap \"echo child caught\" TERM; while :; do sleep 0.1; done' & "
        "trap 'echo parent caught' TERM; echo ready; while :; do sleep 0.1; done"
    )
    await api.create(PODS, namespace, a_pod("stubborn", script))
    await running_pod(api, namespace, "stubborn")
    await _logged(api, namespace, "stubborn", "ready")
    await keep(api, namespace, "stubborn")
    # A second deletion may shorten the grace period, and then counts.
    await api.delete(PODS, namespace, "stubborn", gracePeriodSeconds=300)
    await _logged(api, namespace, "stubborn", "parent caught")
    await api.delete(PODS, namespace, "stubborn", gracePeriodSeconds=1)
    ended = await ended_pod(api, namespace, "stubborn")
    assert container_status(ended)["state"]["terminated"]["exitCode"] == 128 + 9
    assert ended["status"]["phase"] == "Failed"
    assert "child caught" not in await api.log(namespace, "stubborn")
    await let_go(api, namespace, "stubborn")


async def _logged(api: Api, namespace: str, pod: str, text: str) -> None:
    async def look() -> str:
        return await api.log(namespace, pod)

    await until(text, look, lambda log: text in log, seconds=60, every=0.1)


@suite.it("rule 6: a container that fails again waits longer, and its pod keeps running")
async def _(api: Api, namespace: str) -> None:
    pod = a_pod("crashing", "exit 3")
    pod["spec"]["restartPolicy"] = "OnFailure"
    await api.create(PODS, namespace, pod)
    waiting = await pod_when(
        *(api, namespace, "crashing", "waiting"),
        lambda seen: (
            "waiting" in container_status(seen).get("state", {})
            and container_status(seen)["restartCount"]
        ),
    )
    status = container_status(waiting)
    assert status["restartCount"] == 1
    assert status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert status["lastState"]["terminated"]["exitCode"] == 3
    assert waiting["status"]["phase"] == "Running"


@suite.it("rule 7: the status is whole, running and ended")
async def _(api: Api, namespace: str) -> None:
    script = "while [[ ! -e /data/go ]]; do sleep 0.1; done; exit 4"
    with tempfile.TemporaryDirectory(prefix="job-e2e-") as folder:
        volume = {"hostPath": {"path": folder, "type": ""}}
        await api.create(PODS, namespace, mounting(a_pod("whole", script), volume))
        running = await running_pod(api, namespace, "whole")
        status = running["status"]
        assert status["startTime"]
        assert status["hostIP"]
        assert status["podIP"] == status["podIPs"][0]["ip"]
        container = container_status(running)
        assert container.keys() >= {"name", "image", "imageID", "containerID", "lastState"}
        assert (container["ready"], container["started"], container["restartCount"]) == (
            *(True, True, 0),
        )
        wanted = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        assert {conditions(running)[kind] for kind in wanted} == {"True"}
        _touch(folder, "go")
        ended = await ended_pod(api, namespace, "whole")
        state = container_status(ended)["state"]["terminated"]
        assert (state["exitCode"], state["reason"]) == (4, "Error")
        assert state["startedAt"] <= state["finishedAt"]
        assert conditions(ended)["Ready"] == "False"


@suite.it("rule 8: a deleted pod is seen to end before it is seen to go")
async def _(api: Api, namespace: str) -> None:
    script = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.1; done"
    created = await api.create(PODS, namespace, a_pod("evicted", script))
    await running_pod(api, namespace, "evicted")
    await _logged(api, namespace, "evicted", "ready")
    await api.evict(namespace, "evicted")
    since = created["metadata"]["resourceVersion"]
    last: Document = {}
    async for event, pod in api.watch(PODS, namespace, resourceVersion=since):
        if event == "DELETED":
            break
        last = pod
    assert last["status"]["phase"] == "Succeeded"
    assert conditions(last)["DisruptionTarget"] == "True"


@suite.it("rule 9: a probe sees what its container sees")
async def _(api: Api, namespace: str) -> None:
    command = ["/bin/sh", "-c", "cat /data/$MARK"]
    pod = a_pod(
        *("probed", "while [[ ! -e /data/go ]]; do sleep 0.1; done; touch /data/foo; sleep 600"),
        env=[{"name": "MARK", "value": "foo"}],
        readinessProbe={"exec": {"command": command}, "periodSeconds": 1},
    )
    with tempfile.TemporaryDirectory(prefix="job-e2e-") as folder:
        volume = {"hostPath": {"path": folder, "type": ""}}
        await api.create(PODS, namespace, mounting(pod, volume))
        early = await running_pod(api, namespace, "probed")
        assert conditions(early)["Ready"] == "False"
        _touch(folder, "go")
        await pod_when(
            api, namespace, "probed", "ready", lambda seen: conditions(seen)["Ready"] == "True"
        )


@suite.it("rule 10: a pod waits for a node that fits it, and is never refused")
async def _(api: Api, namespace: str) -> None:
    elsewhere = a_pod("elsewhere", "exit 0")
    elsewhere["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "nowhere"}
    huge = a_pod("huge", "exit 0", resources={"requests": {"cpu": "100000"}})
    for pod in (elsewhere, huge):
        await api.create(PODS, namespace, pod)
        name = pod["metadata"]["name"]
        waiting = await pod_when(
            *(api, namespace, name, "unscheduled"),
            lambda seen: conditions(seen).get("PodScheduled") == "False",
        )
        assert waiting["status"]["phase"] == "Pending"

        async def events(name: str = name) -> list[str]:
            found = await api.items(EVENTS, namespace, fieldSelector=f"involvedObject.name={name}")
            return [event["reason"] for event in found]

        await until("an event", events, lambda seen: "FailedScheduling" in seen, seconds=30)
    bound = a_pod("bound", "exit 0", securityContext={"readOnlyRootFilesystem": True})
    bound["spec"]["nodeName"] = await a_schedulable_node(api)
    assert await output(api, namespace, bound) == ""


@suite.it("rule 11: the node tells that it is there, again and again")
async def _(api: Api, namespace: str) -> None:
    name = await a_schedulable_node(api)

    async def heartbeat() -> str:
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"
        return str((await api.call("GET", path))["spec"]["renewTime"])

    first = await heartbeat()
    await until("a heartbeat", heartbeat, lambda at: at > first, seconds=60, every=1)
    node = await api.get(NODES, "", name)
    assert node["status"]["nodeInfo"]["kubeletVersion"]


@suite.it("rule 12: processes end when their pod vanishes under them")
async def _(api: Api, namespace: str) -> None:
    with tempfile.TemporaryDirectory(prefix="job-e2e-") as folder:
        script = "trap '' TERM; echo $$$$ > /data/pid.new; mv /data/pid.new /data/pid; sleep 600"
        volume = {"hostPath": {"path": folder, "type": ""}}
        await api.create(PODS, namespace, mounting(a_pod("forced", script), volume))
        await running_pod(api, namespace, "forced")

        async def pid() -> str:
            return _written(folder, "pid")

        own = int(await until("its pid", pid, bool, seconds=60, every=0.1))
        process = pid_on_host(own, "sleep 600")
        await api.delete(PODS, namespace, "forced", gracePeriodSeconds=0)
        assert not await api.exists(PODS, namespace, "forced")

        async def alive() -> bool:
            return _alive(process)

        await until("its death", alive, lambda lives: not lives, seconds=30, every=0.1)


def _written(folder: str, name: str) -> str:
    path = Path(folder, name)
    return path.read_text() if path.exists() else ""


def _touch(folder: str, name: str) -> None:
    Path(folder, name).touch()


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("spec", suite.parameters())
def test_node(spec: Spec, runs: Runs) -> None:
    runs.result(spec)
