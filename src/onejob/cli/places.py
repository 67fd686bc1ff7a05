"""Where onejob keeps things between commands: one data dir, private to its user.

<data dir>/kubeconfig     written by `serve`, read by the client commands
<data dir>/server/        the state of `serve`
<data dir>/runs/<id>/     the state of each `run`
"""

import os
from pathlib import Path

import msgspec

from onejob.cli.errors import CommandError


class DataDir(msgspec.Struct, frozen=True):
    path: Path

    @property
    def kubeconfig(self) -> Path:
        return self.path / "kubeconfig"

    @property
    def server(self) -> Path:
        return self.path / "server"

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    def prepare(self) -> None:
        """Make sure that it is there and that nobody else may look inside."""
        make_private(self.path)


def data_dir(chosen: str | None) -> DataDir:
    """The one that was asked for, else `$XDG_STATE_HOME/onejob`, else `~/.local/state/onejob`."""
    if chosen:
        return DataDir(Path(chosen).absolute())
    state_home = os.environ.get("XDG_STATE_HOME", "")
    # The XDG specification has relative paths ignored.
    base = Path(state_home) if os.path.isabs(state_home) else Path.home() / ".local" / "state"
    return DataDir(base / "onejob")


def make_private(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied", str(folder))
    except OSError as error:
        raise CommandError(
            f"cannot keep state in {folder}: {error.strerror or error}",
            "choose another place with --data-dir",
        ) from None
