"""Warnings to creators of Pods and workloads about settings that the node does not enforce."""

import copy
from pathlib import Path
from random import Random
from typing import Any

import pytest

from onejob.api.service import Service
from onejob.client.local import LocalClient
from onejob.clock import SystemClock
from onejob.controllers.bootstrap import bootstrap
from onejob.gates import FeatureGates
from onejob.planning.pod.security import Means
from onejob.store.log import LogStore
from onejob.wire.kinds import BY_RESOURCE
from onejob.wire.requests import User, WriteOptions

CONTEXT = {"seccompProfile": {"type": "RuntimeDefault"}, "runAsUser": 7}
TEMPLATE = {
    "spec": {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i", "securityContext": CONTEXT}],
    }
}
JOB = {"template": TEMPLATE}
PLACES = {
    "pods": (TEMPLATE["spec"], "spec"),
    "jobs.batch": (JOB, "spec.template.spec"),
    "cronjobs.batch": (
        {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": JOB}},
        "spec.jobTemplate.spec.template.spec",
    ),
}


async def warnings(path: Path, resource: str, means: Means) -> tuple[str, ...]:
    store = await LogStore.open(path / "db", clock=SystemClock())
    service = Service(store, clock=SystemClock(), rng=Random(1), gates=FeatureGates(), means=means)
    await bootstrap(LocalClient(service))
    kind = BY_RESOURCE[resource]
    body: dict[str, Any] = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": "x"},
        "spec": copy.deepcopy(PLACES[resource][0]),
    }
    try:
        options = WriteOptions(User("somebody"))
        return (await service.create(kind, "default", body, options)).warnings
    finally:
        await store.close()


@pytest.mark.parametrize("resource", PLACES)
async def test_what_is_not_enforced_is_told(tmp_path: Path, resource: str) -> None:
    own = f"{PLACES[resource][1]}.containers[0].securityContext"
    seccomp = f"{own}.seccompProfile: not enforced by the process runtime"
    user = f"{own}.runAsUser: not enforced by the process runtime"
    (tmp_path / "1").mkdir()
    assert await warnings(tmp_path / "1", resource, Means()) == (seccomp,)
    (tmp_path / "2").mkdir()
    assert await warnings(tmp_path / "2", resource, Means(root=False)) == (seccomp, user)
    (tmp_path / "3").mkdir()
    assert await warnings(tmp_path / "3", resource, Means(engine=True)) == ()
