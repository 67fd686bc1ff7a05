"""Image volumes: the files of an image, mounted read-only by the engine (gate ImageVolume)."""

from collections.abc import Iterator

from msgspec.structs import replace

from onejob.node.setup.environment import ConfigProblem
from onejob.objects.pod_spec import Container, ImageVolume, NodePod, VolumeMount


def images_of_volumes(pod: NodePod, container: Container) -> Iterator[ImageVolume]:
    """Yield the images that a container mounts."""
    for _, image in _image_mounts(pod, container):
        yield image


def without_image_volumes(pod: NodePod, container: Container) -> Container:
    """Return the container with the mounts that the node itself provides."""
    images = [mount for mount, _ in _image_mounts(pod, container)]
    if not images:
        return container
    kept = tuple(mount for mount in container.volume_mounts if mount not in images)
    return replace(container, volume_mounts=kept)


def image_mounts(pod: NodePod, container: Container, *, is_docker: bool) -> list[str]:
    """Return the engine's arguments for a container's image volumes. Raises ConfigProblem."""
    arguments = []
    for mount, image in _image_mounts(pod, container):
        if is_docker:
            raise ConfigProblem(f'volume "{mount.name}": docker does not mount images')
        if mount.sub_path or mount.sub_path_expr:
            raise ConfigProblem(f'volume "{mount.name}": subPath of an image is not supported')
        if "," in mount.mount_path:
            # The engine would parse the text after a comma as another option.
            raise ConfigProblem(f'volume "{mount.name}": the mountPath contains a comma')
        arguments.append(
            f"--mount=type=image,source={image.reference},destination={mount.mount_path}"
        )
    return arguments


def _image_mounts(pod: NodePod, container: Container) -> list[tuple[VolumeMount, ImageVolume]]:
    if not container.volume_mounts:
        return []
    images = {each.name: each.image for each in pod.spec.volumes if each.image is not None}
    return [
        (mount, images[mount.name]) for mount in container.volume_mounts if mount.name in images
    ]
