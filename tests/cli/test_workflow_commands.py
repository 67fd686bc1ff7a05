"""Commands on Workflows: in runs, kept runs and on a server."""

import json
from typing import Any

import yaml

from tests.build import Document, a_job, a_task, a_workflow, container, shell, template
from tests.cli.command_line import CommandLine


def write(onejob: CommandLine, name: str, *documents: Document) -> str:
    (onejob.home / name).write_text("---\n".join(yaml.safe_dump(one) for one in documents))
    return name


def task(name: str, script: str, *after: str, **fields: Any) -> Document:
    """Return a task whose shell script is not retried."""
    made = a_task(name, *after, **fields)
    made["template"]["spec"] = {"backoffLimit": 0, "template": template(shell(script))}
    return made


def etl(name: str = "etl", fixed: str = "fixed", notify: str = "") -> Document:
    """Return a workflow whose task `load` fails until the file exists."""
    last: Document = {"finally": [task("notify", notify)]} if notify else {}
    return a_workflow(
        name,
        task(
            "extract",
            """echo extracting; echo '{"rows": "42"}' > $ONEJOB_RESULT""",
            results=[{"name": "rows"}],
        ),
        task("load", f"echo no table; test -e {fixed}", "extract"),
        task("report", "echo $(tasks.extract.results.rows) rows", "load"),
        **last,
    )


def test_run_follows_a_workflow_to_its_end(onejob: CommandLine) -> None:
    (onejob.home / "fixed").touch()
    done = onejob.run("run", write(onejob, "flow.yaml", etl()))
    assert done.returncode == 0, done.stderr
    assert "workflow/etl: started (3 tasks)" in done.stdout
    assert "] 42 rows" in done.stdout
    assert "workflow/etl: Complete in " in done.stdout
    for job in ("etl-extract", "etl-load", "etl-report"):
        assert f"job/{job}: started (1 completion)" in done.stdout
        assert f"job/{job}: Complete in " in done.stdout
    assert "workflow.onejob.dev/etl Complete" in onejob.run("wait", "workflow/etl").stdout
    assert "NAME   STATUS     TASKS" in onejob.run("get", "workflows").stdout
    assert "workflow/etl " in onejob.run("runs").stdout
    assert "extract   rows     42" in onejob.run("results", "workflow/etl").stdout
    logs = onejob.run("logs", "workflow/etl", "--no-prefix").stdout
    assert logs == "extracting\nno table\n42 rows\n"
    described = onejob.run("describe", "workflow/etl").stdout
    assert "0 Waiting / 0 Running / 3 Complete / 0 Failed / 0 Skipped" in described
    assert "extract.rows: 42" in described


def test_failed_run_of_a_workflow_is_explained_and_resumed(onejob: CommandLine) -> None:
    file = write(onejob, "flow.yaml", etl(notify="echo bye"))
    failed = onejob.run("run", "-o", "json", file)
    assert failed.returncode == 1
    result = json.loads(failed.stdout)
    (workflow,) = result["workflows"]
    states = {one["name"]: one["state"] for one in workflow["tasks"]}
    assert states == {
        "extract": "Complete",
        "load": "Failed",
        "report": "Skipped",
        "notify": "Complete",
    }
    assert "workflow/etl: task report skipped: DependencyNotMet" in failed.stderr
    assert "Next: onejob run --resume etl" in failed.stderr

    why = onejob.run("why", "workflow/etl").stdout
    assert "workflow/etl has failed (TaskFailed)" in why
    assert "exited with code 1" in why
    assert "    | no table" in why
    assert "onejob run --resume" in why
    assert "did you mean workflow/etl?" in onejob.run("why", "etl").stderr
    for what in ("workflow/etl", f"run/{result['run']}"):
        report = onejob.run("report", what, "-o", "-")
        assert "etl-load" in report.stdout, report.stderr
        assert "etl-report" not in report.stdout
    by_run = onejob.run("why", f"run/{result['run']}").stdout
    assert by_run.count("has failed (TaskFailed)") == 1

    (onejob.home / "fixed").touch()
    resumed = onejob.run("run", "--resume", "etl")
    assert resumed.returncode == 0, resumed.stderr
    assert "started (4 tasks, 1 taken over from an earlier run)" in resumed.stdout
    assert "job/etl-extract" not in resumed.stdout
    assert "] 42 rows" in resumed.stdout
    assert "has already succeeded" in onejob.run("run", "--resume", "etl").stdout
    again = onejob.run("rerun", "workflow/etl", "--from", "report")
    assert again.returncode == 0, again.stderr
    assert "started (4 tasks, 2 taken over from an earlier run)" in again.stdout
    assert "job/etl-load" not in again.stdout


def test_resume_takes_over_a_workflow_whose_creation_was_not_recorded(
    onejob: CommandLine,
) -> None:
    flow = etl()
    assert onejob.run("run", write(onejob, "flow.yaml", flow)).returncode == 1
    (folder,) = (onejob.data_dir / "runs").iterdir()
    # As if the run had been killed between the creation of the workflow and its record.
    record = json.loads((folder / "run.json").read_text())
    for field in ("jobs", "finishedAt", "exitCode"):
        del record[field]
    (folder / "run.json").write_text(json.dumps(record))
    flow["metadata"]["namespace"] = "default"
    (folder / "planned.json").write_text(json.dumps([flow]))
    (onejob.home / "fixed").touch()
    resumed = onejob.run("run", "--resume", record["id"])
    assert resumed.returncode == 0, resumed.stderr
    assert "started (3 tasks, 1 taken over from an earlier run)" in resumed.stdout
    assert "job/etl-extract" not in resumed.stdout


def test_run_succeeds_if_the_failure_of_a_task_is_handled(onejob: CommandLine) -> None:
    flow = a_workflow("w", task("try", "exit 3"), task("mend", "echo mended", "try:Failed"))
    file = write(onejob, "flow.yaml", flow)
    done = onejob.run("run", file, "--junit", "report.xml", GITHUB_ACTIONS="true")
    assert done.returncode == 0, done.stdout
    assert "] mended" in done.stdout
    assert "::error" not in done.stdout
    report = (onejob.home / "report.xml").read_text()
    assert "<failure" not in report
    assert 'skipped message="handled by its workflow: BackoffLimitExceeded' in report
    assert "workflow/w: Complete in " in done.stdout


def test_reports_name_a_workflow_that_failed_without_a_job(onejob: CommandLine) -> None:
    first = task("a", 'echo \'{"size": "x"}\' > $ONEJOB_RESULT', results=[{"name": "size"}])
    flow = a_workflow("w", first, task("b", "true", "a", when="int(tasks.a.results.size) > 1"))
    file = write(onejob, "flow.yaml", flow)
    done = onejob.run("run", file, "--junit", "report.xml", GITHUB_ACTIONS="true")
    assert done.returncode == 1
    assert "::error title=workflow/w Failed::TaskFailed: " in done.stdout
    report = (onejob.home / "report.xml").read_text()
    assert '<failure message="TaskFailed: Task &quot;b&quot; failed: WhenError' in report


def test_run_stops_a_workflow_whose_pods_can_never_start(onejob: CommandLine) -> None:
    missing = {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "a"}}}
    made = a_task("a")
    made["template"]["spec"] = {"template": template(container(env=[missing]))}
    done = onejob.run("run", write(onejob, "flow.yaml", a_workflow("w", made)))
    assert done.returncode == 1
    assert "job/w-a cannot start" in done.stdout
    assert "workflow/w: Blocked" in done.stdout


def test_run_refuses_workflows_that_would_never_end(onejob: CommandLine) -> None:
    suspended = a_workflow("w", a_task("a"), suspend=True)
    held = a_task("a")
    held["template"]["spec"]["suspend"] = True
    for flow, field in (
        (suspended, "spec.suspend"),
        (a_workflow("w", held), "spec.tasks[0].template.spec.suspend"),
    ):
        done = onejob.run("run", write(onejob, "flow.yaml", flow))
        assert done.returncode == 2
        assert f"{field}: a suspended" in done.stderr
        assert done.stderr.count("\n") == 1


def test_run_in_order_stops_at_the_first_failure(onejob: CommandLine) -> None:
    files = [
        write(onejob, f"{name}.yaml", a_job(name, shell(script), backoffLimit=0))
        for name, script in (("a", "echo one > out"), ("b", "cat out; false"), ("c", "touch ran"))
    ]
    done = onejob.run("run", *files, "--in-order")
    assert done.returncode == 1
    assert "job/b: waits for a" in done.stdout
    assert "] one" in done.stdout
    assert "job/c: Failed in" in done.stdout
    assert "DependencyFailed" in done.stdout
    assert not (onejob.home / "ran").exists()
    alone = onejob.run("run", files[0], "--in-order")
    assert alone.returncode == 2
    assert "requires at least two Jobs" in alone.stderr


def test_graph_draws_a_file_and_refuses_bad_ones(onejob: CommandLine) -> None:
    file = write(onejob, "flow.yaml", etl())
    assert onejob.run("graph", file).stdout == "● extract\n● load\n● report\n"
    assert onejob.run("graph", file, "-o", "mermaid").stdout.startswith("flowchart TD\n")
    cycle = write(onejob, "cycle.yaml", a_workflow("w", a_task("a", "b"), a_task("b", "a")))
    job = write(onejob, "job.yaml", a_job())
    for bad, text in ((cycle, "a → b → a"), (job, "no Workflow"), ("none.yaml", "No such file")):
        done = onejob.run("graph", bad)
        assert done.returncode == 2
        assert text in done.stderr
        assert done.stderr.count("\n") == 1


def test_rerun_on_a_server_keeps_ends_of_completed_tasks(served: CommandLine) -> None:
    file = write(served, "flow.yaml", etl("shop", str(served.home / "fixed")))
    assert served.run("apply", "-f", file).returncode == 0
    assert served.run("wait", "workflow/shop").returncode == 1
    assert "✗ load  Failed" in served.run("graph", "workflow/shop").stdout
    why = served.run("why", "workflow/shop").stdout
    assert "onejob rerun workflow/shop --failed-only" in why
    assert "    | no table" in why
    (served.home / "fixed").touch()
    made = served.run("rerun", "workflow/shop", "--failed-only")
    assert made.stdout == "workflow.onejob.dev/shop-rerun-1 created\n", made.stderr
    assert served.run("wait", "workflow/shop-rerun-1").returncode == 0
    assert served.run("get", "job", "shop-rerun-1-extract").returncode == 1
    assert served.run("rerun", "workflow/shop-rerun-1", "--failed-only").stdout.endswith(
        "nothing to rerun\n"
    )
    unknown = served.run("rerun", "workflow/shop", "--from", "nope")
    assert unknown.returncode == 2
    assert "there is no task 'nope'" in unknown.stderr
    assert served.run("delete", "workflow/shop").returncode == 0
    gone = served.run("wait", "job/shop-extract", "--for", "delete", "--timeout", "30s")
    assert gone.returncode == 0, gone.stderr


def test_suspend_holds_a_workflow_until_resume(served: CommandLine) -> None:
    flow = a_workflow("held", task("a", "true"), suspend=True)
    assert served.run("apply", "-f", write(served, "held.yaml", flow)).returncode == 0
    assert served.run("wait", "workflow/held", "--for", "condition=suspended").returncode == 0
    why = served.run("why", "workflow/held").stdout
    assert "workflow/held is suspended." in why
    assert "onejob resume workflow/held" in why
    assert served.run("resume", "workflow/held").stdout == "workflow.onejob.dev/held resumed\n"
    assert served.run("wait", "workflow/held").returncode == 0
    finished = served.run("suspend", "workflow/held")
    assert finished.returncode == 2
    assert "has finished" in finished.stderr


def test_why_names_what_tasks_of_a_running_workflow_wait_for(served: CommandLine) -> None:
    flow = a_workflow("slow", task("first", "sleep 1000"), task("second", "true", "first"))
    assert served.run("apply", "-f", write(served, "slow.yaml", flow)).returncode == 0
    waited = served.run("wait", "job/slow-first", "--for", "condition=none", "--timeout", "0.1s")
    assert waited.returncode == 1
    why = served.run("why", "workflow/slow").stdout
    assert "workflow/slow is running: 1 of 2 tasks now." in why
    assert "task second: waits for first" in why
    assert "task first: job/slow-first" in why
    assert served.run("delete", "workflow/slow", "--now").returncode == 0
