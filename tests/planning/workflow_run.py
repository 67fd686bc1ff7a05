"""All small graphs and many random ones against the oracle: `make workflow-oracle`.

python -m tests.planning.workflow_run [--part N/M] [--random COUNT] [--first-random SEED]
"""

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from random import Random

from tests.planning.workflow_cases import all_graphs, check_graph, disagreement, random_case

_RANDOM_BATCH = 1000


def _random_batch(seed: int) -> int:
    rng = Random(seed)
    for _ in range(_RANDOM_BATCH):
        problem = disagreement(random_case(rng))
        assert not problem, problem
    return _RANDOM_BATCH


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", default="1/1", help="every Mth graph, beginning with the Nth")
    parser.add_argument("--random", type=int, default=100_000, help="number of random cases")
    parser.add_argument("--first-random", type=int, default=0, help="seed of the first 1,000 cases")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    first, _, step = options.part.partition("/")
    graphs = list(islice(all_graphs(), int(first) - 1, None, int(step)))
    with ProcessPoolExecutor(options.workers) as pool:
        begun = time.perf_counter()
        cases = sum(pool.map(check_graph, graphs, chunksize=50))
        seconds = time.perf_counter() - begun
        print(f"{len(graphs):,} graphs, {cases:,} cases: all agree, {seconds:.0f} s", flush=True)
        begun = time.perf_counter()
        seeds = range(options.first_random, options.first_random + options.random // _RANDOM_BATCH)
        cases = sum(pool.map(_random_batch, seeds))
        seconds = time.perf_counter() - begun
        print(f"{cases:,} random cases: all agree, {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
