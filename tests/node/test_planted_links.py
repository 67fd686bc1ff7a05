"""Symlinks, FIFOs and deep trees in volumes: they do not lead the node out of the volume."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from onejob.node.logs.reading import log_tail
from onejob.node.process.links import LinkRefused, Links
from onejob.node.removal import remove_trees
from onejob.node.runtime import AttemptRef
from onejob.node.setup.last_message import last_message
from onejob.node.supervisor import linux
from onejob.node.supervisor.capture import LogFile
from onejob.node.supervisor.paths import (
    folder_of,
    open_beneath,
    open_inside,
    open_mount_point,
    open_trusted,
    part_inside,
)
from tests.node.support import (
    Document,
    Node,
    a_node,
    a_process_node,
    an_api,
    needs_namespaces,
    process_runtime,
    shell,
    the_container,
    with_spec,
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for other users")
needs_mounts = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Return a folder that no Pod may access."""
    path = tmp_path / "outside"
    path.mkdir(mode=0o700)
    (path / "secret").write_text("admin's token")
    return path


def unchanged(outside: Path) -> bool:
    return os.listdir(outside) == ["secret"] and outside.stat().st_mode & 0o777 == 0o700


def after_planting(pod: Document, plant: str, *more_mounts: Document) -> Document:
    """Return the Pod with an init container that runs `plant` in their common volume, /data."""
    mount = {"name": "v", "mountPath": "/data"}
    init = {"name": "i", "image": "x", "command": ["sh", "-c", plant], "volumeMounts": [mount]}
    container = {**pod["spec"]["containers"][0], "volumeMounts": [mount, *more_mounts]}
    volumes = [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}]
    return with_spec(pod, initContainers=[init], containers=[container], volumes=volumes)


async def end_of(path: Path, pod: Document, **settings: object) -> Document:
    async with a_process_node(path, **settings) as node:
        ended: Document = the_container(await node.run(pod))["state"]["terminated"]
        return ended


@needs_root
@needs_namespaces
@pytest.mark.parametrize("over", ["pods", "pods/scratch"])
async def test_a_link_in_place_of_the_pods_own_folder_is_not_entered_as_root(
    tmp_path: Path, outside: Path, over: str
) -> None:
    """Root, which may enter everything, changes into the folder of a Pod of another user.

    With a volume over that, the Pod starts in the volume instead and resolves the path itself.
    """
    (outside / "open").mkdir(mode=0o755)
    (outside / "open" / "letter").write_text("treasure")
    folder = "/data/scratch" if over == "pods" else "/data"
    links = f"for n in 1 2 3; do ln -s {outside}/open {folder}/$n; done"
    mount = {"name": "v", "mountPath": str(tmp_path / over)}
    reads = shell("cat letter > /dev/termination-log")
    pod = after_planting(reads, f"mkdir -p {folder}; {links}", mount)
    ended = await end_of(tmp_path, with_spec(pod, securityContext={"runAsUser": 65534}))
    assert ended["exitCode"] != 0
    assert "treasure" not in ended.get("message", "")


@needs_namespaces
@pytest.mark.parametrize("target", ["/data/x", "/data/x/deep/sub"])
async def test_a_mount_inside_a_volume_does_not_follow_a_link_out_of_it(
    tmp_path: Path, outside: Path, target: str
) -> None:
    mount = {"name": "w", "mountPath": target}
    pod = after_planting(shell("echo ran"), f"ln -s {outside} /data/x", mount)
    ended = await end_of(tmp_path, pod)
    assert unchanged(outside)
    assert ended["reason"] == "ContainerCannotRun"
    assert "a symbolic link leads out of the volume" in ended["message"]


@needs_namespaces
async def test_a_mount_inside_a_volume_may_follow_a_link_that_stays_in_it(tmp_path: Path) -> None:
    mount = {"name": "w", "mountPath": "/data/current/sub"}
    pod = after_planting(
        shell("touch /data/v1/sub/f && test -e /data/current/sub/f && echo -n fine > /data/m",
              terminationMessagePath="/data/m"),
        "mkdir /data/v1; ln -s v1 /data/current",
        mount,
    )  # fmt: skip
    ended = await end_of(tmp_path, pod)
    assert (ended["exitCode"], ended.get("message")) == (0, "fine")


@needs_namespaces
async def test_nested_mount_ignores_host_content_of_path(tmp_path: Path, outside: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "x").symlink_to(outside)
    mounts = [
        {"name": "v", "mountPath": str(shared)},
        {"name": "w", "mountPath": f"{shared}/x/sub"},
    ]
    script = f"test -d {shared}/x/sub && ls {outside}"
    pod = shell(f"{script} > /dev/termination-log", volumeMounts=mounts)
    volumes = [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}]
    ended = await end_of(tmp_path, with_spec(pod, volumes=volumes))
    assert (ended["exitCode"], ended.get("message")) == (0, "secret\n")


@needs_namespaces
async def test_a_message_path_inside_a_volume_does_not_follow_a_link_out_of_it(
    tmp_path: Path, outside: Path
) -> None:
    pod = after_planting(
        shell("echo mine > /data/x/message; exit 1", terminationMessagePath="/data/x/message"),
        f"ln -s {outside} /data/x",
    )
    ended = await end_of(tmp_path, pod)
    assert unchanged(outside)
    assert "a symbolic link leads out of the volume" in ended["message"]


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        ("mkfifo {file}", ""),
        ("mkdir {file}", ""),
        ("ln -s {outside}/secret {file}", ""),
        ("head -c 100000 /dev/zero | tr '\\0' x > {file}", "x" * 4096),
    ],
)
async def test_only_the_beginning_of_a_regular_file_becomes_a_message(
    tmp_path: Path, outside: Path, plant: str, message: str
) -> None:
    """Without mount namespaces a container knows the file by its own path."""
    file = tmp_path / "message"
    script = f"rm -f {file}; {plant.format(file=file, outside=outside)}; exit 1"
    pod = shell(script, terminationMessagePath=str(file))
    ended = await end_of(tmp_path, pod, isolation=False)
    assert ended.get("message", "") == message


async def test_a_folder_of_messages_that_became_a_link_is_not_read(
    tmp_path: Path, outside: Path
) -> None:
    file = tmp_path / "message"
    script = (
        f"cp {outside}/secret {outside}/c-0; d=$(dirname {file}); "
        f"rm -r $d && ln -s {outside} $d; exit 1"
    )
    pod = shell(script, terminationMessagePath=str(file))
    assert "message" not in await end_of(tmp_path, pod, isolation=False)


CONFIG = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "c"},
    "data": {"a": "1", "b": "2"},
}


@pytest.mark.parametrize("spoil", ["rm -rf x", "rm -rf x ..*"])
async def test_files_are_not_written_through_links_planted_in_their_volume(
    tmp_path: Path, outside: Path, spoil: str
) -> None:
    """Without mount namespaces a container reaches the volume as its owner."""
    target = tmp_path / "mounted"
    script = (
        f"cd {target}/; if [ -e {tmp_path}/again ]; then cat x/y; exit 0; fi; "
        f"touch {tmp_path}/again; {spoil}; ln -s {outside} x; exit 1"
    )
    pod = shell(script, policy="OnFailure", volumeMounts=[{"name": "v", "mountPath": str(target)}])
    config = {"name": "c", "items": [{"key": "a", "path": "x/y"}]}
    pod = with_spec(pod, volumes=[{"name": "v", "configMap": config}])
    async with a_process_node(tmp_path, isolation=False) as node:
        await node.create(CONFIG)
        await node.run(pod)
        assert await node.output("p") == "1"
    assert unchanged(outside)


async def test_a_volume_that_became_a_link_is_neither_opened_up_nor_used(
    tmp_path: Path, outside: Path
) -> None:
    target = tmp_path / "mounted"
    script = f"cd /; v=$(readlink {target}); rmdir $v && ln -s {outside} $v; exit 1"
    pod = shell(script, policy="OnFailure", volumeMounts=[{"name": "v", "mountPath": str(target)}])
    pod = with_spec(pod, volumes=[{"name": "v", "emptyDir": {}}])
    async with a_process_node(tmp_path, isolation=False) as node:
        await node.create(pod)
        message = await told(node, "FailedMount")
        assert "a symbolic link is in the way" in message
    assert unchanged(outside)


async def told(node: Node, reason: str) -> str:
    """Return the message of the first event with that reason."""
    async with asyncio.timeout(60):
        while True:
            for found, message in await node.events("p"):
                if found == reason:
                    return message
            await asyncio.sleep(0.02)


# --- opening paths ---------------------------------------------------------------------------


def test_a_walk_beneath_a_folder_follows_no_link_and_does_not_leave(
    tmp_path: Path, outside: Path
) -> None:
    top = tmp_path / "top"
    (top / "real").mkdir(parents=True)
    (top / "out").symlink_to(outside)
    (top / "in").symlink_to("real")
    with folder_of(str(top)) as base:
        os.close(open_beneath(base, "real"))
        os.close(open_beneath(base, "new/deep", make=0o751))
        for part in ("out", "out/secret", "in", "in/x", "../outside", "real/../../outside"):
            with pytest.raises(OSError, match=r"symbolic link is in the way|not a path below"):
                open_beneath(base, part, make=0o755)
    assert (top / "new" / "deep").stat().st_mode & 0o777 == 0o751
    assert unchanged(outside)


def test_a_link_that_changes_after_it_was_looked_at_is_not_followed(
    tmp_path: Path, outside: Path
) -> None:
    top = tmp_path / "top"
    (top / "v1").mkdir(parents=True)
    (top / "current").symlink_to("v1")
    assert part_inside(str(top), "current") == "v1"
    os.close(open_inside(str(top), "current"))
    # The resolved path is replaced by a link before it is opened.
    (top / "v1").rmdir()
    (top / "v1").symlink_to(outside)
    with folder_of(str(top)) as base, pytest.raises(OSError, match="is in the way"):
        open_beneath(base, "v1")
    with pytest.raises(OSError, match="leads out of the volume"):
        open_inside(str(top), "current")
    for make in ("directory", "file", ""):
        with pytest.raises(OSError, match="leads out of the volume"):
            open_mount_point(str(top), "current/x", make=make, links_inside=True)
    assert unchanged(outside)


@needs_root
def test_host_paths_are_not_made_through_links_of_other_users(
    tmp_path: Path, outside: Path
) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.symlink_to(outside)
    os.chown(theirs, 1234, 1234, follow_symlinks=False)
    ours.symlink_to(outside)
    with pytest.raises(OSError, match="a symbolic link of user 1234 is in the way"):
        open_trusted(f"{theirs}/new", make=0o755)
    assert unchanged(outside)
    os.close(open_trusted(f"{ours}/new/deep", make=0o755))
    assert (outside / "new" / "deep").is_dir()


@needs_root
@pytest.mark.parametrize("kind", ["", "DirectoryOrCreate", "FileOrCreate"])
async def test_host_path_through_foreign_link_waits_with_reason(
    tmp_path: Path, outside: Path, kind: str
) -> None:
    theirs = tmp_path / "theirs"
    theirs.symlink_to(outside)
    os.chown(theirs, 1234, 1234, follow_symlinks=False)
    pod = shell("true", volumeMounts=[{"name": "v", "mountPath": "/data"}])
    source = {"path": f"{theirs}/new", "type": kind}
    pod = with_spec(pod, volumes=[{"name": "v", "hostPath": source}])
    async with a_process_node(tmp_path) as node:
        await node.create(pod)
        reason, message = (await node.until_told("p"))[0]
        assert reason == "FailedMount"
        assert "a symbolic link of user 1234 is in the way" in message
    assert unchanged(outside)


# --- links instead of mounts -----------------------------------------------------------------


def test_only_our_own_link_is_removed(tmp_path: Path) -> None:
    (tmp_path / "pods" / "uid").mkdir(parents=True)
    links = Links(tmp_path / "pods")
    for name in ("kept", "replaced"):
        links.take("uid", "/source", str(tmp_path / name))
    (tmp_path / "replaced").unlink()
    (tmp_path / "replaced").symlink_to("/somebody/elses")
    links.release("uid")
    assert not (tmp_path / "kept").is_symlink()
    assert os.readlink(tmp_path / "replaced") == "/somebody/elses"


def test_a_record_of_links_cannot_name_others(tmp_path: Path) -> None:
    """A mountPath may contain a line break."""
    bystander = tmp_path / "bystander"
    bystander.symlink_to("/somewhere")
    (tmp_path / "pods" / "uid").mkdir(parents=True)
    with pytest.raises(LinkRefused):
        Links(tmp_path / "pods").take("uid", "/source", f"{tmp_path}/no/such\n{bystander}")
    Links(tmp_path / "pods").release("uid")
    assert bystander.is_symlink()


@pytest.mark.parametrize("content", ["[", '["/a"]', "7", "relative", "\xff"])
def test_a_record_of_links_that_makes_no_sense_is_passed_over(tmp_path: Path, content: str) -> None:
    """Half a line after a crash, or a line that a container wrote there."""
    link = tmp_path / "linked"
    record = tmp_path / "pods" / "uid" / "links"
    record.parent.mkdir(parents=True)
    Links(tmp_path / "pods").take("uid", "/source", str(link))
    with open(record, "ab") as file:
        file.write(content.encode("latin-1"))
    Links(tmp_path / "pods").release("uid")
    assert not link.is_symlink()


def test_a_record_of_links_that_became_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    record = tmp_path / "pods" / "uid" / "links"
    record.parent.mkdir(parents=True)
    os.mkfifo(record)
    Links(tmp_path / "pods").release("uid")


def test_links_that_an_earlier_version_wrote_down_are_removed(tmp_path: Path) -> None:
    link = tmp_path / "linked"
    link.symlink_to("/source")
    record = tmp_path / "pods" / "uid" / "links"
    record.parent.mkdir(parents=True)
    record.write_text(f"{link}\n")
    Links(tmp_path / "pods").release("uid")
    assert not link.is_symlink()


@needs_root
def test_a_link_is_not_put_where_a_link_of_others_leads(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "theirs").symlink_to(outside)
    os.chown(tmp_path / "theirs", 1234, 1234, follow_symlinks=False)
    with pytest.raises(LinkRefused):
        Links(tmp_path).take("uid", "/source", str(tmp_path / "theirs" / "new"))
    assert unchanged(outside)


# --- logs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["fifo", "link"])
def test_a_log_that_was_replaced_is_neither_waited_for_nor_followed(
    tmp_path: Path, outside: Path, what: str
) -> None:
    log = tmp_path / "logs" / "0.log"
    log.parent.mkdir()
    if what == "fifo":
        os.mkfifo(log)
    else:
        log.symlink_to(outside / "secret")
    LogFile(str(log)).write(b"hello\n", 0)
    assert log_tail(log, 10, 1000) == ""
    assert (outside / "secret").read_text() == "admin's token"


# --- cleanup ---------------------------------------------------------------------------------


def test_removal_deletes_links_but_not_targets(tmp_path: Path, outside: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "deep" / "deeper").mkdir(parents=True)
    for folder in (tree, tree / "deep", tree / "deep" / "deeper"):
        (folder / "link").symlink_to(outside)
        os.mkfifo(folder / "fifo")
    (tree / "deep" / "deeper").chmod(0)
    remove_trees([str(tree), str(tmp_path / "never was")])
    assert sorted(os.listdir(tmp_path)) == ["outside"]
    assert unchanged(outside)


def test_clearing_away_reaches_any_depth(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    fd = os.open(tmp_path / "tree", os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=fd)
        following = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = following
    os.close(fd)
    remove_trees([str(tmp_path / "tree")])
    assert os.listdir(tmp_path) == []


@needs_mounts
def test_removal_unmounts_without_deleting_content(tmp_path: Path, outside: Path) -> None:
    point = tmp_path / "tree" / "a b" / "mounted"
    point.mkdir(parents=True)
    linux.mount(str(outside), str(point), linux.MS_BIND)
    try:
        assert (point / "secret").exists()
        remove_trees([str(tmp_path / "tree")])
    finally:
        subprocess.run(["umount", "-q", str(point)], check=False)
    assert sorted(os.listdir(tmp_path)) == ["outside"]
    assert unchanged(outside)


def test_a_log_that_goes_away_while_its_end_is_read_leaves_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = AttemptRef("uid", "c", 0)
    log = tmp_path / "uid" / "logs" / "c" / "0.log"
    LogFile(str(log)).write(b"hello\n", 0)

    def told() -> str:
        return last_message(tmp_path, ref, 1, policy="FallbackToLogsOnError", log=log)

    assert told() == "hello\n"
    # Between the check and the opening.
    monkeypatch.setattr("onejob.node.logs.reading._is_regular", lambda file: True)
    log.unlink()
    assert told() == ""


async def test_termination_message_written_during_downtime_is_reported(
    tmp_path: Path, outside: Path
) -> None:
    go, file = outside / "go", tmp_path / "message"
    script = f"while [ ! -e {go} ]; do sleep 0.02; done; echo -n goodbye > {file}; exit 1"
    async with an_api(tmp_path) as client:
        async with a_node(client, process_runtime(tmp_path), end_pods=False) as node:
            await node.create(shell(script, terminationMessagePath=str(file)))
            await node.until("p", lambda pod: pod["status"].get("phase") == "Running")
        go.touch()
        async with a_node(client, process_runtime(tmp_path)) as node:
            ended = the_container(await node.finished("p"))["state"]["terminated"]
            assert ended["message"] == "goodbye"
