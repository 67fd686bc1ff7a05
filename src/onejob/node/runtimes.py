"""Registry of runtimes by name: their factories, and the properties known before one is created.

To add a runtime, implement `node.runtime.Runtime` and add an entry here.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from onejob.clock import Clock
from onejob.node.agent.capacity import BOUNDLESS, machine_capacity
from onejob.node.images import Images
from onejob.node.options import NodeOptions, RuntimeName
from onejob.node.podman import traits as podman_traits
from onejob.node.process.runtime import ProcessRuntime
from onejob.node.process.runtime_settings import ProcessSettings
from onejob.node.runtime import Runtime, RuntimeTraits
from onejob.node.setup.environment import NodeContext
from onejob.node.simulated import SimulatedRuntime
from onejob.planning.pod.placement import Amounts

#: Server environment variables that host processes inherit; the manifest's variables override them.
INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR")


class RuntimeKind(Struct, frozen=True):
    traits: RuntimeTraits
    make: Callable[[NodeOptions, Path, Clock, NodeContext], Runtime]
    #: Node capacity unless the options set it.
    capacity: Callable[[], Amounts] = machine_capacity
    #: One line for the user: the reason why the runtime is unusable on this machine; "" if usable.
    problem: Callable[[NodeOptions], str] = lambda options: ""


def _make_process(
    options: NodeOptions, data_dir: Path, clock: Clock, context: NodeContext
) -> Runtime:
    if options.pid_namespace == "auto" and (options.pods_end_with_server or os.geteuid() != 0):
        options = replace(options, pid_namespace="off")
    # Python block-buffers output to pipes; its last lines before a kill would be lost.
    variables = {
        "PYTHONUNBUFFERED": options.caller_env.get("PYTHONUNBUFFERED", "1"),
        **_variables((*INHERITED_VARIABLES, *options.pass_env)),
    }
    settings = ProcessSettings(context, variables, options, Images(options.image_map))
    return ProcessRuntime(data_dir, clock, settings)


def _process_problem(options: NodeOptions) -> str:
    """Return a message if an inherited variable is not UTF-8: requests for processes are JSON."""
    for name, value in _variables((*INHERITED_VARIABLES, *options.pass_env)).items():
        if not is_text(value):
            return f"the variable {name}, which Pods get, is not text in UTF-8: {value!r}"
    return ""


def is_text(value: str) -> bool:
    """Return whether `value` can be encoded as UTF-8. Python decodes other bytes to lone
    surrogates, which cannot be encoded."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _make_podman(
    options: NodeOptions, data_dir: Path, clock: Clock, context: NodeContext
) -> Runtime:
    # Imported on demand: most installations do not use Podman, and the import delays start-up.
    from onejob.node.podman.engine_settings import PodmanSettings
    from onejob.node.podman.runtime import PodmanRuntime

    # Nothing is inherited by default: an image sets its own PATH.
    return PodmanRuntime(
        data_dir, clock, PodmanSettings(context, options, _variables(options.pass_env))
    )


def _engine_problem(options: NodeOptions) -> str:
    from onejob.node.podman.engine import not_installed

    program = options.engine[0]
    return "" if shutil.which(program) is not None else not_installed(program)


def _make_simulated(
    options: NodeOptions, data_dir: Path, clock: Clock, context: NodeContext
) -> Runtime:
    return SimulatedRuntime(clock)


def _variables(names: tuple[str, ...]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


RUNTIMES: Final[Mapping[RuntimeName, RuntimeKind]] = {
    "process": RuntimeKind(ProcessRuntime.traits, _make_process, problem=_process_problem),
    "podman": RuntimeKind(podman_traits.TRAITS, _make_podman, problem=_engine_problem),
    "simulated": RuntimeKind(SimulatedRuntime.traits, _make_simulated, capacity=lambda: BOUNDLESS),
}
