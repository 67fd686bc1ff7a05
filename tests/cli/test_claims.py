"""Runs whose Jobs use PersistentVolumeClaims."""

import os

import pytest

from tests.cli.command_line import CommandLine

CLAIM = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: counts}
spec:
  completions: 3
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: c
        image: busybox
        command: [sh, -c, "echo x >> /data/x; wc -l < /data/x"]
        volumeMounts: [{name: v, mountPath: /data}]
      volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_the_pods_of_a_run_share_the_claim_in_its_manifest(onejob: CommandLine) -> None:
    done = onejob.run("run", "-o", "raw", "-", stdin=CLAIM + JOB)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "2", "3"]


def test_a_run_without_the_claim_of_its_job_says_what_is_missing(onejob: CommandLine) -> None:
    done = onejob.run("run", "-", stdin=JOB)
    assert done.returncode == 1
    assert 'persistentvolumeclaim "data" not found' in done.stdout
    assert "pass the file that contains it to onejob run" in done.stdout


def test_a_run_whose_claim_is_never_bound_says_what_to_change(onejob: CommandLine) -> None:
    claim = CLAIM.replace("spec: {", "spec: {storageClassName: fast, ")
    done = onejob.run("run", "-", stdin=claim + JOB)
    assert done.returncode == 1
    assert 'storageclass.storage.k8s.io "fast" not found' in done.stdout
    assert "correct storageClassName, or remove it for the default class" in done.stdout
    done = onejob.run("why", "job/counts")
    assert 'storageclass.storage.k8s.io "fast" not found' in done.stdout
