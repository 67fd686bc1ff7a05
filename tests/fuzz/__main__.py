"""`make fuzz`: compare the API with its model, with new random requests for some minutes."""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from onejob.testing import OnejobServer
from tests.fuzz.connection import Api
from tests.fuzz.state_machine import ApiMachine

_ROUND = 5


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--steps", type=int, default=50, help="requests of a machine (default 50)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    limits = settings(
        max_examples=_ROUND,
        stateful_step_count=options.steps,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    rounds, end = 0, time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="onejob-fuzz-") as place:
        folder = Path(place)
        server = OnejobServer(folder, "simulated")
        ApiMachine.api = Api(server, folder)
        while time.monotonic() < end:
            machine = seed(options.seed + rounds)(type("Machine", (ApiMachine,), {}))
            run_state_machine_as_test(machine, settings=limits)
            rounds += 1
            print(f"{rounds * _ROUND} machines of {options.steps} steps agree", flush=True)
        ApiMachine.api.close()
        server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
