"""Command line of the simulator, `make sim`: simulate many seeds and report those with problems.

`make sim SIM='--seeds 1000 --first 7'` chooses the seeds; `make sim SIM='--replay 7'` prints
everything that happened in one of them.
"""

import argparse
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence

from sim.faults import RATES
from sim.mutants import BY_WORLD, MUTANTS, planted
from sim.story import story
from sim.world import Verdict
from sim.worlds import WORLDS

ALL = "all"
_REPORT_EVERY = 100
_HASHING = "PYTHONHASHSEED"


def main() -> int:
    """Run the command line; return the exit code."""
    options = options_for(sys.argv[1:])
    if _HASHING not in os.environ:
        # Hash randomization changes the iteration order of sets of strings between processes.
        arguments = [sys.executable, "-m", "sim", *sys.argv[1:]]
        os.execve(sys.executable, arguments, {**os.environ, _HASHING: "0"})
    logging.basicConfig(level=logging.INFO if options.verbose else logging.CRITICAL)
    seeds = range(options.first, options.first + options.seeds)
    if options.mutant:
        chosen = BY_WORLD[options.world] if options.world else MUTANTS
        names = list(chosen) if options.mutant == ALL else [options.mutant]
        found = [search(name, seeds, options) for name in names]
        return 0 if all(found) else 1
    if options.replay is not None:
        return _replay(options)
    return _run(seeds, options)


def options_for(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments of the command line."""
    parser = argparse.ArgumentParser(prog="sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many (default 200)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--replay", type=int, help="one seed, with all that happened in it")
    parser.add_argument(
        "--world", choices=WORLDS,
        help="which one is simulated (default plane, of a mutant the one it is found in)",
    )  # fmt: skip
    parser.add_argument(
        "--mutant", choices=(ALL, *MUTANTS), help="plant this bug, and stop when it is found"
    )
    parser.add_argument(
        "--often", action="append", default=[], choices=RATES, metavar="FAULT",
        help="a kind of fault that every world shall have many of",
    )  # fmt: skip
    parser.add_argument("--job-limit", type=int, help="how many Jobs may run at once")
    parser.add_argument(
        "--node", choices=("machine", "processes"), help="what Pods run on (default: drawn)"
    )
    for name, what in (("rare", "users do rare things"), ("gates", "gates are switched")):
        parser.add_argument(
            f"--{name}",
            action=argparse.BooleanOptionalAction,
            help=f"{what}, or not (default: drawn)",
        )
    parser.add_argument("--verbose", action="store_true", help="log what the controllers say")
    return parser.parse_args(arguments)


def _simulate(seed: int, options: argparse.Namespace) -> Verdict:
    return WORLDS[options.world or "plane"](seed, options)


def _replay(options: argparse.Namespace) -> int:
    verdict = _simulate(options.replay, options)
    for at, text in story(verdict):
        print(f"{at:9.3f}  {text}")
    _print_problems(verdict)
    return 1 if verdict.problems else 0


def search(name: str, seeds: range, options: argparse.Namespace) -> bool:
    """Return whether the simulator finds the planted bug with one of these seeds."""
    world = next(world for world, mutants in BY_WORLD.items() if name in mutants)
    options = argparse.Namespace(**{**vars(options), "world": options.world or world})
    began = time.monotonic()
    with planted(name):
        for number, seed in enumerate(seeds, 1):
            verdict = _simulate(seed, options)
            if verdict.problems:
                checks = ", ".join(dict.fromkeys(found.check for found in verdict.problems))
                seconds = time.monotonic() - began
                found = f"found after {number} seeds ({seconds:.0f} s), in seed {seed}"
                print(f"{name}: {found}, by: {checks}")
                print(f"    {verdict.problems[0]}"[:200], flush=True)
                return True
    print(f"{name}: NOT found in {len(seeds)} seeds", flush=True)
    return False


def _run(seeds: range, options: argparse.Namespace) -> int:
    failed = versions = processes = lives = 0
    faults: Counter[str] = Counter()
    began = time.monotonic()
    for number, seed in enumerate(seeds, 1):
        verdict = _simulate(seed, options)
        _print_problems(verdict)
        failed += bool(verdict.problems)
        faults += verdict.faults
        versions += len(verdict.versions)
        processes += verdict.processes
        lives += verdict.lives
        if number % _REPORT_EVERY == 0:
            print(f"{number} of {len(seeds)} seeds, {failed} failed", flush=True)
    minutes = (time.monotonic() - began) / 60
    print(
        f"{len(seeds) - failed} passed, {failed} failed; {len(seeds) / minutes:.0f} worlds/minute"
    )
    print(f"{lives} lives, {processes} containers, {versions} versions of objects judged")
    for kind in (*RATES, *sorted(set(faults) - set(RATES))):
        print(f"{faults[kind]:8}  {kind}")
    return 1 if failed else 0


def _print_problems(verdict: Verdict) -> None:
    for problem in verdict.problems:
        print(f"seed {verdict.seed}: {problem}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
