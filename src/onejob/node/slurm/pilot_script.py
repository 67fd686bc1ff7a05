"""Batch script of an allocation."""

import shlex
import sys
from pathlib import Path
from typing import Final

from onejob import own_process

_PACKAGES: Final = str(Path(own_process.__file__).resolve().parents[1])
_BOOTSTRAP: Final = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from onejob.node.slurm.pilot import main; main()"
)


def pilot_script(folder: Path) -> str:
    """Return the script: the pilot in place of the shell, so that it receives Slurm's signals."""
    # -S and -I: without site-packages and user settings, as the supervisor.
    words = [sys.executable, "-S", "-I", "-c", _BOOTSTRAP, _PACKAGES, str(folder)]
    return f"#!/bin/sh\nexec {shlex.join(words)}\n"
