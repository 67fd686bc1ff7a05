"""The pytest plugin in a test session of its own, as its users run it."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

SESSION = '''
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: %s}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: busybox, command: [sh, -c, "%s"]}]
"""


def test_jobs_run(onejob_namespace):
    onejob_namespace.create(JOB % ("good", "echo hello"))
    onejob_namespace.create(JOB % ("bad", "exit 3"))
    assert onejob_namespace.wait_for_job("good") == "Complete"
    EXPECTATIONS


def test_namespaces_are_fresh(onejob_namespace, onejob_server):
    assert onejob_namespace.list("jobs") == []
    assert onejob_namespace.kubeconfig.exists()
    assert onejob_namespace.name in onejob_namespace.kubeconfig.read_text()
    assert onejob_server.url.startswith("https://127.0.0.1:")
'''

EXPECTATIONS = {
    "process": (
        'assert onejob_namespace.wait_for_job("bad") == "Failed"\n'
        '    assert onejob_namespace.logs("good") == "hello\\n"\n'
        '    assert onejob_namespace.get("job", "bad")["status"]["failed"] == 1'
    ),
    "simulated": 'assert onejob_namespace.wait_for_job("bad") == "Complete"',
}


FAILING = """
def test_a_job_is_expected_to_succeed(onejob_namespace):
    onejob_namespace.create(JOB % ("bad", "echo the disk is full; exit 3"))
    assert onejob_namespace.wait_for_job("bad") == "Complete"


def test_without_a_namespace():
    assert False
"""


def run_session(folder: Path, text: str, runtime: str) -> subprocess.CompletedProcess[str]:
    test = folder / "test_it.py"
    test.write_text(text)
    installed = any(entry.name == "onejob" for entry in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "onejob.pytest_plugin"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, f"--onejob-runtime={runtime}", str(test)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("runtime", EXPECTATIONS)
def test_a_session_gets_a_server_and_a_namespace_for_each_test(
    tmp_path: Path, runtime: str
) -> None:
    done = run_session(tmp_path, SESSION.replace("EXPECTATIONS", EXPECTATIONS[runtime]), runtime)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_a_failure_shows_why_and_the_logs(tmp_path: Path) -> None:
    job = SESSION[: SESSION.index("def test_")]
    done = run_session(tmp_path, job + FAILING, "process")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed" in done.stdout
    assert done.stdout.count("- onejob why job/bad -") == 1
    assert "job/bad is Failed" in done.stdout
    assert "container main exited with code 3 (Error)" in done.stdout
    assert "Logs:\nthe disk is full\n" in done.stdout
