"""`onejob serve` as a real process, and kubectl for it."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

KUBECTL = shutil.which("kubectl")

needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on the PATH")


@dataclass
class Server:
    """Server of a data dir. It may be killed and restarted; its Pods live on."""

    data_dir: Path
    arguments: tuple[str, ...] = ()
    process: "subprocess.Popen[bytes] | None" = None
    environment: dict[str, str] = field(default_factory=dict)
    #: Command line of onejob.
    command: tuple[str, ...] = (sys.executable, "-m", "onejob")
    #: Seconds that the start may take.
    patience_seconds: float = 60.0

    @property
    def kubeconfig(self) -> Path:
        return self.data_dir / "kubeconfig"

    def start(self) -> None:
        log = (self.data_dir / "serve.log").open("ab")
        self.kubeconfig.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [
                *(*self.command, "serve", "--data-dir", str(self.data_dir)),
                *("--listen", "127.0.0.1:0", *self.arguments),
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **self.environment},
        )
        log.close()
        give_up = time.monotonic() + self.patience_seconds
        while not self.kubeconfig.exists():
            if self.process.poll() is not None or time.monotonic() > give_up:
                raise AssertionError(f"the server did not start:\n{self.log}")
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)

    def environ(self) -> dict[str, str]:
        """Return the environment of kubectl."""
        return {
            **os.environ,
            **self.environment,
            "KUBECONFIG": str(self.kubeconfig),
            "HOME": str(self.data_dir),
        }

    @property
    def log(self) -> str:
        return (self.data_dir / "serve.log").read_text(errors="replace")

    def kubectl(self, *arguments: str, stdin: str = "", fails: bool = False) -> str:
        """Run kubectl and return its output; its exit code must be as expected."""
        done = subprocess.run(
            ["kubectl", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            env=self.environ(),
            check=False,
        )
        printed = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, f"kubectl {' '.join(arguments)}:\n{printed}"
        return printed


#: Listens on any port, prints it, and greets every client.
GREETER = (
    "import socket; s = socket.create_server(('127.0.0.1', 0)); "
    "print(s.getsockname()[1], flush=True)\n"
    "while True:\n c, _ = s.accept(); c.sendall(b'from the pod'); c.close()"
)


@contextmanager
def a_server(data_dir: Path, *arguments: str) -> Iterator[Server]:
    data_dir.mkdir(parents=True, exist_ok=True)
    server = Server(data_dir, arguments)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        end_supervisors(data_dir)


def supervisors(data_dir: Path) -> list[int]:
    """Return the pids of supervisors whose folder is below `data_dir`."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if b"supervisor.main" in command and bytes(data_dir) in command:
            found.append(int(entry.name))
    return found


def end_supervisors(data_dir: Path) -> None:
    """End the supervisors: Pods outlive a server on purpose, but must not outlive the test."""
    for pid in supervisors(data_dir):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def pid_on_host(pid: int, words: str) -> int:
    """Return the host pid of a container's process, with `words` in its command line."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            status = (entry / "status").read_text()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            continue
        (own,) = [line.split()[-1] for line in status.splitlines() if line.startswith("NSpid:")]
        if int(own) == pid and words.encode() in command:
            return int(entry.name)
    raise AssertionError(f"no process {pid} with {words!r}")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
