"""Three rounds of `tests.e2e.ledger`, which documents the comparison; the long run is separate."""

import os
import subprocess
import sys

import pytest

from tests.e2e.serving import needs_kubectl
from tests.node.support import needs_namespaces

pytestmark = [
    needs_kubectl,
    needs_namespaces,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk"),
]


def test_job_counts_are_exact_through_disk_faults_and_kills() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.e2e.ledger", "--quick"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "lost 0, doubled 0, harmed 0, other problems 0" in ran.stdout
