"""Settings for all tests, independent of how and on which machine they are run."""

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.memory_directory import memory_directory

pytest_plugins = ["tests.async_tests", "tests.cpu_durations", "tests.slurm.fixtures"]

# Where this is set, each worker rewrites all assertions again, and each of the many commands that
# tests start compiles all of onejob: most of the CPU time of the suite.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Parents such as nohup or a background shell ignore SIGINT; restore the default handlers.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGQUIT, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# Durations depend on the machine more than on the code.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

#: Folders with tests that start no Pods as processes. Those have a /dev/shm of their own, and a
#: test that a file is out of their reach would pass for the wrong reason.
_WITHOUT_PROCESSES = frozenset(
    {
        *("api", "client", "contract", "controllers", "differential", "informers", "job"),
        *("notify", "queue", "webhooks"),
    }
)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    from build_schema import is_out_of_date

    if exitstatus and is_out_of_date(Path(__file__).parents[1]):
        terminalreporter.write_line("the schema of the API is older than its sources: make setup")


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Yield a folder for the test, in memory if it starts no processes: there, syncs are free."""
    folder = request.path.relative_to(Path(__file__).parent).parts[0]
    place = memory_directory() if folder in _WITHOUT_PROCESSES else None
    if place is None:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(
        prefix="onejob-test-", dir=place, ignore_cleanup_errors=True
    ) as name:
        yield Path(name)
