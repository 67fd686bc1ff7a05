"""`onejob bench`: benchmarks on this machine, compared with peers and hardware limits."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onejob.cli.errors import EXIT_FAILED, EXIT_OK, CommandError

if TYPE_CHECKING:
    from onejob.benchmarks.catalogue import Scenario
    from onejob.benchmarks.comparing.trees import Tree
    from onejob.benchmarks.results import Outcome

_EPILOG = """\b
Examples:
  onejob bench                           # all scenarios, takes minutes
  onejob bench --quick                   # all scenarios, small sizes
  onejob bench giant processes           # two scenarios
  onejob bench --results results.jsonl   # append the results
  onejob bench scaling --plot cost.svg   # plot cost over size
  onejob bench --against main giant      # compare with another revision"""


@click.command(epilog=_EPILOG, short_help="Run benchmarks, compared with peers and limits")
@click.argument("names", nargs=-1, metavar="[SCENARIO]...")
@click.option("--list", "list_only", is_flag=True, help="List the scenarios.")
@click.option("--quick", is_flag=True, help="Use small sizes, as a functional test.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line per scenario.")
@click.option(
    "--results", type=click.Path(path_type=Path), metavar="FILE", help="Append JSON lines to FILE."
)
@click.option(
    "--plot", type=click.Path(path_type=Path), metavar="FILE", help="Plot `scaling` as SVG."
)
@click.option(
    "--against",
    metavar="REVISION",
    help="Also measure another revision of this checkout, alternating, and compare.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Number of rounds per revision, with --against.",
)
@click.option(
    "--instructions",
    is_flag=True,
    help="Also count instructions per Pod, with --against; takes minutes with valgrind.",
)
def command(
    names: tuple[str, ...],
    list_only: bool,
    quick: bool,
    as_json: bool,
    results: Path | None,
    plot: Path | None,
    against: str | None,
    rounds: int,
    instructions: bool,
) -> int:
    """Run benchmarks of onejob and, in the same session, of comparable programs.

    Each scenario runs in its own processes; the machine should be otherwise idle. Targets are for a
    machine with two cores. The benchmarks are part of a checkout, not of the installed package.
    """
    _require_benchmarks()
    from onejob.cli.display.terminal import terminal_of

    terminal = terminal_of()
    scenarios = _chosen(names)
    if list_only:
        from onejob.cli.display.tables import render_table

        rows = [[scenario.name, scenario.title] for scenario in scenarios]
        print("\n".join(render_table((), rows, terminal.width)))
        return EXIT_OK
    if against is not None:
        if results is not None or plot is not None:
            raise CommandError(
                "--against cannot be combined with --results or --plot", "remove them"
            )
        return _compare(scenarios, against, rounds, quick, instructions, as_json)
    if plot is not None and not any(scenario.name == "scaling" for scenario in scenarios):
        raise CommandError("--plot requires the scenario `scaling`", "add it")

    from onejob.benchmarks.recording import append, as_line, this_occasion
    from onejob.benchmarks.running import measure
    from onejob.cli.display.bench_report import render_outcome, render_targets
    from onejob.clock import SystemClock

    occasion = this_occasion(SystemClock().now())
    progress = _Progress(len(scenarios))
    outcomes: list[Outcome] = []
    for scenario in scenarios:
        progress.begin()
        outcome = measure(scenario, quick=quick, progress=progress.show)
        progress.clear()
        outcomes.append(outcome)
        line = as_line(outcome, occasion)
        if results is not None:
            append(results, line)
        text = line.decode() if as_json else "\n".join(render_outcome(outcome, terminal)) + "\n\n"
        print(text, end="", flush=True)
        if plot is not None and outcome.measured.curve:
            from onejob.benchmarks.plot import cost_plot

            plot.write_text(cost_plot(outcome.measured.curve))
    if not as_json:
        print("\n".join(render_targets(outcomes, terminal)))
    return EXIT_FAILED if any(outcome.problem for outcome in outcomes) else EXIT_OK


def _require_benchmarks() -> None:
    from importlib.util import find_spec

    if find_spec("onejob.benchmarks") is None:
        raise CommandError(
            "the benchmarks are not in the installed package",
            "run make bench in a checkout, or install one: pip install --editable CHECKOUT",
        )


def _compare(
    scenarios: "tuple[Scenario, ...]",
    revision: str,
    rounds: int,
    quick: bool,
    instructions: bool,
    as_json: bool,
) -> int:
    """Measure both revisions, print the comparison, and return the exit code."""
    import msgspec

    from onejob.benchmarks.comparing.rounds import compare, run_rounds
    from onejob.benchmarks.comparing.trees import NoSuchTree, both_trees
    from onejob.benchmarks.subprocesses import ProbeFailed
    from onejob.cli.display.bench_report import render_comparison
    from onejob.cli.display.terminal import terminal_of

    progress = _Progress(len(scenarios))
    failed = False
    try:
        with both_trees(revision) as (other, this):
            for scenario in scenarios:
                progress.begin()
                try:
                    found = run_rounds(
                        scenario, other, this, rounds=rounds, quick=quick, progress=progress.show
                    )
                except ProbeFailed as failure:
                    failed = True
                    progress.clear()
                    print(f"{scenario.name}: cannot measure: {failure}")
                    continue
                progress.clear()
                compared = compare(found)
                if as_json:
                    line = {"scenario": scenario.name, "against": other.name, "rounds": found}
                    print(msgspec.json.encode(line | {"compared": compared}).decode())
                else:
                    title = f"{scenario.name}  {scenario.title}"
                    shown = render_comparison(title, other.name, compared, terminal_of())
                    print("\n".join(shown) + "\n", flush=True)
            if instructions:
                print(_instructions(other, this, progress))
    except NoSuchTree as error:
        raise CommandError(
            f"cannot compare with {revision!r}: {error}",
            "specify a commit, in a checkout of onejob",
        ) from error
    return EXIT_FAILED if failed else EXIT_OK


def _instructions(other: "Tree", this: "Tree", progress: "_Progress") -> str:
    """Count the instructions per Pod of both trees, showing progress; return the line to print."""
    from onejob.benchmarks.comparing.instructions import find_counter, per_pod

    counter = find_counter()
    if counter is None:
        return (
            "instructions per Pod: not counted (perf does not support this processor, and "
            "valgrind is not installed)"
        )
    counted = []
    for tree in (other, this):
        progress.show(f"instructions of {tree.name}, by {counter.name}", 0.0)
        counted.append(per_pod(tree, counter))
    progress.clear()
    before, now = counted
    return (
        f"instructions per Pod, by {counter.name}: {before:,.0f} at {other.name}, "
        f"{now:,.0f} now: {now / before:.2f}"
    )


def _chosen(names: tuple[str, ...]) -> "tuple[Scenario, ...]":
    """Return the scenarios with these names, all if there are none. Raises CommandError."""
    from onejob.benchmarks.catalogue import SCENARIOS, find

    for name in names:
        if find(name) is None:
            raise CommandError(f"unknown scenario {name!r}", "see onejob bench --list")
    return tuple(scenario for scenario in SCENARIOS if not names or scenario.name in names)


class _Progress:
    """Progress on stderr: one line rewritten on a terminal, one line per measurement elsewhere."""

    def __init__(self, total: int) -> None:
        from onejob.cli.display.terminal import terminal_of

        self._terminal = terminal_of(sys.stderr)
        self._total = total
        self._number = 0

    def begin(self) -> None:
        """Count the next scenario, whose number all following lines show."""
        self._number += 1

    def show(self, what: str, seconds: float) -> None:
        """Print the current measurement; without a terminal only once, at 0 seconds."""
        text = f"[{self._number}/{self._total}] {what}"
        if self._terminal.interactive:
            print(f"\r\x1b[K{text} {seconds:.0f} s", end="", file=sys.stderr, flush=True)
        elif not seconds:
            print(text, file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Erase the progress line of a terminal."""
        if self._terminal.interactive:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
