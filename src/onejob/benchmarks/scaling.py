"""Scaling: CPU cost per Pod of a large Job compared with a small one."""

from statistics import median

from onejob.benchmarks.results import Cost, Measurement
from onejob.benchmarks.subprocesses import run_probe

_PROBE = "control_plane:one_job"


def cost_against_size(*, smallest: int, largest: int, parallelism: int, rounds: int) -> Measurement:
    """Measure the cost per Pod at sizes growing tenfold, each in its own process.

    Each round takes all sizes, so that a temporarily slower machine is slower for all of them; the
    result is the median of the rounds.
    """
    sizes = [smallest]
    while sizes[-1] * 10 <= largest:
        sizes.append(sizes[-1] * 10)
    costs: dict[int, list[Cost]] = {size: [] for size in sizes}
    nodes: set[str] = set()
    for _ in range(rounds):
        for size in sizes:
            measured = run_probe(_PROBE, {"completions": size, "parallelism": parallelism})
            assert measured.cost is not None
            costs[size].append(measured.cost)
            nodes.update(measured.nodes)
    curve = [(size, median(cost.cpu_us_per_pod for cost in costs[size])) for size in sizes]
    figures = {f"CPU per pod of {size:,}, µs": cost for size, cost in curve}
    # Relative to the cheapest: the smallest size includes the fixed cost of a process.
    figures["growth of cost, ×"] = curve[-1][1] / min(cost for _, cost in curve[:-1])
    peak_rss_mb = max(cost.peak_rss_mb for cost in costs[sizes[-1]])
    figures[f"peak RSS of {sizes[-1]:,}, MB"] = peak_rss_mb
    return Measurement(figures, curve=tuple(curve), nodes=tuple(nodes))
