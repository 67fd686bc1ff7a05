"""A control plane: store, API, controllers and node agent in this process, and their life cycle.

`onejob run` starts a ControlPlane and uses it in this process; `onejob serve` puts the HTTPS server
in front of one. `onejob.assembly` builds what it consists of.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from onejob.api.unreadable import ReadabilityChecker
from onejob.assembly.claims import Claims
from onejob.assembly.controllers import add_controllers, export_server_metrics
from onejob.assembly.dynamic_admission import add_dynamic_admission, install_if_configured
from onejob.assembly.local_node import make_node
from onejob.assembly.parts import Parts
from onejob.assembly.settings import NO_FRONT, Dependencies, Front, Settings
from onejob.client.local import LocalClient
from onejob.controllers.bootstrap import bootstrap
from onejob.controllers.queueing.config import write_limits
from onejob.controllers.selection import CLAIMS
from onejob.memory_reserve import memory_reserve
from onejob.node.agent.agent import NodeAgent
from onejob.store.log import LogStore
from onejob.trusted_paths import make_trusted_folder, require_own_files
from onejob.wire.requests import WriteOptions
from onejob.worker_threads import prepare_threads

if TYPE_CHECKING:
    from onejob.store.encryption import Cipher

__all__ = ["ControlPlane", "Dependencies", "Front", "Settings", "prepare_data_dir"]


class ControlPlane:
    """Store, API, controllers and node agent in this process, created by `start`.

    Errors:
        `failed` completes if the control plane can no longer be trusted; the process should then
        end and restart from the state on disk. The owner must call `stop` in any case.
    """

    def __init__(
        self,
        settings: Settings,
        dependencies: Dependencies,
        store: LogStore,
        front: Front,
        readability: ReadabilityChecker,
    ) -> None:
        #: Completes, with the reason as its result, when this control plane can no longer be
        #: trusted: the process should end, and restart from the state on disk.
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._stopping = False
        self._begun = asyncio.Event()
        self._readability = readability
        parts = Parts(settings, dependencies, store, front, readability, self._part_ended)
        self._parts = parts
        self.settings = settings
        self.clock = parts.clock
        self.store = store
        self.metrics = parts.metrics
        self.service = parts.service
        #: The trusted in-process client.
        self.client = parts.client
        #: Client with strict validation of documents, for manifests written by users.
        self.checked_client = LocalClient(
            self.service, WriteOptions(field_manager="onejob", field_validation="Strict")
        )
        #: RBAC policy; None without RBAC.
        self.access = parts.access
        #: Tokens of service accounts; None without RBAC.
        self.accounts = parts.accounts
        self.informers = parts.informers
        add_dynamic_admission(parts)
        claims = Claims(parts)
        add_controllers(parts, claims)
        install_if_configured(parts)
        export_server_metrics(parts)
        self._node = make_node(parts, dependencies, claims) if settings.with_node else None

    @property
    def api_url(self) -> str:
        """URL under which Pods on this machine reach the API server; "" if it does not listen."""
        return self._parts.api_url

    @api_url.setter
    def api_url(self, url: str) -> None:
        self._parts.api_url = url

    @property
    def node(self) -> NodeAgent:
        """The node agent. Raises LookupError without a node: see `Settings.with_node`."""
        if self._node is None:
            raise LookupError("this control plane has no node")
        return self._node

    @classmethod
    async def start(
        cls,
        settings: Settings,
        dependencies: Dependencies | None = None,
        front: Front = NO_FRONT,
    ) -> Self:
        """Start a control plane and return once everything is running.

        Raises CannotOpen, NotTrusted, BadKeys or RuntimeUnavailable, with a one-line message.
        """
        plane = await cls.open(settings, dependencies, front)
        try:
            await plane.begin()
        except BaseException:
            await plane.stop()
            raise
        return plane

    @classmethod
    async def open(
        cls,
        settings: Settings,
        dependencies: Dependencies | None = None,
        front: Front = NO_FRONT,
    ) -> Self:
        """Open a control plane whose API is usable when this returns; `begin` starts the rest.

        The controllers and the node, which start with `begin`, will not miss any write made from
        now on. With thousands of finished objects, it takes much longer until they have loaded them
        all.

        Raises:
            CannotOpen, NotTrusted, BadKeys: with a one-line message.
        """
        dependencies = dependencies or Dependencies()
        prepare_data_dir(settings.data_dir)
        readability = ReadabilityChecker()
        store = await LogStore.open(
            settings.data_dir / "onejob.db",
            clock=dependencies.clock,
            committer=dependencies.committer,
            vfs=dependencies.vfs,
            is_readable=readability.is_readable,
            cipher=_cipher(settings),
        )
        try:
            plane = cls(settings, dependencies, store, front, readability)
        except BaseException:
            await store.close()
            raise
        try:
            await plane._open()
        except BaseException:
            await plane.stop()
            raise
        return plane

    async def _open(self) -> None:
        await prepare_threads()
        if self._node is not None:
            self._node.prepare()
        self.service.install_definitions()
        own_client = self._parts.own_client
        await bootstrap(own_client)
        if self.settings.with_access:
            from onejob.controllers.access import bootstrap_roles

            await bootstrap_roles(own_client)
            if self.settings.with_node and CLAIMS in self.settings.controllers:
                from onejob.controllers.claims.default_class import create_default_class

                await create_default_class(own_client)
        if self.settings.queue_limits is not None:
            await write_limits(own_client, self.settings.queue_limits)
        asyncio.get_running_loop().set_exception_handler(self._callback_failed)
        self.store.failed.add_done_callback(lambda failed: self._fail(str(failed.result())))
        if self.access is not None:
            for informer in self.access.informers.values():
                self._parts.controllers.follow(asyncio.create_task(informer.run()))
        self._readability.keep_views(True)
        await self.informers.begin()

    async def begin(self) -> None:
        """Start the controllers and the node, and wait until their caches are complete.

        Raises RuntimeUnavailable. After any failure the caller must call `stop`.
        """
        await self.informers.start()
        self._readability.keep_views(False)
        self._parts.controllers.start()
        self._parts.recorders.start()
        if self._node is not None:
            await self._node.start()
            for task in self._node.tasks:
                task.add_done_callback(self._part_ended)
        self.informers.on_task(lambda task: task.add_done_callback(self._part_ended))
        self._parts.begin()
        self._begun.set()

    async def begun(self) -> None:
        """Wait until everything is running."""
        await self._begun.wait()

    def _part_ended(self, task: asyncio.Task[None]) -> None:
        """Fail the control plane if a component ends before `stop`, which is a bug."""
        if not task.cancelled() and not self._stopping:
            self._fail(f"{task.get_coro()} ended: {task.exception()!r}")

    def _callback_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Fail the control plane if a callback raised.

        The callback has left its work unfinished: restarting from the state on disk is better than
        hanging. Connection errors are not callbacks, and a connection that ends for want of memory
        leaves no work unfinished.
        """
        out_of_memory = isinstance(context.get("exception"), MemoryError)
        if out_of_memory:
            memory_reserve.spend()
        loop.default_exception_handler(context)
        if "handle" in context and not (out_of_memory and _is_of_transport(context["handle"])):
            self._fail(f"{context['handle']}: {context.get('exception')!r}")

    def _fail(self, why: str) -> None:
        if not self.failed.done():
            self.failed.set_result(why)

    async def stop(self) -> None:
        """Stop in order: node agent (with its Pods, if they end with us), controllers, store.

        Pods killed with the control plane do not end by themselves: running controllers would count
        them as failures and replace them, so in that case the controllers stop first.
        """
        self._stopping = True
        parts = self._parts
        if self.settings.node.pods_end_with_server:
            await parts.controllers.cancel()
        if self._node is not None:
            await self._node.stop(end_pods=self.settings.node.pods_end_with_server)
        await parts.controllers.cancel()
        await parts.recorders.cancel()
        await self.informers.stop()
        await parts.stop()
        await self.store.close()


def _is_of_transport(handle: object) -> bool:
    """Return whether a callback is one of uvloop's own for a connection."""
    return repr(handle).startswith(("<Handle UVTransport", "<Handle TCPTransport", "<Handle SSL"))


def _cipher(settings: Settings) -> "Cipher | None":
    """Return the cipher for Secrets, or None without keys. Raises CannotOpen."""
    if settings.encryption_keys is None:
        return None
    from onejob.store.encryption import read_key_file

    return read_key_file(settings.encryption_keys)


def prepare_data_dir(folder: Path) -> None:
    """Create the data directory, or check the ownership of its files.

    All files that control this server must belong to its user; files of Pods may belong to the
    users that they run as. Raises NotTrusted.
    """
    make_trusted_folder(folder)
    require_own_files(folder, below=("pki", "supervisor"))
