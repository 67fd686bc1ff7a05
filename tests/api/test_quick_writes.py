"""The quick path does what the general path does, byte for byte but for random parts."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from onejob.api.errors import ApiError, NotFound
from onejob.api.kinds import BY_RESOURCE
from onejob.api.pod_subresources import bind
from onejob.api.quick_writes import QuickWrites
from onejob.api.requests import Outcome, Target, WriteOptions
from onejob.api.service import Service
from onejob.gates import FeatureGates
from onejob.objects.meta import PODS, Key
from onejob.planning.claiming import REMOVE_TRACKING_PATCH
from onejob.store.log import LogStore
from onejob.store.writer import LoopCommitter
from onejob.virtual_time import run_virtual, virtual_clock

POD = BY_RESOURCE[PODS]
TRUSTED = WriteOptions(trusted=True)
Doc = dict[str, Any]

TRACKED = "batch.kubernetes.io/job-tracking"


def a_pod(**spec: Any) -> Doc:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "job-",
            "namespace": "default",
            "labels": {"a": "b"},
            "finalizers": [TRACKED],
        },
        "spec": {
            **spec,
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "busybox", "command": ["true"]}],
        },
    }


class Pair:
    """Two equal services: what is done to one quickly is done to the other in general."""

    def __init__(self, quick: Service, general: Service) -> None:
        self.general = general.writes
        self.quick_service = quick
        self.quick = QuickWrites(quick.writes)

    def create(self, doc: Doc) -> Key:
        created = self.general.create(POD, "default", msgspec.json.decode(encode(doc)), TRUSTED)
        same = self.quick_service.writes.create(
            POD, "default", msgspec.json.decode(encode(doc)), TRUSTED
        )
        assert created.document == same.document
        name = msgspec.json.decode(created.document)["metadata"]["name"]
        return Key(PODS, "default", name)

    def patch(self, key: Key, body: bytes, subresource: str) -> Outcome:
        """Both ways; the quick way must be taken and lead to the same document."""
        target = Target(POD, key.namespace, key.name, subresource)
        general = self.general.patch(target, "strategic", msgspec.json.decode(body), TRUSTED)
        quick = self.quick.patch_pod(key, body, subresource, TRUSTED)
        assert quick is not None, "the quick path declined"
        assert msgspec.json.decode(quick.document) == msgspec.json.decode(general.document)
        assert quick.revision == general.revision
        return quick


def encode(doc: Doc) -> bytes:
    return msgspec.json.encode(doc)


def compared(folder: Path, test: Callable[[Pair], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = virtual_clock()
        stores = [
            await LogStore.open(folder / name, clock=clock, committer=LoopCommitter())
            for name in ("quick", "general")
        ]
        services = [
            Service(store, clock=clock, rng=Random(5), gates=FeatureGates()) for store in stores
        ]
        namespace = BY_RESOURCE["namespaces"]
        for service in services:
            await service.create(namespace, "", {"metadata": {"name": "default"}}, TRUSTED)
        await test(Pair(*services))
        for store in stores:
            await store.close()

    run_virtual(main())


@pytest.mark.parametrize("hostname", [None, "job-3"])
def test_the_second_pod_of_a_kind_is_created_as_the_first_was(
    tmp_path: Path, hostname: str | None
) -> None:
    async def test(pair: Pair) -> None:
        own = {} if hostname is None else {"hostname": hostname}
        document = encode(a_pod(**own))
        assert pair.quick.create_pod("default", document, TRUSTED) is None, "nothing known yet"
        first = pair.quick_service.writes.create(
            POD, "default", msgspec.json.decode(document), TRUSTED
        )
        pair.quick.learn_spec(document, first.document)
        if hostname is not None:
            document = document.replace(b"job-3", b"job-4")
        quick = pair.quick.create_pod("default", document, TRUSTED)
        assert quick is not None
        general = pair.general.create(POD, "default", msgspec.json.decode(document), TRUSTED)
        made, expected = (msgspec.json.decode(o.document) for o in (quick, general))
        for random_part in ("uid", "name", "resourceVersion"):
            del made["metadata"][random_part], expected["metadata"][random_part]
        assert made == expected

    compared(tmp_path, test)


def test_a_pod_in_a_namespace_that_ends_is_left_to_the_general_path(tmp_path: Path) -> None:
    async def test(pair: Pair) -> None:
        document = encode(a_pod())
        first = pair.quick_service.writes.create(
            POD, "default", msgspec.json.decode(document), TRUSTED
        )
        pair.quick.learn_spec(document, first.document)
        assert pair.quick.create_pod("nowhere", document, TRUSTED) is None

    compared(tmp_path, test)


STATUS_PATCHES: list[Doc] = [
    {"phase": "Running", "startTime": "2026-01-01T12:00:00Z"},
    {"conditions": [{"type": "Ready", "status": "True"}]},
    {
        "conditions": [
            {"type": "Ready", "status": "False", "reason": "PodCompleted"},
            {"type": "Extra", "status": "True"},
        ],
        "phase": "Succeeded",
        "containerStatuses": [
            {"name": "c", "ready": False, "state": {"terminated": {"exitCode": 0}}}
        ],
        "podIP": "127.0.0.1",
        "podIPs": [{"ip": "127.0.0.1"}],
    },
]


def test_status_reports_and_freeing_lead_to_the_same_pod(tmp_path: Path) -> None:
    async def test(pair: Pair) -> None:
        key = pair.create(a_pod())
        binding = {"target": {"name": "n"}}
        bound = bind(pair.general, "default", key.name, binding, TRUSTED)
        quick = pair.quick.bind_pod(key, "n", "")
        assert quick is not None
        assert quick.revision == bound.revision
        for status in STATUS_PATCHES:
            body = encode({"status": status})
            first = pair.patch(key, body, "status")
            again = pair.patch(key, body, "status")
            assert again.revision == first.revision, "a write that changes nothing is none"
        freed = pair.patch(key, REMOVE_TRACKING_PATCH, "")
        assert "finalizers" not in msgspec.json.decode(freed.document)["metadata"]
        assert pair.patch(key, REMOVE_TRACKING_PATCH, "").revision == freed.revision

    compared(tmp_path, test)


@pytest.mark.parametrize(
    ("body", "subresource"),
    [
        ({"status": {"phase": None}}, "status"),
        ({"status": {"conditions": [{"$patch": "delete", "type": "Ready"}]}}, "status"),
        ({"status": {"$patch": "replace"}}, "status"),
        ({"metadata": {"labels": {"x": "y"}}}, ""),
        ({"spec": {}}, ""),
        ({"metadata": {"uid": "another"}, "status": {"phase": "Failed"}}, "status"),
        ({"status": {"phase": "Failed"}}, ""),
    ],
)
def test_whatever_is_out_of_the_ordinary_is_declined(
    tmp_path: Path, body: Doc, subresource: str
) -> None:
    async def test(pair: Pair) -> None:
        key = pair.create(a_pod())
        before = pair.quick_service.store.staged_revision
        assert pair.quick.patch_pod(key, encode(body), subresource, TRUSTED) is None
        assert pair.quick_service.store.staged_revision == before

    compared(tmp_path, test)


def test_people_never_take_the_quick_path(tmp_path: Path) -> None:
    async def test(pair: Pair) -> None:
        key = pair.create(a_pod())
        assert pair.quick.patch_pod(key, REMOVE_TRACKING_PATCH, "", WriteOptions()) is None

    compared(tmp_path, test)


def test_a_pod_that_is_gone_is_not_found(tmp_path: Path) -> None:
    async def test(pair: Pair) -> None:
        with pytest.raises(NotFound) as caught:
            pair.quick.patch_pod(Key(PODS, "default", "gone"), REMOVE_TRACKING_PATCH, "", TRUSTED)
        error: ApiError = caught.value
        assert error.message == 'pods "gone" not found'

    compared(tmp_path, test)
