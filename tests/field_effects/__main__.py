"""Driver: disable acting fields one by one and run their named tests, which must fail.

Usage: `python -m tests.field_effects [--sample N [--seed S]] [TYPE.FIELD …]`
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.field_effects.inventory import ROOT, SCRIPT

#: Seconds after which a run counts as hanging.
LIMIT = 900


def acting() -> dict[str, tuple[str, ...]]:
    """Return the tests of every acting field."""
    return {
        f"{type_}.{field}": row.tests
        for (type_, field), row in SCRIPT.inventory().decided.items()
        if row.verdict.startswith("acts")
    }


def outcome(tests: Sequence[str], disabled: str = "") -> str:
    """Run the tests with a field disabled; return "passed", "failed" or another result."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:cacheprovider"]
    command += ["-m", "", *(("-p", "tests.field_effects.plugin") if disabled else ())]
    with tempfile.TemporaryDirectory() as folder:
        try:
            run = subprocess.run(
                [*command, f"--basetemp={folder}/tests", *tests],
                cwd=ROOT,
                env={**os.environ, "ONEJOB_DISABLED_FIELD": disabled},
                capture_output=True,
                text=True,
                timeout=LIMIT,
            )
        except subprocess.TimeoutExpired:
            return "timed out"
    if run.returncode in (0, 1):
        return "failed" if run.returncode else "passed"
    last = [*run.stderr.strip().splitlines(), *run.stdout.strip().splitlines()][-1:]
    return f"exit code {run.returncode}: {''.join(last)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fields", nargs="*")
    parser.add_argument("--sample", type=int, help="number of random fields")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    rows = acting()
    chosen: list[str] = options.fields or sorted(rows)
    if options.sample:
        chosen = random.Random(options.seed).sample(chosen, options.sample)
    # A test that fails anyway notices nothing.
    before = outcome(sorted({test for field in chosen for test in rows[field]}))
    if before != "passed":
        print(f"without any disabled field: {before}")
        return 1
    unnoticed = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(lambda field: outcome(rows[field], field), chosen)
        for field, result in zip(chosen, results, strict=True):
            noticed = result == "failed"
            unnoticed += not noticed
            print(f"{field}: {'noticed' if noticed else f'NOT NOTICED ({result})'}", flush=True)
    print(f"{len(chosen) - unnoticed} of {len(chosen)} disabled fields were noticed")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
