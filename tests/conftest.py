"""Settings for all tests, independent of how and on which machine they are run."""

import os
import shutil
import signal
import sys

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.async_tests", "tests.cpu_durations"]

#: Enough for what the tests of a whole run leave behind, several times over.
_SPACE = 4 << 30


def _use_memory_for_temporary_folders() -> None:
    """Let `tmp_path` be in memory: most tests sync a database that nobody needs after a power cut.

    Not where /dev/shm is small, as in containers, or forbids programs. `--basetemp` overrides it.
    """
    shared = "/dev/shm"
    if (
        os.access(shared, os.W_OK)
        and shutil.disk_usage(shared).free > _SPACE
        and not os.statvfs(shared).f_flag & os.ST_NOEXEC
    ):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", shared)


_use_memory_for_temporary_folders()

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
