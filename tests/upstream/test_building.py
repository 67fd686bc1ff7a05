"""Checks of the pinned releases without building them."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.upstream import building


def test_the_modules_of_kubernetes_are_of_its_release() -> None:
    """Kubernetes v1.N.P publishes its own modules as v0.N.P."""
    text = (Path(building.__file__).parent / "kubernetes" / "go.mod").read_text()
    replaced = re.findall(r"^\t(\S+) => (\S+) (v\S+)$", text, re.M)
    assert len(replaced) > 30
    expected = building.pinned("kubernetes").replace("v1.", "v0.")
    assert {(name, version) for name, _, version in replaced} == {
        (name, expected) for _, name, _ in replaced
    }


def test_each_pair_of_releases_has_a_cache_of_its_own() -> None:
    name = building.cache().name
    assert building.pinned("kubernetes") in name
    assert building.pinned("etcd") in name


def test_building_without_go_fails_with_message(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.upstream"],
        env={**os.environ, "PATH": "", "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == (
        "upstream: skipped: Go is not installed, and it is needed to build Kubernetes\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []
