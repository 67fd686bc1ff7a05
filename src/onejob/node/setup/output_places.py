"""Output directories and progress files of containers: variables and mounts."""

from pathlib import Path
from typing import Final

from msgspec import Struct

from onejob.clock import Clock
from onejob.node.outputs.folders import (
    FILES,
    FOLDER,
    PROGRESS,
    make_folder,
    outputs_of_job,
)
from onejob.node.runtime import NodeContext
from onejob.node.setup.environment import ConfigProblem
from onejob.node.setup.volumes import Mount
from onejob.objects.pod_spec import Container, NodePod
from onejob.planning.names import OUTPUT_VARIABLE, PROGRESS_VARIABLE
from onejob.planning.pod.outputs import InvalidInputs, output_path, parse_inputs

#: Where containers find their files if the data directory is not visible to them.
_MOUNTED = "/run/onejob"
#: Mounts of one container: one per Pod of an earlier Job.
_MAX_MOUNTS = 1000


class OutputPlaces(Struct, frozen=True):
    """Variables and mounts of one container."""

    variables: dict[str, str]
    mounts: tuple[Mount, ...] = ()


NO_PLACES: Final = OutputPlaces({})


class Outputs:
    """Output directories of the Pods of this node."""

    def __init__(self, data_dir: Path, clock: Clock, node: NodeContext) -> None:
        self._data_dir = data_dir
        self._clock = clock
        self._node = node
        self._opened: set[str] = set()

    def places(self, pod: NodePod, container: Container, *, hidden: bool) -> OutputPlaces:
        """Return a container's places, after creating them.

        `hidden` means that the container cannot reach the data directory. Raises ConfigProblem and
        OSError.
        """
        annotations = pod.metadata.annotations
        try:
            inputs = self._inputs(pod)
            chosen = output_path(annotations)
        except InvalidInputs as error:
            raise ConfigProblem(f"annotations about outputs: {error}") from error
        self._open(pod)
        folder = self._data_dir / FOLDER / pod.uid
        files, progress = str(folder / FILES), str(folder / PROGRESS)
        mounts = list(inputs)
        variables = {OUTPUT_VARIABLE: files, PROGRESS_VARIABLE: progress}
        if hidden or chosen:
            variables[OUTPUT_VARIABLE] = chosen or f"{_MOUNTED}/output"
            mounts.append(Mount(files, variables[OUTPUT_VARIABLE]))
        if hidden:
            variables[PROGRESS_VARIABLE] = f"{_MOUNTED}/progress"
            mounts.append(Mount(progress, variables[PROGRESS_VARIABLE]))
        return OutputPlaces(variables, tuple(mounts))

    def _open(self, pod: NodePod) -> None:
        if pod.uid in self._opened:
            return
        make_folder(self._data_dir, pod, self._clock.now())
        self._opened.add(pod.uid)
        self._node.on_outputs(pod.metadata.namespace, pod.metadata.name, pod.uid)

    def ended(self, uid: str) -> None:
        self._opened.discard(uid)

    def _inputs(self, pod: NodePod) -> tuple[Mount, ...]:
        """Return the mounts of earlier Jobs' outputs: one folder per index, or a single Pod's
        files themselves. Raises ConfigProblem, InvalidInputs."""
        mounts: list[Mount] = []
        for each in parse_inputs(pod.metadata.annotations):
            found = outputs_of_job(self._data_dir, pod.metadata.namespace, each.uid)
            if not found:
                raise ConfigProblem(f"no outputs of job {each.job} (uid {each.uid}) are kept")
            target = each.mount_path.rstrip("/")
            if len(found) == 1 and found[0].record.index is None:
                mounts.append(Mount(found[0].files, target, read_only=True))
                continue
            mounts.extend(
                Mount(kept.files, f"{target}/{kept.place}", read_only=True) for kept in found
            )
        if len(mounts) > _MAX_MOUNTS:
            raise ConfigProblem(f"the inputs have {len(mounts)} folders; at most {_MAX_MOUNTS}")
        return tuple(mounts)
