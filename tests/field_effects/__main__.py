"""Driver: disable acting fields one by one and run their named tests, which must fail.

Usage: `python -m tests.field_effects [--sample N [--seed S]] [TYPE.FIELD …]`, such as
`batch.v1.JobSpec.suspend`
"""

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from multiprocessing import get_context

import pytest

import onejob.server  # noqa: F401 (imported before the processes are forked)
from tests.field_effects.inventory import ROOT, SCRIPT
from tests.field_effects.plants import disable

#: Seconds after which a test counts as hanging.
LIMIT = 300


def acting() -> dict[str, tuple[str, ...]]:
    """Return the tests of every acting field."""
    return {
        f"{type_}.{field}": row.tests
        for (type_, field), row in SCRIPT.inventory().decided.items()
        if row.verdict.startswith("acts")
    }


def unknown_text(names: Sequence[str], acting: Collection[str]) -> str:
    """Return the message about names that are no acting fields, with fields of the same name."""
    lines = []
    for name in names:
        last = name.rsplit(".", 1)[-1]
        alike = sorted(field for field in acting if field.rsplit(".", 1)[-1] == last)
        hint = ", ".join(alike) or "TYPE.FIELD, such as batch.v1.JobSpec.suspend"
        lines.append(f"no acting field of docs/reference/fields.toml: {name} (use {hint})")
    return "; ".join(lines)


def outcome(request: tuple[Sequence[str], str]) -> str:
    """Run tests with a field disabled, if one is named; return "passed", "failed" or another
    result. Called in a process of its own."""
    tests, disabled = request
    with open(os.devnull, "w") as nowhere, tempfile.TemporaryDirectory() as folder:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
        os.chdir(ROOT)
        if disabled:
            disable(ExitStack(), *disabled.rsplit(".", 1))
        options = [
            "-q",
            "-x",
            "--tb=no",
            "--assert=plain",
            "-p",
            "no:cacheprovider",
            "-m",
            "",
            f"--timeout={LIMIT}",
        ]
        code = pytest.main([*options, f"--basetemp={folder}/tests", *tests])
    match code:
        case pytest.ExitCode.OK:
            return "passed"
        case pytest.ExitCode.TESTS_FAILED:
            return "failed"
        case _:
            return f"exit code {int(code)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fields", nargs="*")
    parser.add_argument("--sample", type=int, help="number of random fields")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    rows = acting()
    chosen: list[str] = options.fields or sorted(rows)
    if unknown := [field for field in chosen if field not in rows]:
        parser.error(unknown_text(unknown, rows))
    if options.sample:
        chosen = random.Random(options.seed).sample(chosen, options.sample)
    # A test that fails anyway notices nothing.
    named = sorted({test for field in chosen for test in rows[field]})
    unnoticed = 0
    # Forked, so that the modules of onejob are imported once for all.
    with get_context("fork").Pool(options.jobs, maxtasksperchild=1) as pool:
        before = pool.apply(outcome, ((named, ""),))
        if before != "passed":
            print(f"without any disabled field: {before}")
            return 1
        results = pool.imap(outcome, [(rows[field], field) for field in chosen])
        for field, result in zip(chosen, results, strict=True):
            noticed = result == "failed"
            unnoticed += not noticed
            print(f"{field}: {'noticed' if noticed else f'NOT NOTICED ({result})'}", flush=True)
    print(f"{len(chosen) - unnoticed} of {len(chosen)} disabled fields were noticed")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
