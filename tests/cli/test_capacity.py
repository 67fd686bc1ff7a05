"""`--capacity`: allocatable resources of the node."""

import pytest

from onejob.cli.errors import CommandError
from onejob.cli.options import parse_capacity
from tests.cli.command_line import CommandLine

GPU_JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: main
          image: busybox
          command: [echo, trained]
          resources: {limits: {example.com/gpu: 2}}
"""


def test_amounts_are_read_by_resource() -> None:
    assert parse_capacity("cpu=500m, memory=8Gi,example.com/gpu=2") == {
        "cpu": "500m",
        "memory": "8Gi",
        "example.com/gpu": "2",
    }
    assert parse_capacity("") == {}


@pytest.mark.parametrize("text", ["cpu", "cpu=", "=3", "cpu=much", "cpu=1,memory"])
def test_invalid_capacity_is_rejected(text: str) -> None:
    with pytest.raises(CommandError):
        parse_capacity(text)


def test_a_pod_runs_where_its_devices_are_declared(onejob: CommandLine) -> None:
    done = onejob.run("run", "--capacity", "example.com/gpu=2", "-", stdin=GPU_JOB)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "] trained" in done.stdout
