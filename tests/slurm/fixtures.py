"""Fixtures of tests that use the Slurm runtime; a plugin of `conftest.py`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm import stand_in
from tests.slurm.cluster import SlurmCluster


@pytest.fixture
def slurm_stand_in(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[stand_in.StandIn]:
    """Put stand-ins for Slurm's commands on the PATH."""
    installed = stand_in.StandIn(tmp_path_factory.mktemp("slurm"))
    installed.install()
    monkeypatch.setenv("PATH", str(installed.bin), prepend=":")
    monkeypatch.setenv(stand_in.STATE, str(installed.folder))
    yield installed
    installed.end_all()


@pytest.fixture(scope="session")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """Start a real Slurm."""
    folder = tmp_path_factory.mktemp("cluster", numbered=True)
    # munged refuses a socket below a folder that only its owner may enter.
    for parent in (folder, *list(folder.parents)[:3]):
        if parent != Path("/tmp") and parent.stat().st_uid == 0:
            parent.chmod(0o755)
    cluster = SlurmCluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def real_slurm(
    slurm_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SlurmCluster]:
    """Set the environment for commands of the real Slurm; cancel the jobs of the test."""
    for name, value in slurm_cluster.environment.items():
        monkeypatch.setenv(name, value)
    yield slurm_cluster
    slurm_cluster.run("scancel", "--user=root")
