"""Fixture: a real kube-apiserver for `make upstream-contract`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.upstream.cluster import Upstream


@pytest.fixture(scope="session")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the kubeconfig of a server without controllers, except for namespace deletion."""
    if why := Upstream.missing():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("upstream")
    flags = ("--disable-admission-plugins=ServiceAccount",)
    with Upstream(folder, apiserver_flags=flags) as cluster:
        cluster.start_controller_manager("namespace-controller")
        yield cluster.kubeconfig
