"""Specs of Kubernetes that fail against `onejob serve`, each with the missing feature."""

from typing import Final

_WORKLOADS: Final = "out of scope: needs the ReplicationController controller"
_STORED_ONLY: Final = "out of scope: needs the effects of a kind that is stored only"
_KINDS: Final = "out of scope: needs kinds that are not served (autoscaling/v1, CSINode)"
_IMAGE: Final = "the process runtime has no images: needs a file of one"
_PORTS: Final = "the process runtime: Pods share the ports of their host, and two want the same"
_ISOLATION: Final = "the process runtime does not isolate that much (`--runtime podman` does)"

_API: Final = "[sig-api-machinery]"
_COLLECTOR: Final = "[sig-api-machinery] Garbage collector should"
_KUBECTL: Final = "[sig-cli] Kubectl client"
_HOOK: Final = "Container Lifecycle Hook when create a pod with lifecycle hook should execute"
_NODE: Final = "[Conformance] [NodeConformance]"

#: By the name of the spec.
KNOWN_FAILURES: Final[dict[str, str]] = {
    f"{_API} AggregatedDiscovery should support aggregated discovery interface [Conformance]": (
        _KINDS
    ),
    f"{_API} AggregatedDiscovery should support raw aggregated discovery endpoint Accept headers "
    "[Conformance]": _KINDS,
    f"{_API} Discovery should locate the groupVersion and a resource within each APIGroup "
    "[Conformance]": _KINDS,
    f"{_API} CustomResourceFieldSelectors [Privileged:ClusterAdmin] CustomResourceFieldSelectors "
    "MUST list and watch custom resources matching the field selector [Conformance]": (
        "field selectors of a version that a webhook converts are compared with stored objects"
    ),
    f"{_COLLECTOR} delete pods created by rc when not orphaning [Conformance]": _WORKLOADS,
    f"{_API} ResourceQuota should create a ResourceQuota and capture the life of a replication "
    "controller. [Conformance]": "out of scope: ReplicationControllers cannot be created",
    f"{_API} AdmissionWebhook [Privileged:ClusterAdmin] should isolate connection pool by resolved "
    "backend IP address on pod restart": (
        "the process runtime: Pods share ports, so the old Pod ends before the new one starts, and "
        "the webhook that has to admit the new one is the old one"
    ),
    "[sig-auth] ServiceAccounts ServiceAccountIssuerDiscovery should support OIDC discovery of "
    "service account issuer [Conformance]": "needs the name of the issuer in DNS, inside of Pods",
    "[sig-auth] ServiceAccounts should allow opting out of API token automount [Conformance]": (
        "deliberate: Pods of the default account get no token"
    ),
    f"{_KUBECTL} Kubectl describe should check if kubectl describe prints relevant information for "
    "rc and pods [Conformance]": _WORKLOADS,
    f"{_KUBECTL} Kubectl expose should create services for rc [Conformance]": _WORKLOADS,
    f"{_KUBECTL} Kubectl patch should add annotations for pods in rc [Conformance]": _WORKLOADS,
    f"{_KUBECTL} Update Demo should create and stop a replication controller [Conformance]": (
        _WORKLOADS
    ),
    f"{_KUBECTL} Update Demo should scale a replication controller [Conformance]": _WORKLOADS,
    "[sig-node] Containers should be able to override the image's default command (container "
    f"entrypoint) {_NODE}": _IMAGE,
    "[sig-node] Containers should be able to override the image's default command and arguments "
    f"{_NODE}": _IMAGE,
    **{
        f"[sig-node] {_HOOK} {hook} hook properly {_NODE}": _PORTS
        for hook in ("poststart exec", "poststart http", "prestop exec", "prestop http")
    },
    "[sig-node] PreStop should call prestop when killing a pod [Conformance]": (
        "deliberate: Pods of the default account get no token; passes with `--tokens`"
    ),
    f"[sig-node] Probing container should be restarted with a GRPC liveness probe {_NODE}": _IMAGE,
    "[sig-node] Probing container should *not* be restarted with a GRPC liveness probe "
    f"{_NODE}": _IMAGE,
    "[sig-node] RuntimeClass should reject a Pod requesting a deleted RuntimeClass "
    f"{_NODE}": _STORED_ONLY,
    "[sig-node] RuntimeClass should reject a Pod requesting a non-existent RuntimeClass "
    f"{_NODE}": _STORED_ONLY,
    "[sig-node] RuntimeClass should schedule a Pod requesting a RuntimeClass and initialize its "
    f"Overhead {_NODE}": _STORED_ONLY,
    "[sig-node] Security Context When creating a pod with privileged should run the container as "
    f"unprivileged when false [LinuxOnly] {_NODE}": _ISOLATION,
    "[sig-node] Security Context when creating containers with AllowPrivilegeEscalation should not "
    f"allow privilege escalation when false [LinuxOnly] {_NODE}": _IMAGE,
    "[sig-node] Sysctls [LinuxOnly] should support sysctls [Environment:NotInUserNS] "
    f"{_NODE}": _ISOLATION,
}
