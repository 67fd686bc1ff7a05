"""`resources.limits` of containers that are processes: enforced by control groups or rlimits."""

import asyncio
import hashlib
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.client.base import Create, Selection
from onejob.control_plane import ControlPlane, Settings
from onejob.node.options import NodeOptions
from onejob.node.process.cgroups import ContainerLimits, ControlGroups, GroupUsage
from onejob.node.runtime import AttemptRef
from onejob.objects.meta import PODS
from tests import build
from tests.build import container, creation
from tests.node.limits_support import needs_groups
from tests.node.support import needs_pid_namespaces

NOW = datetime(2026, 1, 1, tzinfo=UTC)
REF = AttemptRef("uid", "main", 0)
LIMITS = ContainerLimits(memory_bytes=64 << 20, cpu_milli=500)

#: Allocates memory step by step and touches all of it; not endlessly, in case nothing stops it.
EATER = "x = []\nfor n in range(300): x.append(bytearray(b'x' * 1048576))"


# --- on a tree of plain files ---------------------------------------------------------------


def a_process(folder: Path, mounts: str, groups: str) -> Path:
    proc = folder / "proc" / "self"
    proc.mkdir(parents=True)
    (proc / "mountinfo").write_text(mounts)
    (proc / "cgroup").write_text(groups)
    return proc


def version_2(folder: Path, processes: str = "", controllers: str = "cpu memory pids") -> Path:
    top = folder / "cgroup"
    own = top / "user.slice" / "onejob.scope"
    own.mkdir(parents=True)
    (own / "cgroup.controllers").write_text(controllers)
    (own / "cgroup.subtree_control").write_text("")
    (own / "cgroup.procs").write_text(processes or f"{os.getpid()}\n")
    mounts = f"30 23 0:26 / {top} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
    return a_process(folder, mounts, "0::/user.slice/onejob.scope\n")


def test_version_2_moves_our_processes_aside_and_limits_a_group_below(tmp_path: Path) -> None:
    groups = ControlGroups.find(tmp_path, NOW, proc=version_2(tmp_path))
    assert (groups.problem, groups.title) == ("", "control groups, version 2")
    own = tmp_path / "cgroup" / "user.slice" / "onejob.scope"
    assert (own / "onejob-server" / "cgroup.procs").read_text() == f"{os.getpid()}\n"
    assert (own / "cgroup.subtree_control").read_text() == "+memory +cpu\n"
    (joined,) = groups.make(REF, LIMITS)
    group = Path(joined).parent
    assert group.name == "uid_main_0"
    written = {path.name: path.read_text().strip() for path in group.iterdir()}
    assert written == {
        "memory.max": "67108864",
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "cpu.max": "50000 100000",
    }
    assert groups.files(REF) == [joined]
    (group / "memory.events").write_text("low 0\noom 3\noom_kill 1\noom_group_kill 1\n")
    (group / "memory.peak").write_text("67108864\n")
    assert groups.close(REF) == GroupUsage(1, 67108864)


def test_version_2_leaves_a_group_alone_that_others_are_in(tmp_path: Path) -> None:
    proc = version_2(tmp_path, processes=f"{os.getpid()}\n77\n")
    (tmp_path / "proc" / "77").mkdir()
    (tmp_path / "proc" / "77" / "stat").write_text("77 (a shell) S 1 77 77 0")
    groups = ControlGroups.find(tmp_path, NOW, proc=proc)
    assert "is shared with other processes" in groups.problem
    assert "systemd-run --user --scope -p Delegate=yes" in groups.problem
    assert groups.make(REF, LIMITS) == []


def test_cgroup_v2_without_memory_controller_is_reported(tmp_path: Path) -> None:
    proc = version_2(tmp_path, controllers="cpu pids")
    assert "it is not delegated" in ControlGroups.find(tmp_path, NOW, proc=proc).problem


def test_missing_control_groups_are_reported(tmp_path: Path) -> None:
    proc = a_process(tmp_path, "20 1 0:5 / /dev rw - devtmpfs udev rw\n", "")
    found = ControlGroups.find(tmp_path, NOW, proc=proc)
    assert found.problem == "this machine has no control groups"
    absent = ControlGroups.find(tmp_path, NOW, proc=tmp_path / "nothing")
    assert absent.problem == f"{tmp_path}/nothing/mountinfo: No such file or directory"


def test_version_1_has_a_group_in_each_tree(tmp_path: Path) -> None:
    memory, cpu = tmp_path / "memory", tmp_path / "cpu"
    (memory / "job").mkdir(parents=True)
    cpu.mkdir()
    mounts = (
        f"35 31 0:32 / {memory} rw - cgroup cgroup rw,memory\n"
        f"36 31 0:33 / {cpu} rw - cgroup cgroup rw,cpu\n"
    )
    proc = a_process(tmp_path, mounts, "4:memory:/job\n1:cpu:/gone\n0::/\n")
    groups = ControlGroups.find(tmp_path, NOW, proc=proc)
    assert groups.title == "control groups, version 1"
    in_memory, in_cpu = (Path(name).parent for name in groups.make(REF, LIMITS))
    assert in_memory.parent.parent == memory / "job"
    assert in_cpu.parent.parent == cpu, "our own group there cannot be seen from here"
    assert (in_memory / "memory.limit_in_bytes").read_text() == "67108864\n"
    assert (in_cpu / "cpu.cfs_quota_us").read_text() == "50000\n"
    (in_memory / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert groups.close(REF) == GroupUsage(2, 0)
    only_memory = groups.make(REF, ContainerLimits(memory_bytes=1 << 20))
    assert len(only_memory) == 1


# --- with real processes --------------------------------------------------------------------


def a_pod(name: str, script: str, **limits: str) -> Create:
    return creation(build.a_pod(name, limited(script, limits)))


def limited(script: str, limits: dict[str, str]) -> dict[str, Any]:
    return container(sys.executable, "-c", script, resources={"limits": limits})


async def ends_of(folder: Path, *pods: Create, **options: Any) -> tuple[str, list[dict[str, Any]]]:
    """Return the limits in force, and the end of each Pod's container."""
    node = NodeOptions(name="node", pods_end_with_server=True, **options)
    plane = await ControlPlane.start(Settings(folder, node))
    try:
        limits = plane.node.runtime.limits_in_force
        assert limits is not None
        text = limits.text
        for pod in pods:
            await plane.client.write(pod)
        async with asyncio.timeout(60):
            while True:
                listing = await plane.client.list(Selection(PODS))
                found = [msgspec.json.decode(document) for document in listing.documents]
                if all(pod["status"].get("phase") in ("Failed", "Succeeded") for pod in found):
                    break
                await asyncio.sleep(0.05)
        states = [pod["status"]["containerStatuses"][0]["state"]["terminated"] for pod in found]
        return text, states
    finally:
        await plane.stop()


@needs_groups
@pytest.mark.parametrize("pid_namespace", ["off", pytest.param("on", marks=needs_pid_namespaces)])
def test_a_container_that_uses_more_memory_than_its_limit_is_oom_killed(
    tmp_path: Path, pid_namespace: str
) -> None:
    text, (eaten, fine) = asyncio.run(
        ends_of(
            tmp_path,
            a_pod("eater", EATER, memory="48Mi"),
            a_pod("modest", "x = bytearray(b'x' * 4000000)", memory="48Mi", cpu="500m"),
            pid_namespace=pid_namespace,
        )
    )
    assert text.startswith("memory and CPU by control groups, version ")
    assert (eaten["exitCode"], eaten["reason"]) == (137, "OOMKilled")
    assert eaten["message"].startswith("it exceeded its memory limit of 48Mi")
    assert (fine["exitCode"], fine["reason"]) == (0, "Completed")


@needs_groups
async def test_a_job_retries_with_more_memory(tmp_path: Path) -> None:
    node = NodeOptions(name="node", pods_end_with_server=True)
    plane = await ControlPlane.start(Settings(tmp_path, node))
    try:
        await plane.client.write(_growing_job())
        async with asyncio.timeout(60):
            while True:
                jobs = list(plane.informers.jobs.cache)
                if jobs and jobs[0].finished:
                    break
                await asyncio.sleep(0.05)
        listing = await plane.client.list(Selection(PODS))
    finally:
        await plane.stop()
    pods = sorted(map(msgspec.json.decode, listing.documents), key=_retries)
    assert [
        (pod["spec"]["containers"][0]["resources"]["limits"]["memory"], pod["status"]["phase"])
        for pod in pods
    ] == [("48Mi", "Failed"), ("384Mi", "Succeeded")]


def _growing_job() -> Create:
    metadata = {"annotations": {"onejob.dev/oom-memory-factor": "8"}}
    eater = limited(EATER, {"memory": "48Mi"})
    return creation(build.a_job("growing", eater, metadata=metadata, backoffSeconds=0))


def _retries(pod: dict[str, Any]) -> str:
    return str(pod["metadata"].get("annotations", {}).get("onejob.dev/oom-retries", "0"))


@needs_groups
def test_an_end_by_lack_of_memory_is_known_to_a_server_that_was_away(tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.05)\n{EATER}"

    async def begin() -> None:
        plane = await ControlPlane.start(Settings(tmp_path / "state", NodeOptions(name="node")))
        try:
            await plane.client.write(a_pod("eater", script, memory="48Mi"))
            async with asyncio.timeout(30):
                while not [pod for pod in plane.informers.pods.cache if pod.phase == "Running"]:
                    await plane.informers.pods.flush_deferred()
                    await asyncio.sleep(0.05)
        finally:
            await plane.stop()

    asyncio.run(begin())
    go.touch()
    _, (ended,) = asyncio.run(ends_of(tmp_path / "state"))
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")


@needs_groups
def test_a_cpu_limit_holds(tmp_path: Path) -> None:
    """Measured by the CPU time of a busy container, not by its duration."""
    script = (
        "import time\nbegin = time.monotonic()\n"
        "while time.monotonic() - begin < 1: pass\n"
        "share = time.process_time() / (time.monotonic() - begin)\n"
        "raise SystemExit(0 if share < 0.5 else 3)"
    )
    _, (ended,) = asyncio.run(ends_of(tmp_path, a_pod("busy", script, cpu="200m")))
    assert ended["exitCode"] == 0


@needs_groups
async def test_groups_are_gone_when_their_containers_are(tmp_path: Path) -> None:
    before = _groups_below()
    await ends_of(tmp_path, a_pod("short", "pass", memory="48Mi", cpu="1"))
    assert _groups_below() <= before


@needs_groups
async def test_a_server_without_pods_leaves_no_group_behind(tmp_path: Path) -> None:
    plane = await ControlPlane.start(Settings(tmp_path, NodeOptions(name="node")))
    limits = plane.node.runtime.limits_in_force
    assert limits is not None
    assert limits.enforced
    assert _own_folders(tmp_path)
    await plane.stop()
    assert _own_folders(tmp_path) == []


def _own_folders(data_dir: Path) -> list[str]:
    name = f"onejob-{hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:12]}"
    walked = os.walk("/sys/fs/cgroup")
    return [os.path.join(place, name) for place, names, _ in walked if name in names]


def _groups_below() -> set[str]:
    return {
        os.path.join(place, name)
        for place, names, _ in os.walk("/sys/fs/cgroup")
        for name in names
        if "_main_" in name
    }


def test_the_guard_of_single_processes_refuses_them_more_memory(tmp_path: Path) -> None:
    script = f"try:\n exec({EATER!r})\nexcept MemoryError: raise SystemExit(9)"
    text, (ended,) = asyncio.run(
        ends_of(tmp_path, a_pod("eater", script, memory="64Mi"), enforce_limits="rlimit")
    )
    assert text == "memory of each process (RLIMIT_DATA), CPU not limited"
    assert ended["exitCode"] == 9


def test_limits_that_are_switched_off_are_not_kept(tmp_path: Path) -> None:
    script = "x = bytearray(b'x' * 80000000)"
    text, (ended,) = asyncio.run(
        ends_of(tmp_path, a_pod("large", script, memory="32Mi"), enforce_limits="off")
    )
    assert text == "not enforced: --enforce-limits off"
    assert ended["exitCode"] == 0
