"""What the engine is asked to run for one attempt: settings fetched, volumes and files made."""

import os
from collections.abc import Callable

from msgspec.structs import replace

from onejob.node.agent.settings import NO_SETTINGS, FetchedSettings, fetch_settings
from onejob.node.podman.command import NodeSide, RunRequest, run_request
from onejob.node.podman.images import ImageFacts
from onejob.node.podman.pod_folders import PodFolders
from onejob.node.podman.settings import PodmanSettings
from onejob.node.process.mounts import Mount
from onejob.node.runtime import AttemptRef, Fetch
from onejob.node.setup.environment import environment, settings_used
from onejob.node.setup.last_message import make_message_file
from onejob.node.setup.volumes import container_mounts, settings_in_volumes
from onejob.node.supervisor.paths import part_inside
from onejob.objects.pod_spec import Container, NodePod


async def settings_for(fetch: Fetch, pod: NodePod, container: Container) -> FetchedSettings:
    """The ConfigMaps and Secrets that the container uses. Raises ConfigProblem."""
    keys = [*settings_used(pod, container)]
    if container.volume_mounts:
        keys.extend(settings_in_volumes(pod))
    return await fetch_settings(fetch, keys) if keys else NO_SETTINGS


class Preparation:
    """Blocks while it makes files: called in a thread."""

    def __init__(
        self, folders: PodFolders, settings: PodmanSettings, node_side: Callable[[], NodeSide]
    ) -> None:
        self._folders = folders
        self._settings = settings
        self._node_side = node_side

    def prepare(
        self,
        pod: NodePod,
        container: Container,
        ref: AttemptRef,
        settings: FetchedSettings,
        image: ImageFacts,
        notes: list[str],
    ) -> RunRequest:
        """`notes` gets what is not as the Pod asks. Raises ConfigProblem, VolumeProblem,
        OSError."""
        node, base_env = self._settings.node, self._settings.base_env
        env = environment(pod, container, base_env, settings, node)
        folder = self._folders.of(pod.uid)
        mounts = container_mounts(pod, container, folder, settings, node, env, notes)
        # The engine looks sources up again: what links lead to now is what was checked.
        mounts = [replace(mount, source=_without_links(mount)) for mount in mounts]
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
    """Raises OSError if it has come to lead out of the folder that it must be in."""
    if not mount.volume:
        return os.path.realpath(mount.source)
    part = part_inside(mount.volume, os.path.relpath(mount.source, mount.volume))
    return os.path.join(os.path.realpath(mount.volume), part).rstrip("/")
