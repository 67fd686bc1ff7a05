"""Real etcd, kube-apiserver and kube-controller-manager on free loopback ports.

    with Upstream(tmp_path) as cluster:                   # etcd and kube-apiserver
        cluster.start_controller_manager("job-controller,cronjob-controller")
        cluster.kubeconfig, cluster.url, cluster.restart_apiserver()

The programs must have been built (`make upstream`): `Upstream.missing()` returns the missing ones.
"""

import base64
import ctypes
import json
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from tests.upstream.building import APISERVER, CLUSTER, CONTROLLER_MANAGER, ETCD, cache, missing
from tests.upstream.certificates import Authority

_READY_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 20.0
#: Another process may take a port between the check and the program's start.
_TRIES: Final = 3


class CannotStart(Exception):
    """A program ended or was not ready in time; the message has the end of its log."""


class Upstream:
    """A real Kubernetes without nodes; its state and logs are in `folder`."""

    def __init__(
        self,
        folder: Path,
        *,
        apiserver_flags: tuple[str, ...] = (),
        etcd_flags: tuple[str, ...] = ("--unsafe-no-fsync",),
    ) -> None:
        """Prepare the cluster. By default, etcd does not flush its writes (`etcd_flags`)."""
        self.folder = folder
        self._apiserver_flags = apiserver_flags
        self._etcd_flags = etcd_flags
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self._authority = Authority(folder / "pki")
        self._server = self._authority.issue("kube-apiserver")
        self._admin = self._authority.issue("admin", "system:masters")
        self._tokens_key = self._authority.key_file("service-accounts")
        self._etcd_port = 0
        self._port = 0
        self.kubeconfig = folder / "kubeconfig"

    @staticmethod
    def missing() -> str:
        """Return why no cluster can be started here; "" if one can."""
        absent = ", ".join(program.name for program in missing(CLUSTER))
        return f"{absent} not built: run `make upstream`" if absent else ""

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    def pid(self, name: str) -> int:
        """Return the pid of a running program, by its name."""
        return self._running[name].pid

    def __enter__(self) -> Self:
        try:
            self._start_with_free_ports(self._start_etcd)
            self._start_with_free_ports(self._start_apiserver)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        for name in reversed(list(self._running)):
            self._end(name, signal.SIGKILL if name == ETCD.name else signal.SIGTERM)

    # --- kube-apiserver -------------------------------------------------------------------

    def kill_apiserver(self) -> None:
        """Kill the API server with SIGKILL."""
        self._end(APISERVER.name, signal.SIGKILL)

    def start_apiserver(self) -> None:
        """Start the API server again, on the same port."""
        self._start_apiserver(self._port)

    def restart_apiserver(self) -> None:
        self.kill_apiserver()
        self.start_apiserver()

    # --- kube-controller-manager ----------------------------------------------------------

    def start_controller_manager(self, controllers: str = "*", *flags: str) -> None:
        """Start the controllers; `flags` are the program's own, such as `--kube-api-qps=1000`."""
        self._start_with_free_ports(
            lambda port: self._start_controller_manager(port, controllers, flags)
        )

    def stop_controller_manager(self, how: signal.Signals = signal.SIGTERM) -> None:
        self._end(CONTROLLER_MANAGER.name, how)

    # --- programs -------------------------------------------------------------------------

    def _start_etcd(self, port: int) -> None:
        url = f"https://127.0.0.1:{port}"
        self._launch(
            ETCD.name,
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            "--listen-peer-urls=http://127.0.0.1:0",
            f"--cert-file={self._server.certificate}",
            f"--key-file={self._server.key}",
            "--client-cert-auth",
            f"--trusted-ca-file={self._authority.certificate}",
            "--log-level=warn",
            *self._etcd_flags,
        )
        self._wait(ETCD.name, f"{url}/health")
        self._etcd_port = port

    def _start_apiserver(self, port: int) -> None:
        self._launch(
            APISERVER.name,
            f"--etcd-servers=https://127.0.0.1:{self._etcd_port}",
            f"--etcd-cafile={self._authority.certificate}",
            f"--etcd-certfile={self._admin.certificate}",
            f"--etcd-keyfile={self._admin.key}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            # Loopback addresses are no valid endpoints: no client routes to this server.
            "--endpoint-reconciler-type=none",
            f"--tls-cert-file={self._server.certificate}",
            f"--tls-private-key-file={self._server.key}",
            f"--client-ca-file={self._authority.certificate}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._tokens_key}",
            f"--service-account-signing-key-file={self._tokens_key}",
            "--service-cluster-ip-range=10.96.0.0/16",
            *self._apiserver_flags,
        )
        self._wait(APISERVER.name, f"https://127.0.0.1:{port}/readyz")
        self._port = port
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(json.dumps(self._kubeconfig()))

    def _start_controller_manager(
        self, port: int, controllers: str, flags: tuple[str, ...]
    ) -> None:
        self._launch(
            CONTROLLER_MANAGER.name,
            f"--kubeconfig={self.kubeconfig}",
            f"--authentication-kubeconfig={self.kubeconfig}",
            f"--authorization-kubeconfig={self.kubeconfig}",
            f"--controllers={controllers}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={self.folder / 'pki'}",
            f"--service-account-private-key-file={self._tokens_key}",
            f"--root-ca-file={self._authority.certificate}",
            *flags,
        )
        self._wait(CONTROLLER_MANAGER.name, f"https://127.0.0.1:{port}/healthz", verify=False)

    def _kubeconfig(self) -> dict[str, Any]:
        cluster = {
            "server": self.url,
            "certificate-authority-data": _encoded(self._authority.certificate),
        }
        user = {
            "client-certificate-data": _encoded(self._admin.certificate),
            "client-key-data": _encoded(self._admin.key),
        }
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "upstream", "cluster": cluster}],
            "users": [{"name": "admin", "user": user}],
            "contexts": [{"name": "admin", "context": {"cluster": "upstream", "user": "admin"}}],
            "current-context": "admin",
        }

    def _launch(self, name: str, *flags: str) -> None:
        if name in self._running:
            raise CannotStart(f"{name} is running already")
        with self._log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                [cache() / name, *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                preexec_fn=_die_with_parent,
            )

    def _wait(self, name: str, url: str, *, verify: bool = True) -> None:
        context = ssl.create_default_context(cafile=str(self._authority.certificate))
        context.load_cert_chain(self._admin.certificate, self._admin.key)
        if not verify:
            # The program made this certificate itself, and only this request is sent.
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        give_up = time.monotonic() + _READY_SECONDS
        while True:
            try:
                with urllib.request.urlopen(url, context=context, timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                ended = self._running[name].poll() is not None
                if ended or time.monotonic() > give_up:
                    self._end(name, signal.SIGKILL)
                    raise CannotStart(f"{name} did not start:\n{self._end_of_log(name)}") from None
            time.sleep(0.05)

    def _start_with_free_ports(self, start: Callable[[int], None]) -> None:
        for attempt in range(_TRIES):
            try:
                return start(_free_port())
            except CannotStart as error:
                if "address already in use" not in str(error) or attempt == _TRIES - 1:
                    raise
        return None

    def _end(self, name: str, how: signal.Signals) -> None:
        process = self._running.pop(name, None)
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _end_of_log(self, name: str) -> str:
        return self._log(name).read_text(errors="replace")[-3000:]


def _die_with_parent() -> None:
    """Have the kernel kill the child with its parent, even if the test is killed."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
