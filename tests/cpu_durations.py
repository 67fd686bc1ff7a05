"""Pytest plugin `--cpu-durations FILE`: CPU and waiting seconds of each test, a JSON line each.

Wall-clock time depends on what else the machine does; CPU time hardly does. CPU time is that of the
process that runs the test and of the children it has waited for, so a child that outlives its test
counts for a later one. `python -m tests.cpu_durations FILE` prints the sums by file and test.
"""

import json
import os
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest


def _cpu() -> float:
    own, children = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


class _Recorder:
    def __init__(self, path: Path) -> None:
        # Workers append to the same file; each line is one write.
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._last = (0.0, time.perf_counter())

    def _record(self, name: str) -> None:
        cpu, now = _cpu(), time.perf_counter()
        last_cpu, last = self._last
        self._last = (cpu, now)
        used, wall = cpu - last_cpu, now - last
        line = {"test": name, "cpu": round(used, 3), "wall": round(wall, 3)}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def pytest_collection_finish(self) -> None:
        self._record("(imports and collection)")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._record("(between tests)")
        try:
            return (yield)
        finally:
            self._record(item.nodeid)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-durations", metavar="FILE", help="append CPU seconds of each test to FILE"
    )


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--cpu-durations")
    runs_tests = hasattr(config, "workerinput") or not config.getoption("numprocesses", None)
    if path and runs_tests:
        config.pluginmanager.register(_Recorder(Path(config.rootpath, path)))


def _print_sums(title: str, sums: dict[str, list[float]], limit: int) -> None:
    print(f"{title}: CPU s, waiting s, tests")
    for name, (cpu, waiting, tests) in sorted(sums.items(), key=lambda row: -row[1][0])[:limit]:
        print(f"{cpu:9.2f} {waiting:9.2f} {tests:6.0f}  {name}")


def _main() -> None:
    by_test: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    by_file: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    total = [0.0, 0.0, 0.0]
    for text in Path(sys.argv[1]).read_text().splitlines():
        line = json.loads(text)
        row = (line["cpu"], max(0.0, line["wall"] - line["cpu"]), 1.0)
        for sums in (by_test[line["test"]], by_file[line["test"].partition("::")[0]], total):
            for number, value in enumerate(row):
                sums[number] += value
    _print_sums("all", {"all": total}, 1)
    _print_sums("by file", by_file, 60)
    _print_sums("by test", by_test, 100)


if __name__ == "__main__":
    _main()
