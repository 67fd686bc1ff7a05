"""Multi-step attacks by a user with role `edit`.

Large volumes, hostile mirror targets, watches without a reader, floods of large requests.
"""

import base64
import json
import socket
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from onejob.api.access.certificates import ensure_certificates
from onejob.planning.mirror import names
from tests.api.worst_cases import CONFIGMAPS, JOBS, JSON, PODS, TABLE, configmap, encoded, job
from tests.api.worst_support import Api

SECRETS = "/api/v1/namespaces/default/secrets"
_BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
_USERS = ("flood", "victim")


@dataclass
class Attack:
    """One attack, measured on a fresh server: leftovers must not count for the next one."""

    name: str
    #: Carries it out and returns a remark for the table.
    run: Callable[[Api], str]


def attacks() -> Iterator[Attack]:
    yield Attack("attack: downwardAPI, 4,000 items of 250 kB", _downward)
    yield Attack("attack: ConfigMap key of 1 MB, 600 items", _config_map_items)
    yield Attack("attack: Secret key of 700 kB, 600 items", _secret_items)
    yield Attack("attack: projected, 60 sources of 1 MB", _projected)
    yield Attack("attack: 12 volumes of 5 MB", _many_volumes)
    yield Attack("attack: 20,000 downwardAPI files", _many_files)
    yield Attack("attack: mirror, gzip of 900 MB", _mirror_bomb)
    yield Attack("attack: mirror, 60 MB of JSON lists", _mirror_values)
    yield Attack("attack: mirror, a watch line without end", _mirror_endless_line)
    yield Attack("attack: 1,000 idle watches, 100 creates", _idle_watches)
    yield Attack("attack: the same with a selector", _idle_selecting_watches)
    yield Attack("attack: the same as Tables", _idle_table_watches)
    yield Attack("attack: 24 large dry-run Jobs", _dry_run_jobs)


# --- volumes ------------------------------------------------------------------------------------


def _downward(api: Api) -> str:
    field = {"fieldRef": {"fieldPath": "metadata.annotations['a']"}}
    items = [{"path": f"f{n}", **field} for n in range(4_000)]
    return _run_pod(api, [{"downwardAPI": {"items": items}}], {"a": "x" * 250_000})


def _config_map_items(api: Api) -> str:
    _create(api, CONFIGMAPS, configmap({"k": "x" * 1_000_000}), "one-key")
    items = [{"key": "k", "path": f"f{n}"} for n in range(600)]
    return _run_pod(api, [{"configMap": {"name": "one-key", "items": items}}])


def _secret_items(api: Api) -> str:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {},
        "data": {"k": base64.b64encode(b"x" * 700_000).decode()},
    }
    _create(api, SECRETS, secret, "one-key")
    items = [{"key": "k", "path": f"f{n}"} for n in range(600)]
    return _run_pod(api, [{"secret": {"secretName": "one-key", "items": items}}])


def _projected(api: Api) -> str:
    for number in range(60):
        _create(api, CONFIGMAPS, configmap({f"k{number}": "x" * 1_000_000}), f"source-{number}")
    sources = [{"configMap": {"name": f"source-{number}"}} for number in range(60)]
    return _run_pod(api, [{"projected": {"sources": sources}}])


def _many_volumes(api: Api) -> str:
    field = {"fieldRef": {"fieldPath": "metadata.annotations['a']"}}
    items = [{"path": f"f{n}", **field} for n in range(20)]
    return _run_pod(api, [{"downwardAPI": {"items": items}}] * 12, {"a": "x" * 250_000})


def _many_files(api: Api) -> str:
    field = {"fieldRef": {"fieldPath": "metadata.uid"}}
    items = [{"path": f"f{n}", **field} for n in range(20_000)]
    return _run_pod(api, [{"downwardAPI": {"items": items}}])


def _run_pod(
    api: Api, volumes: list[dict[str, Any]], annotations: dict[str, str] | None = None
) -> str:
    """Create a Pod with these volumes, await its end or a reason for its wait, and delete it."""
    mounts = [{"name": f"v{n}", "mountPath": f"/tmp/worst-v{n}"} for n in range(len(volumes))]
    container = {"name": "c", "image": "busybox", "command": ["true"], "volumeMounts": mounts}
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"annotations": annotations or {}},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [container],
            "volumes": [{"name": f"v{n}", **volume} for n, volume in enumerate(volumes)],
        },
    }
    _create(api, PODS, document, "attacker")
    found = ""
    for _ in range(300):
        time.sleep(0.1)
        status = json.loads(api.request("GET", f"{PODS}/attacker")[1]).get("status", {})
        states = [each.get("state", {}) for each in status.get("containerStatuses", [])]
        waiting = "".join(state.get("waiting", {}).get("message", "") for state in states)
        if waiting or status.get("phase") in ("Succeeded", "Failed"):
            found = waiting or status["phase"]
            break
    api.request("DELETE", f"{PODS}/attacker?gracePeriodSeconds=0")
    while api.request("GET", f"{PODS}/attacker")[0] != 404:
        time.sleep(0.1)
    return found[:80]


# --- mirror targets -----------------------------------------------------------------------------


def _mirror_bomb(api: Api) -> str:
    packing = zlib.compressobj(9, wbits=31)
    start = packing.compress(b'{"items":[') + packing.flush(zlib.Z_FULL_FLUSH)
    megabyte = packing.compress(b" " * 1_000_000) + packing.flush(zlib.Z_FULL_FLUSH)
    packed = start + megabyte * 900 + packing.compress(b"]}") + packing.flush()
    head = b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    return _mirror(api, lambda path: [head + packed])


def _mirror_values(api: Api) -> str:
    body = b'{"metadata":{"uid":"u"},"x":[' + b"[]," * 20_000_000 + b"0]}"
    head = b"Content-Length: %d\r\n\r\n" % len(body)
    return _mirror(api, lambda path: [head, body])


def _mirror_endless_line(api: Api) -> str:
    def answer(path: str) -> list[bytes]:
        if "watch=" in path:
            return [b"\r\n", *[b"x" * 1_000_000] * 500]
        if path.rpartition("/")[2].startswith("worst"):
            body = b'{"kind":"Status","code":404,"reason":"NotFound","message":"none"}'
        else:
            body = b'{"kind":"List","metadata":{"resourceVersion":"1"},"items":[]}'
        return [b"Content-Length: %d\r\n\r\n" % len(body), body]

    return _mirror(api, answer)


def _mirror(api: Api, answer: Callable[[str], list[bytes]]) -> str:
    """Have a Job mirrored to a target with these responses, for some seconds."""
    with _target(answer) as (kubeconfig, requests):
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"labels": {names.TARGET_LABEL: "true"}},
            "data": {names.KUBECONFIG_KEY: base64.b64encode(kubeconfig).decode()},
        }
        _create(api, SECRETS, secret, "hostile")
        mirrored = job(managedBy=names.MANAGER, suspend=False)
        mirrored["metadata"]["annotations"] = {names.TARGET: "hostile"}
        _create(api, JOBS, mirrored, "worst-mirrored")
        time.sleep(10)
        return f"{len(requests)} requests in 10 s"


@contextmanager
def _target(answer: Callable[[str], list[bytes]]) -> Iterator[tuple[bytes, list[str]]]:
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def handle_one_request(self) -> None:
            line = self.rfile.readline().decode()
            self.close_connection = True
            if not line:
                return
            while self.rfile.readline().strip():
                pass
            requests.append(line)
            code = b"200 OK" if line.startswith("GET") else b"500 No"
            try:
                self.wfile.write(b"HTTP/1.1 " + code + b"\r\nConnection: close\r\n")
                for piece in answer(line.split()[1]):
                    self.wfile.write(piece)
            except OSError:
                return

    class QuietServer(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Ignore clients that hang up."""

    with tempfile.TemporaryDirectory() as folder:
        found = ensure_certificates(Path(folder), ["127.0.0.1"], datetime.now(UTC))  # noqa: TID251
        server = QuietServer(("127.0.0.1", 0), Handler)
        server.socket = found.server_context().wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        authority = base64.b64encode(found.authority_data).decode()
        cluster = {
            "server": f"https://127.0.0.1:{server.server_port}",
            "certificate-authority-data": authority,
        }
        kubeconfig = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }
        try:
            yield yaml.safe_dump(kubeconfig).encode(), requests
        finally:
            server.shutdown()
            server.server_close()


# --- watches ------------------------------------------------------------------------------------


def _idle_watches(api: Api) -> str:
    return _watched_creates(api)


def _idle_selecting_watches(api: Api) -> str:
    return _watched_creates(api, "&labelSelector=!no")


def _idle_table_watches(api: Api) -> str:
    return _watched_creates(api, "&includeObject=Object", TABLE)


def _watched_creates(api: Api, query: str = "", accept: str = JSON) -> str:
    headers = {**api.headers(), "Accept": accept}

    def open_watch(_: int) -> Any:
        connection = api.connect()
        connection.connect()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.request("GET", f"{CONFIGMAPS}?watch=1{query}", headers=headers)
        return connection

    with ThreadPoolExecutor(4) as pool:
        watches = list(pool.map(open_watch, range(1_000)))
    time.sleep(2)
    body = configmap({"k": "x" * 100_000})
    begun = time.monotonic()
    with ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda n: _create(api, CONFIGMAPS, body, f"watched-{n}"), range(100)))
    took = time.monotonic() - begun
    time.sleep(3)
    for watch in watches:
        watch.close()
    return f"100 creates in {took:.1f} s"


# --- large requests of several users ------------------------------------------------------------


def _dry_run_jobs(api: Api) -> str:
    flood, victim = (_as_editor(api, user) for user in _USERS)
    env = [{"name": f"E{n}", "value": "v" * 10} for n in range(9_000)]
    container = {"name": "c", "image": "i", "command": ["true"], "env": env}
    large = encoded(job(template={"containers": [container]}))
    small = configmap({"k": "x" * 20_000})
    longest = 0.0
    with ThreadPoolExecutor(25) as pool:
        floods = [
            pool.submit(flood.request, "POST", f"{JOBS}?dryRun=All", large, Content_Type=JSON)
            for _ in range(24)
        ]
        time.sleep(0.3)
        for number in range(3):
            begun = time.monotonic()
            _create(victim, CONFIGMAPS, small, f"victim-{number}")
            longest = max(longest, time.monotonic() - begun)
        codes = sorted({each.result()[0] for each in floods})
    return f"20 kB create of another user: {longest * 1000:.0f} ms; codes {codes}"


def _as_editor(api: Api, user: str) -> Api:
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"worst-{user}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    code, answer = api.request("POST", _BINDINGS, encoded(binding), Content_Type=JSON)
    assert code == 201, answer[:500]
    return api.acting_as(user)


# --- helpers ------------------------------------------------------------------------------------


def _create(api: Api, path: str, document: dict[str, Any], name: str) -> None:
    metadata = {k: v for k, v in document["metadata"].items() if k != "generateName"}
    named = {**document, "metadata": {**metadata, "name": name}}
    code, answer = api.request("POST", path, encoded(named), Content_Type=JSON)
    assert code == 201, answer[:500]
