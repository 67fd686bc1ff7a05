"""Settings of the process runtime that apply to all containers."""

from msgspec import Struct, field

from onejob.node.images import Images, Shell, find_shell
from onejob.node.options import NodeOptions
from onejob.node.setup.environment import NodeContext


class ProcessSettings(Struct, frozen=True):
    node: NodeContext
    base_env: dict[str, str]
    options: NodeOptions
    images: Images = field(default_factory=Images)
    shell: Shell = field(default_factory=find_shell)
    #: Whether volumes get mount namespaces; None means if the machine allows it.
    isolation: bool | None = None
