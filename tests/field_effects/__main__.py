"""Driver: disable acting fields one by one and run their named tests, which must fail.

Usage: `python -m tests.field_effects [--sample N [--seed S]] [TYPE.FIELD …]`
"""

import argparse
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.test_fields import SCRIPT

ROOT = Path(__file__).resolve().parents[2]
#: Seconds after which a run counts as hanging.
LIMIT = 600


def acting() -> dict[str, tuple[str, ...]]:
    """Return the tests of every acting field."""
    return {
        f"{type_}.{field}": row.tests
        for (type_, field), row in SCRIPT.inventory().decided.items()
        if row.verdict.startswith("acts")
    }


def outcome(field: str, tests: tuple[str, ...]) -> str:
    """Return "failed" if a test noticed the disabled field, or a word for what happened instead."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    command += ["-p", "tests.field_effects.plugin", "-m", "", *tests]
    try:
        run = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "ONEJOB_DISABLED_FIELD": field},
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
    except subprocess.TimeoutExpired:
        return "timed out"
    if run.returncode == 1:
        return "failed"
    last = run.stdout.strip().splitlines() or run.stderr.strip().splitlines()[-1:]
    return f"exit code {run.returncode}: {last[-1] if last else ''}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fields", nargs="*")
    parser.add_argument("--sample", type=int, help="number of random fields")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    rows = acting()
    chosen = options.fields or sorted(rows)
    if options.sample:
        chosen = random.Random(options.seed).sample(chosen, options.sample)
    unnoticed = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for field, found in zip(
            chosen, pool.map(lambda field: outcome(field, rows[field]), chosen), strict=True
        ):
            unnoticed += found != "failed"
            print(
                f"{'noticed' if found == 'failed' else 'NOT NOTICED'}\t{field}\t{found}", flush=True
            )
    print(f"{len(chosen) - unnoticed} of {len(chosen)} disabled fields were noticed")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
