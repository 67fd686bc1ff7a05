"""Three days of work, each step as a new user types it: a data scientist, a platform engineer with
kubectl, and a CI engineer without root. `make nightly` runs the full sizes."""

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from tests.cli.command_line import EXAMPLES, ROOT, CommandLine
from tests.e2e.serving import KUBECTL, end_supervisors, needs_kubectl
from tests.node.as_nobody import NOBODY, become_nobody, open_the_way

_TRAIN = """\
import json, os, sys
seed = int(sys.argv[1])
with open("ledger", "a") as ledger:
    ledger.write(f"{seed}\\n")
if seed % 5 == 0 and not os.path.exists("fixed"):
    sys.exit(f"seed {seed} diverged")
if seed == 7 and not os.path.exists("go"):
    open("reached", "w").close()
    import time
    time.sleep(600)
data = b"x" * (40 << 20)
with open(os.environ["ONEJOB_RESULT"], "w") as result:
    json.dump({"loss": seed / 10, "size": len(data)}, result)
"""


def _is_there(path: Path) -> None:
    give_up = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < give_up, f"{path} did not appear"
        time.sleep(0.02)


@pytest.mark.parametrize("tasks", [12, pytest.param(200, marks=pytest.mark.nightly)])
def test_data_scientist_sweeps_is_killed_resumes_and_exports(
    onejob: CommandLine, tasks: int
) -> None:
    home = onejob.home
    (home / "train.py").write_text(_TRAIN)
    (home / "grid.csv").write_text("seed\n" + "".join(f"{n}\n" for n in range(tasks)))
    words = ("run", "--params", "grid.csv", "--parallelism", "2", "--", "python3", "train.py")
    run = onejob.start(*words, "{seed}")
    _is_there(home / "reached")
    run.send_signal(signal.SIGKILL)
    run.communicate()
    assert "run --resume" in onejob.run("why", "train").stdout
    (home / "go").touch()
    failed = onejob.run("run", "--resume", "train", timeout=600)
    assert failed.returncode == 1, failed.stdout
    assert "Next: onejob results train --failed, onejob run --resume train" in failed.stdout
    assert "(index 10: seed=10)" in failed.stdout
    listed = onejob.run("results", "train", "--failed", "-o", "json").stdout
    assert [row["index"] for row in json.loads(listed)] == list(range(0, tasks, 5))
    assert "seed 5 diverged" in onejob.run("logs", "train", "--index", "5").stdout
    (home / "fixed").touch()
    assert onejob.run("run", "--resume", "train", timeout=600).returncode == 0
    rows = list(csv.DictReader(io.StringIO(onejob.run("results", "train", "-o", "csv").stdout)))
    assert [(row["index"], row["seed"]) for row in rows] == [(f"{n}",) * 2 for n in range(tasks)]
    assert [float(row["loss"]) for row in rows] == [n / 10 for n in range(tasks)]
    assert all(int(row["peak_memory_bytes"]) > 40 << 20 for row in rows)
    # Every seed succeeded once: repeated are those that failed, and those that were killed.
    ledger = (home / "ledger").read_text().split()
    assert sorted(set(map(int, ledger))) == list(range(tasks))
    assert len(ledger) <= tasks + 2 * len(range(0, tasks, 5)) + 2


@needs_kubectl
def test_platform_engineer_manages_manifests_with_kubectl(served: CommandLine) -> None:
    kubeconfig = str(served.data_dir / "kubeconfig")

    def kubectl(*words: str) -> str:
        assert KUBECTL is not None
        command = [KUBECTL, "--kubeconfig", kubeconfig, *words]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=90, check=False, cwd=served.home
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    manifests = sorted(EXAMPLES.glob("*.yaml"))
    assert len(manifests) >= 12
    assert served.run("validate", str(EXAMPLES)).returncode == 0
    for manifest in manifests:
        kubectl("apply", "-f", str(manifest))
    names = kubectl("get", "jobs,cronjobs", "-A", "-o", "name").split()
    assert len(names) >= 12
    kubectl("wait", "--for=condition=complete", "job/hello", "--timeout=60s")
    assert kubectl("logs", "job/hello")
    assert "is Complete" in served.run("why", "job/hello").stdout
    assert "Peak Memory" in served.run("describe", "pod", *_pod_of(kubectl("get", "pods"))).stdout
    for manifest in manifests:
        kubectl("delete", "--ignore-not-found", "-f", str(manifest), "--timeout=60s")
    assert "hello" not in served.run("get", "jobs", "-A").stdout


def _pod_of(table: str) -> list[str]:
    return [line.split()[0] for line in table.splitlines() if line.startswith("hello-")][:1]


@pytest.fixture
def ci() -> Iterator[CommandLine]:
    """Yield the command line of a user without root, if that is possible here."""
    home = Path(tempfile.mkdtemp(prefix="onejob-ci-"))
    if os.geteuid() == 0:
        os.chown(home, NOBODY, NOBODY)
    try:
        yield CommandLine(home)
    finally:
        end_supervisors(home)
        shutil.rmtree(home, ignore_errors=True)


def _unprivileged(onejob: CommandLine, *words: str) -> "subprocess.CompletedProcess[str]":
    summary = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(onejob.home / "summary.md")}
    return subprocess.run(
        onejob.arguments(*words),
        capture_output=True,
        text=True,
        timeout=60,
        env={**onejob.environment, **summary},
        cwd=onejob.home,
        check=False,
        preexec_fn=_become_nobody if os.geteuid() == 0 else None,
    )


def _become_nobody() -> None:
    open_the_way([Path(sys.base_prefix), Path(sys.prefix), ROOT])
    become_nobody()


def test_ci_engineer_gets_reports_and_a_time_out_without_root(ci: CommandLine) -> None:
    (ci.home / "jobs.yaml").write_text(
        "\n---\n".join(
            (EXAMPLES / f"{name}.yaml").read_text() for name in ("hello", "success-policy")
        )
    )
    assert _unprivileged(ci, "validate", "jobs.yaml").returncode == 0
    done = _unprivileged(ci, "run", "--junit", "report.xml", "jobs.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    suites = list(Xml.parse(ci.home / "report.xml").getroot())
    assert len(suites) == 2
    assert all(float(suite.get("time", "")) > 0 for suite in suites)
    assert (ci.home / "summary.md").read_text().count("✅ Complete") == 2
    late = _unprivileged(ci, "run", "--timeout", "1s", "--", "sleep", "300")
    assert late.returncode == 124
    assert "### onejob run: TimedOut" in (ci.home / "summary.md").read_text()
