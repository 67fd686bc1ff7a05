"""Embedded server for tests, with or without pytest.

It runs in a thread, in a directory of the caller's, on a free port. Pods are processes of this
machine; with the runtime `simulated` they end at once and start no process.
"""

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec

from onejob.api.decoding.json_reading import MAX_DEPTH
from onejob.api.decoding.yaml_reading import read_yaml
from onejob.cli.known_kinds import KnownKinds
from onejob.cli.reports.log_reading import LogQuery, containers_of
from onejob.cli.reports.why import why_lines
from onejob.cli.resource_args import ResourceArg
from onejob.cli.sources.awaiting import WaitCondition, await_on_server
from onejob.cli.sources.base import ApiRequest, get, list_all, path_of
from onejob.cli.sources.discovery import discovered
from onejob.cli.sources.http_api import open_http_api
from onejob.clock import SystemClock
from onejob.control_plane import Settings
from onejob.node.options import NodeOptions
from onejob.objects.meta import JOBS, NAMESPACES
from onejob.server import HttpsServer
from onejob.wire.kinds import BY_RESOURCE

_START_SECONDS: Final = 30.0

T = TypeVar("T")


class OnejobServer:
    """Running server.

    `kubeconfig` is the path to pass to kubectl, client-go or the Python client.
    """

    def __init__(self, folder: Path, runtime: Literal["process", "simulated"] = "process") -> None:
        """Start the server; it listens when this returns."""
        self.kubeconfig = folder / "kubeconfig"
        self._numbers = iter(range(1, 1_000_000))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="onejob", daemon=True)
        self._thread.start()
        settings = Settings(
            folder / "server", NodeOptions(runtime=runtime, pods_end_with_server=True)
        )
        self._server = self._do(
            HttpsServer.start(settings, host="127.0.0.1", port=0, kubeconfig=self.kubeconfig)
        )
        self.url = self._server.url

    def new_namespace(self) -> "OnejobNamespace":
        return OnejobNamespace(self, f"test-{next(self._numbers)}")

    def stop(self) -> None:
        self._do(self._server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_START_SECONDS)


class OnejobNamespace:
    """Namespace of one test.

    It has a `name`, a `kubeconfig` in which it is the default namespace, and methods for tests that
    need no other client.
    """

    def __init__(self, server: OnejobServer, name: str) -> None:
        self.name = name
        self.server = server
        self.kubeconfig = server.kubeconfig.with_name(f"kubeconfig-{name}")
        config = msgspec.json.decode(server.kubeconfig.read_bytes())
        config["contexts"][0]["context"]["namespace"] = name
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_bytes(msgspec.json.encode(config))
        self._api = open_http_api(self.kubeconfig, "the test session has ended")
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def create(self, manifest: str | Mapping[str, Any]) -> dict[str, Any]:
        """Create one object, given as YAML or as a mapping; return it as stored.

        Raises ValueError if its kind is not served.
        """
        document = _parsed(manifest) if isinstance(manifest, str) else manifest
        kind = self._known().find(document["apiVersion"], document["kind"])
        if kind is None:
            raise ValueError(f"unsupported kind {document['apiVersion']} {document['kind']}")
        path = path_of(kind, self.name if kind.namespaced else "")
        return self._api.send(ApiRequest("POST", path, body=msgspec.json.encode(document))).document

    def _known(self) -> KnownKinds:
        # Not cached: a test may add kinds.
        return KnownKinds(lambda: discovered(self._api))

    def get(self, resource: str, name: str) -> dict[str, Any]:
        """Return one object. `resource` is a name as in kubectl: `job`, `pods`."""
        return get(self._api, self._known().named(resource), self.name, name)

    def list(self, resource: str, selector: str = "") -> list[dict[str, Any]]:
        return list_all(self._api, self._known().named(resource), self.name, labelSelector=selector)

    def wait_for_job(self, name: str, timeout: float = 60.0) -> str:
        """Wait until a Job has ended; return "Complete" or "Failed".

        Raises TimeoutError after `timeout` seconds.
        """
        clock = SystemClock()
        deadline = clock.monotonic() + timeout
        arg = ResourceArg(BY_RESOURCE[JOBS], name)
        verdict = await_on_server(self._api, arg, self.name, WaitCondition(), clock, deadline)
        if verdict is None:
            raise TimeoutError(f"job/{name} has not finished after {timeout:g} s")
        return verdict.text.partition(":")[0]

    def logs(self, job: str) -> str:
        """Return the logs of all Pods of a Job, concatenated."""
        text = ""
        for pod in self.list("pods", f"batch.kubernetes.io/job-name={job}"):
            for reading in containers_of(pod, "", all_of_them=False):
                ask = ApiRequest("GET", reading.path, LogQuery().parameters(reading.container))
                text += self._api.send(ask).body.decode("utf-8", "replace")
        return text

    def explain(self, job: str) -> str:
        """Return the explanation of a Job's state, as from `onejob why`, followed by its logs."""
        lines = why_lines(self._api, JOBS, self.get("job", job), SystemClock().now())
        logs = self.logs(job)
        return "\n".join([*lines, "", "Logs:", logs] if logs else lines)

    def remove(self) -> None:
        """Delete the namespace; its contents are deleted in the background."""
        self._api.send(ApiRequest("DELETE", path_of(BY_RESOURCE[NAMESPACES], "", self.name)))
        self.close()

    def close(self) -> None:
        """Close the connection to the server; the namespace stays."""
        self._api.close()


def _parsed(text: str) -> dict[str, Any]:
    document, _ = read_yaml(text.encode(), MAX_DEPTH)
    assert isinstance(document, dict), "a manifest must be an object"
    return document
