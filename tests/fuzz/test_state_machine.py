"""Short stateful fuzzing of the API over HTTP; `make fuzz` does the same for longer."""

from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from onejob.testing import OnejobServer
from tests.fuzz.connection import Api
from tests.fuzz.state_machine import ApiMachine


def test_api_matches_model(tmp_path: Path) -> None:
    server = OnejobServer(tmp_path, "simulated")
    ApiMachine.api = Api(server, tmp_path)
    try:
        run_state_machine_as_test(
            ApiMachine,
            settings=settings(
                max_examples=8,
                stateful_step_count=30,
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        ApiMachine.api.close()
        server.stop()
