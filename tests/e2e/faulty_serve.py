"""onejob with fault injection in its supervisors (see `tests.faults`).

`python -m tests.e2e.faulty_serve FOLDER serve …` takes the faults from FOLDER.
"""

import sys
from pathlib import Path

from onejob.cli.main import main
from tests.faults import faulty_supervisors

if __name__ == "__main__":
    folder = Path(sys.argv.pop(1))
    with faulty_supervisors(folder):
        main()
