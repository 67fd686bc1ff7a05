"""Traces of a real server, as a collector receives them over OTLP."""

import gzip
import json
import socket
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.cli.command_line import CommandLine, QuickCommandLine, job_yaml
from tests.e2e.serving import Server, end_supervisors
from tests.posts import posts_to

CLIENT_TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CLIENT_SPAN = "00f067aa0ba902b7"


class Collector:
    def __init__(self) -> None:
        self.url = ""
        self._spans: list[Any] = []
        self._more = threading.Condition()

    def receive(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        with self._more:
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    self._spans.extend(scope.spans)
            self._more.notify_all()

    def find(self, name: str, **attributes: str | int) -> Any:
        """Wait for a span and return it."""
        found: list[Any] = []

        def look() -> bool:
            found[:] = [
                span
                for span in self._spans
                if span.name == name and attributes.items() <= values(span).items()
            ]
            return bool(found)

        with self._more:
            assert self._more.wait_for(look, 60), {span.name for span in self._spans}
        return found[0]


def values(span: Any) -> dict[str, str | int]:
    return {
        one.key.replace(".", "_"): getattr(one.value, one.value.WhichOneof("value"))
        for one in span.attributes
    }


@contextmanager
def a_collector() -> Iterator[Collector]:
    collector = Collector()

    def receive(path: str, headers: Mapping[str, str], body: bytes) -> int:
        if path != "/v1/traces":
            return 404
        zipped = headers.get("Content-Encoding") == "gzip"
        collector.receive(gzip.decompress(body) if zipped else body)
        return 200

    with posts_to(receive) as collector.url:
        yield collector


@contextmanager
def a_traced_server(folder: Path, endpoint: str) -> Iterator[Server]:
    folder.mkdir(mode=0o700)
    server = Server(folder, ("--otlp-endpoint", endpoint))
    # Environment variables of the OpenTelemetry SDK are honoured.
    server.environment = {"OTEL_BSP_SCHEDULE_DELAY": "100"}
    server.start()
    try:
        yield server
    finally:
        # Within its stop timeout.
        assert server.stop() == 0
        end_supervisors(folder)


def post_job(server: Server, name: str, script: str, traceparent: str) -> Any:
    config = yaml.safe_load(server.kubeconfig.read_text())
    url = config["clusters"][0]["cluster"]["server"]
    context = ssl.create_default_context(cafile=str(server.data_dir / "server/pki/ca.crt"))
    document = yaml.safe_load(job_yaml(name, script, spec="backoffLimit: 0"))
    request = urllib.request.Request(
        f"{url}/apis/batch/v1/namespaces/default/jobs",
        json.dumps(document).encode(),
        {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {config['users'][0]['user']['token']}",
            "traceparent": traceparent,
        },
    )
    with urllib.request.urlopen(request, context=context) as answer:
        return json.load(answer), answer.headers["Audit-Id"]


def test_requests_syncs_and_containers_are_traced(tmp_path: Path) -> None:
    with a_collector() as collector, a_traced_server(tmp_path / "data", collector.url) as server:
        job, request_id = post_job(server, "bad", "exit 3", f"00-{CLIENT_TRACE}-{CLIENT_SPAN}-01")
        asked = collector.find("CREATE jobs", onejob_request_id=request_id)
        assert (asked.trace_id.hex(), asked.parent_span_id.hex()) == (CLIENT_TRACE, CLIENT_SPAN)
        assert values(asked)["http_response_status_code"] == 201
        root = collector.find("job", k8s_job_name="bad")
        assert root.trace_id.hex() == job["metadata"]["uid"].replace("-", "")
        assert not root.parent_span_id
        assert root.status.message == "BackoffLimitExceeded"
        container = collector.find("container", k8s_job_name="bad")
        sync = collector.find("sync job", onejob_key="jobs.batch/default/bad")
        for part in (container, sync):
            assert (part.trace_id, part.parent_span_id) == (root.trace_id, root.span_id)
        assert values(container)["onejob_container_exit_code"] == 3
        assert container.end_time_unix_nano >= container.start_time_unix_nano
        # An invalid traceparent is ignored.
        _, request_id = post_job(server, "good", "true", "00-zz-\u00ff")
        asked = collector.find("CREATE jobs", onejob_request_id=request_id)
        assert asked.trace_id.hex() != CLIENT_TRACE
        assert collector.find("job", k8s_job_name="good").status.code == 0


def test_a_collector_that_is_not_there_holds_up_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with a_traced_server(tmp_path / "data", endpoint) as server:
            post_job(server, "good", "true", "")
            waited = QuickCommandLine(tmp_path).run(
                "wait", "job/good", "--data-dir", str(server.data_dir)
            )
            assert waited.returncode == 0, waited.stderr


@pytest.mark.parametrize("endpoint", ["localhost:4318", "ftp://x", "http://", ""])
def test_invalid_trace_endpoint_is_rejected(endpoint: str, tmp_path: Path) -> None:
    done = CommandLine(tmp_path).run("serve", "--otlp-endpoint", endpoint)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "is not a URL" in done.stderr


def test_the_extra_is_named_where_it_is_missing(tmp_path: Path) -> None:
    onejob = CommandLine(tmp_path)
    hidden = tmp_path / "hidden" / "opentelemetry"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('gone', name='opentelemetry')")
    path = f"{hidden.parent}:{onejob.environment['PYTHONPATH']}"
    done = onejob.run("serve", "--otlp-endpoint", "http://localhost:4318", PYTHONPATH=path)
    assert done.returncode == 2
    assert "pip install 'onejob[otel]'" in done.stderr


def test_without_an_endpoint_nothing_of_it_is_imported() -> None:
    code = (
        "import sys, onejob.server, onejob.cli.commands.serve\n"
        "print([name for name in sys.modules if 'opentelemetry' in name or 'traces' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
