"""The node of this machine, with the logs and outputs that it keeps."""

import socket
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from onejob.assembly.claims import Claims, claim_folders
from onejob.assembly.parts import Parts
from onejob.assembly.settings import Dependencies
from onejob.informers.cache import Delta
from onejob.node.agent.agent import NodeAgent
from onejob.node.agent.capacity import BOUNDLESS, machine_capacity
from onejob.node.logs.keeping import KeptLogs
from onejob.node.runtime import NodeContext
from onejob.node.runtimes import runtime_kind
from onejob.node.setup.environment import CONFIG_MAPS, SECRETS
from onejob.objects.pod import Pod
from onejob.planning.pod.demand import read_amounts

if TYPE_CHECKING:
    from onejob.client.acting import AuthorizedClient
    from onejob.client.local import LocalClient
    from onejob.node.agent.gangs import GangSource
    from onejob.node.outputs.keeping import OutputKeeper


def make_node(parts: Parts, dependencies: Dependencies, claims: Claims) -> NodeAgent:
    """Return the node agent, with whose room new Pods are placed from now on."""
    settings, informers = parts.settings, parts.informers
    options, kind = settings.node, runtime_kind(settings.node.runtime)
    name = options.name or socket.gethostname().lower()
    if kind.capacity is not None:
        default = kind.capacity(options)
    else:
        default = BOUNDLESS if kind.traits.boundless else machine_capacity()
    capacity = {**default, **read_amounts(options.capacity)}
    client = parts.client if parts.identities is None else parts.identities.node(name)
    services = informers.services.cache
    outputs = _Outputs(parts, client)
    context = NodeContext(
        name,
        "127.0.0.1",
        capacity,
        lambda name: tuple(services.find("namespace", name)),
        issues_tokens=parts.accounts is not None,
        api_server=lambda: parts.api_url,
        host_paths=parts.service.admission.host_paths_of,
        claim_folders=str(claim_folders(settings.data_dir)),
        on_outputs=outputs.opened,
    )
    make = partial(kind.make, options, settings.data_dir, dependencies.clock)
    if options.kept_logs is not None and kind.traits.runs_programs:
        kept_logs = KeptLogs(settings.data_dir, dependencies.clock, options.kept_logs)
        # Before the node agent receives the change, and removes the Pod's files.
        informers.pods.on_change(kept_logs.pods_changed)
        parts.on_begin(kept_logs.start)
        parts.on_stop(kept_logs.close)
    if kind.traits.has_outputs:
        outputs.inherit()
        informers.pods.on_change(outputs.pods_changed)
    node = NodeAgent(
        client,
        informers.pods,
        (dependencies.runtime or make)(context),
        node_name=name,
        clock=dependencies.clock,
        rng=dependencies.rng,
        capacity=capacity,
        sources=[informers.metadata(name) for name in (CONFIG_MAPS, SECRETS)],
        issue_token=None if parts.accounts is None else parts.accounts.issue_for_pod,
        gangs=_make_gangs(parts),
        make_claims=partial(claims.holds, name),
    )
    parts.clock_watch.on_jump(node.clock_jumped)
    parts.service.admission.room = node.room
    return node


def _make_gangs(parts: Parts) -> "GangSource | None":
    if not parts.settings.gates.enabled("GenericWorkload"):
        return None
    from onejob.node.agent.gangs import GangSource

    return GangSource(parts.own_client)


class _Outputs:
    """Keeper of outputs. Created and imported with the first output: most servers have none."""

    def __init__(self, parts: Parts, client: "LocalClient | AuthorizedClient") -> None:
        self._parts = parts
        self._client = client
        self._keeper: OutputKeeper | None = None

    def inherit(self) -> None:
        """Take over the outputs of an earlier process."""
        if (self._parts.settings.data_dir / "outputs").exists():
            self._make().inherit()

    def opened(self, namespace: str, name: str, uid: str) -> None:
        (self._keeper or self._make()).opened(namespace, name, uid)

    def pods_changed(self, deltas: Sequence[Delta[Pod]]) -> None:
        if self._keeper is not None:
            self._keeper.pods_changed(deltas)

    def _make(self) -> "OutputKeeper":
        from onejob.node.outputs.keeping import OutputKeeper

        parts, settings = self._parts, self._parts.settings
        keeper = OutputKeeper(settings.data_dir, parts.clock, settings.node.outputs, self._client)
        self._keeper = keeper
        parts.on_begin(keeper.start)
        parts.on_stop(keeper.close)
        return keeper
