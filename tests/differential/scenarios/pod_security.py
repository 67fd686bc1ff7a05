"""Pod Security levels: messages of each check about Pods and templates."""

import asyncio
import re
from typing import Any, Final

from tests.build import a_cronjob
from tests.differential.documents import CONTAINER, job
from tests.differential.registry import scenario
from tests.differential.side import Side

Spec = dict[str, Any]

_LABEL: Final = "pod-security.kubernetes.io/"
_DRY: Final = {"dryRun": "All"}
_RESTRICTED: Final[Spec] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def container(name: str = "main", **fields: Any) -> Spec:
    return {**CONTAINER, "name": name, **fields}


def context(**fields: Any) -> Spec:
    """Return the spec of a Pod whose one container has this securityContext."""
    return {"containers": [container(securityContext=fields)]}


def restricted(**fields: Any) -> Spec:
    """Return a Pod that the restricted level allows, except for these fields."""
    return {"containers": [container(securityContext=_RESTRICTED)], **fields}


def restricted_but(**fields: Any) -> Spec:
    own = {name: value for name, value in (_RESTRICTED | fields).items() if value is not None}
    return {"containers": [container(securityContext=own)]}


def volume(**source: Any) -> Spec:
    return restricted(volumes=[{"name": "v", **source}])


_PROBE: Final = {"tcpSocket": {"port": 1, "host": "10.0.0.1"}}
_HOOK: Final = {"postStart": {"httpGet": {"port": 1, "host": "example.org"}}}

#: Pods by name; each is tried at both levels.
PODS: Final[dict[str, Spec]] = {
    "nothing": {"containers": [container()]},
    "two-containers": {"containers": [container("a"), container("b")]},
    "good": restricted(),
    "good-with-init": restricted(
        initContainers=[container("first", securityContext=_RESTRICTED)],
    ),
    "bad-init": restricted(initContainers=[container("first")]),
    "privileged": context(privileged=True),
    "added-capability": context(capabilities={"add": ["NET_ADMIN", "SYS_TIME"]}),
    "default-capability": context(capabilities={"add": ["CHOWN"]}),
    "drops-all-adds-bind": restricted_but(
        capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}
    ),
    "drops-all-adds-chown": restricted_but(capabilities={"drop": ["ALL"], "add": ["CHOWN"]}),
    "drops-some": restricted_but(capabilities={"drop": ["MKNOD"]}),
    "host-namespaces": restricted(hostNetwork=True, hostPID=True, hostIPC=True),
    "host-pid": restricted(hostPID=True),
    "host-path": volume(hostPath={"path": "/srv"}),
    "two-host-paths": restricted(
        volumes=[
            {"name": "a", "hostPath": {"path": "/srv"}},
            {"name": "b", "hostPath": {"path": "/home"}},
        ]
    ),
    "nfs": volume(nfs={"server": "s", "path": "/"}),
    "config-map": volume(configMap={"name": "c"}),
    "secret": volume(secret={"secretName": "c"}),
    "empty-dir": volume(emptyDir={}),
    "host-ports": {
        "containers": [
            container(ports=[{"containerPort": 80, "hostPort": 8080}]),
            container("other", ports=[{"containerPort": 81, "hostPort": 9090}]),
        ]
    },
    "probe-host": {"containers": [container(livenessProbe=_PROBE, lifecycle=_HOOK)]},
    "selinux-type": context(seLinuxOptions={"type": "spc_t"}),
    "selinux-user": restricted(securityContext={"seLinuxOptions": {"user": "u", "role": "r"}}),
    "selinux-fine": context(seLinuxOptions={"type": "container_engine_t", "level": "s0"}),
    "seccomp-unconfined": restricted_but(seccompProfile={"type": "Unconfined"}),
    "seccomp-pod-unconfined": {
        "containers": [container()],
        "securityContext": {"seccompProfile": {"type": "Unconfined"}},
    },
    "seccomp-of-pod": {
        "containers": [container(securityContext={**_RESTRICTED, "seccompProfile": None})],
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
    },
    "app-armor-unconfined": context(appArmorProfile={"type": "Unconfined"}),
    "app-armor-fine": context(appArmorProfile={"type": "RuntimeDefault"}),
    "sysctls": restricted(
        securityContext={
            "sysctls": [
                {"name": "kernel.msgmax", "value": "1"},
                {"name": "net.ipv4.tcp_syncookies", "value": "1"},
                {"name": "net.core.somaxconn", "value": "1"},
            ]
        }
    ),
    "run-as-root": restricted_but(runAsUser=0),
    "pod-as-root": restricted(securityContext={"runAsUser": 0}),
    "root-allowed": restricted_but(runAsNonRoot=False),
    "root-allowed-by-pod": {
        "containers": [container(securityContext={**_RESTRICTED, "runAsNonRoot": None})],
        "securityContext": {"runAsNonRoot": False},
    },
    "non-root-by-pod": {
        "containers": [container(securityContext={**_RESTRICTED, "runAsNonRoot": None})],
        "securityContext": {"runAsNonRoot": True},
    },
    "escalation": restricted_but(allowPrivilegeEscalation=True),
}


async def _label(it: Side, **labels: str) -> None:
    named = {_LABEL + name.replace("_", "-"): value for name, value in labels.items()}
    await it.patch("namespaces", it.namespace, {"metadata": {"labels": named}})
    # Kubernetes reads a namespace from a cache that may be a moment old.
    await asyncio.sleep(1)


async def _try_all(it: Side) -> None:
    for name, spec in PODS.items():
        await _try_pod(it, name, spec)


async def _try_pod(it: Side, name: str, spec: Spec, **metadata: Any) -> None:
    pod = {"metadata": {"name": name, **metadata}, "spec": {"restartPolicy": "Never", **spec}}
    await it.ask("POST", it.path("pods"), pod, query=_DRY)


@scenario
async def baseline(it: Side) -> None:
    await _label(it, enforce="baseline")
    await _try_all(it)


@scenario
async def restricted_level(it: Side) -> None:
    await _label(it, enforce="restricted")
    await _try_all(it)


@scenario
async def privileged_level(it: Side) -> None:
    await _label(it, enforce="privileged")
    await _try_pod(it, "privileged", PODS["privileged"])


@scenario
async def older_versions(it: Side) -> None:
    for version in ("v1.0", "v1.8", "v1.18", "v1.22", "v1.30", "v1.99"):
        await _label(it, enforce="restricted", enforce_version=version)
        for name in ("nothing", "probe-host", "seccomp-unconfined", "selinux-fine", "run-as-root"):
            await _try_pod(it, name, PODS[name])


@scenario
async def old_annotations(it: Side) -> None:
    await _label(it, enforce="baseline", enforce_version="v1.18")
    key = "container.seccomp.security.alpha.kubernetes.io/main"
    await _try_pod(it, "seccomp", PODS["nothing"], annotations={key: "unconfined"})
    await _try_pod(it, "fine", PODS["nothing"], annotations={key: "localhost/profile"})


@scenario
async def templates_get_warnings(it: Side) -> None:
    await _label(it, enforce="restricted")
    await it.ask("POST", it.path("jobs"), job(suspend=True), query=_DRY)
    await it.ask("POST", it.path("cronjobs"), a_cronjob(suspend=True), query=_DRY)
    await _label(it, enforce="baseline", warn="restricted", warn_version="v1.24")
    await it.ask("POST", it.path("jobs"), job(suspend=True), query=_DRY)
    await _try_pod(it, "warned", PODS["nothing"])


@scenario
async def a_job_whose_pods_are_refused(it: Side) -> None:
    await _label(it, enforce="baseline")
    document = job()
    document["spec"]["template"]["spec"]["hostPID"] = True
    await it.create("jobs", document)

    event = await it.first_event("FailedCreate")
    # The name of a refused Pod occurs nowhere else.
    it.show("event", re.sub(r'"j-[a-z0-9]{5}"', '"j-xxxxx"', event["message"]))


@scenario
async def wrong_labels(it: Side) -> None:
    await _label(it, enforce="strict")
    await _label(it, enforce="baseline", enforce_version="1.20")
    await _label(it, warn="all", audit="none", audit_version="v2.1")
    made = {"metadata": {"name": it.namespace + "-2", "labels": {_LABEL + "enforce": "x"}}}
    await it.ask("POST", it.path("namespaces"), made, query=_DRY)


@scenario
async def a_stricter_level_warns_of_pods(it: Side) -> None:
    for name in ("b", "a", "c"):
        pod = {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "nodeName": "ghost",
               **(PODS["privileged"] if name == "c" else PODS["nothing"])}}  # fmt: skip
        await it.create("pods", pod)
    await _label(it, enforce="baseline")
    await _label(it, enforce="restricted")
    await _label(it, enforce="baseline")
    await _label(it, enforce="privileged")
