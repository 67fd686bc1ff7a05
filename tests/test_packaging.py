"""Contents of the wheel and the source archive."""

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


def test_sdist_contains_dashboard(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        assert any(name.endswith(f"src/{DASHBOARD}") for name in archive.getnames())
