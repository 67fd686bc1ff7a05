"""Paths of the files of Pods and their containers."""

from pathlib import Path

from onejob.node.logs.reading import log_path
from onejob.node.runtime import AttemptRef


class PodFolders:
    """Folders of Pods below the data dir."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.resolve()
        self.all = self.data_dir / "pods"

    def of(self, uid: str) -> Path:
        """Return the folder of a Pod."""
        return self.all / uid

    def all_but_logs(self, uid: str) -> list[Path]:
        return [self.all / uid / name for name in ("volumes", "messages", "engine")]

    def log(self, ref: AttemptRef) -> Path:
        """Return the path of the container's log in the node's own format."""
        return log_path(self.data_dir, *ref)

    def of_engine(self, ref: AttemptRef) -> Path:
        """Return the folder to which the engine and its monitor write."""
        return self.all / ref.uid / "engine" / f"{ref.container}-{ref.attempt}"

    def engine_log(self, ref: AttemptRef) -> Path:
        return self.of_engine(ref) / "output"
