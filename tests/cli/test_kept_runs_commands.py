"""Selecting, listing and deleting kept runs on the command line."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from onejob.cli.kept_runs import Run, RunJob, create_folder, new_run_id
from onejob.cli.reports.listing import Rows
from onejob.objects.meta import PODS
from onejob.wire.kinds import BY_RESOURCE
from tests.cli.build import NOON
from tests.cli.command_line import CommandLine, QuickCommandLine, job_yaml


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[QuickCommandLine, list[str]]:
    """Run the same Job twice, first failing; return the command line and the ids, oldest first."""
    onejob = QuickCommandLine(tmp_path_factory.mktemp("home"))
    (onejob.home / "bad.yaml").write_text(
        job_yaml("pi", "echo first; exit 3", spec="backoffLimit: 0")
    )
    (onejob.home / "good.yaml").write_text(job_yaml("pi", "echo second"))
    assert onejob.run("run", "-q", "-f", "bad.yaml").returncode == 1
    assert onejob.run("run", "-q", "--filename", "good.yaml").returncode == 0
    listed = onejob.run("runs", "-o", "name").stdout.split()
    return onejob, [name.removeprefix("run/") for name in reversed(listed)]


def test_runs_lists_kept_runs(two_runs: tuple[CommandLine, list[str]]) -> None:
    onejob, ids = two_runs
    lines = onejob.run("runs").stdout.splitlines()
    assert lines[0].split() == ["ID", "AGE", "JOBS", "STATE", "EXIT", "CODE"]
    assert [(line.split()[0], line.split()[2:]) for line in lines[1:]] == [
        (ids[1], ["pi", "Complete", "0"]),
        (ids[0], ["pi", "Failed", "1"]),
    ]
    newest, oldest = json.loads(onejob.run("runs", "-o", "json").stdout)
    assert (oldest["id"], oldest["state"], oldest["exitCode"]) == (ids[0], "Failed", 1)
    assert newest["jobs"] == [{"namespace": "default", "name": "pi"}]
    assert newest["arguments"] == ["run", "-q", "--filename", "good.yaml"]


def test_ids_and_names_are_whole_on_a_terminal(
    two_runs: tuple[QuickCommandLine, list[str]],
) -> None:
    """Users copy them: other columns are cut, and uninformative ones omitted."""
    onejob, ids = two_runs
    shown = onejob.on_terminal("runs", columns=60).stdout
    assert all(run in shown for run in ids)
    pods = json.loads(onejob.run("get", "pods", "-o", "json").stdout)["items"]
    lines = onejob.on_terminal("get", "pods", "-o", "wide").stdout.splitlines()
    assert {line.split()[0] for line in lines[1:]} == {pod["metadata"]["name"] for pod in pods}
    assert lines[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "RUN"]


def test_a_run_is_chosen_by_its_id(two_runs: tuple[CommandLine, list[str]]) -> None:
    onejob, (first, second) = two_runs
    assert onejob.run("logs", "job/pi").stdout == "second\n"
    for chosen in (first, first[:-1], first.rpartition("-")[2]):
        assert onejob.run("logs", "job/pi", "--run", chosen).stdout == "first\n"
    by_label = onejob.run("logs", "-l", "job-name=pi", "--run", first)
    assert by_label.stdout == "first\n", by_label.stderr
    assert onejob.run("why", "pi", "--run", first).stdout.startswith("job/pi is Failed")
    assert onejob.run("why", "pi", "--run", second).stdout.startswith("job/pi is Complete")
    assert "BackoffLimitExceeded" in onejob.run("describe", "job/pi", "--run", first).stdout
    pods = json.loads(onejob.run("get", "pods", "--run", first, "-o", "json").stdout)["items"]
    assert [pod["status"]["phase"] for pod in pods] == ["Failed"]
    results = json.loads(onejob.run("results", "pi", "--run", first, "-o", "json").stdout)
    assert [result["exitCode"] for result in results] == [3]


def test_why_explains_pods_and_whole_runs(two_runs: tuple[CommandLine, list[str]]) -> None:
    onejob, (first, _) = two_runs
    (pod,) = onejob.run("get", "pods", "--run", first, "-o", "name").stdout.split()
    text = onejob.run("why", pod).stdout
    assert text.startswith(f"{pod} failed ")
    assert "    | first\n" in text
    whole = onejob.run("why", f"run/{first}").stdout
    assert whole.startswith(f"run/{first} is Failed, exit code 1.\n\njob/pi is Failed")
    assert "configmaps" in onejob.run("why", "configmap/x").stderr


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("get", "jobs", "--run", "1999"), 2, "1999: no run of the last 7 days has this ID"),
        (("get", "jobs", "--run", "2"), 2, "2 is ambiguous: "),
        (
            ("logs", "job/e", "--run", "pi"),
            1,
            " does not contain job.batch/e (onejob get ",
        ),
        (("get", "jobs", "--run", "pi", "--kubeconfig", "x"), 2, "either --run or --kubeconfig"),
        (("delete", "run/1999"), 1, "run 1999 not found (onejob runs lists them)"),
        (("delete", "run/pi"), 1, "run pi not found (job/pi is in run/2"),
        (("delete", "run/"), 2, "run/: missing ID"),
        (("delete", "runs"), 2, "which run?"),
        (("delete", "run/2", "job/pi"), 2, "cannot delete runs and objects of a server together"),
    ],
)
def test_runs_that_cannot_be_found_are_one_clear_line(
    two_runs: tuple[CommandLine, list[str]], words: tuple[str, ...], code: int, error: str
) -> None:
    done = two_runs[0].run(*words)
    assert done.returncode == code, done.stderr
    assert error in done.stderr
    assert done.stderr.count("\n") == 1


def keep(onejob: CommandLine, salt: str) -> Path:
    onejob.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = create_folder(onejob.data_dir / "runs" / new_run_id(NOON, salt))
    folder.record(Run(folder.path.name, NOON, (RunJob("default", "pi"),)))
    (folder.path / "onejob.db").touch()
    folder.release()
    return folder.path


def test_a_deleted_run_is_gone_and_no_other(tmp_path: Path) -> None:
    onejob = QuickCommandLine(tmp_path)
    first, second = keep(onejob, "aaaa"), keep(onejob, "bbbb")
    done = onejob.run("delete", f"run/{first.name}")
    assert (done.returncode, done.stdout) == (0, f'run "{first.name}" deleted\n')
    assert not first.exists()
    assert onejob.run("runs", "-o", "name").stdout == f"run/{second.name}\n"
    assert onejob.run("delete", "run", "aaaa", "--ignore-not-found").returncode == 0
    assert onejob.run("delete", "run", "bbbb").returncode == 0
    gone = onejob.run("runs")
    assert (gone.returncode, gone.stdout, gone.stderr) == (
        0,
        "",
        "No kept runs (start one with onejob run).\n",
    )


def test_a_run_under_way_is_listed_so_and_not_deleted(tmp_path: Path) -> None:
    onejob = QuickCommandLine(tmp_path)
    onejob.data_dir.mkdir(mode=0o700, parents=True)
    folder = create_folder(onejob.data_dir / "runs" / new_run_id(NOON, "aaaa"))
    folder.record(Run(folder.path.name, NOON, (RunJob("default", "pi"),)))
    (folder.path / "onejob.db").touch()
    try:
        assert onejob.run("runs").stdout.split()[-1] == "Running"
        done = onejob.run("delete", "run/aaaa")
        assert done.returncode == 2
        assert "is still running" in done.stderr
        assert (folder.path / "run.json").exists()
    finally:
        folder.release()
    assert onejob.run("runs").stdout.split()[-1] == "Lost"


def test_only_the_end_of_a_runs_id_is_shown_where_the_whole_is_too_wide() -> None:
    rows = Rows(BY_RESOURCE[PODS], [{"name": "Name", "priority": 0}])
    run = new_run_id(NOON - timedelta(days=1), "aaaa")
    rows.rows = [("default", run, ["pi-x2k4p"])]
    assert rows.layout(wide=False, prefix=False)[1] == [["pi-x2k4p", run]]
    assert rows.layout(wide=False, prefix=False, short_runs=True)[1] == [["pi-x2k4p", "aaaa"]]
