"""What containers of an engine are started with."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from onejob.node.options import NodeOptions
from onejob.node.setup.environment import NodeContext


@dataclass(frozen=True, slots=True)
class PodmanSettings:
    node: NodeContext
    options: NodeOptions
    #: Variables that every container gets beside those of its image.
    base_env: Mapping[str, str] = field(default_factory=dict)
