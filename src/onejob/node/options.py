"""What can be chosen about a node: built once, by a command or a test, and handed through to the
runtime. Imports nothing of ours, because every command's options are made from it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct, field

RuntimeName: TypeAlias = Literal["process", "podman", "simulated"]
EnforcedLimits: TypeAlias = Literal["auto", "rlimit", "off"]
PidNamespace: TypeAlias = Literal["auto", "on", "off"]


class LogRetention(Struct, frozen=True):
    """How long, and how much, of the logs of deleted Pods is kept."""

    seconds: float
    size_bytes: int


class NodeOptions(Struct, frozen=True):
    runtime: RuntimeName = "process"
    #: "" means the machine's host name.
    name: str = ""
    #: Resource name -> quantity; empty means what the machine has.
    capacity: Mapping[str, str] = field(default_factory=dict)
    #: Names of variables of the server's environment that Pods get too.
    pass_env: tuple[str, ...] = ()
    #: The environment that processes inherit from the caller of `run -- COMMAND`, below all else.
    caller_env: Mapping[str, str] = field(default_factory=dict)
    #: Image (or prefix) -> command that stands in for it in the process runtime.
    image_map: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: The podman runtime's engine, as a command line, and what each of its `run`s is given.
    engine: tuple[str, ...] = ("podman",)
    engine_options: tuple[str, ...] = ()
    #: Pods may read this host's files, but not change them.
    host_read_only: bool = False
    #: Folders that they may change all the same.
    writable: tuple[str, ...] = ()
    #: What they then do not see; None for the data dir alone.
    hidden: Path | None = None
    #: Files that they do not see either, as patterns of `fnmatch`; only names have wildcards.
    hidden_files: tuple[str, ...] = ()
    #: Whether containers that are processes get PID namespaces; "auto": if they outlive us and we
    #: are root, where the machine allows it.
    pid_namespace: PidNamespace = "auto"
    #: Where containers without workingDir start; None means a scratch directory per Pod.
    working_dir: Path | None = None
    #: What keeps containers that are processes within their limits: "auto": control groups, where
    #: the machine allows it.
    enforce_limits: EnforcedLimits = "auto"
    #: Of Pods that are deleted; None means that their logs go with them.
    kept_logs: LogRetention | None = None
    #: Whether Pods end when this process does (`run`) or outlive it (`serve`).
    pods_end_with_us: bool = False
