"""A real kube-apiserver for those who ask for one: `make upstream-contract`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.upstream.cluster import Upstream


@pytest.fixture(scope="session")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of a server on which nobody acts, but that namespaces can be deleted."""
    if why := Upstream.missing():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("upstream")
    flags = ("--disable-admission-plugins=ServiceAccount",)
    with Upstream(folder, apiserver_flags=flags) as cluster:
        cluster.start_controller_manager("namespace-controller")
        yield cluster.kubeconfig
