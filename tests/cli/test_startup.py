"""Cold start: a command imports only the modules that it needs."""

import json
import subprocess
import sys

import pytest

from tests.cli.command_line import CommandLine

_PROGRAM = """
import json, sys
from onejob.cli.main import run_command
code = run_command(sys.argv[1:])
names = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps([code, names, sorted(n for n in sys.modules if n.startswith("onejob."))]))
"""


def python(onejob: CommandLine, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        env=onejob.environment,
        cwd=onejob.home,
        check=True,
        timeout=60,
    )


def imported(onejob: CommandLine, *words: str) -> tuple[set[str], set[str]]:
    """Return the top-level packages, and modules of onejob, that a command imports."""
    done = python(onejob, _PROGRAM, *words)
    code, names, own = json.loads(done.stdout.splitlines()[-1])
    assert code == 0, done.stdout + done.stderr
    return set(names), set(own)


def test_a_run_imports_neither_server_nor_screen(onejob: CommandLine) -> None:
    names, own = imported(onejob, "run", "--", "true")
    assert not names & {
        *("httptools", "websockets", "cryptography", "prometheus_client"),
        *("rich", "http", "uvloop"),
        # Without a manifest, or limits of memory, or a typing mistake.
        *("yaml", "hashlib", "secrets", "difflib"),
    }
    assert "onejob.api.http.app" not in own
    assert "onejob.cli.run.live" not in own
    # Of kinds that a run does not create.
    assert not own & {
        *("onejob.controllers.cronjob", "onejob.planning.cronjob.planner"),
        *("onejob.api.kinds.cronjob", "onejob.api.kinds.rbac"),
        *("onejob.controllers.disruption", "onejob.controllers.quotas"),
        *("onejob.api.writing.apply", "onejob.planning.pod_security.evaluation"),
        *("onejob.planning.pod.gang", "onejob.node.agent.gangs"),
        *("onejob.planning.job.workload", "onejob.controllers.job_workloads"),
        "onejob.api.kinds.gang_rules",
    }


#: Lists the dataclasses of onejob that a run has created: each costs most of a millisecond at
#: start, twenty times as long as a Struct.
_DATACLASSES = """
import sys
from onejob.cli.main import run_command
run_command(["run", "--", "true"])
found = {
    f"{module.__name__}.{thing.__qualname__}"
    for name, module in list(sys.modules.items())
    if name.startswith("onejob.")
    for thing in vars(module).values()
    if isinstance(thing, type) and "__dataclass_fields__" in vars(thing)
    and thing.__module__ == name
}
print("made:", *sorted(found))
"""


def test_a_run_makes_hardly_any_dataclass_and_few_modules(onejob: CommandLine) -> None:
    done = python(onejob, _DATACLASSES)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("made:"))
    made = line.split()[1:]
    assert len(made) <= 3, f"make these Structs: {made}"
    _, own = imported(onejob, "run", "--", "true")
    # Rarely needed modules are imported where they are used.
    assert len(own) <= 344


#: Number of collections of the youngest generation by the end of a run.
_COLLECTIONS = """
import gc, os, sys
from onejob.cli import main
os._exit = lambda code: print("collections:", gc.get_stats()[0]["collections"])
main.main(["validate", sys.argv[1]])
"""


def test_a_command_looks_for_garbage_hardly_ever(onejob: CommandLine) -> None:
    manifest = onejob.home / "job.yaml"
    manifest.write_text(
        "{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {template: {spec: "
        "{restartPolicy: Never, containers: [{name: c, image: busybox}]}}}}"
    )
    done = python(onejob, _COLLECTIONS, str(manifest))
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("collections:"))
    # Some stem from the interpreter's own start and from the imports above.
    assert int(line.split()[1]) <= 50, done.stdout


@pytest.mark.parametrize("words", [("--help",), ("completion", "bash")])
def test_help_imports_no_command(onejob: CommandLine, words: tuple[str, ...]) -> None:
    names, own = imported(onejob, *words)
    assert not names & {"yaml", "apsw", "asyncio", "rich"}
    assert "onejob.control_plane" not in own


def test_asking_a_server_needs_no_server_code(served: CommandLine) -> None:
    names, own = imported(served, "get", "jobs")
    assert not names & {"apsw", "cryptography", "httptools", "rich", "yaml"}
    assert "onejob.api.service" not in own


#: Starts a server on a free port and lists the imported modules.
_SERVER = """
import asyncio, json, sys
from pathlib import Path
from onejob.server import HttpsServer
from onejob.control_plane import Settings

async def start_and_stop():
    folder = Path(sys.argv[1])
    settings = Settings(data_dir=folder, with_node=False)
    server = await HttpsServer.start(
        settings, host="127.0.0.1", port=0, kubeconfig=folder / "kubeconfig"
    )
    await server.stop()

asyncio.run(start_and_stop())
print(json.dumps(sorted(sys.modules)))
"""


def test_server_imports_unused_features_lazily(onejob: CommandLine) -> None:
    done = python(onejob, _SERVER, str(onejob.home / "data"))
    names = set(json.loads(done.stdout.splitlines()[-1]))
    assert "onejob.api.http.serving" in names
    assert not names & {
        # Custom resources and their rules.
        *("re2", "onejob.cel", "onejob.api.crd.strategy", "onejob.api.crd.definition_checks"),
        # Kinds without a controller; CronJobs with a time zone; WebSockets; the dashboard.
        *("onejob.api.kinds.stored_rules", "zoneinfo", "websockets"),
        "importlib.metadata",
        *("onejob.dashboard.pages", "onejob.diagnosis.jobs"),
    }


def test_a_run_without_on_imports_nothing_of_remote_runs(onejob: CommandLine) -> None:
    usual = onejob.home / ".kube" / "config"
    usual.parent.mkdir()
    usual.write_text("not a kubeconfig: [")
    _, own = imported(onejob, "run", "--", "true")
    assert not [name for name in own if name.startswith("onejob.cli.remote")]
    assert not own & {"onejob.cli.sources.remote_runs", "onejob.client.http"}
