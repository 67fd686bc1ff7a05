"""pytest plugin with a Kubernetes API: fixtures `onejob_server` (session) and `onejob_namespace`.

    def test_my_operator(onejob_namespace):
        run_my_tool(kubeconfig=onejob_namespace.kubeconfig)
        assert onejob_namespace.wait_for_job("report") == "Complete"

pytest loads this module in every session, so all other modules are imported by the fixtures.
"""

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from onejob.testing import OnejobNamespace, OnejobServer


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("onejob")
    group.addoption(
        "--onejob-runtime",
        choices=["process", "simulated"],
        help="Runtime for Pods of the onejob fixtures.",
    )
    parser.addini("onejob_runtime", "Default of --onejob-runtime.", default="process")


# The old style of hook wrapper: versions of pytest before 8 support no other.
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Add the state and the logs of the namespace's Jobs to the report of a failed test."""
    report: pytest.TestReport = (yield).get_result()
    namespace = getattr(item, "funcargs", {}).get("onejob_namespace")
    if report.when == "call" and report.failed and namespace is not None:
        report.sections += _job_sections(namespace)


def _job_sections(namespace: "OnejobNamespace") -> list[tuple[str, str]]:
    try:
        names = [job["metadata"]["name"] for job in namespace.list("jobs")]
        return [(f"onejob why job/{name}", namespace.explain(name)) for name in names]
    except Exception as error:
        # The test's own failure matters more, and must be reported whatever is wrong here.
        return [("onejob why", f"cannot explain the Jobs: {error}")]


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
    """A fresh namespace; all objects in it are deleted when the test ends."""
    namespace = onejob_server.new_namespace()
    try:
        yield namespace
    finally:
        namespace.remove()
