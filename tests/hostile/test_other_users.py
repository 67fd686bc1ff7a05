"""Other users of the same machine: they cannot read, write or signal anything of a server."""

import encodings.idna  # noqa: F401 - user nobody cannot import it from a folder of root
import json
import os
import shutil
import signal
import socket
import ssl
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.serving import Server, a_server
from tests.node.support import supervisors

NOBODY: Final = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Run a server in a world-accessible folder, so that only its own modes protect it."""
    place = Path(tempfile.mkdtemp(prefix="onejob-shared-"))
    place.chmod(0o755)
    before = os.umask(0o022)
    try:
        secret = {"API_PASSWORD": "in-the-environment-3c1f"}
        with a_server(place / "data") as found:
            found.stop()
            found.environment = secret
            found.start()
            yield found
    finally:
        os.umask(before)
        shutil.rmtree(place, ignore_errors=True)


def as_nobody(act: Callable[[], object]) -> str:
    """Run `act` as an unprivileged user; return the name of the error, or the result."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            try:
                got = f"got {act()!r}"
            except Exception as error:
                got = type(error).__name__
            os.write(write, got[:4000].encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as file:
        result = file.read()
    os.waitpid(pid, 0)
    return result


def processes(server: Server) -> list[int]:
    """Return the pids of the server and its supervisor."""
    assert server.process is not None
    found = [server.process.pid, *supervisors(server.data_dir)]
    assert len(found) >= 2
    return found


def test_unprivileged_user_can_list_parent_folder(server: Server) -> None:
    """So that the refusals below are meaningful."""
    assert as_nobody(lambda: os.listdir(server.data_dir.parent)) == "got ['data']"


def _attempts(path: Path) -> list[Callable[[], object]]:
    return [
        partial(os.open, path, os.O_RDONLY),
        partial(os.open, path, os.O_WRONLY),
        partial(os.rename, path, f"{path}.mine"),
        partial(os.chmod, path, 0o777),
        partial(os.open, path / "mine", os.O_WRONLY | os.O_CREAT),
    ]


def test_no_file_of_the_data_dir_can_be_read_written_or_listed(server: Server) -> None:
    tried = 0
    own = [server.kubeconfig, server.data_dir / "server"]
    inside = list(own[1].rglob("*"))
    for path in (*own, *inside):
        attempts = _attempts(path)
        if path in inside:
            attempts.append(partial(os.stat, path))
        for act in attempts:
            refusals = ("PermissionError", "NotADirectoryError", "IsADirectoryError")
            assert as_nobody(act) in refusals, path
            tried += 1
    assert tried > 60
    names = {path.name for path in server.data_dir.rglob("*")}
    assert {"admin.token", "kubeconfig", "ca.key", "service-account-keys.json", "socket"} <= names


def test_the_socket_of_the_supervisor_takes_no_connection(server: Server) -> None:
    path = server.data_dir / "server" / "supervisor" / "socket"

    def connect() -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(str(path))

    assert as_nobody(connect) == "PermissionError"


@pytest.mark.parametrize("name", ["environ", "mem", "maps", "fd", "cwd", "root", "io", "stack"])
def test_processes_of_the_server_tell_nothing(server: Server, name: str) -> None:
    for pid in processes(server):
        place = f"/proc/{pid}/{name}"

        def look(place: str = place) -> object:
            if os.path.isdir(place):
                return os.listdir(place)
            with open(place, "rb") as file:
                return file.read(100)

        assert as_nobody(look) == "PermissionError", place


def test_command_lines_hold_no_secrets(server: Server) -> None:
    token = (server.data_dir / "server" / "admin.token").read_text().strip()
    for pid in processes(server):
        command = Path(f"/proc/{pid}/cmdline").read_text()
        assert token not in command
        assert "in-the-environment" not in command


@pytest.mark.parametrize("number", [0, signal.SIGTERM, signal.SIGSTOP, signal.SIGKILL])
def test_processes_of_the_server_take_no_signals(server: Server, number: int) -> None:
    for pid in processes(server):
        assert as_nobody(partial(os.kill, pid, number)) == "PermissionError"


def test_the_api_answers_nothing_but_its_health(server: Server) -> None:
    url = json.loads(server.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]

    def code(path: str) -> Callable[[], object]:
        def ask() -> object:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            try:
                with urllib.request.urlopen(f"{url}{path}", context=context, timeout=30) as answer:
                    return answer.status
            except urllib.error.HTTPError as error:
                with error:
                    return error.code

        return ask

    assert as_nobody(code("/healthz")) == "got 200"
    for path in ("/api/v1/pods", "/metrics", "/api", "/openapi/v2", "/apis/batch/v1/jobs"):
        assert as_nobody(code(path)) == "got 401"
