"""`run --on` against `onejob serve`: real TLS, a kubeconfig, real processes."""

import json
import os
import pty
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from onejob.cli.remote.planning import RUN_LABEL
from tests.cli.command_line import CommandLine, QuickCommandLine, job_yaml
from tests.e2e.serving import Server, a_server

_RUN = re.compile(r"run/(\S+)")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with a_server(tmp_path_factory.mktemp("cluster")) as server:
        yield server


@pytest.fixture
def onejob(tmp_path: Path) -> QuickCommandLine:
    return QuickCommandLine(tmp_path)


def words_for(server: Server, *more: str) -> list[str]:
    return ["run", "--on", "onejob", "--kubeconfig", str(server.kubeconfig), "--plain", *more]


def on(
    onejob: CommandLine, server: Server, manifest: str, *more: str
) -> subprocess.CompletedProcess[str]:
    (onejob.home / "job.yaml").write_text(manifest)
    return onejob.run(*words_for(server, "job.yaml", *more))


def jobs_at(onejob: CommandLine, server: Server, *more: str) -> list[dict[str, object]]:
    done = onejob.run("get", "jobs", "-o", "json", "--kubeconfig", str(server.kubeconfig), *more)
    assert done.returncode == 0, done.stderr
    items: list[dict[str, object]] = json.loads(done.stdout)["items"]
    return items


def await_line(process: "subprocess.Popen[str]", text: str) -> str:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return line
    raise AssertionError(f"{text!r} was not printed: {lines}")


def test_run_on_shows_logs_and_result_and_is_found_by_other_commands(
    onejob: QuickCommandLine, cluster: Server
) -> None:
    script = "echo hello $JOB_COMPLETION_INDEX"
    spec = "completions: 3\nparallelism: 3\ncompletionMode: Indexed"
    done = on(onejob, cluster, job_yaml("good", script, spec=spec), "--output-dir", "logs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(re.findall(r"hello \d", done.stdout)) == ["hello 0", "hello 1", "hello 2"]
    assert "Complete" in done.stdout
    assert len(list((onejob.home / "logs").iterdir())) == 3
    for words in (("why", "job/good"), ("logs", "good"), ("results", "good"), ("runs",)):
        found = onejob.run(*words)
        assert found.returncode == 0, found.stderr
    assert "Complete" in onejob.run("why", "job/good").stdout
    assert "hello 2" in onejob.run("logs", "job/good").stdout
    # Lists send no requests to other clusters.
    assert "good" not in onejob.run("get", "jobs").stdout
    (run,) = json.loads(onejob.run("runs", "-o", "json").stdout)
    assert run["state"] == "Complete"
    listed = onejob.run("get", "pods", "--run", run["id"])
    assert listed.returncode == 2
    assert "name an object: job/good" in listed.stderr
    assert "Complete" in onejob.run("describe", "job/good", "--run", run["id"]).stdout
    assert "another cluster" in onejob.run("stop", f"run/{run['id']}").stderr
    again = onejob.run("rerun", f"run/{run['id']}")
    assert "good-rerun-1 created" in again.stdout, again.stderr
    refused = onejob.run("run", "--again", run["id"])
    assert refused.returncode == 2
    assert "rerun run/" in refused.stderr


def test_run_on_returns_1_and_explains_a_failed_job(
    onejob: QuickCommandLine, cluster: Server
) -> None:
    manifest = job_yaml("bad", "echo reason; exit 3", spec="backoffLimit: 0")
    done = on(onejob, cluster, manifest, "-o", "json", "--junit", "junit.xml")
    assert done.returncode == 1
    result = json.loads(done.stdout)
    assert result["outcome"] == "Failed"
    assert result["jobs"][0]["failedPods"][0]["exitCode"] == 3
    assert "| reason" in done.stderr
    assert f"onejob why job/bad --run {result['run']}" in done.stderr
    assert "reason" in (onejob.home / "junit.xml").read_text()


def test_run_on_reports_all_problems_at_once_and_creates_nothing(
    onejob: QuickCommandLine, cluster: Server
) -> None:
    manifest = "---\n".join(
        [
            job_yaml("p1", "true", spec="backoffSeconds: 3"),
            job_yaml("p2", "true").replace("name: p2}", "name: p2, namespace: absent}"),
            job_yaml("p3", "true").replace("busybox", "local"),
            job_yaml("p4", "true"),
        ]
    )
    done = on(onejob, cluster, manifest)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert any("document 1" in line and "spec.backoffSeconds" in line for line in lines), lines
    assert any("document 2" in line and '"absent" not found' in line for line in lines), lines
    assert any("document 3" in line and "cannot pull the image" in line for line in lines), lines
    assert all(line.startswith("error: ") for line in lines)
    assert not [job for job in jobs_at(onejob, cluster) if "p4" in str(job["metadata"])]
    assert "No kept runs" in onejob.run("runs").stderr


def test_run_on_names_missing_permissions_before_it_creates_anything(
    onejob: QuickCommandLine, cluster: Server
) -> None:
    added = onejob.run(
        *("user", "add", "viewer", "--role", "view", "-n", "default", "--cluster"),
        *("--data-dir", str(cluster.data_dir)),
    )
    assert added.returncode == 0, added.stderr
    (onejob.home / "job.yaml").write_text(job_yaml("never", "true"))
    kubeconfig = str(onejob.home / "viewer.kubeconfig")
    context = onejob.run("run", "--on", "nothing", "--kubeconfig", kubeconfig, "job.yaml")
    found = re.search(r"contexts: ([^)]+)\)", context.stderr)
    assert found is not None, context.stderr
    done = onejob.run("run", "--on", found[1], "--kubeconfig", kubeconfig, "job.yaml")
    assert done.returncode == 2
    assert "permission missing: create jobs.batch in namespace default" in done.stderr
    assert "permission missing: delete jobs.batch in namespace default" in done.stderr
    assert "permission missing: list pods" not in done.stderr


def test_run_on_reuses_an_equal_configmap_and_refuses_a_different_one(
    onejob: QuickCommandLine, cluster: Server
) -> None:
    settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {lr: '1'}\n---\n"
    first = on(onejob, cluster, settings + job_yaml("first", "true"))
    assert first.returncode == 0, first.stderr
    second = on(onejob, cluster, settings + job_yaml("second", "true"))
    assert second.returncode == 0, second.stderr
    assert "configmap/settings exists with the same content: reused" in second.stdout
    third = on(onejob, cluster, settings.replace("'1'", "'2'") + job_yaml("third", "true"))
    assert third.returncode == 2
    assert 'configmaps "settings" already exists' in third.stderr


def test_run_on_detaches_and_attach_returns_the_result(
    onejob: QuickCommandLine, cluster: Server
) -> None:
    manifest = job_yaml("later", "echo from later; exit 1", spec="backoffLimit: 0")
    started = on(onejob, cluster, manifest, "--detach")
    assert started.returncode == 0, started.stderr
    found = _RUN.search(started.stdout)
    assert found is not None
    assert "Detached" in onejob.run("runs").stdout
    attached = onejob.run("attach", found[0], timeout=90)
    assert attached.returncode == 1, attached.stderr
    assert "from later" in attached.stdout
    assert "Failed" in onejob.run("runs").stdout
    # Once more, when everything has ended.
    assert "from later" in onejob.run("attach", "job/later").stdout


def test_attach_follows_a_run_whose_process_was_killed(
    onejob: QuickCommandLine, cluster: Server
) -> None:
    go = onejob.home / "go"
    script = f"echo begun; while ! test -e {go}; do sleep 0.05; done; echo after"
    (onejob.home / "job.yaml").write_text(job_yaml("orphan", script))
    process = onejob.start(*words_for(cluster, "job.yaml"))
    await_line(process, "begun")
    process.kill()
    process.communicate(timeout=60)
    go.touch()
    attached = onejob.run("attach", "job/orphan", timeout=90)
    assert attached.returncode == 0, attached.stderr
    assert attached.stdout.count("begun") == 1
    assert attached.stdout.count("after") == 1
    assert "Complete" in onejob.run("runs").stdout


def test_run_on_uses_a_mirror_target_of_the_own_server(
    onejob: QuickCommandLine, cluster: Server
) -> None:
    with a_server(onejob.data_dir):
        words = ("mirror", "add", "elsewhere", "--kubeconfig", str(cluster.kubeconfig))
        added = onejob.run(*words)
        assert added.returncode == 0, added.stderr
        (onejob.home / "job.yaml").write_text(job_yaml("targeted", "echo hello"))
        done = onejob.run("run", "--on", "elsewhere", "job.yaml")
        assert done.returncode == 0, done.stderr
        assert "hello" in done.stdout
        forced = onejob.run("run", "--on", "context:elsewhere", "job.yaml")
        assert forced.returncode == 2
        (run,) = json.loads(onejob.run("runs", "-o", "json").stdout)
        # The own server comes first, so a Job of another cluster is named by its run.
        assert "Complete" in onejob.run("why", "job/targeted", "--run", run["id"]).stdout
    assert jobs_at(onejob, cluster, "--field-selector", "metadata.name=targeted")


def test_run_on_with_ttl_leaves_the_clean_up_to_the_cluster(
    onejob: QuickCommandLine, cluster: Server
) -> None:
    config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: passing}\ndata: {a: b}\n---\n"
    done = on(onejob, cluster, config + job_yaml("passing", "true"), "--ttl", "1h")
    assert done.returncode == 0, done.stderr
    (job,) = jobs_at(onejob, cluster, "--field-selector", "metadata.name=passing")
    assert json.loads(json.dumps(job))["spec"]["ttlSecondsAfterFinished"] == 3600
    shown = onejob.run(
        *("get", "configmap", "passing", "-o", "json", "--kubeconfig", str(cluster.kubeconfig))
    )
    (owner,) = json.loads(shown.stdout)["metadata"]["ownerReferences"]
    assert owner["name"] == "passing"


def test_run_on_suspends_its_jobs_at_a_timeout(onejob: QuickCommandLine, cluster: Server) -> None:
    done = on(onejob, cluster, job_yaml("endless", "sleep 600"), "--timeout", "1s")
    assert done.returncode == 124, done.stderr
    (job,) = jobs_at(onejob, cluster, "--field-selector", "metadata.name=endless")
    assert json.loads(json.dumps(job))["spec"]["suspend"] is True
    assert "Stopped" in onejob.run("runs").stdout


def test_run_on_leaves_its_jobs_at_a_signal_without_a_terminal(
    onejob: QuickCommandLine, cluster: Server
) -> None:
    (onejob.home / "job.yaml").write_text(job_yaml("left", "echo begun; sleep 600"))
    process = onejob.start(*words_for(cluster, "job.yaml"), stdin=subprocess.DEVNULL)
    await_line(process, "begun")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "goes on (onejob attach run/" in errors
    assert jobs_at(onejob, cluster, "--field-selector", "metadata.name=left")


@pytest.mark.parametrize(
    ("answer", "name", "kept"),
    [(b"\n", "asked-keep", True), (b"d\n", "asked-delete", False), (b"\x03", "asked-twice", False)],
)
def test_run_on_asks_on_a_terminal_whether_to_delete(
    onejob: QuickCommandLine, cluster: Server, answer: bytes, name: str, kept: bool
) -> None:
    (onejob.home / "job.yaml").write_text(job_yaml(name, "echo begun; sleep 600"))
    master, terminal = pty.openpty()
    try:
        process = onejob.start(
            *words_for(cluster, "job.yaml"), stdin=terminal, stderr=terminal, start_new_session=True
        )
        os.close(terminal)
        await_line(process, "begun")
        process.send_signal(signal.SIGINT)
        seen = b""
        while b"deletes them" not in seen:
            seen += os.read(master, 4096)
        if answer == b"\x03":
            process.send_signal(signal.SIGINT)
        else:
            os.write(master, answer)
        assert process.wait(60) == 130
        assert process.stdout is not None
        process.stdout.close()
    finally:
        os.close(master)
    found = jobs_at(onejob, cluster, "--field-selector", f"metadata.name={name}")
    assert bool([job for job in found if "deletionTimestamp" not in str(job)]) == kept


def test_run_on_survives_a_killed_server(onejob: QuickCommandLine, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with a_server(tmp_path / "cluster", "--listen", f"127.0.0.1:{port}") as server:
        go = onejob.home / "go"
        script = (
            "for i in 1 2 3; do echo before $i; done; "
            f"while ! test -e {go}; do sleep 0.05; done; echo after"
        )
        spec = "completions: 2\nparallelism: 2\ncompletionMode: Indexed"
        (onejob.home / "job.yaml").write_text(job_yaml("tough", script, spec=spec))
        process = onejob.start(*words_for(server, "job.yaml"))
        before = [await_line(process, "before 3") for _ in range(2)]
        server.kill()
        await_line(process, "connection lost")
        go.touch()
        server.start()
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, output + errors
        assert len(set(before)) == 2
        # No line is lost or repeated, though the watches and logs were cut.
        assert output.count("after") == 2
        assert "before" not in output
        assert "Complete" in output
        (job,) = jobs_at(onejob, server)
        assert RUN_LABEL in str(job["metadata"])


def test_run_on_refuses_options_of_this_machine(onejob: QuickCommandLine, cluster: Server) -> None:
    done = on(onejob, cluster, job_yaml("no", "true"), "--capacity", "cpu=1")
    assert done.returncode == 2
    assert "--capacity cannot be combined with --on" in done.stderr
    alone = onejob.run("run", "--ttl", "1h", "--", "true")
    assert alone.returncode == 2
    assert "--ttl requires --on" in alone.stderr


def test_run_on_reports_a_server_that_is_down(onejob: QuickCommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    kubeconfig = onejob.home / "down.json"
    kubeconfig.write_text(
        json.dumps(
            {
                "contexts": [{"name": "down", "context": {"cluster": "down"}}],
                "clusters": [{"name": "down", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            }
        )
    )
    (onejob.home / "job.yaml").write_text(job_yaml("never", "true"))
    done = onejob.run("run", "--on", "down", "--kubeconfig", str(kubeconfig), "job.yaml")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "check that the server is running" in line
