"""Fields of a Pod that are accepted and stored, but have no effect in a runtime. Pure.

Each rule names one field of the API. Clients that set it get a warning; the inventory in
`docs/reference/fields.toml` has the same fields with the verdict "warned".
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from msgspec import Struct

Runtime = Literal["process", "podman"]

_BOTH: Final[tuple[Runtime, ...]] = ("process", "podman")
_CONTAINERS: Final = ("initContainers[]", "containers[]")


class Rule(Struct, frozen=True):
    """A field without effect. `[]` in the path stands for every item of a list."""

    path: str
    why: str
    runtimes: tuple[Runtime, ...] = _BOTH
    #: Values that request nothing beyond the behaviour of the runtime.
    harmless: tuple[Any, ...] = ()


def _in_containers(
    path: str, why: str, runtimes: tuple[Runtime, ...] = _BOTH, harmless: tuple[Any, ...] = ()
) -> list[Rule]:
    """Return a rule for the field in init containers and one for it in containers."""
    return [Rule(f"{place}.{path}", why, runtimes, harmless) for place in _CONTAINERS]


_ONE_NODE: Final = "there is only one node"
_NO_DNS: Final = "Pods have no DNS names of their own"
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS: Final = ("lifecycle.postStart", "lifecycle.preStop")
_FILES: Final = ("configMap", "secret", "downwardAPI", "projected")

RULES: Final[tuple[Rule, ...]] = (
    Rule("dnsConfig", "containers use the resolver of the host or of the engine"),
    Rule(
        "dnsPolicy",
        "containers use the resolver of the host or of the engine",
        harmless=("ClusterFirst", "ClusterFirstWithHostNet", "Default"),
    ),
    Rule("evictionResponders", "evictions are carried out at once"),
    Rule("hostUsers", "containers use the host's user namespace", ("process",), (True,)),
    Rule("imagePullSecrets", "the engine uses its own credentials", ("podman",)),
    Rule("os", "containers are Linux processes", harmless=({"name": "linux"},)),
    Rule("resourceClaims", "devices are not allocated by claims"),
    Rule("runtimeClassName", "all Pods use the runtime of the node"),
    Rule("setHostnameAsFQDN", _NO_DNS),
    Rule("shareProcessNamespace", "every container has its own processes", ("podman",)),
    Rule("subdomain", _NO_DNS),
    Rule("topologySpreadConstraints", _ONE_NODE),
    Rule("affinity.podAffinity", _ONE_NODE),
    Rule("affinity.podAntiAffinity", _ONE_NODE),
    Rule("tolerations[].tolerationSeconds", "taints do not evict running Pods"),
    Rule("resources.claims", "devices are not allocated by claims"),
    Rule("securityContext.seLinuxChangePolicy", "volumes are not relabelled"),
    Rule(
        "securityContext.supplementalGroupsPolicy",
        "groups of the image are merged",
        ("podman",),
        ("Merge",),
    ),
    Rule("securityContext.windowsOptions", "containers are Linux processes"),
    Rule("volumes[].emptyDir.mode", "emptyDirs have the mode 0777"),
    Rule("volumes[].emptyDir.sizeLimit", "only emptyDirs in memory are limited"),
    *(Rule(f"volumes[].{kind}.defaultUser", "the server's user owns the files") for kind in _FILES),
    *(
        Rule(f"volumes[].{kind}.items[].user", "the server's user owns the files")
        for kind in _FILES[:3]
    ),
    *(
        Rule(f"volumes[].projected.sources[].{kind}.user", "the server's user owns the files")
        for kind in ("serviceAccountToken", "clusterTrustBundle", "podCertificate")
    ),
    *_in_containers("lifecycle.stopSignal", "the runtime chooses the signal"),
    *_in_containers("resources.claims", "devices are not allocated by claims"),
    *_in_containers("securityContext.windowsOptions", "containers are Linux processes"),
    *_in_containers("volumeDevices", "block devices are not provided"),
    *_in_containers("volumeMounts[].bindMountOptions", "mounts have no further options"),
    *_in_containers(
        "volumeMounts[].mountPropagation", "mounts are not propagated", harmless=("None",)
    ),
    *_in_containers(
        "volumeMounts[].recursiveReadOnly",
        "mounts below a read-only volume keep their own mode",
        harmless=("Disabled", "IfPossible"),
    ),
    *_in_containers("ports[].hostPort", "ports of containers are not published", ("podman",)),
    *_in_containers("ports[].hostIP", "the program chooses the address it listens on"),
    *(
        rule
        for probe in _PROBES
        for rule in (
            *_in_containers(f"{probe}.grpc.mode", "probes use plain connections"),
            *_in_containers(f"{probe}.httpGet.protocol", "probes use HTTP/1.1"),
        )
    ),
    *(
        rule
        for hook in _HOOKS
        for rule in _in_containers(f"{hook}.httpGet.protocol", "hooks use HTTP/1.1")
    ),
)


def without_effect(spec: Mapping[str, Any], runtime: Runtime) -> list[str]:
    """Return one text for each field of a Pod's spec that has no effect: its path and why."""
    return [
        f"{path}: has no effect: {rule.why}"
        for rule in RULES
        if runtime in rule.runtimes
        for path, value in _values(spec, rule.path)
        if _requests_something(rule, value) and not _is_exempt(spec, rule, path)
    ]


def _requests_something(rule: Rule, value: Any) -> bool:
    """Return whether a value requests anything beyond the behaviour of the runtime.

    Empty and harmless values do not; `false` only in hostUsers.
    """
    if value is False:
        return rule.path == "hostUsers"
    return bool(value) and value not in rule.harmless


def _is_exempt(spec: Mapping[str, Any], rule: Rule, path: str) -> bool:
    """Return whether a value needs no warning because other fields of the Pod give it an effect, or
    because it is an affinity without a required term."""
    if rule.path == "volumes[].emptyDir.sizeLimit":
        index = int(path.partition("[")[2].partition("]")[0])
        return bool(spec["volumes"][index]["emptyDir"].get("medium") == "Memory")
    if rule.path.endswith("ports[].hostPort"):
        return bool(spec.get("hostNetwork"))
    if rule.path == "affinity.podAffinity" or rule.path == "affinity.podAntiAffinity":
        terms = (spec["affinity"][rule.path.rpartition(".")[2]]) or {}
        return not terms.get("requiredDuringSchedulingIgnoredDuringExecution")
    return False


def _values(value: Any, path: str, shown: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value at the path with its concrete path. Malformed parts have none."""
    name, _, rest = path.partition(".")
    field = name.removesuffix("[]")
    if not isinstance(value, Mapping) or field not in value:
        return
    here = f"{shown}.{field}" if shown else field
    items = value[field]
    if field == name:
        found = [(here, items)]
    else:
        listed = items if isinstance(items, list) else []
        found = [(f"{here}[{i}]", item) for i, item in enumerate(listed)]
    for place, item in found:
        if rest:
            yield from _values(item, rest, place)
        else:
            yield place, item
