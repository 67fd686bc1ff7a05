"""`run --resume` after a kill: no index runs twice at once, nor after it succeeded."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from onejob.cli.kept_runs import Run, RunJob, create_folder, new_run_id
from onejob.cli.manifests.job_from_command import CommandJob, job_document
from onejob.clock import SystemClock
from onejob.control_plane import ControlPlane, Settings
from onejob.planning.job.uncounted import with_uncounted
from tests.cli.command_line import CommandLine
from tests.e2e.serving import end_supervisors

if TYPE_CHECKING:
    import subprocess

#: Records its start, and succeeds once it may.
WORK = "echo begun >> ledger; while [ ! -e may-end ]; do sleep 0.05; done; echo ended >> ledger"
STUBBORN = f'trap "" TERM; {WORK}'


def wait_for(path: Path, text: str) -> None:
    give_up = time.monotonic() + 60
    while not path.exists() or text not in path.read_text():
        assert time.monotonic() < give_up, f"{path} has no {text!r}"
        time.sleep(0.02)


def kill_a_run(onejob: CommandLine, script: str, *options: str) -> None:
    run = onejob.start("run", "--name", "work", *options, "--", "sh", "-c", script)
    wait_for(onejob.home / "ledger", "begun")
    run.kill()
    run.communicate()


def start_resume(onejob: CommandLine, wanted: str = "work") -> "subprocess.Popen[str]":
    """Start a resume; return once it waits for the Pods of the killed run."""
    resume = onejob.start("run", "--resume", wanted)
    assert resume.stderr is not None
    line = resume.stderr.readline()
    assert "note: waiting for 1 Pod of run " in line, line + resume.stderr.read()
    return resume


def test_resume_runs_nothing_again_when_the_old_process_succeeds_after_the_kill(
    onejob: CommandLine,
) -> None:
    kill_a_run(onejob, STUBBORN)
    resume = start_resume(onejob)
    (onejob.home / "may-end").touch()
    output, errors = resume.communicate(timeout=60)
    assert resume.returncode == 0, output + errors
    assert "has already succeeded" in output
    assert (onejob.home / "ledger").read_text() == "begun\nended\n"
    assert "Succeeded" in onejob.run("results", "work").stdout
    assert onejob.run("runs").stdout.split()[-2:] == ["Complete", "0"]
    assert "Complete" in onejob.run("get", "jobs").stdout


def test_resume_reruns_indexes_ended_by_kill(onejob: CommandLine) -> None:
    kill_a_run(onejob, WORK)
    (onejob.home / "may-end").touch()
    done = onejob.run("run", "--resume", "work")
    assert done.returncode == 0, done.stderr
    lines = (onejob.home / "ledger").read_text().split()
    assert lines.count("begun") == 2


def test_resume_is_refused_while_another_process_resumes_the_run(onejob: CommandLine) -> None:
    kill_a_run(onejob, STUBBORN)
    resume = start_resume(onejob)
    second = onejob.run("run", "--resume", "work")
    assert (second.returncode, second.stdout) == (2, "")
    assert "is being resumed by another process" in second.stderr
    (onejob.home / "may-end").touch()
    resume.communicate(timeout=60)


def test_delete_is_refused_while_pods_of_the_run_are_being_stopped(onejob: CommandLine) -> None:
    kill_a_run(onejob, STUBBORN)
    (folder,) = (onejob.data_dir / "runs").iterdir()
    try:
        done = onejob.run("delete", f"run/{folder.name}")
        assert done.returncode == 2
        assert f"Pods of run {folder.name} are being stopped" in done.stderr
        assert (folder / "run.json").exists()
    finally:
        (onejob.home / "may-end").touch()
        end_supervisors(onejob.data_dir)


def test_resume_of_a_run_that_was_resumed_goes_on_with_the_last_one(onejob: CommandLine) -> None:
    script = "echo begun >> ledger; [ -e may-end ]"
    first = onejob.run("run", "--name", "work", "--", "sh", "-c", script)
    assert first.returncode == 1
    (folder,) = (onejob.data_dir / "runs").iterdir()
    (onejob.home / "may-end").touch()
    assert onejob.run("run", "--resume", folder.name).returncode == 0
    again = onejob.run("run", "--resume", folder.name)
    assert (again.returncode, again.stderr) == (0, "")
    assert "has already succeeded" in again.stdout
    assert (onejob.home / "ledger").read_text() == "begun\nbegun\n"


def test_resume_creates_priority_classes_and_namespaces_of_the_run(onejob: CommandLine) -> None:
    (onejob.home / "job.yaml").write_text("""
apiVersion: v1
kind: Namespace
metadata: {name: team, labels: {team: a}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent}
value: 1000
---
apiVersion: batch/v1
kind: Job
metadata: {name: work, namespace: team}
spec:
  backoffLimit: 0
  template:
    spec:
      priorityClassName: urgent
      restartPolicy: Never
      containers: [{name: main, image: busybox, command: [sh, -c, "test -e may-succeed"]}]
""")
    assert onejob.run("run", "job.yaml").returncode == 1
    (onejob.home / "may-succeed").touch()
    resumed = onejob.run("run", "--timeout", "60s", "--resume", "work")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    shown = onejob.run("get", "namespace/team", "-o", "yaml").stdout
    assert "team: a" in shown


async def test_resume_of_a_run_killed_before_its_jobs_existed_creates_them(
    onejob: CommandLine,
) -> None:
    onejob.data_dir.mkdir(mode=0o700, parents=True)
    now = SystemClock().now()
    folder = create_folder(onejob.data_dir / "runs" / new_run_id(now, "aaaa"))
    job = job_document(CommandJob(("sh", "-c", "echo begun >> ledger"), name="work"), {})
    job["metadata"]["namespace"] = "default"
    plane = await ControlPlane.start(Settings(folder.path))
    await plane.stop()
    folder.keep_plan([job])
    folder.record(Run(folder.path.name, now, (RunJob("default", "work"),)))
    folder.release()
    refused = onejob.run("run", "--resume", "work", "--set", "a=b")
    assert refused.returncode == 2
    assert "--set cannot change run" in refused.stderr
    done = onejob.run("run", "--resume", "work")
    assert done.returncode == 0, done.stderr
    assert (onejob.home / "ledger").read_text() == "begun\n"


# --- uncounted results of a killed run


def a_job(mode: str, **status: Any) -> dict[str, Any]:
    spec = {"completions": 4, "completionMode": mode}
    return {"metadata": {"uid": "j"}, "spec": spec, "status": status}


def a_pod(
    uid: str, index: int, phase: str, *, tracked: bool = True, owner: str = "j"
) -> dict[str, Any]:
    return {
        "metadata": {
            "uid": uid,
            "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
            "ownerReferences": [{"uid": owner, "controller": True}],
            "finalizers": ["batch.kubernetes.io/job-tracking"] if tracked else [],
        },
        "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("pod", "codes", "counted"),
    [
        (a_pod("p", 2, "Succeeded"), {}, True),
        (a_pod("p", 2, "Running"), {"a": 0, "b": 0}, True),
        (a_pod("p", 2, "Pending"), {"a": 0, "b": 0}, True),
        (a_pod("p", 2, "Running"), {"a": 0}, False),
        (a_pod("p", 2, "Running"), {"a": 0, "b": 143}, False),
        (a_pod("p", 2, "Running"), {}, False),
        (a_pod("p", 2, "Failed"), {"a": 0, "b": 0}, False),
        (a_pod("p", 2, "Succeeded", tracked=False), {}, False),
        (a_pod("p", 2, "Succeeded", owner="other"), {}, False),
    ],
)
def test_with_uncounted_counts_a_pod_that_succeeded_once(
    pod: dict[str, Any], codes: dict[str, int], counted: bool
) -> None:
    indexed = with_uncounted(a_job("Indexed", completedIndexes="0"), [pod], {"p": codes})
    assert indexed["status"]["completedIndexes"] == ("0,2" if counted else "0")
    plain = with_uncounted(a_job("NonIndexed", succeeded=1), [pod], {"p": codes})
    assert plain["status"]["succeeded"] == 1 + counted


def test_with_uncounted_leaves_out_pods_whose_uid_the_status_lists() -> None:
    status = {"succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["p"]}}
    job = with_uncounted(a_job("NonIndexed", **status), [a_pod("p", 2, "Succeeded")], {})
    assert job["status"]["succeeded"] == 1
