"""`make fabric8`: build our program with Maven and run it against `onejob serve`."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.e2e.serving import a_server

_FOLDER = Path(__file__).resolve().parent
_BUILD = _FOLDER.parents[2] / ".run" / "fabric8"
#: With Vert.x as its HTTP client, and with OkHttp. Spark 4 and Jenkins use these lines.
_VERSIONS = ("7.4.0", "6.13.4")
_PATIENCE_SECONDS = 900.0


def main(versions: tuple[str, ...]) -> int:
    missing = [name for name in ("java", "mvn") if shutil.which(name) is None]
    if missing:
        _report(f"skipped: {' and '.join(missing)} not on the PATH (apt-get install maven)")
        return 0
    return max(_check(version) for version in versions)


def _check(version: str) -> int:
    _report(f"building with kubernetes-client {version}")
    build = _BUILD / version
    subprocess.run(
        [
            *("mvn", "-q", "-B", f"-Dfabric8.version={version}", f"-Dbuild.folder={build}"),
            *("compile", "dependency:copy-dependencies", f"-DoutputDirectory={build / 'jars'}"),
        ],
        cwd=_FOLDER,
        check=True,
    )
    with tempfile.TemporaryDirectory() as folder, a_server(Path(folder)) as server:
        done = subprocess.run(
            [
                *("java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"),
                *("-cp", f"{build / 'classes'}:{build / 'jars'}/*", "dev.onejob.Fabric8Check"),
            ],
            env={**os.environ, "KUBECONFIG": str(server.kubeconfig)},
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
        if done.returncode:
            _report(f"failed; the end of the server's log:\n{server.log[-2000:]}")
        return done.returncode


def _report(text: str) -> None:
    print(f"fabric8: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(tuple(sys.argv[1:]) or _VERSIONS))
