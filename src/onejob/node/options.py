"""Options of a node, built once by a command or a test and passed through to the runtime.

Imports no other onejob module, because every command's options are made from it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct, field

EnforcedLimits: TypeAlias = Literal["auto", "rlimit", "off"]
PidNamespace: TypeAlias = Literal["auto", "on", "off"]


class LogRetention(Struct, frozen=True):
    """Limits in age and total size for keeping the logs of deleted Pods."""

    seconds: float
    size_bytes: int


class OutputRetention(Struct, frozen=True):
    """Limits of the outputs of Pods: per Pod, and in age and total size after its deletion."""

    seconds: float = 7 * 86400.0
    size_bytes: int = 10 << 30
    #: Maximum size of the outputs of one Pod, in bytes.
    quota_bytes: int = 1 << 30


class SlurmOptions(Struct, frozen=True):
    """Allocations of the Slurm runtime. Empty values are the site's defaults."""

    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    gres: str = ""
    #: Numbers of nodes that are kept, and that are used at most at the same time.
    min_nodes: int = 0
    max_nodes: int = 4
    #: Processors and memory of each allocation; 0 means those of the partition's smallest node.
    cpus: int = 0
    memory_bytes: int = 0
    #: Maximum number of Pods in an allocation.
    pods: int = 110
    #: Time limit of an allocation, and the time before it in which no Pod is started.
    walltime_seconds: float = 3600.0
    drain_seconds: float = 60.0
    #: Time without Pods after which an allocation is returned.
    idle_seconds: float = 60.0
    #: Minimum time between two queries of Slurm.
    query_seconds: float = 10.0
    #: Time without a heartbeat after which an allocation that Slurm has ended counts as lost, and
    #: after which one that Slurm believes to be running is cancelled.
    lost_seconds: float = 20.0
    cancel_seconds: float = 120.0
    #: Further options of sbatch.
    sbatch_options: tuple[str, ...] = ()


class NodeOptions(Struct, frozen=True):
    """Settings of a node and its runtime.

    The defaults select the process runtime with the machine's name and capacity.
    """

    #: A key of `node.runtimes.RUNTIMES`.
    runtime: str = "process"
    #: "" means the machine's host name.
    name: str = ""
    #: Resource name -> quantity; empty means the machine's capacity.
    capacity: Mapping[str, str] = field(default_factory=dict)
    #: Names of server environment variables that Pods inherit in addition to the defaults.
    pass_env: tuple[str, ...] = ()
    #: Variables with the values that they had in the run that is resumed; `pass_env` overrides
    #: them.
    passed_env: Mapping[str, str] = field(default_factory=dict)
    #: Environment that processes inherit from the caller of `run -- COMMAND`, with lowest
    #: precedence.
    caller_env: Mapping[str, str] = field(default_factory=dict)
    #: Image (or prefix) -> command to run in its place in the process runtime.
    image_map: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Command line of the podman runtime's engine, and options added to each of its `run` commands.
    engine: tuple[str, ...] = ("podman",)
    engine_options: tuple[str, ...] = ()
    #: Pods may read this host's files, but not change them.
    host_read_only: bool = False
    #: Folders that Pods may change despite `host_read_only`.
    writable: tuple[str, ...] = ()
    #: Folder hidden from Pods under `host_read_only`; None hides only the data directory.
    hidden: Path | None = None
    #: Files hidden as well, as `fnmatch` patterns with wildcards only in the file name.
    hidden_files: tuple[str, ...] = ()
    #: Whether host-process containers get PID namespaces; "auto": if they outlive this process and
    #: we are root, where the machine allows it.
    pid_namespace: PidNamespace = "auto"
    #: Working directory of containers without workingDir; None means a scratch directory per Pod.
    working_dir: Path | None = None
    #: Mechanism that enforces the limits of host-process containers; "auto": control groups, where
    #: the machine allows it.
    enforce_limits: EnforcedLimits = "auto"
    #: Retention of the logs of deleted Pods; None deletes them with the Pod.
    kept_logs: LogRetention | None = None
    outputs: OutputRetention = OutputRetention()
    slurm: SlurmOptions = SlurmOptions()
    #: Whether Pods end with this process (`run`) or outlive it (`serve`).
    pods_end_with_server: bool = False
