"""Writes the schema of everything onejob serves: `python build_schema.py`, and hatchling's hook.

The source is the newest `_definitions.json` of the PyPI package `kubernetes-validate`; the result
holds the closure of the served kinds plus onejob's own fields. Two lines of JSON, gzipped: the
shapes first, the documentation second, so that a server that only checks documents never
decodes megabytes of prose.
"""

import gzip
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
TARGET = "src/onejob/api/data/schema.json.gz"
#: Definitions of onejob's own kinds, in the form of the source.
OWN_DEFINITIONS = "src/onejob/api/schema/own_definitions.json"
#: Files of this repository that the schema follows from; the Makefile lists the same.
SOURCES = ("build_schema.py", "src/onejob/wire/kinds.py", OWN_DEFINITIONS)

#: Bodies that clients may send although they are no rows of KINDS.
EXTRA_KINDS = (
    ("v1", "DeleteOptions"),
    ("v1", "Status"),
    ("authentication.k8s.io/v1", "TokenRequest"),
)

#: Fields of the original proposals that upstream never shipped, and fields of our own.
EXTENSION_FIELDS: dict[str, dict[str, dict[str, Any]]] = {
    "io.k8s.api.batch.v1.JobSpec": {
        "backoffSeconds": {
            "type": "integer",
            "format": "int64",
            "description": (
                "onejob extension: the delay in seconds before the first retry of a failed pod; "
                "it doubles with every further failure. Defaults to 10 when unset. Must be "
                "non-negative; 0 retries at once. Only used when the pod's restart policy is "
                "Never."
            ),
        },
        "failedPodsLimit": {
            "type": "integer",
            "format": "int32",
            "description": (
                "onejob extension: how many failed pods are kept for inspection. The oldest ones "
                "beyond the limit are deleted after they have been counted. All are kept when "
                "unset. Only used when the pod's restart policy is Never."
            ),
        },
    },
    "io.k8s.api.batch.v1.JobCondition": {
        "lastHeartbeatTime": {
            "$ref": "#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.Time",
            "x-onejob-alias-of": "lastProbeTime",
            "description": (
                "onejob extension: the name that lastProbeTime had in the original proposal; "
                "read when lastProbeTime is absent."
            ),
        },
    },
    "io.k8s.api.batch.v1.JobStatus": {
        "creationTime": {
            "$ref": "#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.Time",
            "description": (
                "onejob extension: metadata.creationTimestamp under the name it had in the "
                "original proposal. Only shown, with the feature gate JobOriginalStatusFields; "
                "never stored, ignored when written."
            ),
        },
    },
    "io.k8s.api.core.v1.ContainerStateTerminated": {
        "peakMemoryBytes": {
            "type": "integer",
            "format": "int64",
            "description": (
                "onejob extension: the peak memory of the container's largest process. "
                "Only set by runtimes that measure it."
            ),
        },
        "cpuMilliseconds": {
            "type": "integer",
            "format": "int64",
            "description": (
                "onejob extension: the CPU time of the container's processes. "
                "Only set by runtimes that measure it."
            ),
        },
        "durationMilliseconds": {
            "type": "integer",
            "format": "int64",
            "description": (
                "onejob extension: the time from start to finish. "
                "Only set by runtimes that measure it."
            ),
        },
    },
    "io.k8s.api.batch.v1.CronJobStatus": {
        "nextScheduleTime": {
            "$ref": "#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.Time",
            "description": (
                "The next time of the schedule, in upstream's proposed field (enhancement 6281). "
                "Only written with the feature gate CronJobsNextScheduleTime; absent while the "
                "CronJob is suspended."
            ),
        },
    },
    "io.k8s.api.core.v1.PodSpec": {
        "ttlSecondsAfterFinished": {
            "type": "integer",
            "format": "int32",
            "description": (
                "onejob extension: how many seconds after it finished the pod may be deleted. "
                "Kept until someone deletes it when unset."
            ),
        },
    },
}

#: Keys of list items that upstream fills in when they are left out; the source lost them.
KEY_DEFAULTS = {
    "io.k8s.api.core.v1.ContainerPort": {"protocol": "TCP"},
    "io.k8s.api.core.v1.ServicePort": {"protocol": "TCP"},
}

_REF_PREFIX = "#/$defs/"


class SchemaBuildHook(BuildHookInterface[Any]):
    """Called by hatchling before a wheel (or an editable install) is put together."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        write_schema(Path(self.root))


def main() -> None:
    target = write_schema(ROOT)
    print(f"{target.relative_to(ROOT)}: {target.stat().st_size} bytes")


def write_schema(root: Path) -> Path:
    release, definitions = newest_definitions()
    definitions |= json.loads((root / OWN_DEFINITIONS).read_text())
    shapes, documentation = digest(definitions, roots_of(definitions, load_kinds(root)))
    lines = [{"release": release, "types": shapes}, documentation]
    text = "\n".join(json.dumps(line, separators=(",", ":"), sort_keys=True) for line in lines)
    target = root / TARGET
    target.parent.mkdir(parents=True, exist_ok=True)
    # No time stamp and no file name inside: equal input gives equal bytes.
    content = gzip.compress(text.encode(), 9, mtime=0)
    if not target.is_file() or target.read_bytes() != content:
        # Renamed into place, because a server may be starting from this checkout.
        unfinished = target.with_suffix(".tmp")
        unfinished.write_bytes(content)
        unfinished.replace(target)
    # Newer than its sources, also if they changed without changing it.
    target.touch()
    return target


def is_out_of_date(root: Path) -> bool:
    """Return whether the schema is absent or older than one of its sources."""
    target = root / TARGET
    if not target.is_file():
        return True
    written = target.stat().st_mtime_ns
    return any((root / source).stat().st_mtime_ns > written for source in SOURCES)


def newest_definitions() -> tuple[str, dict[str, Any]]:
    import kubernetes_validate

    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    versions = {
        tuple(map(int, match.groups())): path
        for path in folder.iterdir()
        if (match := re.fullmatch(r"v(\d+)\.(\d+)\.(\d+)-local", path.name))
    }
    newest = max(versions)
    text = (versions[newest] / "_definitions.json").read_text()
    return "v{}.{}.{}".format(*newest), json.loads(text)["$defs"]


def load_kinds(root: Path) -> ModuleType:
    """`onejob.wire.kinds` by its path: the package itself need not be importable in a build."""
    path = root / "src" / "onejob" / "wire" / "kinds.py"
    spec = importlib.util.spec_from_file_location("_onejob_kinds", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def roots_of(definitions: dict[str, Any], kinds: ModuleType) -> list[str]:
    wanted: set[tuple[str, str]] = set(EXTRA_KINDS)
    for kind in (*kinds.KINDS, *kinds.WORKLOAD_KINDS):
        wanted |= {(kind.api_version, kind.kind), (kind.api_version, kind.kind + "List")}
        wanted |= {(_api_version(sub.group, sub.version), sub.kind) for sub in kind.subresources}
    by_kind = {
        (_api_version(gvk["group"], gvk["version"]), gvk["kind"]): name
        for name, definition in definitions.items()
        for gvk in definition.get("x-kubernetes-group-version-kind", ())
    }
    return [by_kind[kind] for kind in sorted(wanted) if kind in by_kind]


def _api_version(group: str, version: str) -> str:
    return f"{group}/{version}" if group else version or "v1"


def digest(definitions: dict[str, Any], roots: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """All definitions that `roots` lead to: (shapes, documentation), both by definition name."""
    shapes: dict[str, Any] = {}
    documentation: dict[str, Any] = {}
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name in shapes:
            continue
        definition = definitions[name]
        fields = dict(definition.get("properties", {}))
        fields.update(EXTENSION_FIELDS.get(name, {}))
        shape = _shape(definition)
        if "properties" in definition:
            shape["properties"] = {field: _shape(fields[field]) for field in fields}
            for field, value in KEY_DEFAULTS.get(name, {}).items():
                shape["properties"][field]["default"] = value
        shapes[name] = shape
        documentation[name] = {
            "": definition.get("description", ""),
            **{field: fields[field].get("description", "") for field in fields},
        }
        waiting.extend(_references(shape))
    return shapes, documentation


def _shape(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without prose, `null` types, enums of constants and nested properties."""
    shape: dict[str, Any] = {}
    for key, value in schema.items():
        match key:
            case "description" | "properties" | "enum":
                continue
            case "type":
                shape["type"] = value if isinstance(value, str) else value[0]
            case "$ref":
                shape["$ref"] = value.removeprefix(_REF_PREFIX)
            case "items" | "additionalProperties":
                shape[key] = _shape(value)
            case "x-kubernetes-group-version-kind":
                # DeleteOptions and others are listed under every group; theirs is the core one.
                shape[key] = [gvk for gvk in value if len(value) == 1 or gvk["group"] == ""]
            case _:
                shape[key] = value
    return shape


def _references(shape: Any) -> list[str]:
    if isinstance(shape, list):
        return [name for item in shape for name in _references(item)]
    if not isinstance(shape, dict):
        return []
    found = [shape["$ref"]] if isinstance(shape.get("$ref"), str) else []
    for value in shape.values():
        found.extend(_references(value))
    return found


if __name__ == "__main__":
    main()
