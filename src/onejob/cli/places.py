"""Data dir: onejob's persistent files, private to one user.

<data dir>/kubeconfig     written by `serve`, read by the client commands
<data dir>/server/        the state of `serve`
<data dir>/runs/<id>/     the state of each `run`
<data dir>/run-pki/       the CA of the dashboards of `run --ui`
"""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from onejob.cli.errors import CommandError
from onejob.trusted_paths import (
    NotTrusted,
    make_own_folder,
    make_trusted_folder,
    read_own_file,
    require_trusted_folder,
)


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
        """Create the folder, or verify that no other user can have written to it.

        Raises CommandError.
        """
        _prepare_state_folder(self.path, make_trusted_folder)

    def require_trusted(self) -> None:
        """Raise CommandError if the data dir exists and may have been written by another user."""
        try:
            if os.path.lexists(self.path):
                require_trusted_folder(self.path)
        except NotTrusted as error:
            raise CommandError(str(error), "or select a server with --kubeconfig") from None

    def has_kubeconfig(self) -> bool:
        """Return whether `serve` has written a kubeconfig.

        Raises CommandError if the file may be another user's.
        """
        try:
            read_own_file(self.kubeconfig)
        except FileNotFoundError:
            return False
        except NotTrusted as error:
            raise CommandError(str(error), "or select it with --kubeconfig") from None
        return True


def data_dir(chosen: str | None) -> DataDir:
    """Return the chosen data dir, else `$XDG_STATE_HOME/onejob`, else `~/.local/state/onejob`."""
    if chosen:
        return DataDir(Path(chosen).absolute())
    state_home = os.environ.get("XDG_STATE_HOME", "")
    # The XDG specification requires relative paths to be ignored.
    base = Path(state_home) if os.path.isabs(state_home) else Path.home() / ".local" / "state"
    return DataDir(base / "onejob")


def make_private(folder: Path) -> None:
    """Create a private folder inside a prepared data dir. Raises CommandError."""
    _prepare_state_folder(folder, make_own_folder)


def _prepare_state_folder(folder: Path, make: Callable[[Path], None]) -> None:
    next_step = "select another directory with --data-dir"
    try:
        make(folder)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied", str(folder))
    except NotTrusted as error:
        raise CommandError(str(error), next_step) from None
    except OSError as error:
        raise CommandError(
            f"cannot write state to {folder}: {error.strerror or error}", next_step
        ) from None
