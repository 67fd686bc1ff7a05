"""Defaults of pod specs. All are idempotent and modify the spec in place."""

from typing import Any, Final

from onejob.api.strategy import Document

Spec = dict[str, Any]

_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE_DEFAULTS: Final = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_MODE: Final = 0o644
_TOKEN_SECONDS: Final = 3600


def default_pod_template(owner: Spec) -> None:
    """Set the defaults of the `template` in a Job's spec, creating it if it is absent."""
    template = owner.setdefault("template", {})
    template.setdefault("metadata", {})
    default_pod_spec(template.setdefault("spec", {}))


def default_pod(doc: Document) -> None:
    """Set the defaults of a Pod, which include some that templates do not get."""
    spec = doc.setdefault("spec", {})
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    for container in _containers(spec):
        limits = container["resources"].get("limits")
        if limits:
            requests = container["resources"].setdefault("requests", {})
            for resource, amount in limits.items():
                requests.setdefault(resource, amount)


def default_pod_spec(spec: Spec) -> None:
    """Set the defaults of a Pod's spec in place."""
    # Empty strings count as unset: Go clients do not distinguish them on the wire.
    if not spec.get("restartPolicy"):
        spec["restartPolicy"] = "Always"
    if not spec.get("dnsPolicy"):
        spec["dnsPolicy"] = "ClusterFirst"
    if not spec.get("schedulerName"):
        spec["schedulerName"] = "default-scheduler"
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("securityContext", {})
    _default_service_account(spec)
    for volume in spec.get("volumes", ()):
        _default_volume(volume)
    host_network = spec.get("hostNetwork", False)
    for container in _containers(spec):
        default_container(container, host_network)


def pull_policy(image: str) -> str:
    """Return the default pull policy: Always for an image whose tag may move, else IfNotPresent."""
    name, at, _digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    floating = image and not at and tag in ("", "latest")
    return "Always" if floating else "IfNotPresent"


def _containers(spec: Spec) -> list[Spec]:
    """Return containers and init containers."""
    return [*spec.get("containers", ()), *spec.get("initContainers", ())]


def _default_service_account(spec: Spec) -> None:
    """Keep the deprecated field name in sync, which is still accepted and shown."""
    name = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if name:
        spec["serviceAccountName"] = spec["serviceAccount"] = name


def default_container(container: Spec, host_network: bool) -> None:
    """Set the defaults of a container in place."""
    container.setdefault("resources", {})
    if not container.get("terminationMessagePath"):
        container["terminationMessagePath"] = "/dev/termination-log"
    if not container.get("terminationMessagePolicy"):
        container["terminationMessagePolicy"] = "File"
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = pull_policy(container.get("image", ""))
    for port in container.get("ports", ()):
        if not port.get("protocol"):
            port["protocol"] = "TCP"
        if host_network and not port.get("hostPort") and "containerPort" in port:
            port["hostPort"] = port["containerPort"]
    for variable in container.get("env", ()):
        if "valueFrom" in variable:
            _default_field_ref(variable["valueFrom"])
    for name in _PROBES:
        if name in container:
            _default_probe(container[name])
    for handler in container.get("lifecycle", {}).values():
        if isinstance(handler, dict):
            _default_http_get(handler)


def _default_probe(probe: Spec) -> None:
    for field, value in _PROBE_DEFAULTS.items():
        if not probe.get(field):
            probe[field] = value
    _default_http_get(probe)
    if "grpc" in probe:
        probe["grpc"].setdefault("service", "")


def _default_http_get(handler: Spec) -> None:
    if "httpGet" in handler:
        request = handler["httpGet"]
        if not request.get("path"):
            request["path"] = "/"
        if not request.get("scheme"):
            request["scheme"] = "HTTP"


def _default_field_ref(source: Spec) -> None:
    if "fieldRef" in source and not source["fieldRef"].get("apiVersion"):
        source["fieldRef"]["apiVersion"] = "v1"


def _default_volume(volume: Spec) -> None:
    """Set the defaults of a volume in place; one without a source becomes an emptyDir."""
    if len(volume) <= 1 and not volume.keys() - {"name"}:
        volume["emptyDir"] = {}
        return
    for source in ("configMap", "secret", "downwardAPI", "projected"):
        if source in volume:
            volume[source].setdefault("defaultMode", _MODE)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    for item in volume.get("downwardAPI", {}).get("items", ()):
        _default_field_ref(item)
    for source in volume.get("projected", {}).get("sources", ()):
        if "serviceAccountToken" in source:
            source["serviceAccountToken"].setdefault("expirationSeconds", _TOKEN_SECONDS)
        for item in source.get("downwardAPI", {}).get("items", ()):
            _default_field_ref(item)
