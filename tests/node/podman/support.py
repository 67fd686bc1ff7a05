"""Nodes with real containers, of a small image built here: no registry is needed."""

import os
import shlex
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from onejob.clock import SystemClock
from onejob.node.options import NodeOptions
from onejob.node.podman.engine_settings import PodmanSettings
from onejob.node.podman.records import DATA_DIR
from onejob.node.podman.runtime import PodmanRuntime
from onejob.node.runtime import NodeContext
from tests.node.support import NODE, ROOM, Document, Node, a_node, a_pod, an_api

#: Options that containers need on machines that are containers themselves.
OPTIONS = (
    "--runtime=runc", "--network=none", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1000:1000",
)  # fmt: skip
#: These tests hold for docker too: ONEJOB_TEST_ENGINE=docker.
ENGINE = tuple(shlex.split(os.environ.get("ONEJOB_TEST_ENGINE", "podman")))
IMAGE = os.environ.get("ONEJOB_TEST_IMAGE", f"registry.invalid/onejob-test:{os.getpid()}")
MISSING = [name for name in (ENGINE[0], "runc", "busybox") if shutil.which(name) is None]
#: Marks of every module that starts containers.
NEEDS_PODMAN = [
    pytest.mark.podman,
    pytest.mark.skipif(bool(MISSING), reason=f"make podman: {', '.join(MISSING)} not installed"),
]
APPLETS = (
    "sh",
    "sleep",
    "cat",
    "echo",
    "env",
    "hostname",
    "id",
    "pwd",
    "stty",
    "touch",
    "true",
    "test",
)


def make_image(folder: Path) -> None:
    """Build IMAGE: only busybox, with entrypoint `echo` and arguments `by default`."""
    busybox = shutil.which("busybox")
    assert busybox is not None, "the package busybox-static is not installed"
    programs = folder / "bin"
    programs.mkdir(parents=True)
    (folder / "tmp").mkdir()
    shutil.copy(busybox, programs / "busybox")
    for name in APPLETS:
        (programs / name).symlink_to("busybox")
    archive = shutil.make_archive(str(folder.parent / "image"), "tar", folder)
    changes = ('ENTRYPOINT ["/bin/echo"]', 'CMD ["by","default"]', "WORKDIR /tmp", "ENV OF_IMAGE=1")
    flags = [flag for change in changes for flag in ("--change", change)]
    engine("import", *flags, archive, IMAGE)


def engine(*arguments: str) -> str:
    done = subprocess.run([*ENGINE, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def containers_of(path: Path) -> list[str]:
    """Return the names of a data dir's containers, ended or not."""
    wanted = f"label={DATA_DIR}={path.resolve()}"
    return engine("ps", "--all", "--filter", wanted, "--format", "{{.Names}}").split()


def podman_runtime(path: Path, **settings: Any) -> PodmanRuntime:
    options = {"engine": ENGINE, "engine_options": OPTIONS, **settings}
    chosen = PodmanSettings(NodeContext(NODE, "127.0.0.1", ROOM), NodeOptions(**options))
    return PodmanRuntime(path, SystemClock(), chosen)


@asynccontextmanager
async def a_podman_node(
    path: Path, *, end_pods: bool = True, **settings: Any
) -> AsyncIterator[Node]:
    async with (
        an_api(path) as client,
        a_node(client, podman_runtime(path, **settings), end_pods=end_pods) as node,
    ):
        yield node


def in_image(*command: str, **rest: Any) -> Document:
    return a_pod(*command, **{"image": IMAGE, **rest})


def script(text: str, **rest: Any) -> Document:
    return in_image("sh", "-c", text, **rest)
