"""Process requests to the supervisor: program, environment, user, privileges and view of the
host."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from onejob.clock import Clock
from onejob.node.images import NON_ROOT_USER
from onejob.node.logs.reading import log_name
from onejob.node.process.container_setup import ContainerSetup, Volumes
from onejob.node.process.devices import Devices
from onejob.node.process.limits import LimitEnforcer
from onejob.node.process.mounts import ONLY_PROC
from onejob.node.process.runtime_settings import ProcessSettings
from onejob.node.process.supervisor_client import OUTDATED_SUPERVISOR_MESSAGE
from onejob.node.runtime import AttemptRef
from onejob.node.setup.container_sources import FetchedSettings
from onejob.node.setup.environment import ConfigProblem, environment, expand_all
from onejob.objects.pod_spec import Container, NodePod, NodePodSpec
from onejob.planning.pod.demand import with_pod_limits
from onejob.planning.pod.outputs import may_have_outputs
from onejob.planning.pod.security import (
    Means,
    Privileges,
    Refused,
    not_enforced,
    privileges_of,
    root_refusal,
)

if TYPE_CHECKING:
    from onejob.node.setup.output_places import OutputPlaces, Outputs


class ProcessRequests:
    """Builder of process requests.

    `isolates`, `numbers_processes` and `limits_rights` report the abilities of the current
    supervisor: mount namespaces, PID namespaces, and dropping of privileges.
    """

    def __init__(
        self,
        data_dir: Path,
        settings: ProcessSettings,
        setup: ContainerSetup,
        devices: Devices,
        limits: LimitEnforcer,
        clock: Clock,
        *,
        isolates: Callable[[], bool],
        numbers_processes: Callable[[], bool],
        limits_rights: Callable[[], bool],
    ) -> None:
        self._data_dir = data_dir
        # Joining paths would take a third of the time that a request takes.
        self._pods = str(data_dir / "pods")
        self._settings = settings
        self._options = settings.options
        self._setup = setup
        self._devices = devices
        self._limits = limits
        self._clock = clock
        self._outputs: Outputs | None = None
        self._isolates = isolates
        self._numbers_processes = numbers_processes
        self._limits_rights = limits_rights
        #: Cache of the last spec, whether there were mount namespaces, and the fields not enforced:
        #: all Pods of a Job share one spec.
        self._judged: tuple[NodePodSpec, bool, list[str]] | None = None

    def start(
        self,
        pod: NodePod,
        container: Container,
        ref: AttemptRef,
        settings: FetchedSettings,
        volumes: Volumes | None = None,
    ) -> tuple[dict[str, Any], list[str]]:
        """Return the request that starts a container, after creating everything it needs, and the
        deviations from its spec.

        `volumes` are the volumes made in advance, if any. Raises NoStandIn, ConfigProblem,
        VolumeProblem, NoDevice, OSError.
        """
        command = self._settings.images.command_line(container)
        container = self._as_image_user(pod, container)
        self._devices.assign(pod.uid, container)
        places = self._places(pod, container)
        request = self._process(pod, container, ref, settings, command, places)
        self._number_processes(request, pod)
        notes = self._setup.set_up(
            request,
            pod,
            container,
            ref,
            settings,
            volumes,
            others=() if places is None else places.mounts,
        )
        notes += self._not_enforced(pod, container)
        self._limits.apply(request, with_pod_limits(pod.spec, container), ref)
        request["grace"] = max(pod.spec.termination_grace_period_seconds, 0)
        request["log"] = log_name(self._data_dir, *ref)
        if container.stdin:
            request["stdin"] = True
        if container.tty:
            enable_terminal(request)
        return request, notes

    def beside(
        self,
        pod: NodePod,
        container: Container,
        ref: AttemptRef,
        settings: FetchedSettings,
        command: tuple[str, ...],
    ) -> dict[str, Any]:
        """Return the request for a command in the context of a running container, with the same
        environment and files. Raises ConfigProblem, OSError."""
        container = self._as_image_user(pod, container)
        places = self._places(pod, container)
        request = self._process(pod, container, ref, settings, command, places)
        self._limits.join(request, with_pod_limits(pod.spec, container), ref)
        return request

    def _as_image_user(self, pod: NodePod, container: Container) -> Container:
        """Return the container with the user of its image, where that matters.

        An image of the image map has no metadata. If its container must not run as root, it runs as
        most such images do.
        """
        own, shared = container.security_context, pod.spec.security_context
        wanted = own.run_as_non_root if own.run_as_non_root is not None else shared.run_as_non_root
        user = own.run_as_user if own.run_as_user is not None else shared.run_as_user
        if not wanted or user is not None or os.geteuid() != 0:
            return container
        if not self._settings.images.is_mapped(container.image):
            return container
        return replace(container, security_context=replace(own, run_as_user=NON_ROOT_USER))

    def _process(
        self,
        pod: NodePod,
        container: Container,
        ref: AttemptRef,
        settings: FetchedSettings,
        command: tuple[str, ...],
        places: "OutputPlaces | None",
    ) -> dict[str, Any]:
        """Return the request for a process without mounts. Raises ConfigProblem, OSError."""
        base = self._settings.base_env | self._devices.variables(pod.uid, container.name)
        if places is not None:
            base = base | places.variables
        env = environment(
            pod, container, base, settings, self._settings.node, f"{self._pods}/{pod.uid}"
        )
        argv = expand_all(command, env)
        request: dict[str, Any] = {
            "claim": ref,
            "argv": argv,
            # The caller's variables are merged last: `$(NAME)` is expanded only for variables of
            # the Pod, since it has another meaning in a shell.
            "env": {**self._options.caller_env, **env},
            "cwd": container.working_dir or self._setup.working_dir(pod, container),
        }
        if program := self._settings.shell.program_for(argv[0], env):
            request["program"] = program
        self._limit_rights(request, pod, container)
        own, shared = container.security_context, pod.spec.security_context
        user = own.run_as_user if own.run_as_user is not None else shared.run_as_user
        group = own.run_as_group if own.run_as_group is not None else shared.run_as_group
        fs_group = [] if shared.fs_group is None else [shared.fs_group]
        groups = [*fs_group, *shared.supplemental_groups]
        # Without root there is only one possible identity: runAsUser is honoured or ignored, never
        # refused.
        if os.geteuid() == 0 and (user is not None or group is not None or groups):
            request["user"] = user
            request["group"] = group if group is not None else (0 if user is None else user)
            request["groups"] = groups
            if not container.working_dir:
                self._setup.grant_scratch_folder(pod.uid, user, request)
        return request

    def _places(self, pod: NodePod, container: Container) -> "OutputPlaces | None":
        """Return the container's outputs and inputs, if any. Raises ConfigProblem, OSError."""
        if not may_have_outputs(pod.metadata.annotations, container):
            return None
        if self._outputs is None:
            # Imported on use: most Pods have no outputs.
            from onejob.node.setup.output_places import Outputs

            self._outputs = Outputs(self._data_dir, self._clock, self._settings.node)
        own, shared = container.security_context, pod.spec.security_context
        other_user = own.run_as_user is not None or shared.run_as_user is not None
        hidden = other_user or self._options.host_read_only or own.read_only_root_filesystem
        return self._outputs.places(pod, container, hidden=hidden and self._isolates())

    def ended(self, uid: str) -> None:
        """Forget a Pod that has ended."""
        if self._outputs is not None:
            self._outputs.ended(uid)

    def _limit_rights(self, request: dict[str, Any], pod: NodePod, container: Container) -> None:
        """Add the securityContext's privileges to the request. Raises ConfigProblem."""
        refused = root_refusal(pod, container, default_user=os.geteuid())
        read_only = self._options.host_read_only
        rights = refused or privileges_of(pod, container, host_read_only=read_only)
        if isinstance(rights, Refused):
            raise ConfigProblem(rights.message, rights.reason)
        if rights != Privileges() and not self._limits_rights():
            raise ConfigProblem(
                f"cannot enforce the securityContext now: {OUTDATED_SUPERVISOR_MESSAGE}"
            )
        if rights.capabilities is not None:
            request["capabilities"] = rights.capabilities
        if self._options.host_read_only:
            request["sealed"] = True
        if rights.no_new_privileges:
            request["no_new_privileges"] = True
        if rights.read_only_root and self._isolates():
            request["read_only_root"] = True

    def _not_enforced(self, pod: NodePod, container: Container) -> list[str]:
        """Return a note on securityContext fields that are not enforced, once per Pod."""
        spec, isolates = pod.spec, self._isolates()
        first = (spec.init_containers or spec.containers)[0]
        if container.name != first.name:
            return []
        if self._judged is None or self._judged[0] is not spec or self._judged[1] != isolates:
            means = Means(root=os.geteuid() == 0, mount_namespaces=isolates)
            self._judged = spec, isolates, not_enforced(spec, means)
        fields = self._judged[2]
        return [f"the process runtime does not enforce: {', '.join(fields)}"] if fields else []

    def _number_processes(self, request: dict[str, Any], pod: NodePod) -> None:
        """Set the PID namespace in the request, unless the Pod uses the host's."""
        if self._numbers_processes() and not pod.spec.host_pid:
            request["pids"] = "pod" if pod.spec.share_process_namespace else "container"
            request["mounts"] = ONLY_PROC


def enable_terminal(request: dict[str, Any]) -> None:
    """Have the process get a terminal, with TERM set."""
    request["tty"] = True
    request["env"].setdefault("TERM", "xterm")
