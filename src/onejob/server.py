"""The composition root: builds store, API, controllers and node agent, and runs them.

`onejob run` starts a ControlPlane and talks to it in this process; `onejob serve` puts the
HTTPS server in front of one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from onejob.client.base import Client
from onejob.gates import FeatureGates

RuntimeName = Literal["process", "podman", "simulated"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be chosen at start."""

    #: Where this control plane keeps its state: database, logs, certificates, supervisor.
    data_dir: Path
    runtime: RuntimeName = "process"
    gates: FeatureGates = field(default_factory=FeatureGates)
    #: Resource name -> quantity; empty means what the machine has.
    capacity: Mapping[str, str] = field(default_factory=dict)
    #: Names of variables of the server's environment that Pods get too.
    pass_env: tuple[str, ...] = ()
    #: Where containers without workingDir start; None means a scratch directory per Pod.
    working_dir: Path | None = None
    #: Image (or prefix) -> command that stands in for it in the process runtime.
    image_map: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Whether Pods end when this process does (`run`) or outlive it (`serve`).
    pods_end_with_us: bool = False
    #: How many failed Pods a Job keeps where it does not say; None means all.
    default_failed_pods_limit: int | None = None
    #: Kept in memory only by those who need it: `simulated` needs no supervisor.
    node_name: str = ""


class ControlPlane:
    """Store, API, controllers and node agent in this process."""

    @classmethod
    async def start(cls, settings: Settings) -> "ControlPlane":
        """Everything is running when this returns. Raises StartError with one clear line."""
        raise NotImplementedError

    @property
    def client(self) -> Client:
        """The trusted in-process client."""
        raise NotImplementedError

    @property
    def checked_client(self) -> Client:
        """A client whose documents are validated strictly: for manifests that people wrote."""
        raise NotImplementedError

    async def stop(self) -> None:
        """End in order: controllers, node agent (with its Pods, if they end with us), store."""
        raise NotImplementedError
