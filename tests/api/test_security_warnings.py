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
from onejob.gates import parse_gates
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


async def warnings(
    path: Path,
    resource: str,
    means: Means,
    spec: Any = None,
    gates: str = "",
    **pod_spec: Any,
) -> tuple[str, ...]:
    store = await LogStore.open(path / "db", clock=SystemClock())
    service = Service(
        store, clock=SystemClock(), rng=Random(1), gates=parse_gates(gates), means=means
    )
    await bootstrap(LocalClient(service))
    kind = BY_RESOURCE[resource]
    body: dict[str, Any] = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": "x"},
        "spec": copy.deepcopy(spec or PLACES[resource][0]),
    }
    inner = body["spec"]
    for name in PLACES[resource][1].split(".")[1:]:
        inner = inner[name]
    inner |= pod_spec
    try:
        options = WriteOptions(User("somebody"))
        return (await service.create(kind, "default", body, options)).warnings
    finally:
        await store.close()


@pytest.mark.parametrize("resource", PLACES)
async def test_unenforced_security_fields_are_warned_about(tmp_path: Path, resource: str) -> None:
    own = f"{PLACES[resource][1]}.containers[0].securityContext"
    seccomp = f"{own}.seccompProfile: not enforced by the process runtime"
    user = f"{own}.runAsUser: not enforced by the process runtime"
    (tmp_path / "1").mkdir()
    assert await warnings(tmp_path / "1", resource, Means()) == (seccomp,)
    (tmp_path / "2").mkdir()
    assert await warnings(tmp_path / "2", resource, Means(root=False)) == (seccomp, user)
    (tmp_path / "3").mkdir()
    assert await warnings(tmp_path / "3", resource, Means(engine=True)) == ()


@pytest.mark.parametrize("resource", PLACES)
async def test_a_field_without_effect_is_warned_about(tmp_path: Path, resource: str) -> None:
    told = f"{PLACES[resource][1]}.subdomain: has no effect: Pods have no DNS names of their own"
    (tmp_path / "1").mkdir()
    engine = Means(engine=True, runtime="podman")
    assert await warnings(tmp_path / "1", resource, engine, subdomain="x") == (told,)
    (tmp_path / "2").mkdir()
    elsewhere = Means(engine=True, runtime="")
    assert await warnings(tmp_path / "2", resource, elsewhere, subdomain="x") == ()


@pytest.mark.parametrize("resource", ["jobs.batch", "cronjobs.batch"])
async def test_dropped_gang_scheduling_is_warned_about(tmp_path: Path, resource: str) -> None:
    path = PLACES[resource][1].removesuffix(".template.spec")
    job = JOB | {"scheduling": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    spec = job if path == "spec" else {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job}}
    elsewhere = Means(engine=True, runtime="")
    told = f"{path}.scheduling: dropped: the feature gate WorkloadWithJob is off"
    assert await warnings(tmp_path, resource, elsewhere, spec=spec) == (told,)


@pytest.mark.parametrize("resource", ["jobs.batch", "cronjobs.batch"])
async def test_gang_scheduling_without_effect_is_warned_about(
    tmp_path: Path, resource: str
) -> None:
    path = PLACES[resource][1].removesuffix(".template.spec")
    scheduling = {
        "schedulingPolicy": {"gang": {}},
        "disruptionMode": {"all": {}},
        "resourceClaims": [{"name": "c"}],
        "schedulingConstraints": {"topology": [{"key": "zone"}]},
    }
    job = JOB | {"scheduling": scheduling}
    spec = job if path == "spec" else {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job}}
    told = await warnings(
        tmp_path,
        resource,
        Means(engine=True, runtime=""),
        spec,
        "GenericWorkload=true,WorkloadWithJob=true",
    )
    assert [text.partition(": has no effect")[0] for text in told] == [
        f"{path}.scheduling.{field}"
        for field in ("disruptionMode", "resourceClaims", "schedulingConstraints")
    ]


@pytest.mark.parametrize("resource", PLACES)
async def test_scheduling_group_is_warned_about_without_its_gate(
    tmp_path: Path, resource: str
) -> None:
    for name in "12":
        (tmp_path / name).mkdir()
    means, group = Means(engine=True, runtime="podman"), {"podGroupName": "g"}
    told = f"{PLACES[resource][1]}.schedulingGroup: has no effect: the feature gate"
    (text,) = await warnings(tmp_path / "1", resource, means, schedulingGroup=group)
    assert text == f"{told} GenericWorkload is off"
    gates = "GenericWorkload=true"
    assert await warnings(tmp_path / "2", resource, means, None, gates, schedulingGroup=group) == ()
