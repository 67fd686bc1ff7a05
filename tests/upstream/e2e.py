"""`make upstream-e2e`: Kubernetes' own end-to-end specs against `onejob serve`.

`--focus REGEX` chooses specs by their names; by default all 44 of Job, CronJob and TTL, which take
about 25 minutes one after the other. The suite's images are not pulled: busybox and pause run as
the process runtime has them, and `--image-map IMAGE=COMMAND` names a stand-in for any other.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.e2e.serving import a_server
from tests.upstream.building import E2E, CannotBuild, build

_FOCUS = r"\[sig-apps\] (Job|CronJob|TTLAfterFinished) "
_SKIP = r"\[Feature:OffByDefault\]"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--focus", default=_FOCUS)
    parser.add_argument("--skip", default=_SKIP)
    parser.add_argument("--image-map", action="append", default=[], metavar="IMAGE=COMMAND")
    options = parser.parse_args()
    try:
        program = build([E2E], _say) / E2E.name
    except CannotBuild as error:
        _say(f"skipped: {error}")
        return 0 if "not installed" in str(error) else 1
    with tempfile.TemporaryDirectory(prefix="upstream-e2e-") as place:
        mapped = [word for item in options.image_map for word in ("--image-map", item)]
        with a_server(Path(place) / "onejob", *mapped) as server:
            done = subprocess.run(
                [
                    program,
                    f"--kubeconfig={server.kubeconfig}",
                    "--provider=skeleton",
                    "--kube-api-content-type=application/json",
                    "--num-nodes=1",
                    "--minStartupPods=0",
                    "--dump-logs-on-failure=false",
                    "--disable-log-dump=true",
                    "--ginkgo.no-color",
                    "--ginkgo.timeout=3h",
                    f"--ginkgo.focus={options.focus or _FOCUS}",
                    f"--ginkgo.skip={options.skip}",
                ],
                cwd=place,
                check=False,
            )
    return done.returncode


def _say(text: str) -> None:
    print(f"upstream-e2e: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
