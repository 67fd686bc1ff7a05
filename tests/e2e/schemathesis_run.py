"""Fuzzing with schemathesis, from our own OpenAPI documents: no request may break the server.

make schemathesis
"""

import json
import ssl
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any, Final

from onejob.client.kubeconfig import load_kubeconfig
from onejob.clock import SystemClock
from tests.e2e.serving import a_server

_GROUPS: Final = {
    "apis/batch/v1": 60,
    "api/v1": 12,
    "apis/events.k8s.io/v1": 30,
    "apis/coordination.k8s.io/v1": 20,
    "apis/authorization.k8s.io/v1": 20,
    "apis/authentication.k8s.io/v1": 20,
}
_SEED: Final = "20261115"
#: Responses with these parameters are endless.
_ENDLESS: Final = frozenset(("watch", "follow"))
#: Bodies are described this deep; below, anything is tried. Whole PodSpecs take minutes each.
_DEPTH: Final = 7
#: Existing names, so that most requests get past NotFound.
_PLACES: Final = {"namespace": ["default"], "name": ["a", "b"]}
_METHODS: Final = ("get", "post", "put", "patch", "delete")


def main(schemathesis: Path) -> int:
    with (
        tempfile.TemporaryDirectory(prefix="onejob-schemathesis-") as folder,
        a_server(Path(folder) / "data", "--runtime", "simulated") as server,
    ):
        cluster = load_kubeconfig(server.kubeconfig, SystemClock())
        token = (server.data_dir / "server" / "admin.token").read_text().strip()
        broken = 0
        for group, examples in _GROUPS.items():
            document = _fetch(f"{cluster.server}/openapi/v3/{group}", token)
            path = Path(folder) / f"{group.replace('/', '-')}.json"
            path.write_text(json.dumps(simplified(document)))
            broken |= subprocess.run(
                [
                    *(str(schemathesis.absolute()), "run", str(path), "--url", cluster.server),
                    *("--tls-verify=false", "--header", f"Authorization: Bearer {token}"),
                    *("--checks", "not_a_server_error", "--phases", "examples,fuzzing"),
                    *("--max-examples", str(examples), "--seed", _SEED, "--workers", "2"),
                    *("--generation-database", "none", "--request-timeout", "10"),
                    *("--suppress-health-check", "all", "--no-color"),
                ],
                check=False,
                cwd=folder,
            ).returncode
        if "Traceback" in server.log:
            print(server.log, file=sys.stderr)
            return 1
        return broken


def simplified(document: dict[str, Any]) -> dict[str, Any]:
    """Return the same operations, with bodies that are quick to generate and finite responses."""
    schemas = document["components"]["schemas"]
    for item in document["paths"].values():
        operations = [item[method] for method in _METHODS if method in item]
        for place in (item, *operations):
            place["parameters"] = [
                _in_one_place(parameter)
                for parameter in place.get("parameters", ())
                if parameter["name"] not in _ENDLESS
            ]
        for operation in operations:
            operation["responses"] = {"default": {"description": "whatever it is"}}
            for content in operation.get("requestBody", {}).get("content", {}).values():
                content["schema"] = _shallow(content.get("schema", {}), schemas, _DEPTH)
    return {**document, "components": {}}


def _in_one_place(parameter: dict[str, Any]) -> dict[str, Any]:
    if parameter.get("in") != "path" or parameter["name"] not in _PLACES:
        return parameter
    return {**parameter, "schema": {"type": "string", "enum": _PLACES[parameter["name"]]}}


def _shallow(schema: dict[str, Any], schemas: dict[str, Any], depth: int) -> dict[str, Any]:
    if depth == 0:
        return {}
    name = _reference(schema)
    if name:
        return _shallow(schemas[name], schemas, depth - 1)
    shallow: dict[str, Any] = {
        key: schema[key] for key in ("type", "format", "enum", "required") if key in schema
    }
    if "properties" in schema:
        shallow["properties"] = {
            field: _shallow(value, schemas, depth - 1)
            for field, value in schema["properties"].items()
        }
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            shallow[key] = _shallow(schema[key], schemas, depth - 1)
    return shallow


def _reference(schema: dict[str, Any]) -> str:
    reference = schema.get("$ref", "")
    for part in schema.get("allOf", ()):
        reference = reference or part.get("$ref", "")
    return str(reference).rpartition("/")[2]


def _fetch(url: str, token: str) -> dict[str, Any]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, context=context) as reply:
        document: dict[str, Any] = json.load(reply)
        return document


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
