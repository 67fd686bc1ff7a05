"""Manifests from the web and from kustomize."""

import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine, job_yaml


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """Run a web server for the folder `web`."""
    folder = tmp_path / "web"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_job_is_run_from_a_url(tmp_path: Path, web: str) -> None:
    (tmp_path / "web" / "job.yaml").write_text(job_yaml("far", "echo from afar"))
    done = CommandLine(tmp_path).run("run", "--ephemeral", f"{web}/job.yaml")
    assert done.returncode == 0, done.stderr
    assert "from afar" in done.stdout


def test_problems_of_a_remote_manifest_name_it(tmp_path: Path, web: str) -> None:
    command_line = CommandLine(tmp_path)
    absent = command_line.run("run", f"{web}/absent.yaml")
    assert absent.returncode == 2
    assert absent.stderr == f"error: {web}/absent.yaml: 404 File not found\n"
    (tmp_path / "web" / "bad.yaml").write_text(job_yaml("bad", "true", spec="completion: 3"))
    bad = command_line.run("validate", f"{web}/bad.yaml")
    assert bad.returncode == 2
    assert f"{web}/bad.yaml: document 1, line" in bad.stderr + bad.stdout
    nobody = command_line.run("run", "http://127.0.0.1:1/job.yaml")
    assert nobody.returncode == 2
    assert nobody.stderr == "error: http://127.0.0.1:1/job.yaml: Connection refused\n"


@pytest.mark.skipif(
    not (shutil.which("kustomize") or shutil.which("kubectl")),
    reason="neither kustomize nor kubectl is installed",
)
def test_kustomize_output_is_run(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "job.yaml").write_text(job_yaml("plain", "echo $WORD", template=""))
    (base / "kustomization.yaml").write_text("namePrefix: my-\nresources: [job.yaml]\n")
    command_line = CommandLine(tmp_path)
    done = command_line.run("run", "--ephemeral", "-k", "base")
    assert done.returncode == 0, done.stderr
    assert "job/my-plain: Complete" in done.stdout
    failed = command_line.run("run", "-k", "absent")
    assert failed.returncode == 2
    assert failed.stderr.startswith("error: -k absent: ")
    assert failed.stderr.count("\n") == 1


def test_missing_kustomize_fails_with_message(tmp_path: Path) -> None:
    done = CommandLine(tmp_path).run("run", "-k", "base", PATH="/nowhere")
    assert (done.returncode, done.stderr) == (
        2, "error: -k base: neither kustomize nor kubectl is installed\n",
    )  # fmt: skip
