"""`make sim`: many seeds, one line each that fails. `make sim SIM='--seeds 1000 --first 7'`."""

import argparse
import logging
import sys

from sim.world import simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many (default 200)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--verbose", action="store_true", help="log what the controllers say")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO if options.verbose else logging.CRITICAL)
    failed = 0
    for number, seed in enumerate(range(options.first, options.first + options.seeds), 1):
        verdict = simulate(seed)
        for problem in verdict.problems:
            print(f"seed {seed}: {problem}")
        if verdict.problems:
            failed += 1
            print(f"seed {seed}: {verdict.story}")
        if sys.stderr.isatty():
            print(f"\r{number}/{options.seeds} seeds", end="", file=sys.stderr)
    print(f"{options.seeds - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
