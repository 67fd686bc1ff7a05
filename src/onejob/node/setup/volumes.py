"""Volumes as directories and files of this host, created before a container starts."""

import os
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from msgspec import Struct

from onejob.node.removal import MEMORY_VOLUME
from onejob.node.runtime import NodeContext
from onejob.node.setup.atomic_files import File, give_folder, write_files
from onejob.node.setup.claims import ClaimPath, claim_path_key, read_claim_path
from onejob.node.setup.environment import (
    CONFIG_MAPS,
    SECRETS,
    ConfigProblem,
    Settings,
    expand,
    field_value,
    missing_values,
    resource_value,
)
from onejob.node.setup.tokens import TOKEN_FIELD, token_key
from onejob.node.supervisor import linux
from onejob.node.supervisor.paths import (
    beneath,
    folder_of,
    open_beneath,
    open_regular,
    open_trusted,
    part_inside,
)
from onejob.objects.meta import Key
from onejob.objects.pod_spec import (
    Container,
    DownwardFile,
    EmptyDirVolume,
    HostPathVolume,
    KeyToPath,
    NodePod,
    ProjectedVolume,
    Volume,
    VolumeMount,
)
from onejob.planning.pod.confinement import is_within
from onejob.wire.quantity import InvalidQuantity, parse_quantity


class Mount(Struct, frozen=True):
    """Bind mount of a host path into a container."""

    source: str
    target: str
    read_only: bool = False
    #: Volume that `source` is a part of, or folder that it must be inside of at the time of
    #: mounting; "" if neither.
    volume: str = ""


class VolumeProblem(Exception):
    """A volume cannot be provided at present; as upstream, the container stays in
    ContainerCreating."""

    def __init__(self, volume: str, message: str) -> None:
        super().__init__(message)
        self.message = f'MountVolume.SetUp failed for volume "{volume}" : {message}'


class Provided(NamedTuple):
    """Location of a volume on this host."""

    path: str
    #: Folder that it must still be inside of when it is mounted; "" without that restriction.
    inside: str = ""
    read_only: bool = False


def settings_in_volumes(pod: NodePod) -> Iterator[Key]:
    """Yield the keys of ConfigMaps and Secrets in a Pod's volumes."""
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
            if source.service_account_token is not None:
                yield token_key(pod, source.service_account_token)
        if (key := claim_path_key(pod, volume)) is not None:
            yield key


def container_mounts(
    pod: NodePod,
    container: Container,
    folder: Path,
    settings: Settings,
    node: NodeContext,
    env: Mapping[str, str],
    notes: list[str],
) -> list[Mount]:
    """Create the volumes that a container mounts, and return its mounts. Blocks while it writes
    files. Raises ConfigProblem, VolumeProblem."""
    provided = provide_volumes(pod, container, folder, settings, node, notes)
    return mounts_of(pod, container, provided, env)


def provide_volumes(
    pod: NodePod,
    container: Container,
    folder: Path,
    settings: Settings,
    node: NodeContext,
    notes: list[str],
) -> dict[str, Provided]:
    """Create the volumes that a container mounts; return them by name.

    `folder` is the Pod's own. Existing contents (an emptyDir after a restart) are kept. Deviations
    from the Pod's spec are added to `notes`. Blocks while it writes files. Raises VolumeProblem.
    """
    by_name = {volume.name: volume for volume in pod.spec.volumes}
    contents = _PodFiles(pod, settings, node)
    provided: dict[str, Provided] = {}
    for mount in container.volume_mounts:
        volume = by_name.get(mount.name)
        if volume is None:
            raise VolumeProblem(mount.name, "the Pod has no such volume")
        if mount.name not in provided:
            with _name_volume_in_errors(volume):
                provided[mount.name] = _provide_volume(pod, volume, folder, contents, node, notes)
    return provided


def mounts_of(
    pod: NodePod, container: Container, provided: Mapping[str, Provided], env: Mapping[str, str]
) -> list[Mount]:
    """Return the mounts of a container, creating missing subPaths. Raises ConfigProblem."""
    written = {volume.name for volume in pod.spec.volumes if _is_written_by_node(volume)}
    mounts = []
    for mount in container.volume_mounts:
        path, inside, always_read_only = provided[mount.name]
        read_only = mount.read_only or always_read_only or mount.name in written
        if part := _sub_path(mount, env):
            _prepare_part(mount, path, part, inside)
            path, inside = f"{path}/{part}", inside or path
        mounts.append(Mount(path, mount.mount_path, read_only, volume=inside))
    return mounts


def refresh_volumes(pod: NodePod, folder: Path, settings: Settings, node: NodeContext) -> None:
    """Update the files that were written for a Pod. Blocks while it writes files. Raises
    VolumeProblem for the first volume that cannot be updated, after processing all others."""
    contents = _PodFiles(pod, settings, node)
    problems = []
    for volume in pod.spec.volumes:
        # Missing: no container that mounts it was started, or the Pod has ended.
        if not _is_written_by_node(volume) or not (folder / "volumes" / volume.name).is_dir():
            continue
        try:
            with _name_volume_in_errors(volume), suppress(FileNotFoundError):
                _write_files(pod, volume, folder, contents.of(volume), make=None)
        except VolumeProblem as problem:
            problems.append(problem)
    if problems:
        raise problems[0]


def is_refreshed(pod: NodePod) -> bool:
    """Return whether the Pod has generated files, which follow changes of their source objects."""
    return any(_is_written_by_node(volume) for volume in pod.spec.volumes)


def mounts_files(pod: NodePod, container: Container) -> bool:
    """Return whether files have to be written before the container starts."""
    if not container.volume_mounts:
        return False
    mounted = {mount.name for mount in container.volume_mounts}
    return any(
        volume.name in mounted and _is_written_by_node(volume) for volume in pod.spec.volumes
    )


def _is_written_by_node(volume: Volume) -> bool:
    """Return whether the node generates the volume's files. Such volumes are read-only for the Pod,
    since its changes would be lost at the next refresh."""
    return (
        volume.config_map is not None
        or volume.secret is not None
        or volume.downward_api is not None
        or volume.projected is not None
    )


@contextmanager
def _name_volume_in_errors(volume: Volume) -> Iterator[None]:
    """Turn ConfigProblem and OSError into a VolumeProblem of this volume, for a `with` block."""
    try:
        yield
    except ConfigProblem as problem:
        raise VolumeProblem(volume.name, problem.message) from problem
    except OSError as error:
        raise VolumeProblem(volume.name, _text(error)) from error


def _sub_path(mount: VolumeMount, env: Mapping[str, str]) -> str:
    """Return the subPath to mount; "" for the whole volume. Raises ConfigProblem."""
    part, problem = mount.sub_path, ""
    if mount.sub_path_expr:
        if missing := missing_values(mount.sub_path_expr, env):
            problem = f"missing value for {', '.join(missing)}"
        part = expand(mount.sub_path_expr, env)
    if part and not problem and not _is_safe_path(part):
        problem = f'"{part}" must be a relative path without ".."'
    if problem:
        what = f'failed to prepare subPath for volumeMount "{mount.name}" of container'
        raise ConfigProblem(f"{what}: {problem}")
    return part


def _prepare_part(mount: VolumeMount, volume: str, part: str, inside: str) -> None:
    """Create a missing subPath with the volume's mode, as the kubelet does. Links are followed if
    they stay within the volume, which is inside the folder `inside`. Raises ConfigProblem."""
    try:
        resolved = part_inside(volume, part)
        outer = inside or volume
        with folder_of(outer) as base, beneath(base, part_inside(outer, volume)) as top:
            try:
                os.close(open_beneath(top, resolved))
            except FileNotFoundError:
                mode = stat.S_IMODE(os.fstat(top).st_mode)
                os.close(open_beneath(top, resolved, make=mode))
    except OSError as error:
        raise ConfigProblem(f'subPath "{part}" of volume "{mount.name}": {_text(error)}') from error


#: Page size in bytes; a tmpfs of size 0 would be unlimited.
_MIN_TMPFS_BYTES = 4096

#: Most bytes of all files written for one Pod. References multiply: a ConfigMap of one MiB may be
#: mounted at thousands of paths.
MAX_FILES_BYTES = 32 * 1024 * 1024
#: Bytes charged per file, like a disk block, so that many empty files count as well.
_FILE_COST = 4096
#: Size of the tmpfs of a volume with Secrets: twice the limit, because new files are written while
#: the old ones exist. It uses only the memory of its contents.
_SECRET_BYTES = 2 * MAX_FILES_BYTES

#: A starting container and a refresh may write the same volume at the same time.
_writing = threading.Lock()


def _provide_volume(
    pod: NodePod,
    volume: Volume,
    folder: Path,
    contents: "_PodFiles",
    node: NodeContext,
    notes: list[str],
) -> Provided:
    """Create a volume, and return its paths; add deviations to `notes`. Raises ConfigProblem,
    OSError."""
    if volume.host_path is not None:
        return _host_path(volume.host_path, pod.metadata.namespace, node)
    if (key := claim_path_key(pod, volume)) is not None:
        return _claim_volume(pod, volume, read_claim_path(contents.settings.values(key)), node)
    path = folder / "volumes" / volume.name
    if volume.empty_dir is not None:
        if volume.empty_dir.medium == "Memory":
            size = _memory_size(pod, volume.empty_dir, node)
            with _own_folder(folder, volume, 0o755) as fd:
                if problem := _mount_memory(fd, size):
                    what = f'emptyDir "{volume.name}" with medium Memory'
                    notes.append(f"{what} is stored on disk: {problem}")
        with _own_folder(folder, volume, 0o755) as fd:
            give_folder(fd, 0o777, _fs_group(pod))
        return Provided(str(path))
    files = contents.of(volume)
    if _holds_secrets(volume):
        with _own_folder(folder, volume, 0o755) as fd:
            # A volume in use may be mounted elsewhere; a tmpfs over it would be invisible there.
            if not os.listdir(fd):
                _mount_memory(fd, _SECRET_BYTES)
    _write_files(pod, volume, folder, files, make=0o755)
    return Provided(str(path))


def _holds_secrets(volume: Volume) -> bool:
    """Return whether the volume contains Secrets, which are kept off the disk if possible."""
    if volume.projected is not None:
        return any(source.secret is not None for source in volume.projected.sources)
    return volume.secret is not None


def _mount_memory(folder: int, size: int) -> str:
    """Mount a tmpfs over the folder, for all containers of the Pod, unless there is one already;
    return the reason if that fails, else ""."""
    if os.fstat(folder).st_dev != os.stat("..", dir_fd=folder).st_dev:
        return ""
    if os.geteuid() != 0:
        return "only root can mount a tmpfs"
    flags = linux.MS_NOSUID | linux.MS_NODEV
    options = f"mode=0777,size={size}"
    try:
        linux.mount(MEMORY_VOLUME, f"/proc/self/fd/{folder}", flags, "tmpfs", options)
    except OSError as error:
        return str(error.strerror)
    return ""


def _memory_size(pod: NodePod, volume: EmptyDirVolume, node: NodeContext) -> int:
    """Return the tmpfs size in bytes as the kubelet does: the least of the node's memory, the
    containers' limits and the volume's limit. Raises ConfigProblem."""
    try:
        limits = sum(
            parse_quantity(container.resources.limits.get("memory", "0")).nanos
            for container in pod.spec.containers
        )
        bounds = (
            node.allocatable.get("memory", 0),
            limits // 10**9,
            parse_quantity(volume.size_limit).nanos // 10**9,
        )
    except InvalidQuantity as error:
        raise ConfigProblem(str(error)) from error
    return max(
        min((size for size in bounds if size > 0), default=_MIN_TMPFS_BYTES), _MIN_TMPFS_BYTES
    )


def _write_files(
    pod: NodePod, volume: Volume, folder: Path, files: Mapping[str, File], *, make: int | None
) -> None:
    fs_group = _fs_group(pod)
    with _writing, _own_folder(folder, volume, make) as fd:
        give_folder(fd, 0o755, fs_group)
        write_files(fd, files, fs_group)


def _fs_group(pod: NodePod) -> int | None:
    """Return the fsGroup to apply; None without root, which could not set it."""
    return pod.spec.security_context.fs_group if os.geteuid() == 0 else None


@contextmanager
def _own_folder(folder: Path, volume: Volume, make: int | None) -> Iterator[int]:
    """Open the folder of a volume below its Pod's; no link planted there leads out of it."""
    part = f"{folder.name}/volumes/{volume.name}"
    with folder_of(str(folder.parent)) as pods, beneath(pods, part, make=make) as place:
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
        try:
            yield fd
        finally:
            os.close(fd)


_Files = dict[str, tuple[bytes, int | None]]


class _PodFiles:
    """Contents of a Pod's generated volumes, within one size limit for all of them. Files from one
    source share its bytes."""

    def __init__(self, pod: NodePod, settings: Settings, node: NodeContext) -> None:
        self._pod = pod
        self.settings = settings
        self._node = node
        self._fields: dict[str, bytes] = {}
        self._volumes: dict[str, dict[str, File] | ConfigProblem] | None = None
        self._room = MAX_FILES_BYTES

    def of(self, volume: Volume) -> dict[str, File]:
        """Return the files of one volume by relative path. Raises ConfigProblem, including for
        every volume if the Pod's volumes exceed the limit in total."""
        if self._volumes is None:
            self._volumes = {
                each.name: self._contents_or_error(each) for each in self._pod.spec.volumes
            }
        if self._room < 0:
            raise ConfigProblem(
                f"the files of this Pod's volumes need more than {MAX_FILES_BYTES >> 20} MiB"
            )
        files = self._volumes[volume.name]
        if isinstance(files, ConfigProblem):
            raise files
        return files

    def _contents_or_error(self, volume: Volume) -> dict[str, File] | ConfigProblem:
        """Return the files of a volume, or the error instead of raising it."""
        if volume.image is not None:
            return ConfigProblem("image volumes need the podman runtime")
        if not _is_written_by_node(volume) or self._room < 0:
            return ConfigProblem("this node does not provide volumes of this kind")
        try:
            files = self._contents(volume)
        except ConfigProblem as problem:
            return problem
        self._room -= sum(len(file.content) + _FILE_COST for file in files.values())
        return files

    def _contents(self, volume: Volume) -> dict[str, File]:
        """Return the files of a volume with their modes. Raises ConfigProblem."""
        files: _Files = {}
        if (config := volume.config_map) is not None:
            files = self._config_files(
                CONFIG_MAPS, config.name, config.items, optional=config.optional
            )
            mode = config.default_mode
        elif (secret := volume.secret) is not None:
            files = self._config_files(
                SECRETS, secret.secret_name, secret.items, optional=secret.optional
            )
            mode = secret.default_mode
        elif volume.downward_api is not None:
            files = self._downward_files(volume.downward_api.items)
            mode = volume.downward_api.default_mode
        else:
            assert volume.projected is not None, "the node writes volumes of these kinds"
            files = self._projected_files(volume.projected)
            mode = volume.projected.default_mode
        for name in files:
            # As in the kubelet, such names are reserved, for `..data` and its targets.
            if not _is_safe_path(name) or name.startswith(".."):
                raise ConfigProblem(
                    f'"{name}" must be a relative path that does not begin with ".."'
                )
        return {
            os.path.normpath(name): File(content, mode if own_mode is None else own_mode)
            for name, (content, own_mode) in files.items()
        }

    def _config_files(
        self, resource: str, name: str, items: Sequence[KeyToPath], *, optional: bool
    ) -> _Files:
        """Return the files from a ConfigMap or Secret; none if it is optional and absent. Raises
        ConfigProblem."""
        values = self.settings.values(Key(resource, self._pod.metadata.namespace, name))
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

    def _downward_files(self, items: Sequence[DownwardFile]) -> _Files:
        """Return the files of the downward API. Raises ConfigProblem."""
        files: _Files = {}
        for item in items:
            if item.field_ref is not None:
                content = self._field(item.field_ref.field_path)
            elif item.resource_field_ref is not None:
                owner = self._pod.container(item.resource_field_ref.container_name)
                if owner is None:
                    raise ConfigProblem(
                        f"container {item.resource_field_ref.container_name} not found"
                    )
                amount = resource_value(self._pod, owner, item.resource_field_ref, self._node)
                content = amount.encode()
            else:
                continue
            files[item.path] = (content, item.mode)
        return files

    def _field(self, path: str) -> bytes:
        """Return the encoded value of a field, from a cache."""
        content = self._fields.get(path)
        if content is None:
            content = field_value(self._pod, path, self._node).encode()
            self._fields[path] = content
        return content

    def _projected_files(self, volume: ProjectedVolume) -> _Files:
        """Return the files of a projected volume; later sources take precedence. Raises
        ConfigProblem."""
        files: _Files = {}
        for source in volume.sources:
            if (config := source.config_map) is not None:
                files |= self._config_files(
                    CONFIG_MAPS, config.name, config.items, optional=config.optional
                )
            elif (secret := source.secret) is not None:
                files |= self._config_files(
                    SECRETS, secret.name, secret.items, optional=secret.optional
                )
            elif source.downward_api is not None:
                files |= self._downward_files(source.downward_api.items)
            elif (token := source.service_account_token) is not None:
                values = self.settings.values(token_key(self._pod, token))
                if values is None:
                    account = self._pod.spec.service_account_name
                    raise ConfigProblem(f'serviceaccount "{account}" not found')
                files[token.path] = (values[TOKEN_FIELD], None)
            else:
                raise ConfigProblem("this node does not project this kind of source")
        return files


_CHECKS = {
    "Directory": (stat.S_ISDIR, "directory"),
    "File": (stat.S_ISREG, "file"),
    "Socket": (stat.S_ISSOCK, "socket file"),
    "CharDevice": (stat.S_ISCHR, "character device"),
    "BlockDevice": (stat.S_ISBLK, "block device"),
}


def _host_path(volume: HostPathVolume, namespace: str, node: NodeContext) -> Provided:
    """Return a path of the host as a volume, created if its type requires it. Raises ConfigProblem,
    OSError."""
    path = Path(volume.path)
    kind = volume.type
    inside = _allowed_folder(path, node.host_paths(namespace))
    if not node.makes_host_paths:
        if not path.exists():
            raise ConfigProblem(
                f"{path} does not exist, and --host-fs ro does not allow creating it"
            )
    elif kind in ("", "DirectoryOrCreate") and not path.exists():
        os.close(_open_host_folder(volume.path, inside, make=0o755))
    elif kind == "FileOrCreate" and not path.exists():
        parent = _open_host_folder(str(path.parent), inside)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            os.close(open_regular(path.name, flags, 0o644, dir_fd=parent))
        finally:
            os.close(parent)
    check, noun = _CHECKS.get(kind.removesuffix("OrCreate"), (None, ""))
    if check is not None and not (path.exists() and check(path.stat().st_mode)):
        raise ConfigProblem(f"hostPath type check failed: {path} is not a {noun}")
    return Provided(os.path.realpath(path) if inside else str(path), inside)


def _claim_volume(pod: NodePod, volume: Volume, found: ClaimPath, node: NodeContext) -> Provided:
    """Return the volume of a claim. One that was not provisioned here is a path of the host like
    any other, with the same restrictions. Raises ConfigProblem, OSError."""
    source = volume.persistent_volume_claim
    read_only = found.read_only or (source is not None and source.read_only)
    if not found.folder:
        host_path = HostPathVolume(path=found.path, type=found.type)
        given = _host_path(host_path, pod.metadata.namespace, node)
        return given._replace(read_only=read_only)
    group = _fs_group(pod)
    # Recreated, it would hide the loss of its contents.
    with folder_of(node.claim_folders) as volumes, beneath(volumes, found.folder) as place:
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
        try:
            if group is not None:
                give_folder(fd, stat.S_IMODE(os.fstat(fd).st_mode), group)
        finally:
            os.close(fd)
    return Provided(f"{node.claim_folders}/{found.folder}", node.claim_folders, read_only)


def _open_host_folder(path: str, inside: str, make: int | None = None) -> int:
    if not inside:
        return open_trusted(path, make=make)
    with folder_of(inside) as top:
        return open_beneath(top, part_inside(inside, path), make=make)


def _allowed_folder(path: Path, folders: tuple[str, ...] | None) -> str:
    """Return the permitted folder that contains the path after resolving links; "" if all are
    permitted. Raises ConfigProblem if there is none.

    The path itself was checked when the Pod was created, but the targets of its links are known
    only here. They may change a moment later, so the path is resolved inside this folder again when
    it is mounted.
    """
    if folders is None:
        return ""
    real = os.path.realpath(path)
    for folder in map(os.path.realpath, folders):
        if is_within(real, [folder]):
            return folder
    raise ConfigProblem(f"hostPath {path} resolves to {real}, which is not allowed")


def _text(error: OSError) -> str:
    """Return file and reason of an error."""
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)


def _is_safe_path(part: str) -> bool:
    """Return whether a relative path stays below its base."""
    path = PurePosixPath(part)
    return not path.is_absolute() and ".." not in path.parts and "\0" not in part
