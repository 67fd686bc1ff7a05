"""Preparation of one attempt: fetch settings, create volumes and files, build the engine
request."""

import os
from collections.abc import Callable

from msgspec.structs import replace

from onejob.clock import Clock
from onejob.node.podman.command import NodeSide, RunRequest, run_request
from onejob.node.podman.engine_settings import PodmanSettings
from onejob.node.podman.image_volumes import without_image_volumes
from onejob.node.podman.images import ImageFacts
from onejob.node.podman.pod_folders import PodFolders
from onejob.node.runtime import AttemptRef, Fetch
from onejob.node.setup.container_sources import NO_SETTINGS, FetchedSettings, fetch_settings
from onejob.node.setup.environment import environment, settings_used
from onejob.node.setup.last_message import make_message_file
from onejob.node.setup.output_places import NO_PLACES, OutputPlaces, Outputs
from onejob.node.setup.volumes import Mount, container_mounts, settings_in_volumes
from onejob.node.supervisor.paths import part_inside
from onejob.objects.pod_spec import Container, NodePod
from onejob.planning.pod.outputs import may_have_outputs


async def settings_for(fetch: Fetch, pod: NodePod, container: Container) -> FetchedSettings:
    """Fetch the ConfigMaps and Secrets that the container uses. Raises ConfigProblem."""
    keys = [*settings_used(pod, container)]
    if container.volume_mounts:
        keys.extend(settings_in_volumes(pod))
    return await fetch_settings(fetch, keys) if keys else NO_SETTINGS


class Preparation:
    """Builder of engine requests."""

    def __init__(
        self,
        folders: PodFolders,
        settings: PodmanSettings,
        clock: Clock,
        node_side: Callable[[], NodeSide],
    ) -> None:
        self._folders = folders
        self._settings = settings
        self._node_side = node_side
        self._outputs = Outputs(folders.data_dir, clock, settings.node)

    def places(self, pod: NodePod, container: Container) -> OutputPlaces:
        """Return the container's outputs and inputs, after creating them. Raises ConfigProblem,
        OSError."""
        if not may_have_outputs(pod.metadata.annotations, container):
            return NO_PLACES
        return self._outputs.places(pod, container, hidden=True)

    def ended(self, uid: str) -> None:
        """Forget a Pod that has ended."""
        self._outputs.ended(uid)

    def prepare(
        self,
        pod: NodePod,
        container: Container,
        ref: AttemptRef,
        settings: FetchedSettings,
        image: ImageFacts,
        places: OutputPlaces,
        notes: list[str],
    ) -> RunRequest:
        """Create the attempt's files and return its request. Blocks while it writes files: call it
        in a worker thread.

        Deviations from the Pod's spec are added to `notes`. Raises ConfigProblem, VolumeProblem,
        OSError.
        """
        node, base_env = self._settings.node, {**self._settings.base_env, **places.variables}
        folder = self._folders.of(pod.uid)
        env = environment(pod, container, base_env, settings, node, folder)
        own = without_image_volumes(pod, container)
        mounts = container_mounts(pod, own, folder, settings, node, env, notes)
        # The engine resolves sources again: without links, it mounts the paths that were checked.
        mounts = [replace(mount, source=_without_links(mount)) for mount in mounts]
        mounts += places.mounts
        if container.termination_message_path:
            message = make_message_file(self._folders.all, ref)
            mounts.append(Mount(str(message), container.termination_message_path))
        log_file = self._folders.engine_log(ref)
        log_file.parent.mkdir(parents=True, exist_ok=True)
        return run_request(
            pod,
            container,
            ref,
            env=env,
            mounts=mounts,
            image=image,
            log_file=log_file,
            node_side=self._node_side(),
        )


def _without_links(mount: Mount) -> str:
    """Return the source with links resolved. Raises OSError if it now leads out of the folder that
    it must be in."""
    if not mount.volume:
        return os.path.realpath(mount.source)
    part = part_inside(mount.volume, os.path.relpath(mount.source, mount.volume))
    return os.path.join(os.path.realpath(mount.volume), part).rstrip("/")
