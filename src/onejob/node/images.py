"""What runs when a container names no command: without images, a stand-in from this host."""

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from onejob.objects.pod_spec import Container


class NoStandIn(Exception):
    """The container gives no command, and nothing is known that could stand in for its image."""


class StandIn(Struct, frozen=True):
    """As an image has it: args of the container replace `arguments`, never `entrypoint`."""

    entrypoint: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


#: Waits for SIGTERM as the pause image does; the sleeper ends with its session.
_PAUSE = ("bash", "-c", "trap 'exit 0' TERM INT; sleep infinity & wait")
_SHELL_IMAGES = frozenset({"busybox", "alpine", "debian", "ubuntu"})
#: Their entrypoint executes its arguments, which is all that Prefect's workers give; without
#: arguments it is a login shell.
_PREFECT_IMAGES = ("prefecthq/prefect", "prefecthq/prefect-dev")


class Images(Struct, frozen=True):
    """`mapped` comes from the user: an image, with or without tag, to its entrypoint."""

    mapped: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def command_line(self, container: Container) -> tuple[str, ...]:
        """What to execute, before `$(VAR)` is expanded. Raises NoStandIn."""
        if container.command:
            return (*container.command, *container.args)
        stand_in = self._stand_in(container.image)
        if stand_in is None:
            raise NoStandIn(
                f'container "{container.name}" has no command, and the process runtime has no '
                f'stand-in for image "{container.image}": give a command, use --runtime podman, '
                "or name the image in the image map"
            )
        return (*stand_in.entrypoint, *(container.args or stand_in.arguments))

    def _stand_in(self, image: str) -> StandIn | None:
        name, _, _ = image.partition("@")
        untagged, colon, tag = name.rpartition(":")
        if not colon or "/" in tag:
            untagged = name
        for candidate in (image, name, untagged):
            if candidate in self.mapped:
                return StandIn(entrypoint=tuple(self.mapped[candidate]))
        if "pause" in image:
            return StandIn(entrypoint=_PAUSE)
        if untagged.rpartition("/")[2] in _SHELL_IMAGES:
            return StandIn(arguments=("sh",))
        if "/".join(untagged.split("/")[-2:]) in _PREFECT_IMAGES:
            return StandIn(arguments=("bash", "--login"))
        return None


_SHELL_NAMES: Final = frozenset(("sh", "/bin/sh", "/usr/bin/sh"))


class Shell(Struct, frozen=True):
    """The program behind `sh`. Debian's dash lacks what scripts written for images use."""

    #: "" leaves the host's shell alone.
    program: str
    #: The file that /bin/sh leads to, where a mount namespace can put `program` in its place.
    replaces: str = ""
    #: One that also hands on variables whose names it cannot use itself, such as `data-1`.
    hands_on_all: str = ""

    def for_variables(self, names: Iterable[str]) -> "Shell":
        """Busybox drops, for itself and for what it starts, what is no name to a shell."""
        if not self.hands_on_all or all(_is_shell_name(name) for name in names):
            return self
        return replace(self, program=self.hands_on_all)

    def program_for(self, name: str, variables: Iterable[str]) -> str:
        """What to execute in place of `name` with variables of these names; "" means `name`
        itself."""
        return self.for_variables(variables).program if name in _SHELL_NAMES else ""


def find_shell(path: str | None = None) -> Shell:
    """Busybox where it is installed, else bash; never dash."""
    host = os.path.realpath("/bin/sh")
    if os.path.basename(host) != "dash":
        return Shell("")
    bash = shutil.which("bash", path=path) or ""
    program = shutil.which("busybox", path=path) or bash
    return Shell(program, host, bash) if program else Shell("")


def _is_shell_name(name: str) -> bool:
    return name.isascii() and name.isidentifier()
