"""A real Slurm on this machine: munged, slurmctld, and a slurmd for each node of its own.

`python -m tests.slurm.cluster start FOLDER` starts one and `stop FOLDER` ends it; `run FOLDER` ends
it with its parent process. Tests use `SlurmCluster`. The state of all daemons is in one folder,
except for sockets and the spool folders of the nodes.
Without systemd and control groups, slurmd tracks processes by their parents (proctrack/linuxproc).
"""

import contextlib
import hashlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue")
_PATIENCE_SECONDS = 60.0


def _path() -> str:
    """Return the PATH with the folders of daemons."""
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def problem() -> str:
    """Return why no Slurm can be started here; "" if it can."""
    missing = [name for name in _PROGRAMS if shutil.which(name, path=_path()) is None]
    if missing:
        return f"make slurm: {', '.join(missing)} not installed"
    return "slurmctld and slurmd have to be started as root" if os.geteuid() else ""


#: Mark of tests with a real Slurm.
NEEDS_SLURM = pytest.mark.skipif(bool(problem()), reason=problem() or "-")


class SlurmCluster:
    """Daemons of a small cluster. Each can be killed and started again."""

    def __init__(self, folder: Path, *, nodes: int = 3, cpus: int = 2) -> None:
        self.folder = folder
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self.cpus = cpus
        self.config = folder / "slurm.conf"
        # Paths of sockets may have 108 bytes.
        name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
        self.sockets = Path(tempfile.gettempdir(), f"slurm-{name}")

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.config), "PATH": _path()}

    def start(self) -> None:
        """Start all daemons and wait for the nodes. Raises RuntimeError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # munged requires that its folder is accessible.
        self.folder.chmod(0o755)
        (self.folder / "state").mkdir(exist_ok=True)
        self.sockets.mkdir(mode=0o755, exist_ok=True)
        self._start_munged()
        self.config.write_text(self._configuration())
        self.start_controller()
        for node in self.nodes:
            self.start_node(node)
        self.wait_until_idle()

    def stop(self) -> None:
        """Kill all daemons, and the processes of all jobs."""
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            self.run("scancel", "--user=root", timeout=20)
            self.until(lambda: not self.run("squeue", "--noheader", timeout=20), 15)
        for node in self.nodes:
            self.kill(f"slurmd-{node}")
        self.kill("slurmctld")
        self.kill("munged")
        shutil.rmtree(self.sockets, ignore_errors=True)

    def start_controller(self) -> None:
        self._daemon("slurmctld", "-f", str(self.config))

    def start_node(self, node: str) -> None:
        self._daemon("slurmd", "-N", node, "-f", str(self.config))

    def kill(self, daemon: str, how: signal.Signals = signal.SIGKILL) -> None:
        """Signal a daemon: slurmctld, slurmd-NODE or munged."""
        path = self.folder / f"{daemon}.pid"
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
            os.kill(int(path.read_text()), how)

    def wait_until_idle(self) -> None:
        """Wait until all nodes accept jobs. Raises RuntimeError."""
        wanted = ["idle"] * len(self.nodes)
        ask = ("sinfo", "--noheader", "--Node", "--partition=main", "--format=%t")
        if not self.until(lambda: self.run(*ask).split() == wanted, _PATIENCE_SECONDS):
            log = (self.folder / "slurmctld.log").read_text()[-2000:]
            raise RuntimeError(f"the nodes of Slurm are not idle: {self.run(*ask)}\n{log}")

    def run(self, *words: str, timeout: float = 60) -> str:
        """Run a command of Slurm and return its output; "" if it fails."""
        done = subprocess.run(
            words,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return done.stdout if done.returncode == 0 else ""

    def _start_munged(self) -> None:
        folder = self.folder / "munge"
        folder.mkdir(exist_ok=True)
        folder.chmod(0o711)
        key = folder / "key"
        if not key.exists():
            key.touch(mode=0o600)
            key.write_bytes(secrets.token_bytes(128))
        self._daemon(
            "munged", "--force", f"--key-file={key}", f"--socket={self.sockets}/munge",
            f"--pid-file={self.folder}/munged.pid", f"--log-file={folder}/log",
            f"--seed-file={folder}/seed",
        )  # fmt: skip
        if not self.until((self.sockets / "munge").exists, _PATIENCE_SECONDS):
            raise RuntimeError("munged did not start")

    def _daemon(self, *words: str) -> None:
        done = subprocess.run(
            words, env={**os.environ, "PATH": _path()}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{words[0]} did not start: {done.stderr}")

    @staticmethod
    def until(holds: Callable[[], object], seconds: float) -> bool:
        """Wait for a state; return whether it was reached."""
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                return False
            time.sleep(0.2)
        return True

    def _configuration(self) -> str:
        ports = _free_ports(1 + len(self.nodes))
        nodes = "\n".join(
            f"NodeName={name} NodeHostname=localhost Port={port} CPUs={self.cpus} RealMemory=4000"
            for name, port in zip(self.nodes, ports[1:], strict=True)
        )
        folder = self.folder
        return f"""\
ClusterName=onejob
SlurmctldHost=localhost
SlurmUser=root
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={self.sockets}/munge
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={self.sockets}/%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
SlurmdTimeout=20
KillWait=5
MinJobAge=30
MaxArraySize=1001
MaxJobCount=20000
SlurmdParameters=config_overrides
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=60 State=UP OverSubscribe=NO
PartitionName=small Nodes={self.nodes[0]} MaxTime=5 State=UP
"""


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def main() -> int:
    action, folder = sys.argv[1], Path(sys.argv[2])
    if reason := problem():
        print(reason, file=sys.stderr)
        return 1
    cluster = SlurmCluster(folder.resolve())
    if action == "stop":
        cluster.stop()
        return 0
    parent = os.getppid()
    cluster.start()
    print(f"export SLURM_CONF={cluster.config}", flush=True)
    if action == "run":
        ended: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda got, _: ended.append(got))
        (cluster.folder / "ready").touch()
        while os.getppid() == parent and not ended:
            time.sleep(0.5)
        cluster.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
