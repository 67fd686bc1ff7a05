"""Checks of the restricted level: a Pod must drop privileges that it does not need."""

from collections.abc import Mapping
from typing import Final

from onejob.planning.pod_security.baseline import bad_seccomp, proc_mount
from onejob.planning.pod_security.violations import (
    Annotations,
    Check,
    Spec,
    Violation,
    contexts,
    has_user_namespace,
    is_windows,
    named,
    plural,
    pod_context,
    quoted,
    setters,
)

_VOLUMES: Final = frozenset(
    ("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim",
     "projected", "secret")
)  # fmt: skip
#: In the order in which upstream checks them.
_OTHER_VOLUMES: Final = (
    "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "nfs", "iscsi",
    "glusterfs", "rbd", "flexVolume", "cinder", "cephfs", "flocker", "fc", "azureFile",
    "vsphereVolume", "quobyte", "azureDisk", "photonPersistentDisk", "portworxVolume", "scaleIO",
    "storageos",
)  # fmt: skip


def privilege_escalation(annotations: Annotations, spec: Spec) -> Violation | None:
    """Return the violation by a container that may escalate its privileges, or None."""
    bad = [
        name
        for name, context in contexts(spec)
        if context.get("allowPrivilegeEscalation") is not False
    ]
    if not bad:
        return None
    return Violation(
        "allowPrivilegeEscalation != false",
        f"{named(bad)} must set securityContext.allowPrivilegeEscalation=false",
    )


def capabilities(annotations: Annotations, spec: Spec) -> Violation | None:
    """Return the violation by a capability that is added or not dropped, or None."""
    keeping: list[str] = []
    adding: list[str] = []
    excess: set[str] = set()
    for name, context in contexts(spec):
        own = context.get("capabilities") or {}
        if "ALL" not in (own.get("drop") or ()):
            keeping.append(name)
        added = set(own.get("add") or ()) - {"NET_BIND_SERVICE"}
        if added:
            adding.append(name)
            excess |= added
    details = []
    if keeping:
        details.append(f'{named(keeping)} must set securityContext.capabilities.drop=["ALL"]')
    if adding:
        details.append(
            f"{named(adding)} must not include {quoted(sorted(excess))} in "
            "securityContext.capabilities.add"
        )
    return Violation("unrestricted capabilities", "; ".join(details)) if details else None


def volumes(annotations: Annotations, spec: Spec) -> Violation | None:
    """Return the violation by a volume type that is not permitted, or None."""
    bad: list[str] = []
    types: set[str] = set()
    for volume in spec.get("volumes") or ():
        if not volume.keys() & _VOLUMES:
            bad.append(volume["name"])
            types.add(next((field for field in _OTHER_VOLUMES if field in volume), "unknown"))
    if not bad:
        return None
    what = "restricted volume type"
    return Violation(
        "restricted volume types",
        f"{named(bad, 'volume')} {plural('uses', 'use', len(bad))} "
        f"{plural(what, what + 's', len(types))} {quoted(sorted(types))}",
    )


def run_as_non_root(annotations: Annotations, spec: Spec) -> Violation | None:
    """Return the violation by a container that may run as root, or None."""
    of_pod = pod_context(spec).get("runAsNonRoot")
    own = {name: context.get("runAsNonRoot") for name, context in contexts(spec)}
    bad = setters(of_pod is False, [name for name, value in own.items() if value is False])
    if bad:
        text = f"{' and '.join(bad)} must not set securityContext.runAsNonRoot=false"
        return Violation("runAsNonRoot != true", text)
    silent = [name for name, value in own.items() if value is None]
    if of_pod or not silent:
        return None
    text = f"pod or {named(silent)} must set securityContext.runAsNonRoot=true"
    return Violation("runAsNonRoot != true", text)


def run_as_user(annotations: Annotations, spec: Spec) -> Violation | None:
    """Return the violation by runAsUser 0, or None."""
    names = [name for name, context in contexts(spec) if context.get("runAsUser") == 0]
    bad = setters(pod_context(spec).get("runAsUser") == 0, names)
    if not bad:
        return None
    return Violation("runAsUser=0", f"{' and '.join(bad)} must not set runAsUser=0")


def seccomp_profile(annotations: Annotations, spec: Spec) -> Violation | None:
    """Return the violation by an absent or unconfined seccomp profile, or None."""
    shared = pod_context(spec)
    of_pod = bad_seccomp(shared)
    explicit: dict[str, str] = {}
    silent: list[str] = []
    for name, context in contexts(spec):
        value = bad_seccomp(context)
        if value is not None:
            explicit[name] = value
        elif context.get("seccompProfile") is None:
            silent.append(name)
    if bad := setters(of_pod is not None, list(explicit)):
        values = set(explicit.values()) | ({of_pod} if of_pod is not None else set())
        return Violation(
            "seccompProfile",
            f"{' and '.join(bad)} must not set securityContext.seccompProfile.type to "
            f"{quoted(sorted(values))}",
        )
    if not silent or shared.get("seccompProfile") is not None:
        return None
    return Violation(
        "seccompProfile",
        f"pod or {named(silent)} must set securityContext.seccompProfile.type to "
        '"RuntimeDefault" or "Localhost"',
    )


def _but_windows(check: Check) -> Check:
    """Return the check without effect on Windows Pods, which have no such feature and need not
    configure it."""
    return lambda annotations, spec: None if is_windows(spec) else check(annotations, spec)


def _of_host_users(check: Check) -> Check:
    """Return the check without effect on Pods with a user namespace, whose users have no rights on
    the host."""
    return lambda annotations, spec: None if has_user_namespace(spec) else check(annotations, spec)


#: Same structure as `BASELINE_CHECKS`.
RESTRICTED_CHECKS: Final[Mapping[str, tuple[tuple[int, Check], ...]]] = {
    "allowPrivilegeEscalation": (
        (8, privilege_escalation),
        (25, _but_windows(privilege_escalation)),
    ),
    "capabilities_restricted": ((22, capabilities), (25, _but_windows(capabilities))),
    "procMount_restricted": ((35, proc_mount),),
    "restrictedVolumes": ((0, volumes),),
    "runAsNonRoot": ((0, run_as_non_root), (35, _of_host_users(run_as_non_root))),
    "runAsUser": ((23, run_as_user), (35, _of_host_users(run_as_user))),
    "seccompProfile_restricted": ((19, seccomp_profile), (25, _but_windows(seccomp_profile))),
}
#: Baseline checks that the restricted ones replace.
OVERRIDES: Final = {
    "capabilities_restricted": "capabilities_baseline",
    "procMount_restricted": "procMount",
    "restrictedVolumes": "hostPathVolumes",
    "seccompProfile_restricted": "seccompProfile_baseline",
}
