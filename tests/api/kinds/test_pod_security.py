"""Validation of security contexts and other enumerations of pod specs.

The messages are those that `ValidatePodCreate` of Kubernetes 1.37 returns for the same Pods.
"""

from typing import Any

import pytest

from tests.api.kinds.build import a_container, a_pod, create, strategy

POD = strategy("pods")
SYSCTL = (
    "must have at most 253 characters and match regex "
    r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
)
TYPES = 'supported values: "Localhost", "RuntimeDefault", "Unconfined"'


def sysctl(name: str) -> dict[str, str]:
    return {"name": name, "value": "1"}


#: For the security context of a Pod, and of each container.
PROFILES: list[tuple[dict[str, Any], str]] = [
    ({"seccompProfile": {"type": "Foo"}},
     f'seccompProfile.type: Unsupported value: "Foo": {TYPES}'),
    ({"seccompProfile": {"type": ""}},
     "seccompProfile.type: Required value: type is required when seccompProfile is set"),
    ({"seccompProfile": {"type": "Localhost"}},
     "seccompProfile.localhostProfile: Required value: must be set when seccomp type is "
     "Localhost"),
    ({"seccompProfile": {"type": "Localhost", "localhostProfile": "/a"}},
     'seccompProfile.localhostProfile: Invalid value: "/a": must be a relative path'),
    ({"seccompProfile": {"type": "Localhost", "localhostProfile": "a/../b"}},
     "seccompProfile.localhostProfile: Invalid value: \"a/../b\": must not contain '..'"),
    ({"seccompProfile": {"type": "Unconfined", "localhostProfile": "a"}},
     'seccompProfile.localhostProfile: Invalid value: {"Type":"Unconfined",'
     '"LocalhostProfile":"a"}: can only be set when seccomp type is Localhost'),
    ({"appArmorProfile": {"type": "Foo"}},
     f'appArmorProfile.type: Unsupported value: "Foo": {TYPES}'),
    ({"appArmorProfile": {"type": ""}},
     "appArmorProfile.type: Required value: type is required when appArmorProfile is set"),
    ({"appArmorProfile": {"type": "Localhost"}},
     "appArmorProfile.localhostProfile: Required value: must be set when AppArmor type is "
     "Localhost"),
    ({"appArmorProfile": {"type": "Localhost", "localhostProfile": ""}},
     "appArmorProfile.localhostProfile: Required value: must be set when AppArmor type is "
     "Localhost"),
    ({"appArmorProfile": {"type": "Localhost", "localhostProfile": " a"}},
     'appArmorProfile.localhostProfile: Invalid value: " a": must not be padded with whitespace'),
    ({"appArmorProfile": {"type": "Localhost", "localhostProfile": "a" * 4096}},
     "appArmorProfile.localhostProfile: Too long: may not be more than 4095 bytes"),
    ({"appArmorProfile": {"type": "Unconfined", "localhostProfile": "a"}},
     'appArmorProfile.localhostProfile: Invalid value: "a": can only be set when AppArmor type '
     "is Localhost"),
]  # fmt: skip

OF_PODS: list[tuple[dict[str, Any], str]] = [
    ({"sysctls": [{"value": "1"}]}, "sysctls[0].name: Required value"),
    ({"sysctls": [sysctl("Bad name")]}, f'sysctls[0].name: Invalid value: "Bad name": {SYSCTL}'),
    ({"sysctls": [sysctl("kernel.sem\n")]},
     f'sysctls[0].name: Invalid value: "kernel.sem\\n": {SYSCTL}'),
    ({"sysctls": [sysctl("a" * 254)]}, f'sysctls[0].name: Invalid value: "{"a" * 254}": {SYSCTL}'),
    ({"sysctls": [sysctl("kernel.sem")] * 2}, 'sysctls[1].name: Duplicate value: "kernel.sem"'),
    ({"supplementalGroupsPolicy": "Foo"},
     'supplementalGroupsPolicy: Unsupported value: "Foo": supported values: "Merge", "Strict"'),
    ({"seLinuxChangePolicy": "Foo"},
     'seLinuxChangePolicy: Unsupported value: "Foo": supported values: "MountOption", "Recursive"'),
    ({"fsGroupChangePolicy": "Foo"},
     'fsGroupChangePolicy: Unsupported value: "Foo": supported values: "Always", '
     '"OnRootMismatch"'),
]  # fmt: skip

OF_CONTAINERS: list[tuple[dict[str, Any], str]] = [
    ({"procMount": "Foo"},
     'procMount: Unsupported value: "Foo": supported values: "Default", "Unmasked"'),
    ({"procMount": "Unmasked"},
     'procMount: Invalid value: "Unmasked": `hostUsers` must be false to use `Unmasked`'),
]  # fmt: skip

SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
MOUNT = {"name": "v", "mountPath": "/x"}
#: Whole specs, and all their errors.
SPECS: list[tuple[dict[str, Any], list[str]]] = [
    ({"hostNetwork": True, "securityContext": {"sysctls": [sysctl("net.core.somaxconn")]}},
     ['securityContext.sysctls[0].name: Invalid value: "net.core.somaxconn": may not be '
      "specified when 'hostNetwork' is true"]),
    ({"hostNetwork": True, "securityContext": {"sysctls": [sysctl("net/ipv4/conf/eth0.1/forw")]}},
     ['securityContext.sysctls[0].name: Invalid value: "net/ipv4/conf/eth0.1/forw": may not be '
      "specified when 'hostNetwork' is true"]),
    ({"hostIPC": True, "securityContext": {"sysctls": [sysctl("kernel.shmmax")]}},
     ['securityContext.sysctls[0].name: Invalid value: "kernel.shmmax": may not be specified when '
      "'hostIPC' is true"]),
    ({"preemptionPolicy": "Foo"},
     ['preemptionPolicy: Unsupported value: "Foo": supported values: "PreemptLowerPriority", '
      '"Never"']),
    ({"hostPID": True, "shareProcessNamespace": True},
     ["shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both "
      "be enabled"]),
    ({"hostUsers": False, "hostPID": True, "hostIPC": True, "hostNetwork": True},
     ["hostNetwork: Forbidden: when `hostUsers` is false",
      "HostPID: Forbidden: when `hostUsers` is false",
      "HostIPC: Forbidden: when `hostUsers` is false"]),
    ({"os": {"name": "linux"}, "securityContext": {"windowsOptions": {"hostProcess": False}}},
     ["securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod"]),
    ({"topologySpreadConstraints": [
        {**SPREAD, "nodeAffinityPolicy": "Foo", "nodeTaintsPolicy": "Bar"}]},
     ['topologySpreadConstraints[0].nodeAffinityPolicy: Unsupported value: "Foo": supported '
      'values: "Honor", "Ignore"',
      'topologySpreadConstraints[0].nodeTaintsPolicy: Unsupported value: "Bar": supported '
      'values: "Honor", "Ignore"']),
    ({"topologySpreadConstraints": [
        {**SPREAD, "minDomains": 0, "whenUnsatisfiable": "ScheduleAnyway"}]},
     ["topologySpreadConstraints[0].minDomains: Invalid value: 0: must be greater than zero",
      "topologySpreadConstraints[0].minDomains: Invalid value: 0: can only use minDomains if "
      "whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway"]),
    ({"topologySpreadConstraints": [SPREAD, SPREAD]},
     ["topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: "
      '"{zone, DoNotSchedule}"']),
    ({"dnsConfig": {"nameservers": ["1.1.1.1"] * 4}},
     ['dnsConfig.nameservers: Invalid value: ["1.1.1.1","1.1.1.1","1.1.1.1","1.1.1.1"]: must not '
      "have more than 3 nameservers"]),
    ({"dnsConfig": {"options": [{"value": "1"}]}},
     ["dnsConfig.options[0]: Required value: must not be empty"]),
    ({"volumes": [{"name": "v", "emptyDir": {}}], "containers": [
        a_container(volumeMounts=[{**MOUNT, "recursiveReadOnly": "Foo"}])]},
     ['containers[0].volumeMounts.recursiveReadOnly: Unsupported value: "Foo": supported values: '
      '"Disabled", "Enabled", "IfPossible"']),
    ({"volumes": [{"name": "v", "emptyDir": {}}], "containers": [
        a_container(volumeMounts=[
            {**MOUNT, "recursiveReadOnly": "Enabled", "mountPropagation": "HostToContainer"}])]},
     ["containers[0].volumeMounts.recursiveReadOnly: Forbidden: may only be specified when "
      "readOnly is true",
      "containers[0].volumeMounts.recursiveReadOnly: Forbidden: may only be specified when "
      "mountPropagation is None or not specified"]),
    ({"volumes": [{"name": "v", "emptyDir": {}}], "containers": [
        a_container(volumeMounts=[{**MOUNT, "mountPropagation": "Bidirectional"}])]},
     ["containers[0].volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is "
      "available only to privileged containers"]),
    ({"restartPolicy": "Never", "containers": [a_container(resizePolicy=[
        {"resourceName": "cpu", "restartPolicy": "Foo"},
        {"resourceName": "cpu", "restartPolicy": "NotRequired"},
        {"resourceName": "disk", "restartPolicy": "RestartContainer"}])]},
     ['containers[0].resizePolicy: Unsupported value: "Foo": supported values: "NotRequired", '
      '"RestartContainer"',
      "containers[0].resizePolicy: Invalid value: \"Foo\": must be 'NotRequired' when pod "
      "`restartPolicy` is 'Never'",
      'containers[0].resizePolicy[1]: Duplicate value: "cpu"',
      'containers[0].resizePolicy: Unsupported value: "disk": supported values: "cpu", "memory"',
      "containers[0].resizePolicy: Invalid value: \"RestartContainer\": must be 'NotRequired' when "
      "pod `restartPolicy` is 'Never'"]),
]  # fmt: skip

PRIVILEGED = {
    "allowPrivilegeEscalation": False,
    "privileged": True,
    "seLinuxOptions": {"user": "u"},
}
SPECS += [
    ({"containers": [a_container(securityContext=PRIVILEGED)]},
     ['containers[0].securityContext: Invalid value: {"Capabilities":null,"Privileged":true,'
      '"SELinuxOptions":{"User":"u","Role":"","Type":"","Level":""},"WindowsOptions":null,'
      '"RunAsUser":null,"RunAsGroup":null,"RunAsNonRoot":null,"ReadOnlyRootFilesystem":null,'
      '"AllowPrivilegeEscalation":false,"ProcMount":null,"SeccompProfile":null,'
      '"AppArmorProfile":null}: cannot set `allowPrivilegeEscalation` to false and `privileged` '
      "to true"]),
    ({"volumes": [{"name": "v", "image": {"reference": "a", "pullPolicy": "Foo"}}]},
     ['volumes[0].image.pullPolicy: Unsupported value: "Foo": supported values: "Always", '
      '"IfNotPresent", "Never"']),
    ({"hostnameOverride": "a" * 65, "hostNetwork": True},
     ["hostnameOverride: Forbidden: may not be specified when hostNetwork is true",
      "hostnameOverride: Too long: may not be more than 64 bytes"]),
]  # fmt: skip

CASES: list[tuple[dict[str, Any], list[str]]] = [
    *(({"securityContext": context}, [f"securityContext.{error}"])
      for context, error in (*PROFILES, *OF_PODS)),
    *(({"containers": [a_container(securityContext=context)]},
       [f"containers[0].securityContext.{error}"])
      for context, error in (*PROFILES, *OF_CONTAINERS)),
    *SPECS,
]  # fmt: skip


@pytest.mark.parametrize(("spec", "errors"), CASES)
def test_pod_spec_is_refused_with_upstreams_texts(spec: dict[str, Any], errors: list[str]) -> None:
    assert create(POD, a_pod(**spec))[1] == [f"spec.{error}" for error in errors]


@pytest.mark.parametrize(
    "spec",
    [
        {"securityContext": {
            "sysctls": [sysctl("kernel.shm_rmid_forced"), sysctl("net/ipv4/ip_local_port_range")],
            "seccompProfile": {"type": "Localhost", "localhostProfile": "profiles/a.json"},
            "appArmorProfile": {"type": "Localhost", "localhostProfile": "a"},
            "supplementalGroupsPolicy": "Strict", "seLinuxChangePolicy": "Recursive"}},
        {"hostUsers": False, "containers": [a_container(securityContext={
            "procMount": "Unmasked", "seccompProfile": {"type": "RuntimeDefault"}})]},
        {"preemptionPolicy": "Never"},
        {"topologySpreadConstraints": [{**SPREAD, "minDomains": 1, "nodeTaintsPolicy": "Ignore"}]},
        {"hostNetwork": True, "securityContext": {"sysctls": [sysctl("kernel.sem")]}},
    ],
)  # fmt: skip
def test_pod_spec_with_known_values_is_accepted(spec: dict[str, Any]) -> None:
    assert create(POD, a_pod(**spec))[1] == []
