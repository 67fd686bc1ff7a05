"""Systems as they are installed: their released manifests, applied unchanged, on `onejob serve`.

The image map names the built program for the image of each Deployment; nothing else is prepared.
"""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.serving import Server, a_server
from tests.managers.building import (
    APPWRAPPER,
    JOBSET,
    KUBERAY,
    KUEUE,
    MPI_OPERATOR,
    TRAINER,
    Manager,
)
from tests.managers.running import apply, until


@dataclass(frozen=True, slots=True)
class System:
    """A system whose manager runs in a Deployment."""

    manager: Manager
    image: str
    namespace: str
    deployment: str


JOBSET_SYSTEM: Final = System(
    JOBSET,
    "us-central1-docker.pkg.dev/k8s-staging-images/jobset/jobset",
    "jobset-system",
    "jobset-controller-manager",
)
KUEUE_SYSTEM: Final = System(
    KUEUE,
    "us-central1-docker.pkg.dev/k8s-staging-images/kueue/kueue",
    "kueue-system",
    "kueue-controller-manager",
)


TRAINER_SYSTEM: Final = System(
    TRAINER,
    "ghcr.io/kubeflow/trainer/trainer-controller-manager",
    "kubeflow-system",
    "kubeflow-trainer-controller-manager",
)
KUBERAY_SYSTEM: Final = System(KUBERAY, "quay.io/kuberay/operator", "default", "kuberay-operator")
MPI_SYSTEM: Final = System(MPI_OPERATOR, "mpioperator/mpi-operator", "mpi-operator", "mpi-operator")
APPWRAPPER_SYSTEM: Final = System(
    APPWRAPPER, "quay.io/ibm/appwrapper", "appwrapper-system", "appwrapper-controller-manager"
)

#: Ports at which managers listen; Pods of the process runtime share those of the machine.
_PORTS: Final = ("8081", "8082", "8443", "9443", "10443")


@contextmanager
def a_server_for(folder: Path, *systems: System, options: Sequence[str] = ()) -> Iterator[Server]:
    """Run a server that has the programs of the systems; none of them is installed yet."""
    with _programs(systems) as programs:
        mapped = [
            word
            for system in systems
            for word in ("--image-map", f"{system.image}={programs / system.manager.name}")
        ]
        with a_server(folder, *mapped, *options) as server:
            try:
                yield server
            finally:
                _remove(server, systems)


def _remove(server: Server, systems: Sequence[System]) -> None:
    """End the managers, which would outlive the server, and keep their ports."""
    for system in systems:
        where = ("-n", system.namespace, "--ignore-not-found")
        server.kubectl("delete", "deployment", system.deployment, "--cascade=foreground", *where)


def install(
    server: Server, system: System, *, shift: int = 0, edit: Callable[[str], str] | None = None
) -> None:
    """Apply the released manifests, and wait until the manager is ready.

    `shift` is added to the numbers of all ports, for a second manager on the same machine.
    `edit` changes the manifests.
    """
    manifests = system.manager.release.read_text()
    if edit is not None:
        manifests = edit(manifests)
    if shift:
        ports = "|".join(_PORTS)
        manifests = re.sub(rf"\b({ports})\b", lambda found: str(int(found[0]) + shift), manifests)
    server.kubectl("apply", "--server-side", "-f", "-", stdin=manifests)
    wait_for_rollout(server, system)


def apply_when_ready(server: Server, *documents: dict[str, Any]) -> None:
    """Apply objects; while a manager starts, its webhooks are not ready."""

    def applied() -> bool:
        try:
            apply(server, *documents)
        except AssertionError as error:
            if "failed calling webhook" in str(error):
                return False
            raise
        return True

    until("the webhooks are ready", applied)


def wait_for_rollout(server: Server, system: System) -> None:
    deployment = f"deployment/{system.deployment}"
    server.kubectl("rollout", "status", deployment, "-n", system.namespace, "--timeout=90s")


def log_of(server: Server, system: System) -> str:
    """Return the end of the manager's log, for messages."""
    deployment = f"deployment/{system.deployment}"
    return server.kubectl("logs", deployment, "-n", system.namespace, "--tail=30")


def pods_of(server: Server, system: System) -> list[dict[str, Any]]:
    """Return the Pods of the manager."""
    text = server.kubectl("get", "pods", "-n", system.namespace, "-o", "json")
    items: list[dict[str, Any]] = json.loads(text)["items"]
    return items


@contextmanager
def _programs(systems: Sequence[System]) -> Iterator[Path]:
    """Yield a folder with the programs, which any user may run: managers do not run as root."""
    for system in systems:
        if not system.manager.is_built:
            pytest.skip(f"{system.manager.name} is not built: `make managers` does that")
    folder = Path(tempfile.mkdtemp(prefix="onejob-managers-"))
    try:
        folder.chmod(0o755)
        for system in systems:
            program = folder / system.manager.name
            shutil.copy(system.manager.program, program)
            os.chmod(program, 0o755)
        yield folder
    finally:
        shutil.rmtree(folder)
