"""What can be chosen about containers that are processes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from onejob.node.images import Images, Shell, find_shell
from onejob.node.setup.environment import NodeContext

PidNamespace: TypeAlias = Literal["auto", "on", "off"]


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    node: NodeContext
    base_env: Mapping[str, str]
    images: Images = field(default_factory=Images)
    shell: Shell = field(default_factory=find_shell)
    #: Where containers without workingDir start; None gives each Pod a scratch directory.
    working_dir: Path | None = None
    #: End the workloads when this process goes away, instead of letting them outlive it.
    end_with_owner: bool = False
    #: Containers may read this host's files, but not change them.
    host_read_only: bool = False
    #: Folders that they may change all the same.
    writable: tuple[str, ...] = ()
    #: What they then do not see at all; None for the data dir.
    hidden: Path | None = None
    #: Whether volumes get mount namespaces; None means if the machine allows it.
    isolation: bool | None = None
    #: Whether containers get PID namespaces: "auto" means if the machine allows it.
    pid_namespace: PidNamespace = "off"
