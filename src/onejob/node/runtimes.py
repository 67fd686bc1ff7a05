"""The runtimes there are, by name: how each is made, and what is known of it before that.

A further runtime is a class that has what `node.runtime.Runtime` asks for, and an entry here.
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
from onejob.node.process.settings import ProcessSettings
from onejob.node.runtime import Runtime, RuntimeTraits
from onejob.node.setup.environment import NodeContext
from onejob.node.simulated import SimulatedRuntime
from onejob.planning.pod.placement import Amounts

#: What processes get of the server's environment; the manifest's own variables come on top.
INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR")


class RuntimeKind(Struct, frozen=True):
    traits: RuntimeTraits
    make: Callable[[NodeOptions, Path, Clock, NodeContext], Runtime]
    #: What a node has to give if its options do not say.
    capacity: Callable[[], Amounts] = machine_capacity
    #: Why it cannot be used on this machine: one line for whoever asked for it, "" if it can.
    problem: Callable[[NodeOptions], str] = lambda options: ""


def _make_process(
    options: NodeOptions, data_dir: Path, clock: Clock, context: NodeContext
) -> Runtime:
    if options.pid_namespace == "auto" and (options.pods_end_with_us or os.geteuid() != 0):
        options = replace(options, pid_namespace="off")
    # Python writes whole blocks to what is no terminal: its last lines before a kill would be lost.
    variables = {
        "PYTHONUNBUFFERED": options.caller_env.get("PYTHONUNBUFFERED", "1"),
        **_variables((*INHERITED_VARIABLES, *options.pass_env)),
    }
    settings = ProcessSettings(context, variables, options, Images(options.image_map))
    return ProcessRuntime(data_dir, clock, settings)


def _process_problem(options: NodeOptions) -> str:
    """What processes get is written down as JSON first."""
    for name, value in _variables((*INHERITED_VARIABLES, *options.pass_env)).items():
        if not is_text(value):
            return f"the variable {name}, which Pods get, is not text in UTF-8: {value!r}"
    return ""


def is_text(value: str) -> bool:
    """Bytes that are not UTF-8 come as halves of surrogate pairs, which cannot be written."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _make_podman(
    options: NodeOptions, data_dir: Path, clock: Clock, context: NodeContext
) -> Runtime:
    # Few have it, and all others would wait for its import.
    from onejob.node.podman.runtime import PodmanRuntime
    from onejob.node.podman.settings import PodmanSettings

    # An image brings its own PATH and the like.
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
