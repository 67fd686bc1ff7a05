"""Build of released managers from the Go module proxy into a cache outside of the tree.

Each is built as its authors do, with the dependencies that its own go.mod and go.sum pin; the
checksum database verifies the module itself. Programs in the cache are not built again.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
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


JOBSET: Final = Manager("jobset", "sigs.k8s.io/jobset", "v0.12.0")
KUEUE: Final = Manager("kueue", "sigs.k8s.io/kueue", "v0.19.2", "./cmd/kueue")
MANAGERS: Final = (JOBSET, KUEUE)


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
        _write_manifests(source / manager.manifests, release)
        program.replace(manager.program)
        release.replace(manager.release)
    finally:
        program.unlink(missing_ok=True)
        release.unlink(missing_ok=True)


def build_test(manager: Manager, package: str) -> tuple[Path, Path]:
    """Build a test program of a manager's module unless it is cached.

    Returns the program and the folder of its sources, in which it runs. Raises CannotBuild.
    """
    if shutil.which("go") is None:
        raise NoGo("Go is not installed, and it is needed to build the suites")
    source = download(manager)
    program = manager.folder / f"{package.replace('/', '-')}.test"
    if not program.exists():
        manager.folder.mkdir(parents=True, exist_ok=True)
        # Under another name until it is complete.
        unfinished = manager.folder / f".{program.name}.{os.getpid()}"
        _go(["test", "-C", str(source), "-c", "-o", str(unfinished), f"./{package}"])
        unfinished.replace(program)
    return program, source / package


def download(manager: Manager) -> Path:
    """Return the sources of the module, as released. Raises CannotBuild."""
    described = _go(["mod", "download", "-json", f"{manager.module}@{manager.version}"])
    return Path(json.loads(described)["Dir"])


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
