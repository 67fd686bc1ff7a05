"""`make corpus`: run the corpus on all engines that this machine has, and compare their outcomes.

    python -m tests.corpus                     # all engines
    python -m tests.corpus process slurm       # these
    python -m tests.corpus --only restarts kubernetes

The process runtime is the reference. Slurm is a real one if it can be started here, otherwise
stand-ins for its commands.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.corpus.cases import Case, cases
from tests.corpus.differences import KNOWN, stale, unknown
from tests.corpus.engines import ENGINES
from tests.corpus.running import Outcome, run
from tests.node.podman import support as podman
from tests.slurm.cluster import SlurmCluster, problem
from tests.slurm.stand_in import STATE, StandIn
from tests.upstream.cluster import Upstream

REFERENCE = "process"


def main() -> int:
    parser = argparse.ArgumentParser(prog="corpus", description=__doc__)
    parser.add_argument("engines", nargs="*", metavar="ENGINE", help=", ".join(ENGINES))
    parser.add_argument("--only", action="append", help="name of a case; may be repeated")
    options = parser.parse_args()
    chosen = {name: case for name, case in cases().items() if name in (options.only or cases())}
    engines = list(options.engines or ENGINES)
    results: dict[str, dict[str, Outcome]] = {}
    for name in dict.fromkeys([REFERENCE, *engines]):
        if why := _absent(name):
            print(f"{name}: skipped: {why}", flush=True)
            continue
        began = time.monotonic()
        results[name] = _run(name, chosen)
        print(f"{name}: {len(chosen)} Jobs in {time.monotonic() - began:.0f} s", flush=True)
    return _report(chosen, results)


def _run(name: str, chosen: dict[str, Case]) -> dict[str, Outcome]:
    async def run_all(folder: Path) -> dict[str, Outcome]:
        async with ENGINES[name](folder / "engine") as engine:
            return await run(engine, chosen, folder)

    with tempfile.TemporaryDirectory(prefix="onejob-corpus-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        folder.chmod(0o755)
        with _requirements(name, folder):
            return asyncio.run(run_all(folder))


@contextmanager
def _requirements(name: str, folder: Path) -> Iterator[None]:
    """Start what an engine needs besides this process."""
    if name == "podman":
        podman.make_image(folder / "image")
        yield
        podman.engine("rmi", "--force", podman.IMAGE)
    elif name == "slurm" and not problem():
        cluster = SlurmCluster(folder / "cluster", nodes=2, cpus=64)
        cluster.start()
        os.environ.update(cluster.environment)
        try:
            yield
        finally:
            cluster.stop()
    elif name == "slurm":
        installed = StandIn(folder / "slurm")
        installed.install()
        os.environ["PATH"] = f"{installed.bin}:{os.environ['PATH']}"
        os.environ[STATE] = str(installed.folder)
        yield
        installed.end_all()
    else:
        yield


def _absent(name: str) -> str:
    """Return why an engine cannot be used here; "" if it can."""
    if name == "podman" and podman.MISSING:
        return f"{', '.join(podman.MISSING)} not installed"
    return Upstream.missing() if name == "kubernetes" else ""


def _report(chosen: dict[str, Case], results: dict[str, dict[str, Outcome]]) -> int:
    """Print a row for each Job and the differences; return the exit code."""
    reference = results[REFERENCE]
    width = max(map(len, chosen))
    print(f"\n{'JOB':<{width}}  {'END':<28}  {'  '.join(results)}")
    code = 0
    differences = {name: unknown(name, reference, found) for name, found in results.items()}
    for case in chosen:
        signs = [
            f"{'DIFFERS' if case in differences[name] else _sign(name, case):<{len(name)}}"
            for name in results
        ]
        print(f"{case:<{width}}  {_end(reference[case]):<28}  {'  '.join(signs)}")
    for name, found in differences.items():
        for case, fields in found.items():
            code = 1
            for field in sorted(fields):
                print(f"\n{name}: {case}: {field}")
                print(f"  {REFERENCE}: {json.dumps(reference[case].get(field))}")
                print(f"  {name}: {json.dumps(results[name][case].get(field))}")
    for name, outcomes in results.items():
        for known in stale(name, reference, outcomes):
            code = 1
            print(f"\n{name}: {known.case}: no longer differs in {', '.join(known.fields)}")
    same = sum(not any(case in found for found in differences.values()) for case in chosen)
    print(f"\n{same} of {len(chosen)} Jobs end the same way on {', '.join(results)}")
    return code


def _sign(engine: str, case: str) -> str:
    return "known" if any((k.engine, k.case) == (engine, case) for k in KNOWN) else "same"


def _end(outcome: Outcome) -> str:
    if "rejected" in outcome:
        return f"rejected with {outcome['rejected']}"
    if "stuck" in outcome:
        return "stuck"
    ends = [row[0] for row in outcome["conditions"] if row[1] == "True"]
    kind = next((each for each in ("Complete", "Failed", "Suspended") if each in ends), "none")
    return f"{kind} {outcome.get('succeeded', 0)}/{outcome.get('failed', 0)}"


if __name__ == "__main__":
    sys.exit(main())
