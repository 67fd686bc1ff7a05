"""A Kubernetes API for tests: fixtures `onejob_server` (session) and `onejob_namespace`.

    def test_my_operator(onejob_namespace):
        run_my_tool(kubeconfig=onejob_namespace.kubeconfig)
        assert onejob_namespace.wait_for_job("report") == "Complete"

pytest loads this module in every session, so everything else is imported by the fixtures.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from onejob.testing import OnejobNamespace, OnejobServer


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("onejob")
    group.addoption(
        "--onejob-runtime",
        choices=["process", "simulated"],
        help="How the Pods of the onejob fixtures run.",
    )
    parser.addini("onejob_runtime", "The same in the configuration.", default="process")


@pytest.fixture(scope="session")
def onejob_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator["OnejobServer"]:
    """A server for the whole session."""
    from onejob.testing import OnejobServer

    config = request.config
    runtime = config.getoption("--onejob-runtime") or config.getini("onejob_runtime")
    server = OnejobServer(tmp_path_factory.mktemp("onejob"), runtime)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def onejob_namespace(onejob_server: "OnejobServer") -> Iterator["OnejobNamespace"]:
    """A fresh namespace; everything in it goes when the test is over."""
    namespace = onejob_server.new_namespace()
    try:
        yield namespace
    finally:
        namespace.remove()
