"""Build of released managers from the Go module proxy into a cache outside of the tree.

Each is built as its authors do, with the dependencies that its own go.mod and go.sum pin; the
checksum database verifies the module itself. Programs in the cache are not built again.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final


class CannotBuild(Exception):
    """Go has failed; the message is one line."""


class NoGo(CannotBuild):
    """Go is not installed."""


@dataclass(frozen=True, slots=True)
class Manager:
    """A program to build, and the folder of its module with the release's manifests."""

    name: str
    module: str
    version: str
    #: Path of the program within the module.
    package: str = "."
    manifests: str = "config/default"
    #: Line of the kustomization that is commented out, where its own comment suggests that.
    without: str = ""

    @property
    def folder(self) -> Path:
        """Return the cache folder of program and manifests."""
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(home) / "onejob" / "managers" / f"{self.name}-{self.version}"

    @property
    def program(self) -> Path:
        return self.folder / "manager"

    @property
    def release(self) -> Path:
        """Return the file with all manifests of the release."""
        return self.folder / "release.yaml"

    @property
    def is_built(self) -> bool:
        return self.release.exists()


@dataclass(frozen=True, slots=True)
class Copied:
    """Files of another module that a suite expects in a folder of its own sources."""

    module: str
    folder: str
    into: str
    #: The one that the suite's go.mod selects if empty.
    version: str = ""
    without: str = ""


JOBSET: Final = Manager("jobset", "sigs.k8s.io/jobset", "v0.12.0")
KUEUE: Final = Manager("kueue", "sigs.k8s.io/kueue", "v0.19.2", "./cmd/kueue")
KUBERAY: Final = Manager("kuberay", "github.com/ray-project/kuberay/ray-operator", "v1.6.2")
MPI_OPERATOR: Final = Manager(
    "mpi-operator",
    "github.com/kubeflow/mpi-operator",
    "v0.8.0",
    "./cmd/mpi-operator",
    "manifests/overlays/standalone",
)
TRAINER: Final = Manager(
    "trainer",
    "github.com/kubeflow/trainer/v2",
    "v2.2.1",
    "./cmd/trainer-controller-manager",
    "manifests/overlays/manager",
    # "Comment this line if JobSet is installed on the Kubernetes cluster."
    without="../../third-party/jobset",
)
APPWRAPPER: Final = Manager(
    "appwrapper", "github.com/project-codeflare/appwrapper", "v1.2.2", "./cmd"
)
MANAGERS: Final = (JOBSET, KUEUE, MPI_OPERATOR)


def build(manager: Manager, say: Callable[[str], None]) -> None:
    """Build the manager unless it is cached. Raises CannotBuild."""
    if manager.is_built:
        return
    if shutil.which("go") is None:
        raise NoGo("Go is not installed, and it is needed to build the managers")
    if shutil.which("kubectl") is None:
        raise NoGo("kubectl is not installed, and it is needed to read the managers' manifests")
    say(f"building {manager.name} {manager.version}: this takes minutes the first time")
    manager.folder.mkdir(parents=True, exist_ok=True)
    # Under other names until they are complete; two builders at once do no harm.
    program = manager.folder / f".manager.{os.getpid()}"
    release = manager.folder / f".release.{os.getpid()}"
    try:
        source = download(manager)
        _go(["build", "-C", str(source), "-ldflags", "-s -w", "-o", str(program), manager.package])
        _write_release(manager, source, release)
        program.replace(manager.program)
        release.replace(manager.release)
    finally:
        program.unlink(missing_ok=True)
        release.unlink(missing_ok=True)


def build_test(sources: Path, manager: Manager, package: str) -> Path:
    """Build a test program of a manager's module unless it is cached. Raises CannotBuild."""
    program = manager.folder / f"{package.replace('/', '-')}.test"
    if not program.exists():
        # Under another name until it is complete.
        unfinished = manager.folder / f".{program.name}.{os.getpid()}"
        build_it = ["test", "-C", str(sources), "-c", "-ldflags", "-s -w"]
        _go([*build_it, "-o", str(unfinished), f"./{package}"])
        unfinished.replace(program)
    return program


def prepare_sources(
    manager: Manager, copied: Sequence[Copied], kustomized: tuple[str, str] | None
) -> Path:
    """Return a copy of the module's sources with all files that its suites read.

    `kustomized`: the folder of a kustomization, and the file that it is written to.
    """
    if shutil.which("go") is None:
        raise NoGo("Go is not installed, and it is needed to build the suites")
    target = manager.folder / "sources"
    if target.exists():
        return target
    manager.folder.mkdir(parents=True, exist_ok=True)
    unfinished = manager.folder / f".sources.{os.getpid()}"
    try:
        _copy_writable(download(manager), unfinished)
        for each in copied:
            wanted = f"{each.module}@{each.version}" if each.version else each.module
            described = _go(["mod", "download", "-C", str(unfinished), "-json", wanted])
            folder = Path(json.loads(described)["Dir"]) / each.folder
            _copy_writable(folder, unfinished / each.into, each.without)
        if kustomized is not None:
            folder_name, file = kustomized
            (unfinished / file).parent.mkdir(parents=True, exist_ok=True)
            _write_manifests(unfinished / folder_name, unfinished / file)
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return target


def _copy_writable(folder: Path, target: Path, without: str = "") -> None:
    """Copy a folder of the module cache, whose files and folders are read-only."""
    ignored = shutil.ignore_patterns(without) if without else None
    shutil.copytree(
        folder, target, ignore=ignored, copy_function=shutil.copyfile, dirs_exist_ok=True
    )
    for place, _, _ in os.walk(target):
        Path(place).chmod(0o755)


def download(manager: Manager) -> Path:
    """Return the sources of the module, as released. Raises CannotBuild."""
    described = _go(["mod", "download", "-json", f"{manager.module}@{manager.version}"])
    return Path(json.loads(described)["Dir"])


def _write_release(manager: Manager, source: Path, file: Path) -> None:
    """Write the manifests of a release. Raises CannotBuild."""
    if not manager.without:
        _write_manifests(source / manager.manifests, file)
        return
    top = Path(manager.manifests).parts[0]
    with tempfile.TemporaryDirectory(prefix="manifests-") as folder:
        _copy_writable(source / top, Path(folder) / top)
        kustomization = Path(folder) / manager.manifests / "kustomization.yaml"
        text = kustomization.read_text()
        kustomization.write_text(text.replace(f"- {manager.without}", f"# - {manager.without}"))
        _write_manifests(kustomization.parent, file)


def _write_manifests(source: Path, file: Path) -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", source], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise CannotBuild(f"kubectl kustomize {source} failed: {done.stderr.strip()}")
    file.write_text(done.stdout)


def _go(arguments: list[str]) -> str:
    done = subprocess.run(
        ["go", *arguments],
        env={
            **os.environ,
            "GOFLAGS": "-mod=readonly -buildvcs=false",
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
        },
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise CannotBuild(f"go {' '.join(arguments)} failed: see above")
    return done.stdout
