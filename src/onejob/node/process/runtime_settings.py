"""Settings of the process runtime that apply to all containers."""

import os
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from onejob.node.images import Images, Shell, find_shell
from onejob.node.options import NodeOptions
from onejob.node.runtime import NodeContext
from onejob.node.setup.environment import passed_variables, server_variables

#: Server environment variables that host processes inherit; the manifest's variables override them.
INHERITED_VARIABLES: Final = ("PATH", "HOME", "LANG", "TMPDIR")


class ProcessSettings(Struct, frozen=True):
    node: NodeContext
    base_env: dict[str, str]
    options: NodeOptions
    images: Images = field(default_factory=Images)
    shell: Shell = field(default_factory=find_shell)
    #: Whether volumes get mount namespaces; None means if the machine allows it.
    isolation: bool | None = None


def process_settings(options: NodeOptions, context: NodeContext) -> ProcessSettings:
    if options.pid_namespace == "auto" and (options.pods_end_with_server or os.geteuid() != 0):
        options = replace(options, pid_namespace="off")
    # Python block-buffers output to pipes; its last lines before a kill would be lost.
    variables = {
        "PYTHONUNBUFFERED": options.caller_env.get("PYTHONUNBUFFERED", "1"),
        **_inherited_environment(options),
    }
    return ProcessSettings(context, variables, options, Images(options.image_map))


def variable_problem(options: NodeOptions) -> str:
    """Return a message if an inherited variable is not UTF-8: requests for processes are JSON."""
    for name, value in _inherited_environment(options).items():
        if not is_text(value):
            return f"the variable {name}, which is passed to Pods, is not valid UTF-8: {value!r}"
    return ""


def is_text(value: str) -> bool:
    """Return whether `value` can be encoded as UTF-8. Python decodes other bytes to lone
    surrogates, which cannot be encoded."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _inherited_environment(options: NodeOptions) -> dict[str, str]:
    return server_variables(INHERITED_VARIABLES) | passed_variables(options)
