"""Outputs of Pods with real processes: directories, quota, retention, archives, inputs."""

import asyncio
import io
import os
import tarfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from onejob.api.access.authorization import AllowAuthenticated
from onejob.api.http.endpoints import Endpoints
from onejob.api.http.requests import UserRequest
from onejob.api.http.responses import Response
from onejob.api.http.routing import ResourcePath
from onejob.cli.errors import CommandError
from onejob.cli.reports.extracting import extract
from onejob.client.base import Delete, Selection
from onejob.control_plane import ControlPlane, Settings
from onejob.node.options import NodeOptions, OutputRetention
from onejob.node.outputs.archive import tar_pieces, used_bytes
from onejob.node.outputs.folders import (
    DELETED,
    FOLDER,
    kept_outputs,
    make_folder,
    outputs_of_job,
)
from onejob.node.outputs.serving import OutputFiles
from onejob.objects.job import Job, read_job
from onejob.objects.meta import JOBS, PODS, Key, Meta, OwnerReference
from onejob.objects.pod_spec import NodePod
from onejob.virtual_time import NOON
from onejob.wire.errors import NotFound
from onejob.wire.kinds import BY_RESOURCE
from onejob.wire.requests import INTERNAL
from tests.build import a_job, creation, shell, template

PATIENCE = 60


@asynccontextmanager
async def a_plane(folder: Path, **retention: Any) -> AsyncIterator[ControlPlane]:
    options = NodeOptions(
        pods_end_with_server=True, outputs=OutputRetention(**retention), capacity={"cpu": "100"}
    )
    plane = await ControlPlane.start(Settings(folder / "state", options))
    try:
        yield plane
    finally:
        await plane.stop()


async def run(
    plane: ControlPlane,
    script: str,
    name: str = "j",
    pod_annotations: Mapping[str, str] | None = None,
    pod_spec: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Job:
    """Run a Job to its end."""
    metadata = {"annotations": dict(pod_annotations or {})}
    made = template(shell(script), metadata=metadata, **(pod_spec or {}))
    await plane.client.write(creation(a_job(name, template=made, backoffLimit=0, **spec)))
    return await until(plane, name, lambda job: job.finished)


async def until(plane: ControlPlane, name: str, holds: Callable[[Job], bool]) -> Job:
    cache, changed = plane.informers.jobs.cache, asyncio.Event()
    plane.informers.jobs.on_change(lambda deltas: changed.set())
    key = Key(JOBS, "default", name)
    async with asyncio.timeout(PATIENCE):
        while True:
            job = cache.get(key)
            if job is not None and holds(job):
                return read_job(await plane.client.get(key))
            changed.clear()
            await changed.wait()


async def ask(plane: ControlPlane, what: str, name: str = "j", **query: str) -> Response:
    files = OutputFiles(plane.settings.data_dir)
    endpoints = Endpoints(
        plane.service, authorizer=AllowAuthenticated(), rng=Random(0), outputs=files
    )
    parameters = {key: [value] for key, value in query.items()}
    request = UserRequest("GET", parameters, {}, INTERNAL)
    target = ResourcePath(BY_RESOURCE[JOBS], "default", name, what)
    return await endpoints.answer(request, target, "get")


async def archive(plane: ControlPlane, name: str = "j", **query: str) -> dict[str, str]:
    """Return the files of a Job's archive and their contents."""
    response = await ask(plane, "outputs", name, **query)
    assert not isinstance(response.body, bytes)
    return files_of(b"".join([piece async for piece in response.body]))


def files_of(content: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(content)) as found:
        return {
            member.name: (found.extractfile(member) or io.BytesIO()).read().decode()
            for member in found
            if member.isreg()
        }


async def document(plane: ControlPlane, what: str, name: str = "j") -> Any:
    response = await ask(plane, what, name)
    assert isinstance(response.body, bytes)
    return msgspec.json.decode(response.body)


async def delete_pods(plane: ControlPlane) -> None:
    listing = await plane.client.list(Selection(PODS))
    for each in listing.documents:
        name = msgspec.json.decode(each)["metadata"]["name"]
        await plane.client.write(Delete(Key(PODS, "default", name), grace_seconds=0))


async def test_outputs_outlive_their_pod(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        script = 'mkdir "$ONEJOB_OUTPUT/deep"; echo hello > "$ONEJOB_OUTPUT/deep/file"'
        job = await run(plane, script)
        assert job.condition_is_true("Complete")
        assert await archive(plane) == {"deep/file": "hello\n"}
        (kept,) = kept_outputs(plane.settings.data_dir)
        assert not (kept.folder / DELETED).exists()
        await delete_pods(plane)
        assert await archive(plane) == {"deep/file": "hello\n"}
        assert await archive(plane, path="deep") == {"file": "hello\n"}
        assert await archive(plane, path="deep/file") == {"file": "hello\n"}
        with pytest.raises(NotFound, match=r"no outputs at other"):
            await archive(plane, path="other")


async def test_outputs_of_indexes_are_in_folders_of_their_own(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        script = 'echo $JOB_COMPLETION_INDEX > "$ONEJOB_OUTPUT/out"'
        await run(plane, script, completions=3, parallelism=3, completionMode="Indexed")
        assert await archive(plane) == {"0/out": "0\n", "1/out": "1\n", "2/out": "2\n"}
        assert await archive(plane, index="1") == {"out": "1\n"}


async def test_jobs_without_outputs_have_no_folder(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        await run(plane, "true")
        assert not (plane.settings.data_dir / FOLDER).exists()
        with pytest.raises(NotFound, match="ONEJOB_OUTPUT"):
            await archive(plane)


async def test_annotation_provides_outputs_for_programs_that_name_no_variable(
    tmp_path: Path,
) -> None:
    async with a_plane(tmp_path) as plane:
        script = "eval echo hi '>' '$ONE''JOB_OUTPUT/file'"
        await run(plane, script, pod_annotations={"onejob.dev/outputs": "true"})
        assert await archive(plane) == {"file": "hi\n"}


async def test_output_path_chooses_another_path(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        place = tmp_path / "chosen" / "results"
        place.parent.mkdir()
        job = await run(
            plane,
            f"echo hi > {place}/file; echo $ONEJOB_OUTPUT > {place}/variable",
            pod_annotations={"onejob.dev/output-path": str(place)},
        )
        assert job.condition_is_true("Complete"), job.status
        assert await archive(plane) == {"file": "hi\n", "variable": f"{place}\n"}
        assert not place.exists() or not list(place.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run Pods as other users")
async def test_outputs_of_another_user(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        job = await run(
            plane,
            'id -u > "$ONEJOB_OUTPUT/user" && echo 1/2 >> "$ONEJOB_PROGRESS"',
            pod_spec={"securityContext": {"runAsUser": 65534}},
        )
        assert job.condition_is_true("Complete"), job.status
        assert await archive(plane) == {"user": "65534\n"}
        assert (await document(plane, "progress"))["total"] == 2


async def test_later_job_of_same_name_does_not_serve_earlier_outputs(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        await run(plane, 'echo secret > "$ONEJOB_OUTPUT/file"')
        await plane.client.write(Delete(Key(JOBS, "default", "j"), "Background"))
        await plane.informers.jobs.reached(plane.store.revision)
        await run(plane, "true")
        with pytest.raises(NotFound):
            await archive(plane)
        assert (await document(plane, "history"))["pods"][0]["exitCode"] == 0
        assert len((await document(plane, "history"))["pods"]) == 1


def test_pods_of_other_namespaces_cannot_add_outputs(tmp_path: Path) -> None:
    owner = OwnerReference(kind="Job", name="j", uid="job", controller=True)
    for number, namespace in enumerate(("ours", "theirs")):
        metadata = Meta(
            name="p", namespace=namespace, uid=f"pod-{namespace}", owner_references=(owner,)
        )
        make_folder(tmp_path, NodePod(metadata=metadata), NOON + timedelta(seconds=number))
    found = outputs_of_job(tmp_path, "ours", "job", one=True)
    assert [kept.record.uid for kept in found] == ["pod-ours"]


@pytest.mark.parametrize(
    "script",
    [
        'head -c 200000 /dev/zero > "$ONEJOB_OUTPUT/big"',
        'truncate -s 1099511627776 "$ONEJOB_OUTPUT/sparse"',
        'for n in $(seq 200); do : > "$ONEJOB_OUTPUT/$n"; done',
        'head -c 200000 /dev/zero > "$ONEJOB_PROGRESS"',
    ],
    ids=["large", "sparse", "many", "progress"],
)
async def test_full_quota_fails_pod_and_nothing_else(tmp_path: Path, script: str) -> None:
    async with a_plane(tmp_path, quota_bytes=100_000) as plane:
        waits = 'echo fine > "$ONEJOB_OUTPUT/file"; until [ -e go ]; do sleep 0.1; done'
        other = template(shell(f"cd {tmp_path}; {waits}"))
        await plane.client.write(creation(a_job("other", template=other)))
        job = await run(plane, f"{script}; sleep 1000")
        condition = job.finished_condition
        assert condition is not None
        assert condition.type == "Failed"
        (pod,) = (await document(plane, "history"))["pods"]
        assert (pod["phase"], pod["reason"]) == ("Failed", "OutputQuotaExceeded")
        (tmp_path / "go").touch()
        found = await until(plane, "other", lambda job: job.finished)
        assert found.condition_is_true("Complete")
        assert await archive(plane, "other") == {"file": "fine\n"}


async def test_history_outlives_pods(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        await run(plane, "exit 3", completions=2, completionMode="Indexed")
        before = (await document(plane, "history"))["pods"]
        await delete_pods(plane)
        after = (await document(plane, "history"))["pods"]
        assert [pod["exitCode"] for pod in after] == [3] * len(before)
        assert all(pod["deleted"] and "logs --deleted" in pod["log"] for pod in after)
        kept = ("name", "uid", "index", "node", "finishTime", "reason")
        assert [[pod.get(name) for name in kept] for pod in after] == [
            [pod.get(name) for name in kept] for pod in before
        ]
    async with a_plane(tmp_path) as plane:
        assert (await document(plane, "history"))["pods"] == after


async def test_progress_is_the_sum_of_the_last_lines(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        script = 'echo "1/10 begun" > "$ONEJOB_PROGRESS"; echo "4/10 epoch 4" >> "$ONEJOB_PROGRESS"'
        await run(plane, script, completions=2, completionMode="Indexed")
        found = await document(plane, "progress")
        assert (found["done"], found["total"], found["text"]) == (8, 20, "epoch 4")
        assert [pod["index"] for pod in found["pods"]] == [0, 1]


async def test_inputs_mount_earlier_outputs_read_only(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        script = 'echo $JOB_COMPLETION_INDEX > "$ONEJOB_OUTPUT/part"'
        first = await run(plane, script, "first", completions=2, completionMode="Indexed")
        place = tmp_path / "in"
        entry = {"job": "first", "uid": first.metadata.uid, "mountPath": str(place)}
        job = await run(
            plane,
            f'cat {place}/*/part > "$ONEJOB_OUTPUT/all"; ! echo x > {place}/0/part',
            "second",
            {"onejob.dev/inputs": msgspec.json.encode([entry]).decode()},
        )
        assert job.condition_is_true("Complete"), await document(plane, "history", "second")
        assert await archive(plane, "second") == {"all": "0\n1\n"}
        assert await archive(plane, "first") == {"0/part": "0\n", "1/part": "1\n"}


async def test_outputs_of_deleted_pods_expire_oldest_first(tmp_path: Path) -> None:
    async with a_plane(tmp_path, size_bytes=25_000) as plane:
        for name in ("a", "b", "c"):
            await run(plane, 'head -c 10000 /dev/zero > "$ONEJOB_OUTPUT/file"', name)
            await delete_pods(plane)
        data_dir = plane.settings.data_dir
        async with asyncio.timeout(PATIENCE):
            while len(left := list(kept_outputs(data_dir))) > 2:  # noqa: ASYNC110 (a thread's work)
                await asyncio.sleep(0.01)
        assert sorted(kept.record.job for kept in left) == ["b", "c"]


async def test_pods_deleted_while_no_server_ran_are_noticed(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        await run(plane, 'echo a > "$ONEJOB_OUTPUT/file"', "a")
        await run(plane, 'echo b > "$ONEJOB_OUTPUT/file"', "b")
        listing = await plane.client.list(Selection(PODS, labels="job-name=a"))
        (name,) = [msgspec.json.decode(pod)["metadata"]["name"] for pod in listing.documents]
    without_node = Settings(tmp_path / "state", with_node=False)
    plane = await ControlPlane.start(without_node)
    await plane.client.write(Delete(Key(PODS, "default", name), grace_seconds=0))
    await plane.stop()
    async with a_plane(tmp_path) as plane:
        deleted = {
            kept.record.job: (kept.folder / DELETED).exists()
            for kept in kept_outputs(plane.settings.data_dir)
        }
        assert deleted == {"a": True, "b": False}
        assert await archive(plane, "a") == {"file": "a\n"}


# --- archives ---------------------------------------------------------------------------------


def test_archive_leaves_out_links_devices_and_pipes(tmp_path: Path) -> None:
    secret, files = tmp_path / "secret", tmp_path / "files"
    secret.mkdir()
    (secret / "key").write_text("secret")
    files.mkdir()
    (files / "real").write_text("real")
    (files / "link").symlink_to(secret / "key")
    (files / "folder-link").symlink_to(secret)
    os.mkfifo(files / "pipe")
    content = b"".join(tar_pieces([("0", str(files))], ""))
    assert files_of(content) == {"0/real": "real"}
    for part in ("link", "folder-link", "folder-link/key", "pipe", "../secret/key"):
        assert b"".join(tar_pieces([("", str(files))], part)) == b""


def test_used_bytes_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 100_000)
    files = tmp_path / "files"
    files.mkdir()
    (files / "link").symlink_to(tmp_path / "large")
    (files / "loop").symlink_to(files)
    assert used_bytes(str(files), 1 << 30) < 10_000


def test_used_bytes_of_deep_folders_exceeds_any_quota(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    for _ in range(150):
        os.mkdir("d", dir_fd=folder)
        below = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    assert used_bytes(str(tmp_path), 1 << 30) > 1 << 30


def a_tar(*members: tuple[str, bytes, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as made:
        for name, kind, content in members:
            info = tarfile.TarInfo(name)
            info.type, info.size = kind, len(content)
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                info.linkname, info.size = content.decode(), 0
            made.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil"])
def test_extract_refuses_names_outside(tmp_path: Path, name: str) -> None:
    content = a_tar((name, tarfile.REGTYPE, b"x"))
    with pytest.raises(CommandError, match="outside of itself"):
        extract(iter([content]), tmp_path / "to")
    assert not (tmp_path / "evil").exists()


def test_extract_writes_through_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    target = tmp_path / "to"
    target.mkdir()
    (target / "link").symlink_to(outside)
    links = a_tar(
        ("planted", tarfile.SYMTYPE, str(outside).encode()), ("planted/x", tarfile.REGTYPE, b"x")
    )
    assert extract(iter([links]), target / "fresh")[0] == 1
    with pytest.raises(CommandError):
        extract(iter([a_tar(("link/x", tarfile.REGTYPE, b"x"))]), target)
    assert not list(outside.iterdir())


def test_extract_reports_incomplete_archive(tmp_path: Path) -> None:
    content = a_tar(("file", tarfile.REGTYPE, b"x" * 10_000))
    with pytest.raises(CommandError, match="incomplete"):
        extract(iter([content[:3000]]), tmp_path / "to")


def test_extract_writes_what_the_archive_has(tmp_path: Path) -> None:
    source = tmp_path / "from"
    (source / "a").mkdir(parents=True)
    (source / "a" / "b").write_bytes(b"x" * 700_000)
    (source / "empty").touch(0o755)
    pieces = tar_pieces([("", str(source))], "")
    assert extract(pieces, tmp_path / "to") == (2, 700_000)
    assert (tmp_path / "to/a/b").read_bytes() == b"x" * 700_000
    assert (tmp_path / "to/empty").stat().st_mode & 0o777 == 0o755
