"""Duration of whole commands from a cold start, as experienced at a shell."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from onejob.benchmarks.processes import onejob_command
from onejob.benchmarks.results import Measurement, percentile

_HELLO = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: hello
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: hello
        image: busybox
        command: [echo, hello]
"""


def onejob_run(*, turns: int) -> Measurement:
    with tempfile.TemporaryDirectory(prefix="onejob-bench-") as folder:
        manifest = Path(folder) / "hello.yaml"
        manifest.write_text(_HELLO)
        run = [*onejob_command(), "run", "--data-dir", f"{folder}/data"]
        return Measurement(
            {
                "seconds": _median_seconds([*run, str(manifest)], turns),
                "without YAML, seconds": _median_seconds([*run, "--", "echo", "hello"], turns),
            }
        )


def bare_python(*, turns: int) -> Measurement:
    return Measurement({"seconds": _median_seconds([sys.executable, "-c", ""], turns)})


def _median_seconds(command: Sequence[str], turns: int) -> float:
    taken: list[float] = []
    for _ in range(turns):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - start)
    return percentile(taken, 50)
