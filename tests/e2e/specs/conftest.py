"""Fixtures: one server for all specs, on which the selected ones run concurrently."""

from collections.abc import Iterator

import pytest

from tests.e2e.serving import Server, a_server
from tests.e2e.specs.running import Runs, Spec


@pytest.fixture(scope="package")
def spec_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with a_server(tmp_path_factory.mktemp("specs")) as server:
        yield server


@pytest.fixture(scope="package")
def runs(request: pytest.FixtureRequest, spec_server: Server) -> Iterator[Runs]:
    runs = Runs(spec_server.kubeconfig, list(_selected(request.session.items)))
    yield runs
    runs.stop()


def _selected(items: list[pytest.Item]) -> Iterator[Spec]:
    for item in items:
        spec = item.callspec.params.get("spec") if hasattr(item, "callspec") else None
        if isinstance(spec, Spec):
            yield spec
