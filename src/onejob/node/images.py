"""Host commands in place of container images, for the process runtime.

A container without a command runs its image's entrypoint; without images, a stand-in on this host
is executed.
"""

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from onejob.objects.pod_spec import Container


class NoStandIn(Exception):
    """The container has no command, and its image has no stand-in."""


class StandIn(Struct, frozen=True):
    """Entrypoint and default arguments of an image: a container's args replace `arguments`, never
    `entrypoint`."""

    entrypoint: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


#: User and group of images without root: `nonroot` in distroless images.
NON_ROOT_USER: Final = 65532
#: Waits for SIGTERM as the pause image does; the `sleep` ends with its session.
_PAUSE = ("bash", "-c", "trap 'exit 0' TERM INT; sleep infinity & wait")
_SHELL_IMAGES = frozenset({"busybox", "alpine", "debian", "ubuntu"})
#: Their entrypoint executes its arguments, and Prefect's workers pass nothing else; without
#: arguments it starts a login shell.
_PREFECT_IMAGES = ("prefecthq/prefect", "prefecthq/prefect-dev")


class Images(Struct, frozen=True):
    """Stand-ins by image. `mapped` is the user's image map: image, with or without tag, to
    entrypoint."""

    mapped: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def command_line(self, container: Container) -> tuple[str, ...]:
        """Return the command line to execute, before `$(VAR)` expansion. Raises NoStandIn."""
        if container.command:
            program, *given = container.command
            if self.mapped and self._is_absent(program, container):
                entrypoint = self._entrypoint_of(container.image) or (program,)
                return (*entrypoint, *given, *container.args)
            return (*container.command, *container.args)
        stand_in = self._substitute_for(container.image)
        if stand_in is None:
            raise NoStandIn(
                f'container "{container.name}" has no command, and the image map of the '
                f'process runtime has no command for image "{container.image}": add a '
                "command, use --runtime podman, or add the image to the image map"
            )
        return (*stand_in.entrypoint, *(container.args or stand_in.arguments))

    def is_mapped(self, image: str) -> bool:
        """Return whether the user's image map contains an image."""
        return bool(self._entrypoint_of(image))

    def _is_absent(self, program: str, container: Container) -> bool:
        """Return whether a program, given by its absolute path, is only in the image."""
        if not program.startswith("/") or os.path.exists(program):
            return False
        mounts = (mount.mount_path.rstrip("/") for mount in container.volume_mounts)
        return not any(program.startswith(f"{mount}/") for mount in mounts)

    def _entrypoint_of(self, image: str) -> tuple[str, ...]:
        """Return the command that the image map has for an image; () if there is none."""
        for candidate in _names_of(image):
            if candidate in self.mapped:
                return tuple(self.mapped[candidate])
        return ()

    def _substitute_for(self, image: str) -> StandIn | None:
        """Return the command that replaces an image; None if there is none."""
        if entrypoint := self._entrypoint_of(image):
            return StandIn(entrypoint=entrypoint)
        untagged = _names_of(image)[-1]
        if "pause" in image:
            return StandIn(entrypoint=_PAUSE)
        if untagged.rpartition("/")[2] in _SHELL_IMAGES:
            return StandIn(arguments=("sh",))
        if "/".join(untagged.split("/")[-2:]) in _PREFECT_IMAGES:
            return StandIn(arguments=("bash", "--login"))
        return None


def _names_of(image: str) -> tuple[str, str, str]:
    """Return an image as given, without digest, and without tag."""
    name, _, _ = image.partition("@")
    untagged, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        untagged = name
    return image, name, untagged


_SHELL_NAMES: Final = frozenset(("sh", "/bin/sh", "/usr/bin/sh"))


class Shell(Struct, frozen=True):
    """Program to execute for `sh`. Debian's dash lacks features that scripts written for images
    use."""

    #: "" uses the host's shell.
    program: str
    #: Target of the /bin/sh link, over which a mount namespace can mount `program`.
    replaces: str = ""
    #: Shell that passes on variables whose names are invalid in a shell, such as `data-1`.
    hands_on_all: str = ""

    def for_variables(self, names: Iterable[str]) -> "Shell":
        """Return a shell that passes on variables with these names. Busybox drops variables with
        invalid shell names, for itself and for its children."""
        if not self.hands_on_all or all(_is_shell_name(name) for name in names):
            return self
        return replace(self, program=self.hands_on_all)

    def program_for(self, name: str, variables: Iterable[str]) -> str:
        """Return the program to execute in place of `name`, given the names of its environment
        variables; "" means `name` itself."""
        return self.for_variables(variables).program if name in _SHELL_NAMES else ""


def find_shell(path: str | None = None) -> Shell:
    """Return the replacement for dash: Busybox if it is installed, else bash. Any other host shell
    is kept, and so is dash if neither is installed."""
    host = os.path.realpath("/bin/sh")
    if os.path.basename(host) != "dash":
        return Shell("")
    bash = shutil.which("bash", path=path) or ""
    program = shutil.which("busybox", path=path) or bash
    return Shell(program, host, bash) if program else Shell("")


def _is_shell_name(name: str) -> bool:
    return name.isascii() and name.isidentifier()
