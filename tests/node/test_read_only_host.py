"""`--host-fs ro`: containers read the host's files, and cannot change anything."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from onejob.node.supervisor import keyrings, linux
from tests.node.support import (
    Document,
    a_pod,
    a_process_node,
    needs_pid_namespaces,
    shell,
    the_container,
    with_spec,
)

pytestmark = needs_pid_namespaces
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount for all to see")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return the node's data dir."""
    path = tmp_path / "data"
    path.mkdir()
    return path


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Return a world-writable folder of the host."""
    path = tmp_path / "outside"
    path.mkdir()
    path.chmod(0o777)
    (path / "file").write_text("as it was\n")
    return path


@pytest.fixture
def submount(outside: Path) -> Iterator[Path]:
    path = outside / "sub"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "onejob-test", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


async def output_of(data: Path, pod: Document, **settings: object) -> str:
    async with a_process_node(data, host_read_only=True, **settings) as node:
        await node.run(pod)
        return await node.output("p")


async def attempts(
    data: Path, *scripts: str, pod: Document | None = None, **settings: object
) -> str:
    """Run each script in a container; return a letter for each: y if it succeeds, else n."""
    tried = "".join(f"if ( {script} ); then r=${{r}}y; else r=${{r}}n; fi; " for script in scripts)
    given = pod or shell("")
    given["spec"]["containers"][0]["command"] = ["sh", "-c", f"{tried}echo; echo tried $r"]
    said = await output_of(data, given, **settings)
    assert "\ntried " in said, said
    return said.rpartition("\ntried ")[2].strip()


async def test_files_can_be_read_and_not_changed(data: Path, outside: Path) -> None:
    name = f"onejob-test-{uuid4()}"
    scripts = [
        f"cat {outside}/file",
        f"echo x > {outside}/new",
        f"echo x >> {outside}/file",
        f"rm {outside}/file",
        f"chmod 600 {outside}/file",
        f"echo x > /{name}",
        f"echo x > /tmp/{name}",
        f"mkdir /etc/{name}",
        "echo x > /dev/null",
        "echo x > here && cat here",
    ]
    assert await attempts(data, *scripts) == "ynnnnnnnyy"
    assert sorted(os.listdir(outside)) == ["file"]
    assert (outside / "file").read_text() == "as it was\n"


@needs_root
async def test_nested_mounts_are_read_only(data: Path, submount: Path) -> None:
    assert await attempts(data, f"ls {submount}", f"echo x > {submount}/new") == "yn"
    assert os.listdir(submount) == []


async def test_the_folder_that_containers_start_in_is_read_only_too(
    data: Path, outside: Path
) -> None:
    assert await attempts(data, "cat file", "echo x > new", working_dir=outside) == "yn"
    assert sorted(os.listdir(outside)) == ["file"]


async def test_a_working_dir_that_a_container_names_is_read_only_too(
    data: Path, outside: Path
) -> None:
    pod = shell("", workingDir=str(outside))
    assert await attempts(data, "cat file", "echo x > new", pod=pod) == "yn"
    assert sorted(os.listdir(outside)) == ["file"]


async def test_shared_memory_is_the_containers_own(data: Path) -> None:
    name = f"onejob-test-{uuid4()}"
    assert await attempts(data, f"echo x > /dev/shm/{name}") == "y"
    assert not Path("/dev/shm", name).exists()


async def test_the_data_dir_and_the_supervisor_are_out_of_reach(data: Path) -> None:
    scripts = [
        f"[ -e {data}/supervisor ]",
        f"[ -e {data}/db ]",
        f"[ -e /host{data}/supervisor ]",
        "ls /host/etc",
    ]
    pod = shell("", volumeMounts=[{"name": "host", "mountPath": "/host"}])
    pod = with_spec(pod, volumes=[{"name": "host", "hostPath": {"path": "/"}}])
    assert await attempts(data, *scripts, pod=pod) == "nnny"


async def test_host_paths_are_read_only(data: Path, outside: Path) -> None:
    pod = shell("", volumeMounts=[{"name": "v", "mountPath": "/data"}])
    pod = with_spec(pod, volumes=[{"name": "v", "hostPath": {"path": str(outside)}}])
    assert await attempts(data, "cat /data/file", "echo x > /data/new", pod=pod) == "yn"
    assert sorted(os.listdir(outside)) == ["file"]


async def test_host_paths_are_never_made(data: Path, outside: Path) -> None:
    async with a_process_node(data, host_read_only=True) as node:
        pod = shell("true", volumeMounts=[{"name": "v", "mountPath": "/data"}])
        absent = {"path": str(outside / "absent"), "type": "DirectoryOrCreate"}
        await node.create(with_spec(pod, volumes=[{"name": "v", "hostPath": absent}]))
        ((reason, message),) = await node.until_told("p")
        assert reason == "FailedMount"
        assert "does not exist, and --host-fs ro does not allow creating it" in message
    assert sorted(os.listdir(outside)) == ["file"]


async def test_volumes_of_the_pods_own_stay_writable(data: Path) -> None:
    mounts = [{"name": "v", "mountPath": "/data"}, {"name": "v", "mountPath": "/mnt"}]
    pod = with_spec(shell("", volumeMounts=mounts), volumes=[{"name": "v", "emptyDir": {}}])
    assert await attempts(data, "echo x > /data/new", "cat /mnt/new", pod=pod) == "yy"


async def test_writable_paths_are_writable(data: Path, outside: Path) -> None:
    scripts = [f"echo x > {outside}/new", f"echo x > {outside.parent}/new"]
    assert await attempts(data, *scripts, writable=(str(outside),)) == "yn"
    assert sorted(os.listdir(outside)) == ["file", "new"]


@needs_root
async def test_recreated_folders_can_be_writable(data: Path) -> None:
    folder = Path(f"/dev/shm/onejob-test-{uuid4()}")
    folder.mkdir()
    try:
        assert await attempts(data, f"echo x > {folder}/new", writable=(str(folder),)) == "y"
        assert os.listdir(folder) == ["new"]
    finally:
        shutil.rmtree(folder)


async def test_containers_that_share_processes_are_kept_from_it_too(
    data: Path, outside: Path
) -> None:
    pod = with_spec(shell(""), shareProcessNamespace=True)
    scripts = [f"cat {outside}/file", f"echo x > {outside}/new", "mount -o remount,rw,bind /"]
    assert await attempts(data, *scripts, pod=pod) == "ynn"


async def test_read_only_host_cannot_be_remounted(data: Path, outside: Path) -> None:
    pid = os.getpid()
    scripts = [
        "mount -o remount,rw,bind /",
        f"mount -o remount,rw,bind {outside}",
        f"umount -l {data}",
        f"ls /proc/{pid}/root/etc",
        f"nsenter -t {pid} -m true",
        "unshare -m true",
        "mknod /dev/shm/disk b 8 0",
        # Opened, never written to: these affect the whole machine.
        ": 3<> /proc/sys/kernel/core_pattern",
        ": 3<> /proc/sysrq-trigger",
        ": 3<> /sys/kernel/uevent_helper",
        "ls /dev/vda /dev/sda /dev/mem",
        "grep -q 'NoNewPrivs:.*1' /proc/self/status",
    ]
    assert await attempts(data, *scripts) == "n" * (len(scripts) - 1) + "y"


@needs_root
async def test_sockets_of_the_hosts_daemons_are_not_there(data: Path) -> None:
    marker = Path(f"/run/onejob-test-{uuid4()}")
    marker.touch()
    try:
        assert await attempts(data, f"[ -e {marker} ]", "[ -d /run ]") == "ny"
    finally:
        marker.unlink()


async def test_exec_has_no_more_rights_than_container(data: Path, outside: Path) -> None:
    async with a_process_node(data, host_read_only=True) as node:
        await node.create(shell("sleep 60"))
        await node.until("p", lambda p: p["status"].get("phase") == "Running")
        script = f"(echo x > {outside}/new || mount -o remount,rw,bind / || unshare -m true) 2>&1"
        session = await node.agent.open_session(
            "default", "p", "c", ["sh", "-c", script], stdin=False, tty=False
        )
        assert (await session.finished()).code != 0
        await session.close()
    assert sorted(os.listdir(outside)) == ["file"]


async def test_a_message_file_and_a_terminal_work(data: Path) -> None:
    async with a_process_node(data, host_read_only=True) as node:
        pod = await node.run(shell("test -t 0 && echo told > /dev/termination-log", tty=True))
        assert the_container(pod)["state"]["terminated"]["message"] == "told\n"


@pytest.mark.parametrize(
    ("spec", "context", "why"),
    [
        (
            {},
            {"privileged": True},
            "--host-fs ro does not allow privileged containers (container: c)",
        ),
        ({"hostPID": True}, {}, "--host-fs ro does not allow Pods with hostPID (container: c)"),
        (
            {},
            {"capabilities": {"add": ["SYS_ADMIN", "NET_RAW"]}},
            "--host-fs ro does not allow capabilities: SYS_ADMIN",
        ),
    ],
)
async def test_rights_that_would_undo_it_are_refused(
    data: Path, spec: Document, context: Document, why: str
) -> None:
    async with a_process_node(data, host_read_only=True) as node:
        await node.create(with_spec(shell("true", securityContext=context), **spec))
        pod = await node.until("p", lambda p: p["status"].get("containerStatuses"))
        waiting = the_container(pod)["state"]["waiting"]
        assert (waiting["reason"], waiting["message"]) == ("CreateContainerConfigError", why)


def test_it_does_not_start_where_it_cannot_be_kept(data: Path) -> None:
    """Runs in a user namespace of its own, whose limits bind only its members."""
    forbid = "echo 0 > /proc/sys/user/max_ipc_namespaces && exec"
    script = f'{forbid} {sys.executable} -m onejob serve --host-fs ro --data-dir "$@"'
    arguments = [str(data), "--listen", "127.0.0.1:0"]
    ran = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 2
    (line,) = ran.stderr.splitlines()
    assert line.startswith("error: cannot enforce --host-fs ro on this machine: volumes: unshare: ")


#: Reads a key of the host's session and one of its user, as `keyctl` would; prints the results.
READ_KEYS = """
import ctypes, sys
call = ctypes.CDLL(None).syscall
def keyctl(*arguments):
    return call({keyctl}, *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
def read(key):
    buffer = ctypes.create_string_buffer(100)
    return buffer.raw[:keyctl(11, key, buffer, 100)] if keyctl(11, key, buffer, 100) > 0 else b""
keyctl(8, -4, -3)  # link the user's keyring into the session's
print("read", [read(int(key)) for key in sys.argv[1:]])
"""


@pytest.fixture
def keys_of_the_host() -> Iterator[tuple[int, int]]:
    """Add a key to the session keyring and one to the user's."""
    machine = os.uname().machine
    if machine not in keyrings._CALLS:
        pytest.skip("the numbers of the system calls are not known")
    add_key, _, keyctl = keyrings._CALLS[machine][0][1]
    rings = (-3, -4)
    try:
        keys = tuple(
            linux.system_call(add_key, b"user", b"onejob-test-%d" % -ring, b"secret", 6, ring)
            for ring in rings
        )
    except OSError as error:
        pytest.skip(f"this machine has no keyrings: {error}")
    yield keys[0], keys[1]
    for key, ring in zip(keys, rings, strict=True):
        linux.system_call(keyctl, 9, key, ring)


@pytest.mark.parametrize("sealed", [True, False])
async def test_sealed_container_reads_no_keyrings_of_the_host(
    data: Path, keys_of_the_host: tuple[int, int], sealed: bool
) -> None:
    """Also shows that other containers can, or the test would prove nothing."""
    number = keyrings._CALLS[os.uname().machine][0][1][2]
    program = READ_KEYS.replace("{keyctl}", str(number))
    pod = a_pod(sys.executable, "-c", program, *map(str, keys_of_the_host))
    read = [b"", b""] if sealed else [b"secret", b"secret"]
    async with a_process_node(data, host_read_only=sealed) as node:
        await node.run(pod)
        assert await node.output("p") == f"read {read}\n"


async def test_hidden_files_do_not_show_even_if_they_are_replaced(
    data: Path, outside: Path
) -> None:
    keys = outside / "keys"
    keys.mkdir()
    (keys / "key").write_text("secret\n")
    (keys / "audit-1.log").write_text("secret\n")
    (keys / "other").write_text("other\n")
    (keys / "link").symlink_to("other")
    begun = data.parent / "begun"
    begun.mkdir()
    hidden = (f"{keys}/key", f"{keys}/audit-*.log")
    script = (
        f"cd {keys}; ls; cat other link; echo x > new; touch {begun}/now; "
        f"until [ -e {begun}/replaced ]; do sleep 0.02; done; ls; cat key; ls /volume; "
        "cat /volume/key"
    )
    pod = shell(script, volumeMounts=[{"name": "v", "mountPath": "/volume"}])
    pod = with_spec(pod, volumes=[{"name": "v", "hostPath": {"path": str(keys)}}])

    async def replace_key() -> None:
        while not (begun / "now").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        (keys / "key.new").write_text("newer secret\n")
        (keys / "key.new").rename(keys / "key")
        (keys / "audit-2.log").write_text("secret\n")
        (begun / "replaced").touch()

    async with a_process_node(
        data, host_read_only=True, hidden_files=hidden, writable=(str(begun),)
    ) as node:
        await asyncio.gather(node.run(pod), replace_key())
        said = await node.output("p")
    assert "secret" not in said
    assert "key\n" not in said
    assert "audit-" not in said
    assert "other\nother\n" in said, "all else is there"
    assert not (keys / "new").exists()


async def test_hidden_file_next_to_data_dir_is_invisible(data: Path) -> None:
    (data.parent / "key").write_text("secret\n")
    scripts = [f"[ -e {data.parent}/key ]", f"[ -e {data}/supervisor ]", "echo x > here"]
    assert await attempts(data, *scripts, hidden_files=(f"{data.parent}/key",)) == "nny"


async def test_hidden_file_in_a_writable_folder_cannot_be_read(data: Path, outside: Path) -> None:
    (outside / "key").write_text("secret\n")
    scripts = [f"grep secret {outside}/key", f"echo x > {outside}/new"]
    hidden = (f"{outside}/key",)
    assert await attempts(data, *scripts, writable=(str(outside),), hidden_files=hidden) == "ny"
    assert (outside / "new").exists()
