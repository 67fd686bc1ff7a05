"""Comparison with GNU parallel, `make sweep`: a thousand rows of which 5 % fail.

The failed ones are repeated, and the results exported as CSV. Prints the commands and the time that
each took.
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
        folder.mkdir()
        (folder / "rows.txt").write_text("".join(f"{n}\n" for n in range(rows)))
        work = folder / "work.sh"
        work.write_text(_WORK)
        work.chmod(0o755)

    def type(self, command: str, *, code: int = 0) -> None:
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
        }
        began = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=environment,
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
    for name, found in times.items():
        shown = ", ".join(f"{seconds:.1f}" for seconds in sorted(found))
        print(f"{name}: {shown} s in all")


if __name__ == "__main__":
    main()
