"""Systems as they are installed: their released manifests, applied unchanged, on `onejob serve`.

The image map names the built program for the image of each Deployment; nothing else is prepared.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.serving import Server, a_server
from tests.managers.building import JOBSET, KUEUE, Manager


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
            yield server


def install(server: Server, system: System) -> None:
    """Apply the released manifests, and wait until the manager and its webhooks are ready."""
    server.kubectl("apply", "--server-side", "-f", str(system.manager.release))
    wait_for_rollout(server, system)


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
