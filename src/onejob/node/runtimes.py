"""Registry of runtimes by name, each imported only when it is used.

To add a runtime: write a module with a subclass of `node.runtime.Runtime` and its `RuntimeKind`,
add a line to `RUNTIMES`, and a subject to `tests/node/runtime_subjects.py` for the contract suite.
Names, not modules, are read at start-up: `--runtime` offers the keys of `RUNTIMES`.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from onejob.node.runtime import RuntimeKind


def runtime_kind(name: str) -> "RuntimeKind":
    """Return the runtime with this name. Raises ValueError."""
    load = RUNTIMES.get(name)
    if load is None:
        raise ValueError(f"there is no runtime {name!r}, only {', '.join(RUNTIMES)}")
    return load()


def _process() -> "RuntimeKind":
    from onejob.node.process.runtime import KIND

    return KIND


def _podman() -> "RuntimeKind":
    from onejob.node.podman.runtime import KIND

    return KIND


def _slurm() -> "RuntimeKind":
    from onejob.node.slurm.runtime import KIND

    return KIND


def _simulated() -> "RuntimeKind":
    from onejob.node.simulated import KIND

    return KIND


RUNTIMES: Final[Mapping[str, Callable[[], "RuntimeKind"]]] = {
    "process": _process,
    "podman": _podman,
    "slurm": _slurm,
    "simulated": _simulated,
}
