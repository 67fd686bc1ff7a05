"""Build of the programs of the pinned releases into a cache outside of the tree.

Versions are those of `kubernetes/go.mod` and `etcd/go.mod`; `go.sum` pins every source. Programs in
the cache are not built again.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
_VERSION_PACKAGE: Final = "k8s.io/component-base/version"


class CannotBuild(Exception):
    """Go is missing, or has failed; the message is one line."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program to build: its name in the cache, its module here, and its package."""

    name: str
    module: str
    package: str
    #: Compiled as a test program.
    is_test: bool = False


APISERVER: Final = Program("kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver")
CONTROLLER_MANAGER: Final = Program(
    "kube-controller-manager", "kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager"
)
ETCD: Final = Program("etcd", "etcd", "go.etcd.io/etcd/server/v3")
E2E: Final = Program("e2e.test", "kubernetes", "k8s.io/kubernetes/test/e2e", is_test=True)
#: The program of most containers in the end-to-end specs.
AGNHOST: Final = Program("agnhost", "kubernetes", "k8s.io/kubernetes/test/images/agnhost")
#: Converts CustomResourceDefinitions between JSON and protobuf, with Kubernetes' codecs.
CODEC: Final = Program("crdprotobuf", "protobuf", "onejob.dev/upstream/protobuf")

CLUSTER: Final = (ETCD, APISERVER, CONTROLLER_MANAGER)


def pinned(module: str) -> str:
    """Return the release that a module here requires, such as v1.37.1."""
    found = re.search(r"^require \S+ (v\S+)$", (_HERE / module / "go.mod").read_text(), re.M)
    assert found is not None, f"{module}/go.mod requires nothing"
    return found.group(1)


def cache() -> Path:
    """Return the cache: a folder for each pair of releases."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "onejob" / "upstream" / f"{pinned('kubernetes')}-etcd-{pinned('etcd')}"


def missing(programs: Sequence[Program]) -> list[Program]:
    return [program for program in programs if not (cache() / program.name).exists()]


def build(programs: Sequence[Program], say: Callable[[str], None]) -> Path:
    """Build missing programs; return the folder with all of them. Raises CannotBuild."""
    folder = cache()
    for program in missing(programs):
        if shutil.which("go") is None:
            raise CannotBuild("Go is not installed, and it is needed to build Kubernetes")
        say(f"building {program.name} {pinned(program.module)}: this takes minutes the first time")
        _build(program, folder)
    return folder


def _build(program: Program, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    # Under another name until it is complete; two builders at once do no harm.
    unfinished = folder / f".{program.name}.{os.getpid()}"
    verb = ("test", "-c", "-vet=off") if program.is_test else ("build",)
    try:
        done = subprocess.run(
            ["go", *verb, "-ldflags", _linker_flags(program), "-o", unfinished, program.package],
            cwd=_HERE / program.module,
            env={
                **os.environ,
                "GOFLAGS": "-mod=readonly -buildvcs=false",
                "GOTOOLCHAIN": "local",
                "GOWORK": "off",
            },
            check=False,
        )
        if done.returncode != 0:
            raise CannotBuild(f"go {verb[0]} {program.package} failed: see above")
        unfinished.replace(folder / program.name)
    finally:
        unfinished.unlink(missing_ok=True)


def _linker_flags(program: Program) -> str:
    if program.module != "kubernetes":
        return "-s -w"
    version = pinned("kubernetes")
    major, minor, _ = version.removeprefix("v").split(".")
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return " ".join(
        ("-s -w", *(f"-X {_VERSION_PACKAGE}.{name}={value}" for name, value in stamps.items()))
    )
