"""The most expensive requests: bodies, patches, queries and numbers of objects."""

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote

from tests import build
from tests.build import container

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
APPLY = "application/apply-patch+yaml"
STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
CRONJOBS = "/apis/batch/v1/namespaces/default/cronjobs"
MAX_BODY = 3 * 1024 * 1024


@dataclass
class Case:
    name: str
    method: str
    path: str
    body: Callable[[], bytes] = lambda: b""
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)
    #: For endless streams: seconds without data after which the response counts as complete.
    read_seconds: float = 0.0
    #: Whether the request cannot be repeated unchanged.
    once: bool = False


WORST = {"generateName": "worst-"}


def pod(**spec: Any) -> dict[str, Any]:
    gates = [{"name": "example.com/never"}]
    fields = {"containers": [container()], "schedulingGates": gates, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": WORST, "spec": fields}


def job(template: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    fields = {"suspend": True, "template": build.template(**(template or {})), **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": WORST, "spec": fields}


def cronjob(schedule: str, **spec: Any) -> dict[str, Any]:
    jobs = {"spec": job()["spec"]}
    fields = {"suspend": True, "schedule": schedule, "jobTemplate": jobs, **spec}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": WORST, "spec": fields}


def configmap(data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"generateName": "worst-", **metadata},
        "data": data or {},
    }


def encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def items_within(make: Callable[[int], Any], count: int) -> list[Any]:
    return [make(number) for number in range(count)]


def in_list(item: bytes) -> bytes:
    """Return a body with as many copies of an item as fit, in an unknown field."""
    head, tail = b'{"metadata":{"generateName":"worst-"},"x":[', b"]}"
    count = (MAX_BODY - len(head) - len(tail)) // (len(item) + 1)
    return head + b",".join([item] * count) + tail


def duplicates_under_long_key() -> bytes:
    inner = b",".join([b'"a%d":0,"a%d":0' % (n, n) for n in range(1000)])
    key = b"k" * 1_000_000
    return b'{"metadata":{"generateName":"worst-"},"data":{"%b":{%b}}}' % (key, inner)


def yaml_string_aliases(length: int, uses: int) -> bytes:
    lines = ["metadata: {generateName: worst-}", "spec:", "  schedulingGates: [{name: a/b}]"]
    lines += ["  containers:", "  - name: c", "    image: i", "    args:"]
    lines += [f"    - &a {'x' * length}", *["    - *a"] * uses]
    return "\n".join(lines).encode()


def yaml_tag_directives() -> bytes:
    head = b"".join(b"%%TAG !%d! !\n" % number for number in range(30_000))
    return head + b"---\nmetadata: {generateName: worst-}\n"


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def message(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def protobuf(raw: bytes, api_version: bytes = b"v1", kind: bytes = b"Pod") -> bytes:
    types = message(1, api_version) + message(2, kind)
    return b"k8s\x00" + message(1, types) + message(2, raw)


def nested_protobuf() -> bytes:
    """Return nested objects, as deep as recursive types allow."""
    raw = b""
    for _ in range(5000):
        raw = message(1, raw)[: MAX_BODY // 2]
    return protobuf(message(2, raw))


def nested_definition() -> bytes:
    """Return a schema of 40,000 levels of `not`."""
    raw = b""
    for _ in range(40_000):
        raw = message(28, raw)
    version = message(7, message(4, message(1, raw)))
    return protobuf(message(2, version), b"apiextensions.k8s.io/v1", b"CustomResourceDefinition")


def env(count: int) -> list[dict[str, str]]:
    return [{"name": f"E{n}", "value": "v"} for n in range(count)]


def with_env(count: int) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "command": ["true"], "env": env(count)}
    return pod(containers=[container])


def scheduled(variables: list[dict[str, str]]) -> dict[str, Any]:
    """Return a Pod that is run at once."""
    container = {"name": "c", "image": "busybox", "command": ["true"], "env": variables}
    return pod(containers=[container], schedulingGates=[], restartPolicy="Never")


def doubled(count: int) -> list[dict[str, str]]:
    first = {"name": "E0", "value": "x" * 100}
    return [first, *({"name": f"E{n}", "value": f"$(E{n - 1})" * 2} for n in range(1, count))]


def big_pod_patch(count: int) -> bytes:
    tolerations = [{"key": f"k{n}", "operator": "Exists"} for n in range(count)]
    container = {"name": "c", "image": "j", "env": env(count)}
    return encoded({"spec": {"containers": [container], "tolerations": tolerations}})


def applied(count: int) -> bytes:
    document = with_env(count)
    document["metadata"] = {"name": "applied"}
    return encoded(document)


def applied_configmap(count: int, value: str) -> bytes:
    document = configmap({f"k{n}": value for n in range(count)})
    document["metadata"] = {"name": "applied-map"}
    return encoded(document)


def managed_fields(count: int) -> bytes:
    fields: dict[str, Any] = {f"f:k{n}": {} for n in range(count)}
    entry = {
        "manager": "m", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:data": fields},
    }  # fmt: skip
    return encoded({"metadata": {"managedFields": [entry]}})


def many_managers(count: int) -> bytes:
    entries = [
        {
            "manager": f"m{n}", "operation": "Update", "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {f"f:k{n}": {}}},
        }
        for n in range(count)
    ]  # fmt: skip
    return encoded({"metadata": {"managedFields": entries}})


def copies() -> bytes:
    operations: list[dict[str, Any]] = [{"op": "add", "path": "/data/a", "value": "x" * 40}]
    operations += [{"op": "copy", "from": "/data", "path": f"/data{n}"} for n in range(9999)]
    return encoded(operations)


def doubling() -> bytes:
    operations: list[dict[str, Any]] = [{"op": "add", "path": "/x", "value": ["y" * 100]}]
    operations += [{"op": "copy", "from": "/x", "path": "/x/-"} for _ in range(60)]
    return encoded(operations)


def list_inserts() -> bytes:
    values = [{"op": "add", "path": "/metadata/finalizers", "value": ["a/b"] * 200_000}]
    values += [{"op": "add", "path": "/metadata/finalizers/0", "value": "a/b"}] * 9000
    return encoded(values)


def index_policy(text: str) -> bytes:
    rules = [{"succeededIndexes": text, "succeededCount": 1}]
    spec: dict[str, Any] = {"completionMode": "Indexed", "completions": 10**9, "parallelism": 1}
    return encoded(job(**spec, successPolicy={"rules": rules}))


def status_indexes(top: int) -> bytes:
    text = ",".join(f"{n}-{n + 2}" for n in range(0, top, 4))
    return encoded({"status": {"completedIndexes": text, "succeeded": top // 4 * 3}})


def selector(count: int) -> str:
    return quote(f"a in ({','.join(f'v{n}' for n in range(count))})")


def new(make: Callable[[], Any]) -> Callable[[], bytes]:
    return lambda: encoded(make())


def cases() -> Iterator[Case]:
    log = f"{PODS}/talker/log"
    # Logs.
    yield Case("log, last 1,000,000 lines", "GET", f"{log}?tailLines=1000000")
    yield Case("log, all", "GET", log)
    yield Case("log, since long ago, stamped", "GET", f"{log}?sinceSeconds=99999&timestamps=true")
    yield Case("log, since now", "GET", f"{log}?sinceTime=2999-01-01T00:00:00Z")
    yield Case("log of empty lines, tail", "GET", f"{PODS}/empty-lines/log?tailLines=2000000")
    yield Case("log of one line, tail", "GET", f"{PODS}/one-line/log?tailLines=5")
    yield Case("log, sinceSeconds=2^62", "GET", f"{log}?sinceSeconds={2**62}&limitBytes=10")
    yield Case("log, sinceTime year 1", "GET", f"{log}?sinceTime=0001-01-01T00:00:00%2B14:00")
    # Reading bodies.
    yield Case("JSON, duplicates under a long key", "POST", CONFIGMAPS, duplicates_under_long_key)
    for text in (b"[]", b"{}", b"0", b'""', b'{"a":0}', b"1.5e3", b'{"a":0,"a":1}', b"null"):
        yield Case(
            f"JSON, {text.decode()} a million times", "POST", CONFIGMAPS, partial(in_list, text)
        )
    yield Case(
        "JSON, 300,000 keys",
        "POST",
        CONFIGMAPS,
        lambda: b'{"x":{' + b",".join(b'"%06d":0' % n for n in range(280_000)) + b"}}",
    )
    yield Case(
        "JSON, spaces",
        "POST",
        CONFIGMAPS,
        lambda: b'{"metadata":{"generateName":"w-"},"x":[ ' + b"0, " * 1_000_000 + b"0]}",
    )
    yield Case(
        "JSON, long float",
        "POST",
        CONFIGMAPS,
        lambda: b'{"x":[' + (b"1." + b"1" * 700 + b"e-300,") * 4000 + b"0]}",
    )
    yield Case("JSON, deep", "POST", CONFIGMAPS, lambda: b'{"x":' + b"[" * 1_500_000)
    yield Case("JSON, big integer", "POST", CONFIGMAPS, lambda: b'{"x":' + b"9" * 3_000_000 + b"}")
    yield Case(
        "JSON, surrogates", "POST", CONFIGMAPS, lambda: b'{"x":[' + b'"\\ud800",' * 330_000 + b"0]}"
    )
    yield Case(
        "JSON, 200,000 unknown fields",
        "POST",
        f"{CONFIGMAPS}?fieldValidation=Strict",
        lambda: encoded({**configmap(), **{f"unknown{n}": 0 for n in range(150_000)}}),
    )
    yield Case(
        "JSON, one unknown field of 3 MB",
        "POST",
        f"{CONFIGMAPS}?fieldValidation=Strict",
        lambda: encoded({**configmap(), "u" * 3_000_000: 0}),
    )
    yield Case(
        "YAML, string aliases: 200 kB for 50 MB",
        "POST",
        PODS,
        lambda: yaml_string_aliases(25_000, 2_000),
        YAML,
    )
    yield Case(
        "YAML, 90,000 short aliases", "POST", PODS, lambda: yaml_string_aliases(10, 90_000), YAML
    )
    yield Case("YAML, tag directives", "POST", CONFIGMAPS, yaml_tag_directives, YAML)
    yield Case("YAML, 3 MB list", "POST", CONFIGMAPS, lambda: b"x:\n" + b"- a\n" * 700_000, YAML)
    yield Case("YAML, flow nesting", "POST", CONFIGMAPS, lambda: b"x: " + b"[" * 1_000_000, YAML)
    yield Case(
        "YAML, long plain text", "POST", CONFIGMAPS, lambda: b"x: " + b"a b\n  " * 500_000, YAML
    )
    yield Case("YAML, long number", "POST", CONFIGMAPS, lambda: b"x: " + b"1" * 3_000_000, YAML)
    yield Case(
        "protobuf, a million empty fields",
        "POST",
        PODS,
        lambda: protobuf(b"\x0a\x00" * 1_000_000),
        PROTOBUF,
    )
    yield Case(
        "protobuf, a million unknown fields",
        "POST",
        PODS,
        lambda: protobuf(b"\x78\x00" * 1_000_000),
        PROTOBUF,
    )
    yield Case(
        "protobuf, a million empty containers",
        "POST",
        PODS,
        lambda: protobuf(message(2, b"\x12\x00" * 1_000_000)),
        PROTOBUF,
    )
    yield Case(
        "protobuf, envelope of a million",
        "POST",
        PODS,
        lambda: b"k8s\x00" + b"\x0a\x00" * 1_000_000,
        PROTOBUF,
    )
    yield Case("protobuf, nested", "POST", PODS, nested_protobuf, PROTOBUF)
    yield Case("protobuf, nested schema", "POST", DEFINITIONS, nested_definition, PROTOBUF)
    yield Case("gzip body", "POST", CONFIGMAPS, lambda: gzip.compress(b"0" * 100_000_000), JSON,
               {"Content-Encoding": "gzip"})  # fmt: skip
    # Patches.
    yield Case(
        "strategic merge, 20,000 items",
        "PATCH",
        f"{PODS}/patched",
        lambda: big_pod_patch(20_000),
        STRATEGIC,
    )
    yield Case(
        "strategic merge, order of 20,000",
        "PATCH",
        f"{PODS}/patched",
        lambda: encoded(
            {
                "spec": {
                    "$setElementOrder/tolerations": [{"key": f"k{n}"} for n in range(20_000)],
                    "tolerations": [{"key": f"k{n}"} for n in range(19_999, 0, -1)],
                }
            }
        ),
        STRATEGIC,
    )
    yield Case(
        "apply, 20,000 items",
        "PATCH",
        f"{PODS}/applied?fieldManager=a",
        lambda: applied(20_000),
        APPLY,
    )
    yield Case(
        "apply, map of 20,000",
        "PATCH",
        f"{CONFIGMAPS}/applied-map?fieldManager=a",
        lambda: applied_configmap(20_000, "v"),
        APPLY,
    )
    yield Case(
        "apply, the same again",
        "PATCH",
        f"{CONFIGMAPS}/applied-map?fieldManager=a",
        lambda: applied_configmap(20_000, "v"),
        APPLY,
    )
    yield Case(
        "apply, 20,000 conflicts",
        "PATCH",
        f"{CONFIGMAPS}/applied-map?fieldManager=b",
        lambda: applied_configmap(20_000, "w"),
        APPLY,
    )
    yield Case(
        "apply, 20,000 given up",
        "PATCH",
        f"{CONFIGMAPS}/applied-map?fieldManager=a",
        lambda: applied_configmap(1, "v"),
        APPLY,
    )
    yield Case(
        "JSON patch, 10,000 adds",
        "PATCH",
        f"{CONFIGMAPS}/patched",
        lambda: encoded(
            [{"op": "add", "path": f"/data/k{n}", "value": "v"} for n in range(10_000)]
        ),
        JSON_PATCH,
    )
    yield Case(
        "small patch of a large object",
        "PATCH",
        f"{CONFIGMAPS}/patched",
        lambda: encoded({"data": {"a": "b"}}),
        MERGE,
    )
    yield Case("JSON patch, copies", "PATCH", f"{CONFIGMAPS}/patched", copies, JSON_PATCH)
    yield Case(
        "JSON patch, copies that double", "PATCH", f"{CONFIGMAPS}/patched", doubling, JSON_PATCH
    )
    yield Case("JSON patch, inserts", "PATCH", f"{CONFIGMAPS}/patched", list_inserts, JSON_PATCH)
    yield Case(
        "managedFields of 60,000",
        "PATCH",
        f"{CONFIGMAPS}/patched",
        lambda: managed_fields(60_000),
        MERGE,
    )
    yield Case(
        "5,000 managers", "PATCH", f"{CONFIGMAPS}/patched", lambda: many_managers(5_000), MERGE
    )
    yield Case(
        "completedIndexes, 130,000 ranges",
        "PATCH",
        f"{JOBS}/indexed/status",
        partial(status_indexes, 520_000),
        MERGE,
    )
    # Of the largest accepted size.
    yield Case(
        "accepted: strategic merge, 8,000 items",
        "PATCH",
        f"{PODS}/patched",
        lambda: encoded({"spec": {"tolerations": [{"key": f"k{n}"} for n in range(8_000)]}}),
        STRATEGIC,
    )
    yield Case(
        "accepted: apply, 12,000 items",
        "PATCH",
        f"{PODS}/applied?fieldManager=a",
        lambda: applied(12_000),
        APPLY,
    )
    yield Case(
        "accepted: the same again",
        "PATCH",
        f"{PODS}/applied?fieldManager=a",
        lambda: applied(12_000),
        APPLY,
    )
    yield Case("accepted: 12,000 env vars, run", "POST", PODS, new(lambda: scheduled(env(12_000))))
    yield Case("accepted: env vars that double", "POST", PODS, new(lambda: scheduled(doubled(40))))
    yield Case(
        "accepted: 4,500 containers",
        "POST",
        PODS,
        new(lambda: pod(containers=[{"name": f"c{n}", "image": "i"} for n in range(4_500)])),
    )
    yield Case(
        "accepted: a Job of 10,000 env vars",
        "POST",
        JOBS,
        new(
            lambda: job(
                suspend=False,
                template={
                    "restartPolicy": "Never",
                    "containers": scheduled(env(10_000))["spec"]["containers"],
                },
            )
        ),
    )
    yield Case(
        "accepted: a CronJob last run in 1970",
        "PATCH",
        f"{CRONJOBS}/every-minute/status",
        lambda: encoded({"status": {"lastScheduleTime": "1970-01-01T00:00:00Z"}}),
        MERGE,
    )
    yield Case(
        "accepted: completedIndexes, 60,000 ranges",
        "PATCH",
        f"{JOBS}/indexed/status",
        partial(status_indexes, 240_000),
        MERGE,
        once=True,
    )
    # Validation.
    yield Case(
        "80,000 bad labels",
        "POST",
        CONFIGMAPS,
        new(lambda: configmap(labels={f"-{n}": "-bad-" for n in range(80_000)})),
    )
    yield Case(
        "one bad label of 3 MB",
        "POST",
        CONFIGMAPS,
        new(lambda: configmap(labels={"a": "." * 3_000_000})),
    )
    yield Case("a name of 3 MB", "POST", CONFIGMAPS, new(lambda: configmap(name="a." * 1_500_000)))
    yield Case("100,000 env vars", "POST", PODS, new(lambda: with_env(80_000)))
    yield Case("25,000 env vars", "POST", PODS, new(lambda: with_env(25_000)))
    yield Case(
        "25,000 env vars with references",
        "POST",
        PODS,
        new(
            lambda: pod(
                containers=[
                    {
                        "name": "c",
                        "image": "i",
                        "command": ["$(E1)" * 1000],
                        "env": [{"name": f"E{n}", "value": f"$(E{n - 1})"} for n in range(20_000)],
                    }
                ]
            )
        ),
    )
    yield Case(
        "20,000 containers",
        "POST",
        PODS,
        new(
            lambda: pod(containers=items_within(lambda n: {"name": f"c{n}", "image": "i"}, 20_000))
        ),
    )
    yield Case(
        "30,000 containers of one name",
        "POST",
        PODS,
        new(lambda: pod(containers=[{"name": "c"}] * 30_000)),
    )
    yield Case(
        "30,000 tolerations",
        "POST",
        PODS,
        new(
            lambda: pod(
                tolerations=items_within(lambda n: {"key": f"k{n}", "operator": "Wrong"}, 30_000)
            )
        ),
    )
    yield Case(
        "20,000 volumes and mounts",
        "POST",
        PODS,
        new(
            lambda: pod(
                volumes=items_within(lambda n: {"name": f"v{n}", "emptyDir": {}}, 15_000),
                containers=[
                    {
                        "name": "c",
                        "image": "i",
                        "volumeMounts": items_within(
                            lambda n: {"name": f"v{n}", "mountPath": f"/m{n}"}, 15_000
                        ),
                    }
                ],
            )
        ),
    )
    yield Case(
        "10,000 ports",
        "POST",
        PODS,
        new(
            lambda: pod(
                containers=[
                    {
                        "name": "c",
                        "image": "i",
                        "ports": items_within(
                            lambda n: {"containerPort": n + 1, "name": f"p{n}"}, 20_000
                        ),
                    }
                ]
            )
        ),
    )
    yield Case(
        "20,000 owner references",
        "POST",
        CONFIGMAPS,
        new(
            lambda: configmap(
                ownerReferences=items_within(
                    lambda n: {"apiVersion": "v1", "kind": "Pod", "name": f"n{n}", "uid": f"u{n}"},
                    15_000,
                )
            )
        ),
    )
    yield Case(
        "40,000 finalizers",
        "POST",
        CONFIGMAPS,
        new(lambda: configmap(finalizers=[f"x/f{n}" for n in range(40_000)])),
    )
    yield Case(
        "Job, 10,000 failure policy rules",
        "POST",
        JOBS,
        new(
            lambda: job(
                podFailurePolicy={
                    "rules": items_within(
                        lambda n: {
                            "action": "Wrong",
                            "onExitCodes": {"operator": "In", "values": [n, n, 0]},
                        },
                        10_000,
                    )
                }
            )
        ),
    )
    yield Case(
        "Job, failure policy of 100,000 codes",
        "POST",
        JOBS,
        new(
            lambda: job(
                podFailurePolicy={
                    "rules": [
                        {
                            "action": "FailJob",
                            "onExitCodes": {
                                "operator": "In",
                                "values": list(range(100_000, 0, -1)),
                            },
                        }
                    ]
                }
            )
        ),
    )
    yield Case("Job, indexes 0-1000000000", "POST", JOBS, lambda: index_policy("0-999999999"))
    yield Case(
        "Job, 60,000 index ranges",
        "POST",
        JOBS,
        lambda: index_policy(",".join(str(n) for n in range(0, 120_000, 2))),
    )
    yield Case(
        "quantity 1e999999999",
        "POST",
        PODS,
        new(
            lambda: pod(
                containers=[
                    {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1e999999999"}}}
                ]
            )
        ),
    )
    yield Case(
        "quantity of 3 MB",
        "POST",
        PODS,
        new(
            lambda: pod(
                containers=[
                    {"name": "c", "image": "i", "resources": {"limits": {"cpu": "9" * 3_000_000}}}
                ]
            )
        ),
    )
    yield Case(
        "30,000 quantities",
        "POST",
        PODS,
        new(
            lambda: pod(
                containers=[
                    {
                        "name": "c",
                        "image": "i",
                        "resources": {"limits": {f"x.io/r{n}": f"{n}.5Ki" for n in range(30_000)}},
                    }
                ]
            )
        ),
    )
    yield Case(
        "schedule of 3 MB",
        "POST",
        CRONJOBS,
        new(lambda: cronjob(",".join(["*"] * 1_500_000) + " * * * *")),
    )
    yield Case("schedule of 1 MB, words", "POST", CRONJOBS, new(lambda: cronjob("* " * 500_000)))
    yield Case(
        "schedule, long number",
        "POST",
        CRONJOBS,
        new(lambda: cronjob("0" * 1_000_000 + " * * * *")),
    )
    yield Case(
        "schedule that never comes",
        "POST",
        CRONJOBS,
        new(lambda: cronjob("0 0 31 2 *", suspend=False)),
    )
    yield Case(
        "schedule, long @every", "POST", CRONJOBS, new(lambda: cronjob("@every " + "1h" * 500_000))
    )
    yield Case(
        "time zone of 1 MB",
        "POST",
        CRONJOBS,
        new(lambda: cronjob("* * * * *", timeZone="A/" * 500_000)),
    )
    yield Case(
        "time zone in the schedule",
        "POST",
        CRONJOBS,
        new(lambda: cronjob("TZ=" + "../" * 300_000 + " * * * * *")),
    )
    yield Case(
        "times", "POST", PODS, new(lambda: {**pod(), "status": {"startTime": "2" * 3_000_000}})
    )
    yield Case(
        "base64 of 3 MB",
        "POST",
        "/api/v1/namespaces/default/secrets",
        new(lambda: {"metadata": {"generateName": "worst-"}, "data": {"a": "A" * 2_999_999}}),
    )
    yield Case(
        "affinity of 10,000 terms",
        "POST",
        PODS,
        new(
            lambda: pod(
                affinity={
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": items_within(
                                lambda n: {
                                    "matchExpressions": [
                                        {"key": f"k{n}", "operator": "In", "values": ["a", "b"]}
                                    ]
                                },
                                10_000,
                            )
                        }
                    }
                }
            )
        ),
    )
    # Queries.
    yield Case("label selector of 60 kB", "GET", f"{PODS}?labelSelector={selector(7_000)}")
    yield Case(
        "label selector, 2,800 terms",
        "GET",
        f"{PODS}?labelSelector=" + quote(",".join(f"a{n}!=b" for n in range(2_800))),
    )
    yield Case(
        "field selector, 1,800 terms",
        "GET",
        f"{PODS}?fieldSelector=" + quote(",".join(["status.phase!=x"] * 1_800)),
    )
    yield Case("label selector, long key", "GET", f"{PODS}?labelSelector={'a.' * 25_000}a")
    yield Case(
        "field selector, backslashes",
        "GET",
        f"{PODS}?fieldSelector=metadata.name=" + ("%5C%5C" * 9_000),
    )
    yield Case(
        "199 parameters",
        "GET",
        f"{PODS}/patched?" + "&".join(f"p{n}={'v' * 300}" for n in range(199)),
    )
    yield Case("20,000 parameters", "GET", f"{PODS}/patched?" + "&a" * 20_000)
    yield Case("continue token", "GET", f"{PODS}?limit=1&continue={'e' * 60_000}")
    # Many objects.
    yield Case("list of everything", "GET", PODS)
    yield Case("list as a Table", "GET", PODS, headers={"Accept": TABLE})
    yield Case(
        "Table with whole objects", "GET", f"{PODS}?includeObject=Object", headers={"Accept": TABLE}
    )
    yield Case("list with gzip", "GET", PODS, headers={"Accept-Encoding": "gzip"})
    yield Case("list as YAML", "GET", PODS, headers={"Accept": YAML})
    yield Case(
        "list as metadata",
        "GET",
        PODS,
        headers={"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"},
    )
    yield Case("watch of everything", "GET", f"{PODS}?watch=1", read_seconds=1)
    yield Case(
        "watch as a Table", "GET", f"{PODS}?watch=1", headers={"Accept": TABLE}, read_seconds=1
    )
    yield Case("list events.k8s.io", "GET", "/apis/events.k8s.io/v1/namespaces/default/events")
    yield Case("get a large object as YAML", "GET", f"{CONFIGMAPS}/large", headers={"Accept": YAML})
    yield Case(
        "get a large object with gzip",
        "GET",
        f"{CONFIGMAPS}/large",
        headers={"Accept-Encoding": "gzip"},
    )
    yield Case("OpenAPI", "GET", "/openapi/v3/apis/batch/v1")
    yield Case("OpenAPI v2", "GET", "/openapi/v2")
    yield Case(
        "OpenAPI v2 as protobuf",
        "GET",
        "/openapi/v2",
        headers={"Accept": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"},
    )
    yield Case("list as protobuf", "GET", PODS, headers={"Accept": PROTOBUF})
    yield Case(
        "watch as protobuf", "GET", f"{PODS}?watch=1", headers={"Accept": PROTOBUF}, read_seconds=1
    )
    yield Case(
        "get a large object as protobuf", "GET", f"{CONFIGMAPS}/large", headers={"Accept": PROTOBUF}
    )
    yield Case("metrics of Pods", "GET", "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods")
    yield Case("metrics of the server", "GET", "/metrics")
    yield Case(
        "delete collection, large options",
        "DELETE",
        f"{PODS}?labelSelector=no=such",
        lambda: in_list(b"[]"),
    )
    yield Case("delete collection, dry run", "DELETE", f"{PODS}?dryRun=All")
    yield Case("delete collection", "DELETE", PODS, once=True)
