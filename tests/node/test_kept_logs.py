"""Logs of deleted Pods: the part that is kept, and its retention period."""

import asyncio
import os
from datetime import timedelta
from pathlib import Path

import pytest

from onejob.clock import LoopClock
from onejob.informers.cache import Delta
from onejob.node.logs.keeping import FOLDER, KeptLogs, kept_attempts, kept_pods
from onejob.node.logs.reading import log_path
from onejob.node.options import LogRetention
from onejob.objects.meta import Meta, OwnerReference
from onejob.objects.pod import Pod, PodSpec
from onejob.virtual_time import NOON

pytestmark = pytest.mark.virtual_time

WEEK = 7 * 24 * 3600.0


def a_pod(uid: str, node: str = "node") -> Pod:
    owner = OwnerReference(kind="Job", name="pi", uid="j", controller=True)
    metadata = Meta(name=f"pi-{uid}", namespace="default", uid=uid, owner_references=(owner,))
    return Pod(metadata=metadata, spec=PodSpec(node_name=node))


def deleted(pod: Pod) -> Delta[Pod]:
    return Delta(pod.key, pod, None)


def write_log(data_dir: Path, uid: str, text: str = "x", attempt: int = 0) -> None:
    path = log_path(data_dir, uid, "main", attempt)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def names(data_dir: Path) -> list[str]:
    return [pod.name for pod, _ in kept_pods(data_dir)]


def settle(kept: KeptLogs) -> None:
    """Wait until its thread has finished all tasks submitted so far.

    It does not use the loop, so time does not pass meanwhile.
    """
    kept._thread.submit(lambda: None).result()


async def test_logs_of_deleted_pod_are_archived_by_name(tmp_path: Path) -> None:
    clock = LoopClock(asyncio.get_running_loop(), NOON)
    kept = KeptLogs(tmp_path, clock, LogRetention(WEEK, 10**6))
    kept.start()
    write_log(tmp_path, "a", "first", 0)
    write_log(tmp_path, "a", "second", 1)
    kept.pods_changed([deleted(a_pod("a")), deleted(a_pod("silent"))])
    write_log(tmp_path, "elsewhere")
    kept.pods_changed([deleted(a_pod("elsewhere", node=""))])
    await kept.close()
    ((pod, folder),) = kept_pods(tmp_path)
    assert (pod.namespace, pod.name, pod.owner_kind, pod.owner_name) == (
        "default", "pi-a", "Job", "pi",
    )  # fmt: skip
    assert pod.deleted_at == NOON
    logs = kept_attempts(folder)["main"]
    assert [path.read_text() for path in logs] == ["first", "second"]
    assert not (tmp_path / "pods" / "a" / "logs").exists()
    assert (tmp_path / FOLDER).stat().st_mode & 0o077 == 0


async def test_logs_go_when_they_are_too_old_also_if_nothing_is_added(tmp_path: Path) -> None:
    clock = LoopClock(asyncio.get_running_loop(), NOON)
    kept = KeptLogs(tmp_path, clock, LogRetention(WEEK, 10**6))
    kept.start()
    write_log(tmp_path, "old")
    kept.pods_changed([deleted(a_pod("old"))])
    await asyncio.sleep(timedelta(days=3).total_seconds())
    write_log(tmp_path, "new")
    kept.pods_changed([deleted(a_pod("new"))])
    settle(kept)
    assert names(tmp_path) == ["pi-old", "pi-new"]
    await asyncio.sleep(timedelta(days=4, hours=2).total_seconds())
    settle(kept)
    assert names(tmp_path) == ["pi-new"]
    await kept.close()


async def test_the_oldest_go_when_there_is_too_much_also_after_a_restart(tmp_path: Path) -> None:
    clock = LoopClock(asyncio.get_running_loop(), NOON)
    kept = KeptLogs(tmp_path, clock, LogRetention(WEEK, 5000))
    kept.start()
    for uid in "abc":
        write_log(tmp_path, uid, "x" * 1500)
        kept.pods_changed([deleted(a_pod(uid))])
        await asyncio.sleep(1)
    await kept.close()
    assert names(tmp_path) == ["pi-a", "pi-b", "pi-c"]
    kept = KeptLogs(tmp_path, clock, LogRetention(WEEK, 5000))
    kept.start()
    write_log(tmp_path, "d", "x" * 1500)
    kept.pods_changed([deleted(a_pod("d"))])
    await kept.close()
    assert names(tmp_path) == ["pi-b", "pi-c", "pi-d"]


async def test_a_link_in_the_place_of_logs_is_not_kept(tmp_path: Path) -> None:
    clock = LoopClock(asyncio.get_running_loop(), NOON)
    kept = KeptLogs(tmp_path, clock, LogRetention(WEEK, 5000))
    kept.start()
    (tmp_path / "secret").mkdir()
    (tmp_path / "pods" / "a").mkdir(parents=True)
    os.symlink(tmp_path / "secret", tmp_path / "pods" / "a" / "logs")
    kept.pods_changed([deleted(a_pod("a"))])
    await kept.close()
    assert names(tmp_path) == []


async def test_damaged_archives_are_skipped_and_expire(tmp_path: Path) -> None:
    clock = LoopClock(asyncio.get_running_loop(), NOON)
    broken = tmp_path / FOLDER / "00000000000001-x"
    broken.mkdir(parents=True)
    (broken / "pod.json").write_text("{")
    assert names(tmp_path) == []
    kept = KeptLogs(tmp_path, clock, LogRetention(WEEK, 5000))
    kept.start()
    await kept.close()
    assert not broken.exists()
