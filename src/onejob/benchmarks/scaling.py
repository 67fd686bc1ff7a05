"""Does a Pod cost the same in a large Job as in a small one?"""

from onejob.benchmarks.results import Measurement
from onejob.benchmarks.subprocesses import run_probe

_PROBE = "control_plane:one_job"


def cost_against_size(*, smallest: int, largest: int, parallelism: int) -> Measurement:
    """Sizes grow tenfold, each in a process of its own."""
    curve: list[tuple[int, float]] = []
    rss: list[float] = []
    size = smallest
    while size <= largest:
        measured = run_probe(_PROBE, {"completions": size, "parallelism": parallelism})
        assert measured.cost is not None
        curve.append((size, measured.cost.cpu_us_per_pod))
        rss.append(measured.cost.peak_rss_mb)
        size *= 10
    costs = [cost for _, cost in curve]
    figures = {f"CPU per pod of {size:,}, µs": cost for size, cost in curve}
    # Against the cheapest: the smallest carries what is paid once per process.
    figures["growth of cost, ×"] = costs[-1] / min(costs[:-1])
    figures[f"peak RSS of {curve[-1][0]:,}, MB"] = rss[-1]
    return Measurement(figures, curve=tuple(curve))
