"""Host-side setup of a process container: working directory, volumes, termination message file.

Volumes are mounted in the container's own mount namespace where the machine permits that; elsewhere
they are replaced by symbolic links.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from onejob.node.logs.reading import log_path
from onejob.node.process.links import LinkRefused, Links
from onejob.node.process.mounts import HostView, plan_mounts
from onejob.node.process.runtime_settings import ProcessSettings
from onejob.node.process.scratch import ScratchFolders
from onejob.node.runtime import AttemptRef
from onejob.node.setup.container_sources import FetchedSettings
from onejob.node.setup.environment import ConfigProblem
from onejob.node.setup.last_message import last_message, make_message_file
from onejob.node.setup.volumes import (
    Mount,
    Provided,
    VolumeProblem,
    mounts_of,
    provide_volumes,
    refresh_volumes,
)
from onejob.objects.pod_spec import Container, NodePod
from onejob.planning.pod.account_volume import ACCOUNT_FOLDER, VOLUME_PREFIX
from onejob.planning.pod.security import DEFAULT_MESSAGE_PATH

#: Matches a path that has the same meaning anywhere in a shell command.
_is_plain: Final = re.compile(r"[A-Za-z0-9_./-]+").fullmatch


class Volumes(NamedTuple):
    """The volumes that a container mounts, by name, and deviations from the Pod's spec."""

    provided: Mapping[str, Provided]
    notes: Sequence[str]


class ContainerSetup:
    """Setup and cleanup of containers on this host.

    `isolates` returns whether mount namespaces are available; `remove` is called with paths to
    delete.
    """

    def __init__(
        self,
        data_dir: Path,
        settings: ProcessSettings,
        isolates: Callable[[], bool],
        remove: Callable[[str], None],
    ) -> None:
        self._data_dir = data_dir
        self._pods = data_dir / "pods"
        self._settings = settings
        self._options = settings.options
        self._node = replace(settings.node, makes_host_paths=not settings.options.host_read_only)
        self._isolates = isolates
        self._remove = remove
        self._links: Links
        self._scratch = ScratchFolders(f"{self._pods}/scratch", remove)
        #: Termination message policies of the latest attempts, by Pod UID and container.
        self._messages: dict[str, dict[str, tuple[AttemptRef, str]]] = {}
        #: UIDs of Pods begun by an earlier run of the server; they may have left messages, too.
        self._inherited: set[str] = set()
        #: UIDs of Pods with folders of their own, apart from logs.
        self._with_folders: set[str] = set()

    def start(self, started_in: Mapping[str, str]) -> None:
        """Prepare the Pods' folder, and adopt the Pods of an earlier run of the server.

        Must be called once, before any other method. `started_in` are the working directories of
        adopted Pods by UID; their folders are removed at their end. Other scratch folders are
        removed now.
        """
        self._pods.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._links = Links(self._pods)
        # This run has to remove the folders of earlier Pods.
        self._with_folders.update(started_in)
        self._inherited.update(started_in)
        self._scratch.inherit(started_in)

    def working_dir(self, pod: NodePod, container: Container) -> str:
        """Return the folder that a container without workingDir starts in: the Pod's folder, or the
        volume that is mounted over it. Raises OSError."""
        if self._options.working_dir is not None:
            folder = str(self._options.working_dir)
        else:
            folder = self._scratch.of(pod.uid)
        if not container.volume_mounts or not self._isolates():
            return folder
        return _covering(os.path.realpath(folder), pod, container) or folder

    def grant_scratch_folder(self, uid: str, user: int | None, request: dict[str, Any]) -> None:
        """Make the scratch folder writable for a Pod that runs as another user, and set
        `enter_first` in its request: the folder's parents are accessible only to root.

        Does nothing if `user` is None, or if the container starts in another folder.
        """
        starts_there = request["cwd"] == self._scratch.known(uid)
        if self._options.working_dir is None and user is not None and starts_there:
            os.chown(self._scratch.of(uid), user, -1, follow_symlinks=False)
            request["enter_first"] = True

    def set_up(
        self,
        request: dict[str, Any],
        pod: NodePod,
        container: Container,
        ref: AttemptRef,
        settings: FetchedSettings,
        volumes: Volumes | None = None,
        *,
        others: Sequence[Mount] = (),
    ) -> list[str]:
        """Create the files and mounts of an attempt and add them to its request; return deviations
        from the Pod's spec.

        Removes `read_only_root` from the request, and may rewrite its argv and env. `volumes` are
        the volumes made in advance, off the event loop; if None, they are made here. `others` are
        mounted in addition. Raises ConfigProblem, VolumeProblem, OSError.
        """
        names_message_file = _wants_message_file(container, request)
        falls_back = container.termination_message_policy == "FallbackToLogsOnError"
        aliases = pod.spec.host_aliases
        special = container.volume_mounts or names_message_file or falls_back or aliases or others
        read_only = self._options.host_read_only or "read_only_root" in request
        if not special and not read_only:
            return []
        notes: list[str] = []
        isolates = self._isolates()
        if not isolates:
            container = _without_account(container, notes)
        if volumes is None:
            self.announce_folder(pod.uid)
            volumes = self.make_volumes(pod, container, settings)
        notes += volumes.notes
        mounts = mounts_of(pod, container, volumes.provided, request["env"])
        if names_message_file:
            message = make_message_file(self._pods, ref)
            self._note_policy(container, ref)
            path = container.termination_message_path
            needs_view = bool(read_only or mounts or aliases) or path != DEFAULT_MESSAGE_PATH
            if isolates and (needs_view or _has_view(request) or not _is_plain(str(message))):
                mounts.append(Mount(str(message), path))
            else:
                _rename(path, str(message), request)
        elif falls_back:
            self._note_policy(container, ref)
        if aliases and not isolates:
            notes.append(
                "hostAliases are ignored: without mount namespaces, a Pod cannot have its own "
                "/etc/hosts"
            )
        elif aliases:
            # Imported on use: few Pods have aliases.
            from onejob.node.setup.hosts_file import HOSTS, make_hosts_file

            if all(mount.mount_path != HOSTS for mount in container.volume_mounts):
                mounts.append(Mount(str(make_hosts_file(self._pods, pod)), HOSTS))
        if isolates:
            self._mount(request, pod.uid, [*mounts, *others])
        else:
            self._link_others(pod, others)
            self._link_volumes(pod, container, mounts, other_user=bool(request.get("user")))
        return notes

    def announce_folder(self, uid: str) -> None:
        """Register a Pod's folder for removal at its end. Call on the event loop before filling
        it."""
        self._with_folders.add(uid)

    def make_volumes(
        self, pod: NodePod, container: Container, settings: FetchedSettings
    ) -> Volumes:
        """Create the volumes that a container mounts. Blocks while it writes files; may run in a
        thread, after `announce_folder`. Raises ConfigProblem, VolumeProblem."""
        if not self._isolates():
            container = _without_account(container, [])
        notes: list[str] = []
        folder = self._pods / pod.uid
        provided = provide_volumes(pod, container, folder, settings, self._node, notes)
        return Volumes(provided, notes)

    def empty_request(self) -> dict[str, Any]:
        """Return the request of a container without any special mounts, for a trial."""
        request: dict[str, Any] = {"pids": "container", "env": {}, "cwd": "/"}
        self._mount(request, "trial", [])
        return request

    def refresh(self, pod: NodePod, settings: FetchedSettings) -> None:
        """Update the files in a Pod's volumes. Blocks while it writes files. Raises
        VolumeProblem."""
        refresh_volumes(pod, self._pods / pod.uid, settings, self._node)

    def take_message(self, ref: AttemptRef, code: int) -> str:
        """Return the termination message of an attempt that exited with `code`; "" if there is
        none.

        Also forgets the attempt's message policy, so only the first call returns the message.
        """
        latest, policy = self._messages.get(ref.uid, {}).pop(ref.container, (None, ""))
        if latest != ref:
            if ref.uid not in self._inherited:
                return ""
            policy = "File"
        log = log_path(self._data_dir, *ref)
        return last_message(self._pods, ref, code, policy=policy, log=log)

    def may_be_in_use(self, uid: str) -> None:
        """Exclude the Pod's scratch folder from reuse: its processes may outlive its containers."""
        self._scratch.exclude_from_reuse(uid)

    def unlink(self, uid: str) -> None:
        """Remove the links of an ended Pod at once: another that is about to start may need their
        paths."""
        self._links.release(uid)

    def take_back(self, uid: str) -> None:
        """Remove the files of an ended Pod, after `unlink`; only its logs are kept."""
        self._inherited.discard(uid)
        self._messages.pop(uid, None)
        self._scratch.release(uid)
        if uid in self._with_folders:
            self._with_folders.discard(uid)
            for name in ("volumes", "root", "messages", "etc"):
                self._remove(f"{self._pods}/{uid}/{name}")

    def remove_all(self, uid: str) -> None:
        """Remove all files of a deleted Pod, whose processes may still run."""
        self._inherited.discard(uid)
        self._messages.pop(uid, None)
        self._scratch.exclude_from_reuse(uid)
        self._links.release(uid)
        self._scratch.release(uid)
        self._with_folders.discard(uid)
        self._remove(f"{self._pods}/{uid}")

    def close(self) -> None:
        """Remove the idle scratch folders; folders of Pods are kept."""
        self._scratch.close()

    def _note_policy(self, container: Container, ref: AttemptRef) -> None:
        policies = self._messages.setdefault(ref.uid, {})
        policies[ref.container] = (ref, container.termination_message_policy)

    def _mount(self, request: dict[str, Any], uid: str, mounts: list[Mount]) -> None:
        """Add the mounts to the request, and create the folder of its mount namespace if one is
        needed."""
        view = self._pop_host_view(request, uid)
        if not mounts and not view.read_only:
            return
        shell = self._settings.shell.for_variables(request["env"])
        if shell.program:
            mounts.append(Mount(shell.program, shell.replaces))
        root = self._pods / uid / "root"
        root.mkdir(parents=True, exist_ok=True)
        plan = plan_mounts(mounts, str(root), view)
        request["mounts"] = plan.steps
        request["root"] = plan.root
        if plan.sealed:
            request["sealed"] = True

    def _pop_host_view(self, request: dict[str, Any], uid: str) -> HostView:
        """Return how the container sees the host's files: read-only, hidden and writable paths.

        Removes `read_only_root` from the request.
        """
        sealed = self._options.host_read_only
        wanted = request.pop("read_only_root", False)
        return HostView(
            read_only=sealed or wanted,
            sealed=sealed,
            hidden=(str(self._options.hidden or self._data_dir),),
            hidden_files=self._options.hidden_files,
            writable=self._options.writable if sealed else (),
            own_folder="" if wanted else self._scratch.known(uid),
            own_proc="pids" in request,
        )

    def _link_volumes(
        self, pod: NodePod, container: Container, mounts: Sequence[Mount], *, other_user: bool
    ) -> None:
        """Create a symbolic link at each mount path, instead of a mount.

        Raises ConfigProblem if the host must be read-only, VolumeProblem for a volume that cannot
        be linked safely.
        """
        if self._options.host_read_only:
            raise ConfigProblem(
                "without mount namespaces, the files of this machine cannot be made read-only"
            )
        own = f"{self._pods}/{pod.uid}/"
        for volume, mount in zip(container.volume_mounts, mounts, strict=True):
            if other_user:
                # The link would belong to root, while the Pod chooses its target: below /etc,
                # programs of root would trust it.
                why = (
                    "without mount namespaces, a Pod that runs as another user than the server "
                    "cannot have links in shared directories"
                )
                raise VolumeProblem(volume.name, why)
            # A Pod can harm only itself by writing to its own folders.
            if mount.read_only and not mount.source.startswith(own):
                why = "without mount namespaces, it cannot be made read-only"
                raise VolumeProblem(volume.name, why)
            try:
                self._links.take(pod.uid, mount.source, mount.target)
            except LinkRefused as refusal:
                raise VolumeProblem(volume.name, str(refusal)) from refusal

    def _link_others(self, pod: NodePod, others: Sequence[Mount]) -> None:
        for mount in others:
            if mount.read_only:
                raise ConfigProblem(
                    f"{mount.target}: without mount namespaces, inputs cannot be made read-only"
                )
            try:
                self._links.take(pod.uid, mount.source, mount.target)
            except LinkRefused as refusal:
                raise ConfigProblem(str(refusal)) from refusal


def _covering(folder: str, pod: NodePod, container: Container) -> str:
    """Return the mountPath that covers a folder or one of its parents; "" if the path still leads
    to the folder."""
    paths = {os.path.realpath(mount.mount_path): mount for mount in container.volume_mounts}
    over = max((path for path in paths if _is_inside(folder, path)), key=len, default="")
    if not over:
        return ""
    mount = paths[over]
    volume = next((volume for volume in pod.spec.volumes if volume.name == mount.name), None)
    if volume is not None and volume.host_path is not None:
        source = os.path.join(volume.host_path.path, mount.sub_path, os.path.relpath(folder, over))
        if os.path.realpath(source) == folder:
            return ""
    return mount.mount_path


def _is_inside(path: str, folder: str) -> bool:
    """Return whether an absolute path is the folder or below it, by name only."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _without_account(container: Container, notes: list[str]) -> Container:
    """Return the container without its automatic token mount; add a note if it had one.

    Without mount namespaces, a link to the token, which the Pod did not request, would expose it to
    the whole host, and make all other Pods wait.
    """
    kept = tuple(
        mount
        for mount in container.volume_mounts
        if mount.mount_path != ACCOUNT_FOLDER or not mount.name.startswith(VOLUME_PREFIX)
    )
    if len(kept) == len(container.volume_mounts):
        return container
    notes.append(
        f"the service account token is not available at {ACCOUNT_FOLDER}: this machine does not "
        "support mount namespaces"
    )
    return msgspec.structs.replace(container, volume_mounts=kept)


def _wants_message_file(container: Container, request: dict[str, Any]) -> bool:
    """Return whether to provide a termination message file. A file at the default path costs a
    mount namespace with a separate /dev, so only containers that mention the path or have a
    namespace anyway get one."""
    path = container.termination_message_path
    if not path:
        return False
    if container.volume_mounts or path != DEFAULT_MESSAGE_PATH:
        return True
    # Joined by NUL, which no path contains: checking each separately takes ten times as long.
    return path in "\0".join((*request["argv"], *request["env"].values()))


def _has_view(request: dict[str, Any]) -> bool:
    """Return whether the container has a mount namespace already, or cannot access our folders."""
    return "mounts" in request or "user" in request


def _rename(path: str, actual: str, request: dict[str, Any]) -> None:
    """Replace a path in the container's command and environment by the actual one.

    Used where no file can be mounted for one container alone, or where it needs no mount namespace
    otherwise: a /dev with one additional file consists of more than a hundred mounts, which took
    most of the time of a short Pod.
    """
    request["argv"] = [word.replace(path, actual) for word in request["argv"]]
    request["env"] = {name: text.replace(path, actual) for name, text in request["env"].items()}
