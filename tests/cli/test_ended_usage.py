"""Measured usage of ended containers: peak memory, CPU time and duration."""

import json

from tests.cli.command_line import CommandLine

#: Uses as many MB as its argument says, and prints its own peak in KiB, as `time -v` does.
_PROGRAM = """\
import resource, sys
data = bytearray(int(sys.argv[1]) * 1000 * 1000)
data[::4096] = b"x" * len(data[::4096])
sum(range(3_000_000))
usage = resource.getrusage(resource.RUSAGE_SELF)
print(usage.ru_maxrss, usage.ru_utime + usage.ru_stime)
"""


def test_results_measure_memory_and_time_of_each_row(onejob: CommandLine) -> None:
    (onejob.home / "fill.py").write_text(_PROGRAM)
    words = ("--param", "mb=30,120", "--output-dir", "logs", "-o", "json")
    done = onejob.run("run", *words, "--", "python3", "fill.py", "{mb}")
    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout)["jobs"][0]
    found = json.loads(onejob.run("results", "fill", "-o", "json").stdout)
    for row in found:
        said = (onejob.home / "logs" / f"{row['pod']}.log").read_text().split()
        peak_kib, cpu_seconds = int(said[0]), float(said[1])
        assert abs(row["peakMemoryBytes"] / 1024 - peak_kib) <= 0.1 * peak_kib
        # It used some more to print that and to end.
        assert cpu_seconds - 0.02 <= row["cpuSeconds"] <= 2 * cpu_seconds + 1
        assert row["seconds"] > 0
        assert row["seconds"] != int(row["seconds"])
    assert job["peakMemoryBytes"] == max(row["peakMemoryBytes"] for row in found)
    described = onejob.run("describe", "pod", found[0]["pod"]).stdout
    assert "Peak Memory:" in described
    assert "CPU Time:" in described


def test_top_shows_the_pods_of_a_run_under_way(onejob: CommandLine) -> None:
    assert onejob.run("run", "--detach", "--name", "lasts", "--", "sleep", "300").returncode == 0
    try:
        while not json.loads(onejob.run("top", "-o", "json").stdout)["pods"][0].get("usage"):
            pass
        shown = onejob.run("top", "--once", "--run", "lasts").stdout
        assert "default/lasts " in shown
        assert "Running" in shown
    finally:
        assert onejob.run("stop", "lasts", "--now").returncode == 0
    assert "no run is under way" in onejob.run("top", "--once", "--runs").stdout
