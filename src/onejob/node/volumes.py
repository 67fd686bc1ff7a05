"""Volumes as directories and files of this host, made before a container starts."""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from onejob.node.environment import (
    CONFIG_MAPS,
    SECRETS,
    ConfigProblem,
    NodeContext,
    Settings,
    expand,
    field_value,
    resource_value,
)
from onejob.objects.meta import Key
from onejob.objects.pod_spec import (
    Container,
    DownwardFile,
    HostPathVolume,
    KeyToPath,
    NodePod,
    ProjectedVolume,
    Volume,
    VolumeMount,
)


class VolumeProblem(Exception):
    """A volume cannot be provided now; upstream keeps such a container in ContainerCreating."""

    def __init__(self, volume: str, message: str) -> None:
        super().__init__(message)
        self.message = f'MountVolume.SetUp failed for volume "{volume}" : {message}'


def settings_in_volumes(pod: NodePod) -> Iterator[Key]:
    namespace = pod.metadata.namespace
    for volume in pod.spec.volumes:
        if volume.config_map is not None:
            yield Key(CONFIG_MAPS, namespace, volume.config_map.name)
        if volume.secret is not None:
            yield Key(SECRETS, namespace, volume.secret.secret_name)
        for source in volume.projected.sources if volume.projected is not None else ():
            if source.config_map is not None:
                yield Key(CONFIG_MAPS, namespace, source.config_map.name)
            if source.secret is not None:
                yield Key(SECRETS, namespace, source.secret.name)


def provide_volumes(
    pod: NodePod, container: Container, folder: Path, settings: Settings, node: NodeContext
) -> dict[str, Path]:
    """Make the volumes that a container mounts; the path of each by name.

    What is there already (an emptyDir after a restart) stays. Raises VolumeProblem.
    """
    by_name = {volume.name: volume for volume in pod.spec.volumes}
    paths: dict[str, Path] = {}
    for mount in container.volume_mounts:
        volume = by_name.get(mount.name)
        if volume is None:
            raise VolumeProblem(mount.name, "the Pod has no such volume")
        if mount.name in paths:
            continue
        try:
            paths[mount.name] = _provide(pod, volume, folder / "volumes", settings, node)
        except ConfigProblem as problem:
            raise VolumeProblem(mount.name, problem.message) from problem
        except OSError as error:
            raise VolumeProblem(mount.name, f"{error.filename}: {error.strerror}") from error
    return paths


def mount_source(
    mount: VolumeMount, path: Path, env: Mapping[str, str], *, create: bool = True
) -> Path:
    """Where a mount leads: the volume or a part of it. Raises ConfigProblem."""
    part = expand(mount.sub_path_expr, env) if mount.sub_path_expr else mount.sub_path
    if not part:
        return path
    if not _safe(part):
        raise ConfigProblem(
            f'failed to prepare subPath for volumeMount "{mount.name}" of container: '
            f'"{part}" must be a relative path without ".."'
        )
    source = path / part
    if not source.resolve().is_relative_to(path.resolve()):
        raise ConfigProblem(f'subPath "{part}" of volume "{mount.name}" leads out of the volume')
    if create and not source.exists():
        try:
            source.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigProblem(f'subPath "{part}": {error.strerror}') from error
    return source


def _provide(
    pod: NodePod, volume: Volume, folder: Path, settings: Settings, node: NodeContext
) -> Path:
    if volume.host_path is not None:
        return _host_path(volume.host_path)
    path = folder / volume.name
    if volume.empty_dir is not None:
        _make_open_directory(path, pod.spec.security_context.fs_group)
        return path
    if volume.config_map is not None:
        source = volume.config_map
        files = _selected(
            pod, CONFIG_MAPS, source.name, source.items, settings, optional=source.optional
        )
        mode = source.default_mode
    elif volume.secret is not None:
        secret = volume.secret
        files = _selected(
            pod, SECRETS, secret.secret_name, secret.items, settings, optional=secret.optional
        )
        mode = secret.default_mode
    elif volume.downward_api is not None:
        files = _downward(pod, volume.downward_api.items, node)
        mode = volume.downward_api.default_mode
    elif volume.projected is not None:
        files = _projected(pod, volume.projected, settings, node)
        mode = volume.projected.default_mode
    else:
        raise ConfigProblem("this node does not provide volumes of this kind")
    path.mkdir(parents=True, exist_ok=True)
    for name, (content, own_mode) in files.items():
        _write(path, name, content, mode if own_mode is None else own_mode)
    return path


_Files = dict[str, tuple[bytes, int | None]]


def _selected(
    pod: NodePod,
    resource: str,
    name: str,
    items: Sequence[KeyToPath],
    settings: Settings,
    *,
    optional: bool,
) -> _Files:
    values = settings.values(Key(resource, pod.metadata.namespace, name))
    if values is None:
        if optional:
            return {}
        raise ConfigProblem(f'{resource[:-1]} "{name}" not found')
    if not items:
        return {key: (value, None) for key, value in values.items()}
    files: _Files = {}
    for item in items:
        if item.key in values:
            files[item.path] = (values[item.key], item.mode)
        elif not optional:
            raise ConfigProblem(f"{resource[:-1]} references non-existent key: {item.key}")
    return files


def _downward(pod: NodePod, items: Sequence[DownwardFile], node: NodeContext) -> _Files:
    files: _Files = {}
    for item in items:
        if item.field_ref is not None:
            text = field_value(pod, item.field_ref.field_path, node)
        elif item.resource_field_ref is not None:
            owner = pod.container(item.resource_field_ref.container_name)
            if owner is None:
                raise ConfigProblem(f"container {item.resource_field_ref.container_name} not found")
            text = resource_value(pod, owner, item.resource_field_ref, node)
        else:
            continue
        files[item.path] = (text.encode(), item.mode)
    return files


def _projected(
    pod: NodePod, volume: ProjectedVolume, settings: Settings, node: NodeContext
) -> _Files:
    files: _Files = {}
    for source in volume.sources:
        if (config := source.config_map) is not None:
            files |= _selected(
                pod, CONFIG_MAPS, config.name, config.items, settings, optional=config.optional
            )
        elif (secret := source.secret) is not None:
            files |= _selected(
                pod, SECRETS, secret.name, secret.items, settings, optional=secret.optional
            )
        elif source.downward_api is not None:
            files |= _downward(pod, source.downward_api.items, node)
        else:
            raise ConfigProblem("this node does not project this kind of source")
    return files


def _write(folder: Path, name: str, content: bytes, mode: int) -> None:
    if not _safe(name):
        raise ConfigProblem(f'"{name}" must be a relative path without ".."')
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and target.read_bytes() == content:
        return
    # Replaced, not rewritten: a reader sees the old file or the new one, never half of it.
    fresh = target.with_name(f"..{target.name}.new")
    fresh.write_bytes(content)
    fresh.chmod(mode)
    fresh.rename(target)


def _make_open_directory(path: Path, group: int | None) -> None:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o777)
    if group is not None and os.geteuid() == 0:
        os.chown(path, -1, group)
        path.chmod(0o2777)


_CHECKS = {
    "Directory": (stat.S_ISDIR, "directory"),
    "File": (stat.S_ISREG, "file"),
    "Socket": (stat.S_ISSOCK, "socket file"),
    "CharDevice": (stat.S_ISCHR, "character device"),
    "BlockDevice": (stat.S_ISBLK, "block device"),
}


def _host_path(volume: HostPathVolume) -> Path:
    path = Path(volume.path)
    kind = volume.type
    if kind in ("", "DirectoryOrCreate") and not path.exists():
        path.mkdir(parents=True, exist_ok=True, mode=0o755)
    elif kind == "FileOrCreate" and not path.exists():
        path.touch(mode=0o644)
    check, noun = _CHECKS.get(kind.removesuffix("OrCreate"), (None, ""))
    if check is not None and not (path.exists() and check(path.stat().st_mode)):
        raise ConfigProblem(f"hostPath type check failed: {path} is not a {noun}")
    return path


def _safe(part: str) -> bool:
    path = PurePosixPath(part)
    return not path.is_absolute() and ".." not in path.parts and "\0" not in part
