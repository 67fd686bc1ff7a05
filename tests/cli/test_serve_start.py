"""Start of a server: it can be stopped meanwhile, and reports errors."""

import errno
import os
import resource
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from onejob.cli.main import run_command
from tests.cli.command_line import CommandLine
from tests.e2e.serving import end_supervisors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_start_that_hangs_can_be_stopped(
    onejob: CommandLine, tmp_path: Path, number: signal.Signals
) -> None:
    reached, engine = tmp_path / "reached", tmp_path / "engine"
    engine.write_text(f"#!/bin/sh\ntouch {reached}\nexec sleep 30\n")
    engine.chmod(stat.S_IRWXU)
    server = onejob.start(
        *("serve", "--listen", "127.0.0.1:0", "--runtime", "podman", "--engine", str(engine)),
    )
    try:
        while not reached.exists():
            assert server.poll() is None, server.communicate()
            time.sleep(0.02)
        server.send_signal(number)
        server.wait(timeout=60)
    except subprocess.TimeoutExpired:
        pytest.fail("the signal was ignored")
    finally:
        server.kill()
        _, errors = server.communicate()
    assert server.returncode in (-signal.SIGTERM, 130)
    assert "Traceback" not in errors


def test_stopping_server_reports_running_pods(onejob: CommandLine) -> None:
    try:
        with _serving(onejob) as server:
            made = onejob.run("create", "job", "long", "--", "sh", "-c", "echo up; exec sleep 600")
            assert made.returncode == 0, made.stderr
            with onejob.start("logs", "-f", "job/long") as follower:
                assert follower.stdout is not None
                assert follower.stdout.readline() == "up\n"
                follower.kill()
            server.send_signal(signal.SIGINT)
            _, errors = server.communicate(timeout=60)
        assert "note: 1 Pod keeps running; onejob serve resumes managing it\n" in errors
        with _serving(onejob) as server:
            assert onejob.run("delete", "job", "long").returncode == 0
            assert onejob.run("wait", "job/long", "--for=delete").returncode == 0
            server.send_signal(signal.SIGINT)
            _, errors = server.communicate(timeout=60)
        assert "runs on" not in errors
    finally:
        end_supervisors(onejob.home)


@contextmanager
def _serving(onejob: CommandLine) -> Iterator[subprocess.Popen[str]]:
    server = onejob.start("serve", "--listen", "127.0.0.1:0")
    assert server.stdout is not None
    try:
        for line in server.stdout:
            if "onejob logs" in line:
                break
        yield server
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize("module", ["onejob.store.database", "onejob.api.access.private_files"])
def test_a_disk_that_fails_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    module: str,
) -> None:
    def fails(_: int) -> NoReturn:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(f"{module}.os.fsync", fails)
    before = signal.getsignal(signal.SIGTERM)
    try:
        code = run_command(["serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)])
    finally:
        signal.signal(signal.SIGTERM, before)
    errors = capsys.readouterr().err
    assert code == 2
    assert errors.startswith(f"error: cannot start in {tmp_path}/server: ")
    assert "Input/output error" in errors
    assert errors.count("\n") == 1


def test_server_raises_descriptor_limit_but_not_for_pods(
    onejob: CommandLine,
) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    given = 700

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (given, hard))

    server = onejob.start("serve", "--listen", "127.0.0.1:0", preexec_fn=limit)
    try:
        while not (onejob.data_dir / "kubeconfig").exists():
            assert server.poll() is None, server.communicate()
            time.sleep(0.02)
        raised, _ = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        assert raised == min(hard, 1 << 20) if hard != resource.RLIM_INFINITY else raised > given
        created = onejob.run("create", "job", "limits", "--", "sh", "-c", "ulimit -Sn; ulimit -Hn")
        assert created.returncode == 0, created.stderr
        assert onejob.run("wait", "job/limits").returncode == 0
        expected = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
        assert onejob.run("logs", "job/limits").stdout.split() == [str(given), expected]
    finally:
        server.terminate()
        server.communicate()
        end_supervisors(onejob.data_dir)
