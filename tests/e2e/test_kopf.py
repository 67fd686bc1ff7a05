"""Operators written with kopf, against our servers."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.api.crd.build import a_definition, a_version, widget
from tests.e2e.serving import Server, a_server

kubernetes = pytest.importorskip("kubernetes", reason="the Python client is not installed")
pytest.importorskip("kopf", reason="kopf is not installed")

ROOT = Path(__file__).resolve().parents[2]

#: Records its calls in the status; its delete handler keeps a finalizer.
_OPERATOR = """
import kopf


@kopf.on.create("widgets")
def create(spec, **_):
    return {"size": spec["size"]}


@kopf.on.update("widgets", field="spec.size")
def resize(old, new, patch, **_):
    patch.status["resized"] = f"{old} to {new}"


@kopf.on.delete("widgets")
def delete(name, logger, **_):
    logger.info(f"goodbye {name}")
"""


@contextmanager
def _operator(server: Server, folder: Path) -> Iterator[Path]:
    source, log = folder / "operator.py", folder / "operator.log"
    source.write_text(_OPERATOR)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "kopf", "run", "--verbose", str(source), "-n", "default"],
            env=server.environ(),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield log
    finally:
        process.terminate()
        process.wait(timeout=30)


def _until(holds: Any, log: Path) -> None:
    give_up = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < give_up, log.read_text()
        time.sleep(0.05)


def test_kopf_operator_handles_custom_resource_lifecycle(tmp_path: Path) -> None:
    with (
        a_server(tmp_path / "server") as server,
        kubernetes.config.new_client_from_config(str(server.kubeconfig)) as api,
    ):
        version = a_version(
            {"type": "object", "properties": {"size": {"type": "integer"}}},
            subresources={"status": {}},
        )
        extensions = kubernetes.client.ApiextensionsV1Api(api)
        extensions.create_custom_resource_definition(a_definition(version))
        custom = kubernetes.client.CustomObjectsApi(api)
        place = ("example.com", "v1", "default", "widgets")

        def status() -> Any:
            return custom.get_namespaced_custom_object(*place, "a").get("status", {})

        with _operator(server, tmp_path) as log:
            _until(lambda: "Initial authentication has finished" in log.read_text(), log)
            custom.create_namespaced_custom_object(*place, widget("a", spec={"size": 1}))
            _until(lambda: status().get("create") == {"size": 1}, log)
            stored = custom.get_namespaced_custom_object(*place, "a")
            assert stored["metadata"]["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"]

            custom.patch_namespaced_custom_object(*place, "a", {"spec": {"size": 2}})
            _until(lambda: status().get("resized") == "1 to 2", log)

            custom.delete_namespaced_custom_object(*place, "a")
            _until(lambda: custom.list_namespaced_custom_object(*place)["items"] == [], log)
            assert "goodbye a" in log.read_text()
        # The client leaves its connections to the garbage collector, which complains.
        api.rest_client.pool_manager.clear()
