"""Coverage per package, from a data file of coverage.py: `python -m sim.coverage FILE`."""

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

#: Packages whose subpackages get a row of their own.
_DIVIDED = ("node", "planning")


def main() -> int:
    """Print the table for the data file in the arguments; return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        subprocess.run(
            [
                *(sys.executable, "-m", "coverage", "json", "--quiet"),
                *("--data-file", sys.argv[1], "-o", str(report)),
            ],
            check=True,
        )
        files = json.loads(report.read_text())["files"]
    for line in table(files):
        print(line)
    return 0


def table(files: Mapping[str, Any]) -> list[str]:
    """Return one line per package, from the `files` section of `coverage json`."""
    covered: Counter[str] = Counter()
    statements: Counter[str] = Counter()
    for name, found in files.items():
        for package in _packages(name):
            covered[package] += found["summary"]["covered_lines"]
            statements[package] += found["summary"]["num_statements"]
    return [
        f"{covered[package] / statements[package]:6.1%}  of {statements[package]:6}  {package}"
        for package in sorted(statements)
        if statements[package]
    ]


def _packages(name: str) -> list[str]:
    """Return the package of a file and, for packages in `_DIVIDED`, its subpackage."""
    parts = PurePath(name).parts
    below = parts[parts.index("onejob") + 1 :]
    if below[0] in _DIVIDED and len(below) > 2:
        return [below[0], f"{below[0]}/{below[1]}"]
    return [below[0]]


if __name__ == "__main__":
    sys.exit(main())
