"""Settings and external dependencies of a control plane."""

import os
from collections.abc import Callable, Set
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from onejob.api.service import Service
from onejob.client.local import LocalClient
from onejob.clock import Clock, SystemClock
from onejob.controllers.selection import ALL
from onejob.gates import FeatureGates
from onejob.node.options import NodeOptions
from onejob.node.runtime import NodeContext, Runtime
from onejob.planning.names import TRACKING
from onejob.planning.queue.limits import Limits
from onejob.store.writer import Committer

if TYPE_CHECKING:
    from onejob.api.audit.configuration import AuditSettings
    from onejob.api.audit.recorder import Auditor
    from onejob.controllers.notify.config import NotifyConfig


class Settings(Struct, frozen=True):
    """Start-up settings of a control plane."""

    #: Directory of this control plane's state: database, logs, certificates, supervisor.
    data_dir: Path
    node: NodeOptions = field(default_factory=NodeOptions)
    gates: FeatureGates = field(default_factory=FeatureGates)
    #: Default number of failed Pods that a Job keeps; None means all.
    default_failed_pods_limit: int | None = None
    #: Finalizer of Pods until they are counted; both names are understood whichever is written.
    tracking_finalizer: str = TRACKING
    #: Concurrency limits of Jobs; None leaves the stored limits unchanged.
    queue_limits: Limits | None = None
    #: Time zone of CronJob schedules that name none.
    local_zone: str = "UTC"
    #: Names of the controllers that run: see `controllers/selection.py`.
    controllers: Set[str] = ALL
    #: Whether Pods run here. Without a node, other clients bind Pods and report their status.
    with_node: bool = True
    #: Directories of the host that Pods may mount as volumes; None for all.
    host_paths: tuple[str, ...] | None = None
    #: File of the keys that Secrets are encrypted with; None stores them in the clear.
    encryption_keys: Path | None = None
    #: Audit policy and log; None disables auditing.
    audit: "AuditSettings | None" = None
    #: Notification targets; None disables notifications.
    notify: "NotifyConfig | None" = None
    #: Whether to enable RBAC and service account tokens, for a server that several users and Pods
    #: can reach.
    with_access: bool = False
    #: Host of webhooks behind Services that have no address of their own; "" for none.
    webhook_host: str = ""
    #: Admission plugins of kube-apiserver that are off by default: see `api/admission/pod_plugins`.
    admission_plugins: Set[str] = frozenset()


class Dependencies(Struct, frozen=True):
    """External dependencies of a control plane: replaced by tests and the simulator."""

    clock: Clock = field(default_factory=SystemClock)
    rng: Random = field(default_factory=lambda: Random(os.urandom(16)))
    #: Executor of commits; None means a dedicated thread.
    committer: Committer | None = None
    #: Factory of the client through which the controllers and the node agent use the API.
    client: Callable[[Service], LocalClient] = LocalClient
    #: The SQLite VFS below the store; None means SQLite's own.
    vfs: str | None = None
    #: Factory of the container runtime; None means the one in the settings.
    runtime: Callable[[NodeContext], Runtime] | None = None


class Front(Struct, frozen=True):
    """Parameters from the API server in front of a control plane; a run has none."""

    #: PEM certificate by which clients verify the server.
    root_ca: str = ""
    #: URL under which Pods will reach it, if known before it listens.
    api_url: str = ""
    auditor: "Auditor | None" = None
    #: Directory of the certificate authority; None without one.
    pki: Path | None = None


NO_FRONT: Final = Front()
