"""Comparison with GNU parallel, `make sweep`: a thousand rows of which 5 % fail.

The failed ones are repeated, and the results exported as CSV. Prints the commands and the time that
each took. Then the peak memory of rows of several sizes is compared with `/usr/bin/time -v`.
"""

import argparse
import csv
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: Fails for each twentieth row until the file `mended` exists.
_WORK = """#!/bin/sh
if [ $(($1 % 20)) = 0 ] && [ ! -e mended ]; then exit 3; fi
echo $(($1 * $1)) > "${ONEJOB_RESULT:-/dev/stdout}"
"""


class Reader:
    """A user at a shell in an empty folder."""

    def __init__(self, folder: Path, rows: int, jobs: int) -> None:
        self.folder, self.rows, self.jobs = folder, rows, jobs
        self.seconds = 0.0
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
        }
        folder.mkdir()
        (folder / "rows.txt").write_text("".join(f"{n}\n" for n in range(rows)))
        work = folder / "work.sh"
        work.write_text(_WORK)
        work.chmod(0o755)

    def type(self, command: str, *, code: int = 0) -> None:
        began = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        taken = time.monotonic() - began
        self.seconds += taken
        print(f"  {taken:6.2f} s  {command}", flush=True)
        if done.returncode != code:
            raise SystemExit(f"ended with {done.returncode}, not {code}:\n{done.stderr[-2000:]}")

    def mend(self) -> None:
        (self.folder / "mended").touch()

    def check(self, results: list[int]) -> None:
        if results != [n * n for n in range(self.rows)]:
            raise SystemExit(f"wrong results: {len(results)} of {self.rows}")


def with_onejob(reader: Reader) -> None:
    options = f"--params rows.txt --name sweep --parallelism {reader.jobs} -o raw"
    reader.type(f"onejob run {options} -- ./work.sh {{}}", code=1)
    reader.mend()
    reader.type("onejob run --resume sweep -o raw")
    reader.type("onejob results sweep -o csv > results.csv")
    with (reader.folder / "results.csv").open() as file:
        reader.check([int(row["result"]) for row in csv.DictReader(file)])


def with_parallel(reader: Reader) -> None:
    options = f"--joblog log --results out -j {reader.jobs} -a rows.txt"
    failed = min(-(-reader.rows // 20), 101)
    reader.type(f"parallel --will-cite {options} ./work.sh {{}} > /dev/null", code=failed)
    reader.mend()
    reader.type(f"parallel --will-cite --resume-failed {options} ./work.sh {{}} > /dev/null")
    # GNU parallel's --results FILE.csv holds only the rows of one call, so files are concatenated.
    row = 'printf "%s,%s\\n" $n $(cat out/1/$n/stdout)'
    reader.type(f"for n in $(cat rows.txt); do {row}; done > results.csv")
    lines = (reader.folder / "results.csv").read_text().splitlines()
    reader.check([int(line.split(",")[1]) for line in lines])


#: Peak memory of a row, in MB.
_SIZES = (0, 1, 3, 10, 30, 100, 300)
_FILL = """#!/usr/bin/env python3
import sys, time
data = bytearray(int(sys.argv[1]) * 1000 * 1000)
data[::4096] = b"x" * len(data[::4096])
time.sleep(0.2)
"""
#: Largest deviation from `time -v`.
_TOLERANCE = 0.1


def compare_memory(reader: Reader) -> None:
    """Compare the peak memory of rows with what GNU time reports for the same commands."""
    time_program = shutil.which("time")
    if time_program is None:
        print("GNU time is not installed: memory is not compared (apt-get install time)")
        return
    fill = reader.folder / "fill.py"
    fill.write_text(_FILL)
    fill.chmod(0o755)
    (reader.folder / "sizes.txt").write_text("".join(f"{size}\n" for size in _SIZES))
    reader.type("onejob run --params sizes.txt --name fill -- ./fill.py {}")
    reader.type("onejob results fill -o csv > fill.csv")
    with (reader.folder / "fill.csv").open() as file:
        found = {int(row["line"]): int(row["peak_memory_bytes"]) for row in csv.DictReader(file)}
    print("     MB   onejob KiB   time -v KiB")
    for size in _SIZES:
        timed = subprocess.run(
            [time_program, "-f", "%M", str(fill), str(size)],
            env=reader.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        kib, expected = found[size] // 1024, int(timed.stderr)
        print(f"  {size:5} {kib:12} {expected:13}")
        if abs(kib - expected) > _TOLERANCE * expected:
            raise SystemExit(f"the peak memory of {size} MB deviates by more than 10 %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at once")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    peers = {"onejob": with_onejob, "GNU parallel": with_parallel}
    if shutil.which("parallel") is None:
        print("GNU parallel is not installed: skipped (apt-get install parallel)")
        del peers["GNU parallel"]
    times: dict[str, list[float]] = {name: [] for name in peers}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            for name, sweep in peers.items():
                place = Path(folder) / f"{name.replace(' ', '-')}-{number}"
                reader = Reader(place, options.rows, options.jobs)
                print(f"{name}, {options.rows} rows, {options.jobs} at once:")
                sweep(reader)
                times[name].append(reader.seconds)
        compare_memory(Reader(Path(folder) / "memory", 0, options.jobs))
    for name, found in times.items():
        shown = ", ".join(f"{seconds:.1f}" for seconds in sorted(found))
        print(f"{name}: {shown} s in all")


if __name__ == "__main__":
    main()
