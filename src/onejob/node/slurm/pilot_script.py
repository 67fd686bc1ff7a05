"""Batch script of an allocation."""

import shlex
import sys
from pathlib import Path
from typing import Final

from onejob import own_process

_PACKAGES: Final = str(Path(own_process.__file__).resolve().parents[1])
_BOOTSTRAP: Final = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from onejob.node.slurm.pilot import {0}; {0}()"
)
#: The shell outlives the pilot, even if both it and the supervisor are killed: then `settle` ends
#: what is left of the Pods. It passes Slurm's signals on, which reach only the shell.
_SCRIPT: Final = """\
#!/bin/sh
{pilot} & pid=$!
trap 'kill -USR1 $pid' USR1
trap 'kill -TERM $pid' TERM INT
wait $pid; code=$?
while kill -0 $pid 2> /dev/null; do wait $pid; code=$?; done
[ $code = 0 ] || exec {settle}
"""


def pilot_script(folder: Path) -> str:
    """Return the script of the allocation with this folder."""

    def command(function: str) -> str:
        # -S and -I: without site-packages and user settings, as the supervisor.
        code = _BOOTSTRAP.format(function)
        return shlex.join([sys.executable, "-S", "-I", "-c", code, _PACKAGES, str(folder)])

    return _SCRIPT.format(pilot=command("main"), settle=command("settle"))
