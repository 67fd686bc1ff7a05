"""Settings of the Podman runtime that apply to all containers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from onejob.node.options import NodeOptions
from onejob.node.runtime import NodeContext


@dataclass(frozen=True, slots=True)
class PodmanSettings:
    node: NodeContext
    options: NodeOptions
    #: Variables that every container gets in addition to its image's.
    base_env: Mapping[str, str] = field(default_factory=dict)
