"""`run --on` against a real kube-apiserver that is killed ten times during the run."""

import asyncio
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from subprocess import Popen

import pytest

from onejob.client.http import HttpClient
from onejob.client.kubeconfig import load_kubeconfig
from onejob.clock import SystemClock
from tests.cli.command_line import CommandLine, job_yaml
from tests.upstream.cluster import Upstream
from tests.upstream.kubelet import Kubelet, Ledger

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(bool(Upstream.missing()), reason="see `make upstream`"),
]

_INDEXES = 60
_KILLS = 10


@contextmanager
def a_kubelet(kubeconfig: Path) -> Iterator[Ledger]:
    """Run a fake kubelet in a thread with its own event loop."""
    loop = asyncio.new_event_loop()
    client = HttpClient(load_kubeconfig(kubeconfig, SystemClock()), rng=Random(1))
    kubelet = Kubelet(client, seconds=2.0, exit_code=lambda pod: 0)
    task = loop.create_task(kubelet.run())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield kubelet.ledger
    finally:
        loop.call_soon_threadsafe(task.cancel)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.run_until_complete(client.close())
        loop.close()


def test_run_on_follows_a_job_while_kube_apiserver_is_killed_ten_times(tmp_path: Path) -> None:
    onejob = CommandLine(tmp_path)
    spec = f"completions: {_INDEXES}\nparallelism: 4\ncompletionMode: Indexed"
    (tmp_path / "job.yaml").write_text(job_yaml("outage", "true", spec=spec))
    with Upstream(tmp_path / "upstream") as cluster:
        cluster.start_controller_manager("job-controller,serviceaccount-controller")
        # Its admission refuses Pods without the default service account.
        _await_service_account(onejob, cluster.kubeconfig)
        with a_kubelet(cluster.kubeconfig) as ledger:
            words = ("run", "--on", "admin", "--kubeconfig", str(cluster.kubeconfig), "--plain")
            process = onejob.start(*words, "job.yaml", "-o", "json")
            kills = 0
            while kills < _KILLS and process.poll() is None:
                done = len(ledger.succeeded)
                _await_progress(process, ledger, done)
                cluster.restart_apiserver()
                kills += 1
            output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, output + errors
    assert kills == _KILLS, errors
    assert f'"succeeded": {_INDEXES}' in output
    assert not ledger.doubles
    assert len(ledger.successes) == _INDEXES
    assert len(re.findall("connection lost", errors)) >= 1
    print(f"{kills} kills, {errors.count('connection lost')} notices")


def _await_service_account(onejob: CommandLine, kubeconfig: Path) -> None:
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        words = ("get", "serviceaccounts", "default", "--kubeconfig", str(kubeconfig))
        if onejob.run(*words).returncode == 0:
            return
    raise AssertionError("no default service account")


def _await_progress(process: Popen[str], ledger: Ledger, done: int) -> None:
    """Wait until a Pod more has succeeded."""
    give_up = time.monotonic() + 120
    while len(ledger.succeeded) <= done and process.poll() is None:
        assert time.monotonic() < give_up, "the Job makes no progress"
        time.sleep(0.05)
