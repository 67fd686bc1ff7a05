"""Stop of a run that another process executes."""

import time
from pathlib import Path
from typing import Final

from onejob.cli.errors import EXIT_FAILED, CommandError
from onejob.cli.kept_runs import Run, has_supervisor, is_under_way, request_stop, run_state

_LOOK_SECONDS: Final = 0.1


def stop_run(
    folder: Path, run: Run, *, now: bool, wait: bool, timeout: float | None = None
) -> None:
    """Request the end of a run and wait for it. Raises CommandError after `timeout` seconds."""
    if not is_under_way(folder):
        print(f"run/{run.id} has already ended ({run_state(folder)[0]})")
        return
    request_stop(folder, kill=now)
    if not wait:
        print(f"run/{run.id} is being stopped")
        return
    deadline = None if timeout is None else time.monotonic() + timeout
    while is_under_way(folder) or has_supervisor(folder):
        if deadline is not None and time.monotonic() >= deadline:
            raise CommandError(
                f"run/{run.id} is still being stopped", "add --now", exit_code=EXIT_FAILED
            )
        time.sleep(_LOOK_SECONDS)
    state, _ = run_state(folder)
    go_on = "" if state == "Complete" else f" (onejob run --resume {run.id} continues it)"
    print(f"run/{run.id} {'stopped' if state == 'Stopped' else f'ended: {state}'}{go_on}")
