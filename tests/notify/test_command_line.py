"""`onejob notify`, and kills of a server with targets."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec

from tests.build import a_job, template
from tests.cli.command_line import CommandLine, QuickCommandLine
from tests.e2e.serving import Server
from tests.notify.support import NOTIFY, Receiver, a_receiver


def write_config(path: Path, receiver: Receiver) -> None:
    targets = [{"name": "ops", "webhook": {"url": f"{receiver.url}/secret/path"}}]
    path.write_bytes(msgspec.json.encode({"targets": targets}))


def test_a_test_message_is_sent_and_targets_are_listed(tmp_path: Path) -> None:
    onejob = QuickCommandLine(tmp_path)
    missing = onejob.run("notify", "test", "ops")
    assert (missing.returncode, "does not exist" in missing.stderr) == (2, True)
    onejob.data_dir.mkdir(parents=True, mode=0o700)
    with a_receiver() as receiver:
        write_config(onejob.data_dir / "notify.yaml", receiver)
        done = onejob.run("notify", "test", "ops")
        assert (done.returncode, done.stdout) == (0, "ops: delivered to 127.0.0.1\n")
        body = json.loads(receiver.received.get(timeout=30).body)
        assert body["data"]["event"] == "test"
        receiver.codes = [503]
        refused = onejob.run("notify", "test", "ops")
        assert refused.returncode == 1
        assert "cannot deliver to 127.0.0.1: the webhook responded with 503" in refused.stderr
    unknown = onejob.run("notify", "test", "nobody")
    assert (unknown.returncode, "existing targets: ops" in unknown.stderr) == (2, True)
    [_, row] = onejob.run("notify", "list").stdout.splitlines()
    assert row.split() == ["ops", "webhook", "127.0.0.1", "failed,late,recovered", "0"]
    # The URL of a webhook is often its secret.
    assert "secret" not in onejob.run("notify", "list", "-o", "json").stdout


def test_serve_refuses_a_wrong_file_in_one_line(tmp_path: Path) -> None:
    onejob = CommandLine(tmp_path)
    (tmp_path / "notify.yaml").write_text("targets: [{name: a, webhook: {uri: x}}]")
    done = onejob.run("serve", "--notify-config", "notify.yaml")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "error: notify.yaml is invalid: Object contains unknown field `uri`"
    )


def test_killed_server_delivers_pending_notifications(tmp_path: Path) -> None:
    with a_receiver() as receiver:
        config = tmp_path / "config.yaml"
        write_config(config, receiver)
        receiver.answering.clear()
        data_dir = tmp_path / "data"
        data_dir.mkdir(mode=0o700)
        server = Server(data_dir, ("--notify-config", str(config), "--runtime", "simulated"))
        server.start()
        try:
            failing = {"annotations": {"onejob.dev/simulated-exit-code": "1"}}
            manifest = a_job(
                "bad",
                metadata={"annotations": {NOTIFY: "ops"}},
                template=template(metadata=failing),
                backoffLimit=0,
            )
            (tmp_path / "job.json").write_bytes(msgspec.json.encode(manifest))
            onejob = QuickCommandLine(tmp_path)
            place = ("--data-dir", str(data_dir))
            created = onejob.run("create", "-f", "job.json", *place)
            assert created.returncode == 0, created.stderr
            # The endpoint hangs, and the Job ends all the same.
            assert onejob.run("wait", "job/bad", *place).returncode == 1
            first = receiver.received.get(timeout=30)
            server.kill()
            receiver.answering.set()
            server.start()
            again = receiver.received.get(timeout=30)
        finally:
            server.stop()
        assert again.headers["webhook-id"] == first.headers["webhook-id"]
        assert json.loads(again.body)["data"]["event"] == "failed"


def test_a_server_without_targets_imports_nothing_of_it() -> None:
    code = (
        "import sys, onejob.server, onejob.cli.commands.serve\n"
        "print([name for name in sys.modules if '.notify' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
