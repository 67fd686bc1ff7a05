"""`make spark PYTHON_OF_SPARK`: run a pyspark application against `onejob serve`."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from tests.e2e.serving import a_server

_APPLICATION = Path(__file__).with_name("application.py")
_PATIENCE_SECONDS = 900.0


def main(python: str) -> int:
    if shutil.which("java") is None:
        _report("skipped: java is not on the PATH (apt-get install openjdk-17-jre-headless)")
        return 0
    with tempfile.TemporaryDirectory() as name, a_server(Path(name) / "data") as server:
        config = yaml.safe_load(server.kubeconfig.read_text())
        address = config["clusters"][0]["cluster"]["server"]
        done = subprocess.run(
            [python, str(_APPLICATION), name, address],
            env=server.environ(),
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
        if done.returncode:
            _report(f"failed:\n{server.kubectl('get', 'pods,events')}")
            pods = server.kubectl("get", "pods", "-o", "name").split()
            for pod in pods[:3]:
                _report(server.kubectl("logs", "--tail=30", pod))
        return done.returncode


def _report(text: str) -> None:
    print(f"spark: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
