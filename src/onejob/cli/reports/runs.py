"""List of kept runs, for `onejob runs` and `onejob get runs`."""

import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from onejob.api.kinds.printing import human_duration
from onejob.cli.display.tables import render_table
from onejob.cli.display.terminal import terminal_of
from onejob.cli.errors import CommandError
from onejob.cli.kept_runs import Run, find_run, kept_runs, run_state
from onejob.clock import SystemClock


def print_runs(
    runs: Path, *, output: str | None = None, wanted: str = "", headers: bool = True
) -> None:
    """Print all runs, newest first, or the wanted one. Raises CommandError."""
    folders = [find_run(runs, wanted)[0]] if wanted else [folder for folder, _ in kept_runs(runs)]
    found = [described_run(*run_state(folder)) for folder in folders]
    match output:
        case "json":
            print(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        case "name":
            for run in found:
                print(f"run/{run['id']}")
        case None | "wide":
            if not found:
                print("No kept runs (start one with onejob run).", file=sys.stderr)
                return
            now = SystemClock().now()
            names = ("ID", "AGE", "JOBS", "STATE", "EXIT CODE") if headers else ()
            rows = [_row(run, now) for run in found]
            for line in render_table(names, rows, terminal_of().width):
                print(line)
        case _:
            raise CommandError(f"-o {output} does not support runs", "use json or name")


def described_run(state: str, run: Run) -> dict[str, Any]:
    """Return a run as a document."""
    return {
        "id": run.id,
        "startedAt": run.started_at,
        "finishedAt": run.finished_at,
        "state": state,
        "exitCode": run.exit_code,
        "jobs": [
            {"namespace": job.namespace, "name": job.name}
            | ({"workflow": job.workflow} if job.workflow else {})
            for job in run.jobs
        ],
        "arguments": run.arguments,
    }


def _row(run: dict[str, Any], now: datetime) -> list[str]:
    code = run["exitCode"]
    return [
        run["id"],
        human_duration((now - run["startedAt"]).total_seconds()),
        _titles(run),
        run["state"],
        "" if code is None else str(code),
    ]


def _titles(run: dict[str, Any]) -> str:
    """Return the names of the Jobs, with one name for all Jobs of a workflow."""
    names = (
        f"workflow/{job['workflow']}" if "workflow" in job else job["name"] for job in run["jobs"]
    )
    return ",".join(dict.fromkeys(names))
