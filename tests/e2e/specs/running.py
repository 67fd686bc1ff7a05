"""Concurrent execution of specs on one server, each in a namespace of its own.

Most of a spec's time is waiting (for a back-off, a deadline, the next minute), so all specs that
pytest selected run together, and each test then reports the result of its own one.
"""

import asyncio
import secrets
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import pytest
from _pytest.mark import ParameterSet

from tests.e2e.specs.api import (
    CONFIG_MAPS,
    CRONJOBS,
    EVENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    Api,
    Document,
    an_informer,
    until,
)

Body: TypeAlias = Callable[[Api, str], Awaitable[None]]

_AT_ONCE: Final = 10
_SET_UP_SECONDS: Final = 120.0
_EMPTY_SECONDS: Final = 120.0


@dataclass(frozen=True, eq=False)
class Spec:
    """One `It` of upstream: `body(api, namespace)` runs it."""

    title: str
    body: Body
    #: Pod security level of its namespace.
    level: str
    slow: bool
    serial: bool


class Suite:
    """Specs of one module; titles are upstream's."""

    def __init__(self, level: str) -> None:
        self._level = level
        self._specs: list[Spec] = []

    def it(self, title: str, *, slow: bool = False, serial: bool = False) -> Callable[[Body], Body]:
        """Register a spec. `serial`: the node must not be busy with other specs."""

        def register(body: Body) -> Body:
            self._specs.append(Spec(title, body, self._level, slow, serial))
            return body

        return register

    def parameters(self) -> list[ParameterSet]:
        slow = (pytest.mark.slow_spec, pytest.mark.timeout(1200))
        return [
            pytest.param(spec, id=spec.title, marks=slow if spec.slow else ())
            for spec in self._specs
        ]


class Runs:
    """Specs that run in a thread of their own."""

    def __init__(self, kubeconfig: Path, specs: Sequence[Spec]) -> None:
        self._ends: dict[Spec, Future[float]] = {spec: Future() for spec in specs}
        self._kubeconfig = kubeconfig
        self._loop = asyncio.new_event_loop()
        self._all = self._loop.create_task(self._run())
        # A spec that hangs must not keep the test session from ending.
        self._thread = threading.Thread(target=self._follow, name="specs", daemon=True)
        self._thread.start()

    def result(self, spec: Spec) -> None:
        """Wait for the spec's end and raise its error, if any."""
        print(f"took {self._ends[spec].result():.1f} s")

    def stop(self) -> None:
        """Cancel the specs that are still running."""
        self._loop.call_soon_threadsafe(self._all.cancel)
        self._thread.join(timeout=60)
        if not self._thread.is_alive():
            self._loop.close()

    def _follow(self) -> None:
        try:
            self._loop.run_until_complete(self._all)
        except BaseException as error:
            for end in self._ends.values():
                if not end.done():
                    end.set_exception(error)

    async def _run(self) -> None:
        # Specs that wait for minutes must not occupy a turn.
        turns = asyncio.Semaphore(_AT_ONCE)
        patient = asyncio.Semaphore(len(self._ends) + 1)
        async with Api(self._kubeconfig) as api:
            for spec in filter(lambda spec: spec.serial, self._ends):
                await self._settle(api, spec, turns)
            await asyncio.gather(
                *(
                    self._settle(api, spec, patient if spec.slow else turns)
                    for spec in self._ends
                    if not spec.serial
                )
            )

    async def _settle(self, api: Api, spec: Spec, turns: asyncio.Semaphore) -> None:
        async with turns:
            started = asyncio.get_running_loop().time()
            try:
                await _run_spec(api, spec)
            except Exception as error:
                self._ends[spec].set_exception(error)
            else:
                self._ends[spec].set_result(asyncio.get_running_loop().time() - started)


async def _run_spec(api: Api, spec: Spec) -> None:
    namespace = await _a_namespace(api, spec.level)
    try:
        await spec.body(api, namespace)
        await _nodes_are_ready(api)
    finally:
        await _removed(api, namespace)


async def _a_namespace(api: Api, level: str) -> str:
    """Create a namespace as upstream's framework does, and wait for its account and certificate."""
    run = secrets.token_hex(4)
    name = f"e2e-{run}"
    labels = {"e2e-framework": "onejob", "e2e-run": run}
    labels |= {f"pod-security.kubernetes.io/{use}": level for use in ("enforce", "warn", "audit")}
    created = await api.create(
        *(NAMESPACES, ""), {"metadata": {"name": name, "labels": labels}, "status": {}}
    )
    assert created["metadata"]["labels"].items() >= labels.items()
    assert created["metadata"]["labels"]["kubernetes.io/metadata.name"] == name
    assert created["spec"]["finalizers"] == ["kubernetes"]
    assert created["status"]["phase"] == "Active"
    for resource, expected in (
        (SERVICE_ACCOUNTS, "default"),
        (SERVICE_ACCOUNTS, "default"),
        (CONFIG_MAPS, "kube-root-ca.crt"),
    ):
        field = f"metadata.name={expected}"
        async with an_informer(api, resource, name, fieldSelector=field) as informer:
            await until(
                f"{resource.plural} {expected}",
                lambda seen=informer: _now(set(seen.current)),  # type: ignore[misc]
                lambda names: names,
                seconds=_SET_UP_SECONDS,
                every=0.05,
            )
            if resource is CONFIG_MAPS:
                assert "BEGIN CERTIFICATE" in informer.current[expected]["data"]["ca.crt"]
    return name


async def _now(names: set[str]) -> set[str]:
    return names


async def _nodes_are_ready(api: Api) -> None:
    for node in await api.items(NODES, ""):
        ready = [c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready"]
        assert ready == ["True"], node


async def _removed(api: Api, namespace: str) -> None:
    """Delete the namespace with everything in it; nothing may be left."""
    answer = await api.delete(NAMESPACES, "", namespace)
    assert answer["status"]["phase"] == "Terminating", answer

    async def there() -> bool:
        return await api.exists(NAMESPACES, "", namespace)

    await until(
        f"namespace {namespace} to go", there, lambda is_there: not is_there,
        seconds=_EMPTY_SECONDS, every=0.2,
    )  # fmt: skip
    for resource in (JOBS, CRONJOBS, PODS, CONFIG_MAPS, SERVICE_ACCOUNTS, EVENTS):
        left: list[Document] = await api.items(resource, namespace)
        assert left == [], f"{resource.plural} outlived their namespace"
