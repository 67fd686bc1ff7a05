"""The supervisor itself: small and alone."""

import subprocess
import sys

from onejob.node.process.supervisor_client import _PACKAGES


def test_it_loads_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import onejob.node.supervisor.main; "
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    ran = subprocess.run(
        [sys.executable, "-S", "-I", "-c", code, _PACKAGES],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(ran.stdout.split())
    assert loaded - set(sys.stdlib_module_names) <= {"onejob", "__main__"}
    assert not loaded & {"asyncio", "subprocess", "threading", "logging"}
