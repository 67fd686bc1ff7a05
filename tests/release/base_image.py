"""Base image without a registry: busybox and the Python of this machine."""

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.node.podman.support import engine

_APPLETS = ("sh", "mkdir", "chmod", "cat", "echo", "env", "sleep", "true", "date")


def make_base_image(folder: Path, name: str) -> None:
    """Build the image `name`, in which pip installs only from the folder /locked."""
    copy_python(folder)
    (folder / "bin").mkdir(exist_ok=True)
    busybox = shutil.which("busybox")
    assert busybox is not None, "the package busybox-static is not installed"
    shutil.copy(busybox, folder / "bin" / "busybox")
    for applet in _APPLETS:
        (folder / "bin" / applet).symlink_to("busybox")
    (folder / "tmp").mkdir(mode=0o1777)
    archive = shutil.make_archive(str(folder.parent / "base"), "tar", folder)
    changes = (
        "ENV PATH=/usr/bin:/bin",
        "ENV PIP_NO_INDEX=1",
        "ENV PIP_FIND_LINKS=/locked /locked/build",
    )
    engine("import", *(flag for change in changes for flag in ("--change", change)), archive, name)


def copy_python(folder: Path) -> None:
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    stdlib = Path(sysconfig.get_path("stdlib"))
    skipped = shutil.ignore_patterns(
        "__pycache__", "test", "idlelib", "config-*", "*.a", "turtledemo"
    )
    shutil.copytree(stdlib, folder / stdlib.relative_to("/"), ignore=skipped, symlinks=False)
    put(folder, base)
    (folder / "usr" / "bin").mkdir(parents=True, exist_ok=True)
    python = folder / "usr" / "bin" / "python"
    python.symlink_to(base)
    # Debian's ensurepip takes its wheels from here.
    bundled = Path("/usr/share/python-wheels")
    if bundled.is_dir():
        shutil.copytree(bundled, folder / bundled.relative_to("/"))
    for library in libraries([base, *stdlib.rglob("*.so")]):
        put(folder, library)


def libraries(files: list[Path]) -> set[Path]:
    """Return the shared libraries of programs, and those that bundled wheels expect."""
    listed = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, check=False)
    found = {Path(path) for path in re.findall(r"(/\S+\.so\S*) \(", listed.stdout)}
    cache = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    wanted = r"lib(?:stdc\+\+|gcc_s|pthread|dl|rt|util)\.so\.\d+ \(libc6,x86-64[^\n]*=> (\S+)"
    return found | {Path(path) for path in re.findall(wanted, cache)}


def put(folder: Path, file: Path) -> None:
    target = folder / file.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copy(file, target)
