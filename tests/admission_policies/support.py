"""A service that evaluates admission policies, and documents of policies."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from onejob.admission_policies.authorizing import allow_all
from onejob.admission_policies.installing import policy_plugins
from onejob.api.admission.dynamic.activation import Authorize
from onejob.api.service import Service
from onejob.clock import SystemClock
from onejob.gates import FeatureGates
from onejob.metrics import Metrics
from onejob.store.log import LogStore
from onejob.store.writer import LoopCommitter
from tests.api.service_support import CONFIGMAP, NAMESPACE, PERSON, a_map, read

Doc = dict[str, Any]
GROUP = "admissionregistration.k8s.io"


@asynccontextmanager
async def a_policy_service(
    folder: Path, metrics: Metrics | None = None, authorize: Authorize = allow_all
) -> AsyncIterator[Service]:
    """Run a service with the namespace `default` that evaluates policies."""
    store = await LogStore.open(folder / "db", clock=SystemClock(), committer=LoopCommitter())
    service = Service(store, clock=SystemClock(), rng=Random(7), gates=FeatureGates())
    await service.create(NAMESPACE, "", {"metadata": {"name": "default"}}, PERSON)
    mutating, validating = policy_plugins(service, metrics or Metrics(), authorize)
    service.admission.dynamic.install((mutating,), (validating,))
    try:
        yield service
    finally:
        await store.close()


def constraints(*resources: str, **fields: Any) -> Doc:
    """Return matchConstraints for resources of the core group; ConfigMaps by default."""
    rule = {
        "operations": ["CREATE", "UPDATE"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": list(resources or ("configmaps",)),
    }
    return {"resourceRules": [rule], **fields}


def a_validating_policy(*validations: Doc | str, name: str = "p", **spec: Any) -> Doc:
    """Return a policy; a validation may be written as its expression."""
    written = [{"expression": each} if isinstance(each, str) else each for each in validations]
    fields = {"validations": written} if written else {}
    return {
        "metadata": {"name": name},
        "spec": {"matchConstraints": constraints(), **fields, **spec},
    }


def a_mutating_policy(*mutations: Doc, name: str = "p", **spec: Any) -> Doc:
    return {
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": constraints(),
            "mutations": list(mutations),
            "reinvocationPolicy": "Never",
            **spec,
        },
    }


def applied(expression: str) -> Doc:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def patched(expression: str) -> Doc:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


async def configure(
    service: Service, policy: Doc, *, mutating: bool = False, bound: bool = True, **binding: Any
) -> None:
    """Create a policy and its binding; `binding` are fields of the binding's spec."""
    prefix = "mutating" if mutating else "validating"
    kind = service.kinds.by_resource[f"{prefix}admissionpolicies.{GROUP}"]
    await service.create(kind, "", policy, PERSON)
    if not bound:
        return
    name = policy["metadata"]["name"]
    spec: Doc = {"policyName": name, **binding}
    if not mutating:
        spec.setdefault("validationActions", ["Deny"])
    kind = service.kinds.by_resource[f"{prefix}admissionpolicybindings.{GROUP}"]
    await service.create(kind, "", {"metadata": {"name": f"{name}-binding"}, "spec": spec}, PERSON)


async def make(service: Service, name: str = "m", data: Doc | None = None, **metadata: Any) -> Doc:
    """Create a ConfigMap and return it."""
    body = {**a_map(name, **metadata), **({} if data is None else {"data": data})}
    outcome = await service.create(CONFIGMAP, "default", body, PERSON)
    return read(outcome.document)
