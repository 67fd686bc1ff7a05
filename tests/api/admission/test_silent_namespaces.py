"""Invalidation of evaluated Pod templates by policies.

A new policy applies at once, however many Pods were created before without one.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.api.admission.pod_accounts import PodAccounts
from onejob.api.service import Service
from onejob.api.writing.writes import Writes
from onejob.client.base import Create, Delete, Op, Patch
from onejob.client.local import LocalClient
from onejob.objects.meta import NAMESPACES, PODS, Key
from onejob.wire.errors import ApiError
from onejob.wire.kinds import Kind
from onejob.wire.requests import Outcome
from tests.api.service_support import served
from tests.build import template

Doc = dict[str, Any]

NAMESPACE = Key(NAMESPACES, "", "default")


def a_pod(**spec: Any) -> Create:
    pod = {"metadata": {"generateName": "p-"}, **template(**spec)}
    return Create(PODS, "default", msgspec.json.encode(pod))


def new(resource: str, namespace: str, **document: Any) -> Create:
    return Create(resource, namespace, msgspec.json.encode(document))


def labelled(level: str | None) -> Patch:
    labels = {"pod-security.kubernetes.io/enforce": level}
    return Patch(NAMESPACE, msgspec.json.encode({"metadata": {"labels": labels}}), "merge")


#: Writes that set a policy for Pods, and the writes that remove it.
SPEAKERS: list[tuple[Op, Op]] = [
    (labelled("restricted"), labelled(None)),
    (
        new("resourcequotas", "default", metadata={"name": "q"}, spec={"hard": {"pods": "0"}}),
        Delete(Key("resourcequotas", "default", "q")),
    ),
    (
        new(
            "limitranges",
            "default",
            metadata={"name": "l"},
            spec={"limits": [{"type": "Container", "default": {"cpu": "1"}}]},
        ),
        Delete(Key("limitranges", "default", "l")),
    ),
    (
        new(
            "priorityclasses.scheduling.k8s.io",
            "",
            metadata={"name": "usual"},
            value=7,
            globalDefault=True,
        ),
        Delete(Key("priorityclasses.scheduling.k8s.io", "", "usual")),
    ),
    (
        new(
            "serviceaccounts",
            "default",
            metadata={"name": "default"},
            automountServiceAccountToken=True,
        ),
        Delete(Key("serviceaccounts", "default", "default")),
    ),
]


def outcome(client: LocalClient) -> str | Doc:
    """Create a Pod without special fields; return its document or the refusal."""
    try:
        pod: Doc = msgspec.json.decode(client.stage(a_pod()).document)
    except ApiError as error:
        return type(error).__name__
    spec: Doc = pod["spec"]
    return spec


def with_client(folder: Path, test: Callable[[LocalClient], Awaitable[None]]) -> None:
    async def run(service: Service) -> None:
        service.admission.accounts = PodAccounts(service.store)
        await test(LocalClient(service))

    served(folder, run)


@pytest.mark.parametrize(("speak", "take_back"), SPEAKERS)
def test_it_counts_from_when_it_is_staged(tmp_path: Path, speak: Op, take_back: Op) -> None:
    async def test(client: LocalClient) -> None:
        silent = [outcome(client) for _ in range(2)]
        assert silent[0] == silent[1]
        client.stage(speak)
        assert outcome(client) != silent[0]
        client.stage(take_back)
        assert outcome(client) == silent[0]

    with_client(tmp_path, test)


def test_pods_with_admission_fields_are_checked(tmp_path: Path) -> None:
    async def test(client: LocalClient) -> None:
        outcome(client)
        with pytest.raises(ApiError, match="no PriorityClass"):
            client.stage(a_pod(priorityClassName="unknown"))
        with pytest.raises(ApiError, match="service account"):
            client.stage(a_pod(serviceAccountName="unknown"))

    with_client(tmp_path, test)


def test_pods_of_a_known_body_are_refused_once_their_namespace_goes(tmp_path: Path) -> None:
    async def test(client: LocalClient) -> None:
        client.stage(new(NAMESPACES, "", metadata={"name": "going"}, spec={"finalizers": ["f/g"]}))
        pod = msgspec.structs.replace(a_pod(), namespace="going")
        for _ in range(2):
            client.stage(pod)
        client.stage(Delete(Key(NAMESPACES, "", "going")))
        with pytest.raises(ApiError, match="is being terminated"):
            client.stage(pod)

    with_client(tmp_path, test)


def test_pod_template_is_evaluated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(client: LocalClient) -> None:
        evaluated: list[Doc] = []
        create = Writes.create

        def counting(self: Writes, kind: Kind, namespace: str, body: Doc, *rest: Any) -> Outcome:
            evaluated.append(body)
            return create(self, kind, namespace, body, *rest)

        monkeypatch.setattr(Writes, "create", counting)
        pods = [outcome(client) for _ in range(5)]
        assert len(evaluated) == 1
        assert all(pod == pods[0] for pod in pods)

    with_client(tmp_path, test)


def test_large_pod_template_is_not_cached(tmp_path: Path) -> None:
    async def test(client: LocalClient) -> None:
        templates = client._writes.templates
        client.stage(a_pod())
        assert len(templates) == 1
        client.stage(a_pod(containers=[{"name": "c", "image": "i", "args": ["x" * 20_000]}]))
        assert len(templates) == 1

    with_client(tmp_path, test)
