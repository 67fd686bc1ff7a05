"""Read-only API and dashboard on a store: that of a kept run, or an empty one."""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import Final

from onejob.api.access.authentication import ADMIN, AuthenticatorChain, TokenAuthenticator
from onejob.api.access.authorization import Attributes, Decision
from onejob.api.http.app import Access, ApiApp, PodSources
from onejob.api.http.server_pages import ServerPages
from onejob.api.schema.openapi import OpenApiDocuments
from onejob.api.service import Service
from onejob.api.yielding import PER_DOCUMENT_COST_BYTES, Turns
from onejob.cli.kept_runs import Run, RunEnd, run_end
from onejob.cli.sources.stored_api import KeptLogs, open_copy
from onejob.client.local import LocalClient
from onejob.clock import Clock, local_zone
from onejob.dashboard.files import Files
from onejob.dashboard.pages import DashboardPages
from onejob.dashboard.readers import readers_of
from onejob.dashboard.sessions import Sessions
from onejob.gates import FeatureGates
from onejob.informers.cache import Cache
from onejob.metrics import Metrics
from onejob.node.outputs.serving import OutputFiles
from onejob.objects.meta import PODS
from onejob.objects.pod import Pod, read_pod
from onejob.planning.rbac.rules import PolicyRule
from onejob.store.log import LogStore
from onejob.wire.requests import User

_READING: Final = frozenset({"get", "list", "watch"})
_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class SignIn:
    """Sessions of the one user, and the token of their credentials."""

    sessions: Sessions
    token: str

    @property
    def access(self) -> Access:
        users = TokenAuthenticator({self.token: ADMIN})
        return Access(AuthenticatorChain([users]), _ReadOnly())


class _ReadOnly:
    """Authorizer that lets everybody who is signed in read everything, and change nothing."""

    def authorize(self, user: User, attributes: Attributes) -> Decision:
        return Decision(attributes.verb in _READING)

    def rules(self, user: User, namespace: str) -> Sequence[PolicyRule]:
        return ()


class StoreApp:
    """API and dashboard on a store, which `close` closes."""

    def __init__(
        self,
        store: LogStore,
        sign_in: SignIn,
        clock: Clock,
        *,
        pods: Cache[Pod],
        folder: Path | None = None,
        ended: RunEnd | None = None,
        kept_runs: Callable[[], object],
    ) -> None:
        """`folder` is that of the run, with its logs and outputs; `pods` contains its Pods that had
        not ended."""
        service = Service(store, clock=clock, rng=SystemRandom(), gates=FeatureGates())
        logs = None if folder is None else KeptLogs(service, folder)
        outputs = None if folder is None else OutputFiles(folder)
        readers = readers_of(
            LocalClient(service),
            store,
            pods,
            clock,
            local_zone(),
            logs=logs,
            progress=None if outputs is None else outputs.progress,
            ended=ended,
        )
        access = sign_in.access
        self.pages = DashboardPages(
            sign_in.sessions, access.authorizer, readers, Files(), logs, kept_runs=kept_runs
        )
        documents = OpenApiDocuments(service.schema, service.kinds)
        self.app = ApiApp(
            service,
            access=access,
            pages=ServerPages(service.schema.release, documents, Metrics()),
            pods=PodSources(logs=logs, outputs=outputs),
            rng=SystemRandom(),
            metrics=Metrics(),
            dashboard=self.pages,
        )
        self._store = store

    async def close(self) -> None:
        """End all requests, and close the store."""
        self.app.close_streams()
        await self.pages.stop()
        await self._store.close()


class KeptRunApp:
    """A `StoreApp` on a copy of a run's state, which `close` removes."""

    def __init__(self, inner: StoreApp, copy: Path) -> None:
        self.app = inner.app
        self._inner = inner
        self._copy = copy

    @classmethod
    async def open(
        cls, folder: Path, run: Run, sign_in: SignIn, clock: Clock, kept_runs: Callable[[], object]
    ) -> "KeptRunApp":
        """Copy and open the state of a run. Raises CommandError."""
        # Read before copying: only the state of a run that has already ended is final.
        ended = run_end(folder)
        copy = Path(tempfile.mkdtemp(prefix="onejob-read-"))
        try:
            store = await open_copy(folder, copy, run, in_use=ended is None)
            pods = await _unfinished_pods(store)
        except BaseException:
            shutil.rmtree(copy, ignore_errors=True)
            raise
        inner = StoreApp(
            store, sign_in, clock, pods=pods, folder=folder, ended=ended, kept_runs=kept_runs
        )
        return cls(inner, copy)

    async def close(self) -> None:
        await self._inner.close()
        shutil.rmtree(self._copy, ignore_errors=True)


async def _unfinished_pods(store: LogStore) -> Cache[Pod]:
    """Return the Pods that had not ended; a run may have a hundred thousand that have."""
    cache: Cache[Pod] = Cache(index_entries=_index_pod)
    after, turns = None, Turns()
    while True:
        page = store.list(PODS, "", limit=_PAGE, after=after)
        for stored in page.items:
            await turns.spend(PER_DOCUMENT_COST_BYTES)
            if b'"phase":"Succeeded"' in stored.value or b'"phase":"Failed"' in stored.value:
                continue
            pod = read_pod(stored.value)
            cache.put(pod.key, pod)
        after = page.next_after
        if after is None:
            return cache


def _index_pod(pod: Pod) -> Sequence[tuple[str, str]]:
    owner = pod.metadata.controller_ref
    return () if owner is None else (("controller", owner.uid),)
