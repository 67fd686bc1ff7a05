"""Request IDs: internal errors are logged under the ID of the response."""

import logging
from pathlib import Path
from random import Random

import pytest

from onejob.api.request_ids import RequestIds
from tests.api.http.raw_requests import Requests, with_requests
from tests.api.http.scripted import ScriptedService
from tests.api.http.wire import Wire, with_server

JOBS = "/apis/batch/v1/namespaces/default/jobs"


def test_a_bug_is_logged_with_the_id_that_the_client_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service = ScriptedService()
    service.failure = ZeroDivisionError("a bug")

    async def test(wire: Wire) -> None:
        answer = await wire.call("GET", f"{JOBS}/pi?token=secret")
        request = answer.header("audit-id")
        assert answer.code == 500
        assert answer.json()["message"].endswith(f"was logged: request {request}")
        records = [record for record in caplog.records if record.exc_info]
        assert [getattr(record, "request", "") for record in records] == [request]
        assert not [record for record in caplog.records if "answered" in record.getMessage()]
        assert records[0].getMessage() == f"request {request}: GET {JOBS}/pi failed"

    with_server(service, tmp_path, test)


def test_other_errors_of_the_server_are_logged_and_those_of_clients_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(requests: Requests) -> None:
        await requests("GET", f"{JOBS}/absent")
        metadata = {"name": "wrong", "resourceVersion": "5"}
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
        code, _ = await requests("POST", JOBS, body)
        assert code == 500
        request = requests.headers["audit-id"]
        lines = [
            r.getMessage() for r in caplog.records if r.name == "onejob.api.http.stages.observation"
        ]
        [line] = [line for line in lines if "answered" in line]
        assert line.startswith(f"request {request}: POST {JOBS} was answered with 500: ")

    with caplog.at_level(logging.INFO):
        with_requests(tmp_path, test)


def test_two_starts_have_no_id_in_common() -> None:
    first, second = RequestIds(Random(1)), RequestIds(Random(2))
    made = [ids.of({}) for ids in (first, second) for _ in range(100)]
    assert len(set(made)) == 200
