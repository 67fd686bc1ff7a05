"""Validation of pod specs, one row each: an invalid spec and its error message."""

from typing import Any

import pytest

from tests.api.kinds.build import a_container, a_pod, create, strategy

POD = strategy("pods")

LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex "
    "used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"containers": []}, "containers: Required value"),
        (
            {"restartPolicy": "Sometimes"},
            'restartPolicy: Unsupported value: "Sometimes": supported values: '
            '"Always", "OnFailure", "Never"',
        ),
        (
            {"dnsPolicy": "X"},
            'dnsPolicy: Unsupported value: "X": supported values: "ClusterFirstWithHostNet", '
            '"ClusterFirst", "Default", "None"',
        ),
        (
            {"dnsPolicy": "None"},
            "dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None",
        ),
        (
            {"dnsPolicy": "None", "dnsConfig": {"searches": ["a"]}},
            "dnsConfig.nameservers: Required value: "
            "must provide at least one DNS nameserver when `dnsPolicy` is None",
        ),
        ({"hostname": "A"}, f'hostname: Invalid value: "A": {LABEL_TEXT}'),
        ({"hostname": "a.b"}, 'hostname: Invalid value: "a.b": must not contain dots'),
        (
            {"hostname": "h" * 64},
            f'hostname: Invalid value: "{"h" * 64}": must be no more than 63 characters',
        ),
        (
            {"activeDeadlineSeconds": 0},
            "activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
        ),
        (
            {"tolerations": [{"key": "a", "operator": "Like"}]},
            'tolerations[0].operator: Unsupported value: "Like": supported values: '
            '"Equal", "Exists"',
        ),
        (
            {"tolerations": [{"value": "v"}]},
            'tolerations[0].operator: Invalid value: "": operator must be Exists when `key` is '
            'empty, which means "match all values and all keys"',
        ),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "effect": "NoWay"}]},
            'tolerations[0].effect: Unsupported value: "NoWay": supported values: "NoSchedule", '
            '"PreferNoSchedule", "NoExecute"',
        ),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 1}]},
            "tolerations[0].effect: Invalid value: \"\": "
            "effect must be 'NoExecute' when `tolerationSeconds` is set",
        ),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "v"}]},
            'tolerations[0].operator: Invalid value: '
            '{"key":"a","operator":"Exists","value":"v"}: '
            "value must be empty when `operator` is 'Exists'",
        ),
        (
            {"dnsConfig": {"nameservers": ["nope"]}},
            'dnsConfig.nameservers[0]: Invalid value: "nope": '
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ),
        (
            {"readinessGates": [{"conditionType": "/x"}]},
            'readinessGates[0].conditionType: Invalid value: "/x": prefix part must be non-empty',
        ),
        (
            {"securityContext": {"supplementalGroups": [-1]}},
            "securityContext.supplementalGroups[0]: Invalid value: -1: "
            "must be between 0 and 4294967295, inclusive",
        ),
        (
            {"securityContext": {"sysctls": [{"name": "foo-", "value": "1"}]}},
            'securityContext.sysctls[0].name: Invalid value: "foo-": must have at most 253 '
            r"characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*"
            "[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
        ),
        (
            {"securityContext": {"sysctls": [{"name": "a" * 254, "value": "1"}]}},
            f'securityContext.sysctls[0].name: Invalid value: "{"a" * 254}": must have at most '
            r"253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*"
            "[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
        ),
        (
            {"securityContext": {"sysctls": [{"value": "1"}]}},
            "securityContext.sysctls[0].name: Required value",
        ),
        (
            {"securityContext": {"sysctls": [{"name": "a/b"}, {"name": "a/b"}]}},
            'securityContext.sysctls[1].name: Duplicate value: "a/b"',
        ),
        (
            {"hostNetwork": True, "securityContext": {"sysctls": [{"name": "net.core.x"}]}},
            'securityContext.sysctls[0].name: Invalid value: "net.core.x": may not be specified '
            "when 'hostNetwork' is true",
        ),
        (
            {"hostIPC": True, "securityContext": {"sysctls": [{"name": "kernel/shmmax"}]}},
            'securityContext.sysctls[0].name: Invalid value: "kernel/shmmax": may not be specified '
            "when 'hostIPC' is true",
        ),
        (
            {"securityContext": {"fsGroupChangePolicy": "X"}},
            'securityContext.fsGroupChangePolicy: Unsupported value: "X": supported values: '
            '"Always", "OnRootMismatch"',
        ),
        (
            {"topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]},
            "topologySpreadConstraints[0].topologyKey: Required value: can not be empty",
        ),
        (
            {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "k"}]},
            'topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "": '
            'supported values: "DoNotSchedule", "ScheduleAnyway"',
        ),
        ({"os": {}}, "os.name: Required value"),
        (
            {"nodeSelector": {"a": "b c"}},
            'nodeSelector: Invalid value: "b c": a valid label must be an empty string or consist '
            "of alphanumeric characters, '-', '_' or '.', and must start and end with an "
            "alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
            "validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
        (
            {"subdomain": "a.b"},
            'subdomain: Invalid value: "a.b": must not contain dots',
        ),
        (
            {"affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [
                        {"key": "a", "operator": "Exists", "values": ["x"]}]}]}}}},
            "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution."
            "nodeSelectorTerms[0].matchExpressions[0].values: Forbidden: "
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
        (
            {"affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "a", "operator": "Gt"}]}]}}}},
            "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution."
            "nodeSelectorTerms[0].matchExpressions[0].values: Required value: "
            "must be specified single value when `operator` is 'Lt' or 'Gt'",
        ),
        (
            {"affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "a", "operator": "Near"}]}]}}}},
            "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution."
            'nodeSelectorTerms[0].matchExpressions[0].operator: Invalid value: "Near": '
            "not a valid selector operator",
        ),
        (
            {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 0, "podAffinityTerm": {"topologyKey": "k"}}]}}},
            "affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: "
            "Invalid value: 0: must be in the range 1-100",
        ),
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "k", "labelSelector": {"matchExpressions": [
                    {"key": "a", "operator": "Near"}]}}]}}},
            "affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]."
            'labelSelector.matchExpressions[0].operator: Invalid value: "Near": '
            "not a valid selector operator",
        ),
        (
            {"schedulingGates": [{"name": "a"}, {"name": "a"}]},
            'schedulingGates[1]: Duplicate value: "a"',
        ),
        (
            {"topologySpreadConstraints": [
                {"maxSkew": 0, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule"}]},
            "topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
        ),
        (
            {"securityContext": {"runAsUser": -1}},
            "securityContext.runAsUser: Invalid value: -1: "
            "must be between 0 and 4294967295, inclusive",
        ),
        (
            {"hostAliases": [{"ip": "nope"}]},
            'hostAliases[0].ip: Invalid value: "nope": '
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ),
        ({"os": {"name": "beos"}}, 'os: Unsupported value: "beos": supported values: '
                                   '"linux", "windows"'),
        (
            {"affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {}}}},
            "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution."
            "nodeSelectorTerms: Required value: must have at least one node selector term",
        ),
        (
            {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 101, "preference": {}}]}}},
            "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: "
            "Invalid value: 101: must be in the range 1-100",
        ),
        (
            {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [
                    {"key": "a", "operator": "In"}]}}]}}},
            "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference."
            "matchExpressions[0].values: Required value: "
            "must be specified when `operator` is 'In' or 'NotIn'",
        ),
        (
            {"affinity": {"podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            "affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]."
            "topologyKey: Required value: can not be empty",
        ),
        (
            {"overhead": {"cpu": "-1"}},
            'overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0',
        ),
        (
            {"resources": {"requests": {"memory": "-1Gi"}}},
            'resources.requests[memory]: Invalid value: "-1Gi": must be greater than or equal to 0',
        ),
        (
            {"resources": {"requests": {"ephemeral-storage": "1"}}},
            'resources.requests[ephemeral-storage]: Unsupported value: "ephemeral-storage": '
            'supported values: "cpu", "hugepages-", "memory"',
        ),
    ],
)  # fmt: skip
def test_rules_of_the_pod(spec: dict[str, Any], error: str) -> None:
    assert create(POD, a_pod(**spec))[1] == [f"spec.{error}"]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"name": ""}, "name: Required value"),
        ({"name": "A"}, f'name: Invalid value: "A": {LABEL_TEXT}'),
        ({"image": ""}, "image: Required value"),
        (
            {"image": " busybox"},
            'image: Invalid value: " busybox": must not have leading or trailing whitespace',
        ),
        (
            {"imagePullPolicy": "Maybe"},
            'imagePullPolicy: Unsupported value: "Maybe": supported values: '
            '"Always", "IfNotPresent", "Never"',
        ),
        (
            {"terminationMessagePolicy": "X"},
            'terminationMessagePolicy: Unsupported value: "X": supported values: '
            '"File", "FallbackToLogsOnError"',
        ),
        ({"ports": [{}]}, "ports[0].containerPort: Required value"),
        (
            {"ports": [{"containerPort": 65536}]},
            "ports[0].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive",
        ),
        (
            {"ports": [{"containerPort": 1, "protocol": "X"}]},
            'ports[0].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP"',
        ),
        (
            {"ports": [{"containerPort": 1, "name": "Web"}]},
            'ports[0].name: Invalid value: "Web": '
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (
            {"ports": [{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]},
            'ports[1].name: Duplicate value: "a"',
        ),
        (
            {"ports": [{"containerPort": 1, "hostPort": 9}, {"containerPort": 2, "hostPort": 9}]},
            'ports[1].hostPort: Duplicate value: "TCP//9"',
        ),
        ({"env": [{"value": "x"}]}, "env[0].name: Required value"),
        (
            {"env": [{"name": "A=B"}]},
            'env[0].name: Invalid value: "A=B": a valid environment variable name must consist '
            "only of printable ASCII characters other than '='",
        ),
        (
            {"env": [{"name": "A", "value": "x",
                      "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
            'env[0].valueFrom: Invalid value: "": '
            "may not be specified when `value` is not empty",
        ),
        (
            {"env": [{"name": "A", "valueFrom": {}}]},
            'env[0].valueFrom: Invalid value: "": must specify one of: `fieldRef`, '
            "`resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.color"}}}]},
            'env[0].valueFrom.fieldRef.fieldPath: Invalid value: "spec.color": '
            "error converting fieldPath: field label not supported: spec.color",
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}}]},
            "env[0].valueFrom.secretKeyRef.key: Required value",
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "x"}}}]},
            'env[0].valueFrom.resourceFieldRef.resource: Unsupported value: "x": supported '
            'values: "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", '
            '"requests.ephemeral-storage", "requests.memory"',
        ),
        (
            {"envFrom": [{}]},
            'envFrom[0]: Invalid value: "": must specify one of: `configMapRef` or `secretRef`',
        ),
        ({"envFrom": [{"secretRef": {}}]}, "envFrom[0].secretRef.name: Required value"),
        (
            {"volumeMounts": [{"name": "gone", "mountPath": "/x"}]},
            'volumeMounts[0].name: Not found: "gone"',
        ),
        ({"volumeMounts": [{"name": "v"}]}, "volumeMounts[0].mountPath: Required value"),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/x"}] * 2},
            'volumeMounts[1].mountPath: Invalid value: "/x": must be unique',
        ),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/x", "subPath": "a/../b"}]},
            "volumeMounts.subPath: Invalid value: \"a/../b\": must not contain '..'",
        ),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/x", "subPath": "/a"}]},
            'volumeMounts.subPath: Invalid value: "/a": must be a relative path',
        ),
        (
            {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
            'resources.requests: Invalid value: "2": '
            "must be less than or equal to cpu limit of 1",
        ),
        (
            {"resources": {"limits": {"cpu": "-1"}, "requests": {"cpu": "-1"}}},
            'resources.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0',
        ),
        (
            {"resources": {"requests": {"example.com/gpu": "1"}}},
            "resources.limits: Required value: "
            "Limit must be set for non overcommitable resources",
        ),
        (
            {"resources": {"limits": {"example.com/gpu": "1"},
                           "requests": {"example.com/gpu": "2"}}},
            'resources.requests: Invalid value: "2": '
            "must be equal to example.com/gpu limit of 1",
        ),
        (
            {"resources": {"limits": {"example.com/gpu": "500m"}}},
            'resources.limits[example.com/gpu]: Invalid value: "500m": must be an integer',
        ),
        (
            {"resources": {"limits": {"gold": "1"}}},
            'resources.limits[gold]: Invalid value: "gold": '
            "must be a standard resource type or fully qualified",
        ),
        (
            {"resources": {"limits": {"hugepages-2Mi": "2Mi"}}},
            "resources: Forbidden: HugePages require cpu or memory",
        ),
        (
            {"ports": [{"containerPort": 1, "hostPort": 65536}]},
            "ports[0].hostPort: Invalid value: 65536: must be between 1 and 65535, inclusive",
        ),
        ({"volumeMounts": [{"mountPath": "/x"}]}, "volumeMounts[0].name: Required value"),
        (
            {"volumeMounts": [
                {"name": "v", "mountPath": "/x", "subPath": "a", "subPathExpr": "b"}]},
            'volumeMounts[0].subPathExpr: Invalid value: "b": '
            "subPathExpr and subPath are mutually exclusive",
        ),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/x", "mountPropagation": "X"}]},
            'volumeMounts.mountPropagation: Unsupported value: "X": supported values: '
            '"Bidirectional", "HostToContainer", "None"',
        ),
        (
            {"securityContext": {"runAsGroup": -1}},
            "securityContext.runAsGroup: Invalid value: -1: "
            "must be between 0 and 4294967295, inclusive",
        ),
        (
            {"env": [{"name": "A", "valueFrom": {
                "secretKeyRef": {"name": "s", "key": "k"},
                "configMapKeyRef": {"name": "s", "key": "k"}}}]},
            'env[0].valueFrom: Invalid value: "": '
            "may not have more than one field specified at a time",
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"key": "a b"}}}]},
            "env[0].valueFrom.configMapKeyRef.name: Required value",
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {}}}]},
            "env[0].valueFrom.fieldRef.fieldPath: Required value",
        ),
        (
            {"env": [{"name": "A", "valueFrom": {
                "fieldRef": {"fieldPath": "metadata.labels"}}}]},
            'env[0].valueFrom.fieldRef.fieldPath: Unsupported value: "metadata.labels": supported '
            'values: "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", '
            '"spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", '
            '"status.podIPs"',
        ),
        (
            {"env": [{"name": "A", "valueFrom": {
                "fieldRef": {"fieldPath": "metadata.annotations['/x']"}}}]},
            'env[0].valueFrom.fieldRef.fieldPath: Invalid value: "/x": '
            "prefix part must be non-empty",
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {}}}]},
            "env[0].valueFrom.resourceFieldRef.resource: Required value",
        ),
        (
            {"envFrom": [{"secretRef": {"name": "a"}, "configMapRef": {"name": "b"}}]},
            'envFrom[0]: Invalid value: "": may not have more than one field specified at a time',
        ),
        (
            {"livenessProbe": {"exec": {"command": ["x"]}, "initialDelaySeconds": -1}},
            "livenessProbe.initialDelaySeconds: Invalid value: -1: "
            "must be greater than or equal to 0",
        ),
        (
            {"readinessProbe": {"exec": {"command": ["x"]}, "terminationGracePeriodSeconds": 1}},
            "readinessProbe.terminationGracePeriodSeconds: Invalid value: 1: "
            "must not be set for readinessProbes",
        ),
        (
            {"livenessProbe": {"exec": {"command": ["x"]}, "terminationGracePeriodSeconds": 0}},
            "livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: "
            "must be greater than 0",
        ),
        (
            {"livenessProbe": {"httpGet": {"port": 1, "scheme": "FTP"}}},
            'livenessProbe.httpGet.scheme: Unsupported value: "FTP": supported values: '
            '"HTTP", "HTTPS"',
        ),
        (
            {"livenessProbe": {"httpGet": {"port": 1, "httpHeaders": [{"name": "a b"}]}}},
            'livenessProbe.httpGet.httpHeaders: Invalid value: "a b": a valid HTTP header must '
            "consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for "
            "validation is '[-A-Za-z0-9]+')",
        ),
        (
            {"lifecycle": {"preStop": {"sleep": {"seconds": -1}}}},
            "lifecycle.preStop.sleep: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            {"restartPolicy": "Never", "restartPolicyRules": [{}]},
            "restartPolicyRules[0].action: Required value",
        ),
        (
            {"restartPolicy": "Never", "restartPolicyRules": [{"action": "Dance"}]},
            'restartPolicyRules[0].action: Unsupported value: "Dance": supported values: '
            '"Restart", "RestartAllContainers"',
        ),
        (
            {"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart"}]},
            "restartPolicyRules[0].exitCodes: Required value: must be specified",
        ),
        (
            {"restartPolicy": "Never", "restartPolicyRules": [
                {"action": "Restart", "exitCodes": {"values": [1]}}]},
            "restartPolicyRules[0].exitCodes.operator: Required value",
        ),
        (
            {"restartPolicy": "Never", "restartPolicyRules": [
                {"action": "Restart", "exitCodes": {"operator": "Near", "values": [1]}}]},
            'restartPolicyRules[0].exitCodes.operator: Unsupported value: "Near": supported '
            'values: "In", "NotIn"',
        ),
        (
            {"restartPolicy": "Never", "restartPolicyRules": [
                {"action": "Restart", "exitCodes": {"operator": "In"}}]},
            "restartPolicyRules[0].exitCodes.values: Required value",
        ),
        (
            {"restartPolicy": "Never", "restartPolicyRules": [
                {"action": "Restart", "exitCodes": {
                    "operator": "In", "values": list(range(256))}}]},
            "restartPolicyRules[0].exitCodes.values: Too many: 256: must have at most 255 items",
        ),
        (
            {"restartPolicy": "Never", "restartPolicyRules": [
                {"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}] * 21},
            "restartPolicyRules: Too many: 21: must have at most 20 items",
        ),
        ({"livenessProbe": {}}, "livenessProbe: Required value: must specify a handler type"),
        (
            {"readinessProbe": {"exec": {"command": ["x"]}, "tcpSocket": {"port": 1}}},
            "readinessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
        ),
        ({"startupProbe": {"exec": {}}}, "startupProbe.exec.command: Required value"),
        (
            {"livenessProbe": {"exec": {"command": ["x"]}, "successThreshold": 2}},
            "livenessProbe.successThreshold: Invalid value: 2: must be 1",
        ),
        (
            {"livenessProbe": {"tcpSocket": {"port": 0}}},
            "livenessProbe.tcpSocket.port: Invalid value: 0: "
            "must be between 1 and 65535, inclusive",
        ),
        (
            {"lifecycle": {"preStop": {}}},
            "lifecycle.preStop: Required value: must specify a handler type",
        ),
        (
            {"restartPolicy": "Perhaps"},
            'restartPolicy: Unsupported value: "Perhaps": supported values: '
            '"Always", "Never", "OnFailure"',
        ),
        (
            {"restartPolicyRules": [
                {"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]},
            "restartPolicy: Required value: "
            "must specify restartPolicy when restart rules are used",
        ),
    ],
)  # fmt: skip
def test_rules_of_containers(fields: dict[str, Any], error: str) -> None:
    pod = a_pod(containers=[a_container(**fields)], volumes=[{"name": "v"}])
    errors = create(POD, pod)[1]
    assert errors[0] == f"spec.containers[0].{error}"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"name": "main"}, 'name: Duplicate value: "main"'),
        (
            {"livenessProbe": {"exec": {"command": ["x"]}}},
            "livenessProbe: Forbidden: "
            "may not be set for init containers without restartPolicy=Always",
        ),
        ({"image": ""}, "image: Required value"),
    ],
)
def test_rules_of_init_containers(fields: dict[str, Any], error: str) -> None:
    init = a_container(**{"name": "init", **fields})
    assert create(POD, a_pod(initContainers=[init]))[1] == [f"spec.initContainers[0].{error}"]


def test_a_pod_does_not_ask_for_less_than_its_containers() -> None:
    wanting = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}
    before = {**wanting, "name": "before", "restartPolicy": "Always"}
    both = a_pod(initContainers=[before], containers=[wanting])
    for cpu, allowed in (("3999m", False), ("4", True)):
        both["spec"]["resources"] = {"requests": {"cpu": cpu}}
        found = create(POD, both)[1]
        assert found == ([] if allowed else [
            'spec.resources.requests[cpu]: Invalid value: "3999m": '
            "must be greater than or equal to aggregate container requests of 4"
        ])  # fmt: skip


def test_a_container_has_no_larger_limit_than_its_pod() -> None:
    container = {"name": "c", "image": "i", "resources": {"limits": {"memory": "2Gi"}}}
    pod = a_pod(containers=[container], resources={"limits": {"memory": "1Gi"}})
    assert create(POD, pod)[1] == [
        'spec.containers[0].resources.limits[memory]: Invalid value: "2Gi": '
        "must be less than or equal to pod limits of 1Gi"
    ]


def test_a_sidecar_may_have_probes() -> None:
    sidecar = a_container(
        name="side", restartPolicy="Always", startupProbe={"exec": {"command": ["true"]}}
    )
    assert create(POD, a_pod(initContainers=[sidecar]))[1] == []


def test_on_the_hosts_network_a_port_is_the_hosts_port() -> None:
    ports = [{"containerPort": 80}]
    stored, errors = create(POD, a_pod(hostNetwork=True, containers=[a_container(ports=ports)]))
    assert errors == []
    assert stored["spec"]["containers"][0]["ports"][0]["hostPort"] == 80
    ports = [{"containerPort": 80, "hostPort": 81}]
    pod = a_pod(hostNetwork=True, containers=[a_container(ports=ports)])
    assert create(POD, pod)[1] == [
        "spec.containers[0].ports[0].hostPort: Invalid value: 81: "
        "must match `containerPort` when `hostNetwork` is true"
    ]


def test_names_of_containers_are_unique() -> None:
    assert create(POD, a_pod(containers=[a_container(), a_container()]))[1] == [
        'spec.containers[1].name: Duplicate value: "main"'
    ]


@pytest.mark.parametrize(
    ("volume", "error"),
    [
        ({"emptyDir": {}}, "name: Required value"),
        ({"name": "A"}, f'name: Invalid value: "A": {LABEL_TEXT}'),
        (
            {"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}},
            "hostPath: Forbidden: may not specify more than 1 volume type",
        ),
        ({"name": "v", "hostPath": {}}, "hostPath.path: Required value"),
        (
            {"name": "v", "hostPath": {"path": "/a/../b"}},
            "hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
        ),
        ({"name": "v", "secret": {}}, "secret.secretName: Required value"),
        ({"name": "v", "configMap": {}}, "configMap.name: Required value"),
        (
            {"name": "v", "configMap": {"name": "m", "defaultMode": 512}},
            "configMap.defaultMode: Invalid value: 512: "
            "must be a number between 0 and 0777 (octal), both inclusive",
        ),
        (
            {"name": "v", "configMap": {"name": "m", "items": [{"key": "k"}]}},
            "configMap.items[0].path: Required value",
        ),
        (
            {"name": "v", "persistentVolumeClaim": {}},
            "persistentVolumeClaim.claimName: Required value",
        ),
        (
            {"name": "v", "downwardAPI": {"items": [{"path": "x"}]}},
            "downwardAPI.items[0]: Required value: "
            "one of fieldRef and resourceFieldRef is required",
        ),
        (
            {"name": "v", "projected": {"sources": [
                {"secret": {"name": "a"}, "configMap": {"name": "b"}}]}},
            "projected.sources[0].configMap: Forbidden: "
            "may not specify more than 1 volume type per source",
        ),
        (
            {"name": "v", "projected": {"sources": [{}]}},
            "projected.sources[0]: Required value: must specify a volume source",
        ),
        (
            {"name": "v", "projected": {"sources": [{"secret": {}}]}},
            "projected.sources[0].secret.name: Required value",
        ),
        (
            {"name": "v", "projected": {"sources": [{"downwardAPI": {"items": [
                {"path": "x", "fieldRef": {"fieldPath": "spec.nodeName"}}]}}]}},
            'projected.sources[0].downwardAPI.items[0].fieldRef.fieldPath: Unsupported value: '
            '"spec.nodeName": supported values: "metadata.annotations", "metadata.labels", '
            '"metadata.name", "metadata.namespace", "metadata.uid"',
        ),
        (
            {"name": "v", "downwardAPI": {"items": [{"path": "x", "resourceFieldRef": {
                "resource": "limits.cpu"}}]}},
            "downwardAPI.items[0].resourceFieldRef.containerName: Required value",
        ),
        (
            {"name": "v", "downwardAPI": {"items": [{
                "path": "x", "fieldRef": {"fieldPath": "metadata.name"},
                "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}}]}},
            'downwardAPI.items[0]: Invalid value: "resource": '
            "fieldRef and resourceFieldRef can not be specified simultaneously",
        ),
        (
            {"name": "v", "projected": {"sources": [
                {"serviceAccountToken": {"path": "t", "expirationSeconds": 599}}]}},
            "projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 599: "
            "may not specify a duration less than 10 minutes",
        ),
        (
            {"name": "v", "projected": {"sources": [
                {"serviceAccountToken": {"path": "t", "expirationSeconds": 2**32 + 1}}]}},
            "projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: "
            "4294967297: may not specify a duration larger than 2^32 seconds",
        ),
        (
            {"name": "v", "configMap": {"name": "m", "items": [{"key": "k", "path": "..x"}]}},
            "configMap.items[0].path: Invalid value: \"..x\": must not start with '..'",
        ),
        (
            {"name": "v", "secret": {"secretName": "s", "items": [{"path": "x"}]}},
            "secret.items[0].key: Required value",
        ),
        (
            {"name": "v", "hostPath": {"path": "/x", "type": "Attic"}},
            'hostPath.type: Unsupported value: "Attic": supported values: "", "BlockDevice", '
            '"CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"',
        ),
        (
            {"name": "v", "nfs": {"server": "s", "path": "x"}},
            'nfs.path: Invalid value: "x": must be an absolute path',
        ),
        (
            {"name": "v", "emptyDir": {"sizeLimit": "-1"}},
            "emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity",
        ),
    ],
)  # fmt: skip
def test_rules_of_volumes(volume: dict[str, Any], error: str) -> None:
    assert create(POD, a_pod(volumes=[volume]))[1] == [f"spec.volumes[0].{error}"]


def test_names_of_volumes_are_unique() -> None:
    assert create(POD, a_pod(volumes=[{"name": "v"}, {"name": "v"}]))[1] == [
        'spec.volumes[1].name: Duplicate value: "v"'
    ]


def test_an_everyday_pod_has_nothing_wrong_with_it() -> None:
    pod = a_pod(
        volumes=[
            {"name": "conf", "configMap": {"name": "m", "items": [{"key": "k", "path": "a/b"}]}},
            {"name": "keys", "secret": {"secretName": "s"}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "host", "hostPath": {"path": "/data", "type": "DirectoryOrCreate"}},
            {"name": "all", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        ],
        containers=[
            a_container(
                ports=[{"containerPort": 80, "name": "web"}],
                env=[
                    {"name": "A", "value": "1"},
                    {"name": "B", "valueFrom": {"fieldRef": {
                        "fieldPath": "metadata.labels['batch.kubernetes.io/job-name']"}}},
                    {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
                    {"name": "D", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                ],
                envFrom=[{"configMapRef": {"name": "m"}, "prefix": "X_"}],
                volumeMounts=[{"name": "tmp", "mountPath": "/tmp", "subPath": "a"}],
                resources={"requests": {"cpu": "100m"}, "limits": {"cpu": "1", "memory": "1Gi"}},
                readinessProbe={"httpGet": {"port": "web"}},
                lifecycle={"preStop": {"sleep": {"seconds": 1}}},
            )
        ],
        tolerations=[{"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}],
        nodeSelector={"kubernetes.io/hostname": "n"},
        securityContext={"runAsUser": 1000},
    )  # fmt: skip
    assert create(POD, pod)[1] == []
