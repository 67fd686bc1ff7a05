"""Access to the cluster of a run that was started with `--on`, found through its record."""

import asyncio
from dataclasses import replace
from pathlib import Path

from onejob.cli.errors import EXIT_FAILED, CommandError
from onejob.cli.kept_runs import RemotePlace, Run
from onejob.cli.places import DataDir
from onejob.cli.sources.base import get
from onejob.cli.sources.http_api import HttpApi, open_http_api
from onejob.client.credentials import FixedCredential
from onejob.client.inline_kubeconfig import read_inline_kubeconfig
from onejob.client.kubeconfig import (
    Connection,
    InvalidKubeconfig,
    connection_in,
    merge_kubeconfigs,
)
from onejob.clock import SystemClock
from onejob.planning.mirror.names import KUBECONFIG_KEY, TARGET_LABEL
from onejob.wire.errors import ApiError, NotFound
from onejob.wire.kinds import BY_RESOURCE


class RemoteRunApi(HttpApi):
    """Api of the cluster that has the objects of a kept run."""

    def __init__(self, connection: Connection, folder: Path, run: Run) -> None:
        super().__init__(connection, "is it running?")
        self.folder = folder
        self.run = run
        self.title = f"run {run.id} at {connection.server}"


def open_remote_run(folder: Path, run: Run, data_dir: DataDir) -> RemoteRunApi:
    """Return access to the objects of a run with --on. Raises CommandError."""
    assert run.on is not None, "the record of a run with --on names its place"
    connection = connect(run.on, data_dir)
    try:
        # A plugin is run once, here: the commands that read objects have no event loop.
        credential = asyncio.run(connection.credentials.current())
    except ApiError as error:
        raise CommandError(f"{run.on.name}: {error.message}", exit_code=EXIT_FAILED) from None
    fixed = replace(connection, credentials=FixedCredential(credential))
    return RemoteRunApi(fixed, folder, run)


def connect(place: RemotePlace, data_dir: DataDir) -> Connection:
    """Return the connection settings of a context or mirror target. Raises CommandError."""
    try:
        if not place.kubeconfigs:
            return _target(place, data_dir)
        paths = [Path(name) for name in place.kubeconfigs]
        named = Path(":".join(place.kubeconfigs))
        return connection_in(merge_kubeconfigs(paths), named, place.name, SystemClock())
    except InvalidKubeconfig as error:
        raise CommandError(str(error), "select another context with --on") from None


def find_target(name: str, data_dir: DataDir) -> RemotePlace | None:
    """Return the mirror target of this name of the server of the data dir; None without one."""
    if not data_dir.has_kubeconfig():
        return None
    api = open_http_api(data_dir.kubeconfig, "")
    try:
        if not api.answers():
            return None
        secret = get(api, BY_RESOURCE["secrets"], api.namespace, name)
    except ApiError:
        return None
    finally:
        api.close()
    labels = secret["metadata"].get("labels", {})
    return RemotePlace(name, (), api.namespace) if TARGET_LABEL in labels else None


def _target(place: RemotePlace, data_dir: DataDir) -> Connection:
    import base64

    api = open_http_api(data_dir.kubeconfig, "start it with onejob serve")
    try:
        secret = get(api, BY_RESOURCE["secrets"], place.target_namespace, place.name)
    except NotFound:
        raise CommandError(
            f"mirror target {place.name} no longer exists", "onejob mirror list lists the targets"
        ) from None
    finally:
        api.close()
    text = base64.b64decode((secret.get("data") or {}).get(KUBECONFIG_KEY, ""))
    return read_inline_kubeconfig(text, f"mirror target {place.name}")
