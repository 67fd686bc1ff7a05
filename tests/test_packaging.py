"""Contents of the wheel and the source archive."""

import email
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DASHBOARD = "onejob/dashboard/page.zip"
SCHEMA = "onejob/api/data/schema.json.gz"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", folder], cwd=ROOT, check=True
    )
    return folder


def test_wheel_contains_dashboard_and_schema(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert {DASHBOARD, SCHEMA} <= set(archive.namelist())


def test_wheel_has_no_benchmarks_and_bench_names_what_is_missing(
    dist: Path, tmp_path: Path
) -> None:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    assert not (tmp_path / "onejob" / "benchmarks").exists()
    done = subprocess.run(
        [sys.executable, "-m", "onejob", "bench", "--list"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        2,
        "error: the benchmarks are not in the installed package (run make bench in a checkout, or "
        "install one: pip install --editable CHECKOUT)\n",
    )


def test_sdist_contains_dashboard(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        assert any(name.endswith(f"src/{DASHBOARD}") for name in archive.getnames())


def test_second_build_is_byte_identical_from_another_folder(dist: Path, tmp_path: Path) -> None:
    """File times, permissions and the path of the checkout do not matter."""
    copy = tmp_path / "elsewhere"
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    next(tmp_path.glob("onejob-*")).rename(copy)
    for file in copy.rglob("*"):
        os.utime(file, (1, 1))
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", tmp_path / "dist"],
        cwd=copy,
        check=True,
    )
    for first in dist.iterdir():
        assert (tmp_path / "dist" / first.name).read_bytes() == first.read_bytes(), first.name


def test_metadata_passes_twine(dist: Path) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, dist.iterdir())]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_wheel_is_typed_and_names_its_extras(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert "onejob/py.typed" in archive.namelist()
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    assert {"mcp", "otel"} <= set(metadata.get_all("Provides-Extra", []))
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert metadata["License-Expression"] == "Apache-2.0"
