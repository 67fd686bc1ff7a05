"""Reports of an outcome, for people and for programs."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest

from onejob.benchmarks.plot import cost_plot
from onejob.benchmarks.recording import append, as_line, this_occasion
from onejob.benchmarks.results import Goal, Measurement, Outcome, Peer
from onejob.cli.display.bench_report import render_outcome, render_targets
from onejob.cli.display.terminal import Terminal
from onejob.cli.main import run_command

NARROW = Terminal(interactive=False, colour=False, width=80)

OUTCOME = Outcome(
    scenario="processes",
    question="How long do they take?",
    sizes={"processes": 2_000},
    measured=Measurement({"seconds": 4.0, "peak RSS, MB": 40.5}),
    peers=(
        Peer("Kubernetes", Measurement({"seconds": 14.0}), elsewhere=True),
        Peer("xargs", Measurement({"seconds": 1.5})),
        Peer("GNU parallel", Measurement(skipped="not installed")),
    ),
    targets={"seconds": Goal("at most", 2, "xargs"), "peak RSS, MB": Goal("at most", 300)},
)


def test_a_table_shows_figures_targets_verdicts_and_peers() -> None:
    assert render_outcome(OUTCOME, NARROW) == [
        "processes  How long do they take?",
        "  FIGURE         ONEJOB   TARGET                 KUBERNETES*   XARGS",
        "  seconds        4        ≤ 2× xargs   NOT MET   14            1.5",
        "  peak RSS, MB   40.5     ≤ 300        met",
        "  GNU parallel: skipped, not installed",
        "  * measured elsewhere",
    ]


def test_a_table_fits_the_terminal() -> None:
    narrow = Terminal(interactive=True, colour=False, width=64)
    assert all(len(line) <= 64 for line in render_outcome(OUTCOME, narrow)[1:])


def test_targets_are_summed_up_honestly() -> None:
    *_, last = render_targets([OUTCOME], NARROW)
    assert last == "1 of 2 targets met"


def test_unmeasurable_scenario_reports_reason() -> None:
    broken = Outcome("giant", "?", {}, Measurement(), problem="no space left on device")
    assert render_outcome(broken, NARROW)[1] == "  cannot measure: no space left on device"
    assert render_targets([broken], NARROW) == []


def test_a_line_holds_the_occasion_and_the_outcome(tmp_path: Path) -> None:
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    file = tmp_path / "results" / "full.jsonl"
    occasion = this_occasion(at)
    for _ in range(2):
        append(file, as_line(OUTCOME, occasion))
    first, second = map(json.loads, file.read_text().splitlines())
    assert first == second
    assert first["at"] == "2026-01-01T12:00:00Z"
    assert first["scenario"] == "processes"
    assert first["measured"]["figures"]["seconds"] == 4.0
    assert first["met"] == {"seconds": False, "peak RSS, MB": True}
    assert re.fullmatch(r"([0-9a-f]{7,}\+?)?", first["commit"])
    assert first["machine"]["cores"] >= 1
    assert first["machine"]["memory_mb"] > 0


def test_the_plot_is_a_picture_of_the_curve() -> None:
    picture = ElementTree.fromstring(cost_plot([(100, 400.0), (1_000, 300.0), (10_000, 330.0)]))
    space = {"svg": "http://www.w3.org/2000/svg"}
    points = [
        (float(dot.attrib["cx"]), float(dot.attrib["cy"]))
        for dot in picture.findall("svg:circle", space)
    ]
    assert len(points) == 3
    assert points[1][0] - points[0][0] == pytest.approx(points[2][0] - points[1][0], abs=0.2)
    # The y axis of SVG points down.
    assert points[1][1] > points[2][1] > points[0][1]
    words = [text.text for text in picture.findall("svg:text", space)]
    assert {"330 µs", "10,000", "within 1.3×"} <= set(words)


def test_the_command_lists_its_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["bench", "--list", "giant", "latency"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["giant", "latency"]


def test_scenario_list_marks_simulated_node(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["bench", "--list", "giant", "processes"]) == 0
    giant, processes = capsys.readouterr().out.splitlines()
    assert "(simulated node)" in giant
    assert "simulated" not in processes


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nonsense"], "error: unknown scenario 'nonsense' (see onejob bench --list)\n"),
        (
            ["giant", "--plot", "x.svg"],
            "error: --plot requires the scenario `scaling` (add it)\n",
        ),
    ],
)
def test_the_command_complains_in_one_line(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["bench", *arguments]) == 2
    assert capsys.readouterr().err == complaint


def test_the_command_measures_keeps_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, plot = tmp_path / "kept.jsonl", tmp_path / "cost.svg"
    arguments = ["--quick", "--json", "--results", str(kept), "--plot", str(plot)]
    assert run_command(["bench", "scaling", *arguments]) == 0
    printed = capsys.readouterr()
    assert printed.out == kept.read_text()
    assert json.loads(printed.out)["quick"] is True
    assert printed.err == "[1/1] scaling\n"
    assert plot.read_text().startswith("<svg")
