"""Single file built offline, from the packages that are installed here."""

import os
import subprocess
import zipfile
from importlib import metadata
from pathlib import Path

from release.dist import build_packages
from release.sbom import locked_versions
from release.single_file import write_single_file

ROOT = Path(__file__).resolve().parents[2]
SERVICE = ROOT / "requirements" / "service.txt"


def single_file(folder: Path) -> Path:
    """Return a single file with the installed versions of all dependencies."""
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    dependencies = locked_versions(SERVICE)
    for name in dependencies:
        repack(name, wheels)
    build_packages(folder / "dist")
    (own,) = (folder / "dist").glob("*.whl")
    target = folder / "onejob"
    write_single_file(target, "1.2.3", own, wheels.glob("*.whl"), dependencies)
    return target


def repack(name: str, folder: Path) -> None:
    """Write an installed package as a wheel again; it is installable by this Python only."""
    package = metadata.distribution(name)
    stem = f"{name.replace('-', '_')}-{package.version}"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        for file in package.files or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                wheel.write(str(file.locate()), str(file))


def start(
    program: Path, home: Path, *words: str, path: str = os.environ["PATH"]
) -> subprocess.CompletedProcess[str]:
    """Run a program in an environment of its own."""
    return subprocess.run(
        [program, *words],
        env={"HOME": str(home), "PATH": path},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
