"""The quick path does what the general path does, byte for byte but for random parts."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onejob.api.service import Service
from onejob.api.writing.pod_subresources import bind
from onejob.api.writing.quick_writes import QuickWrites
from onejob.objects.meta import PODS, Key
from onejob.planning.job.claiming import REMOVE_TRACKING_PATCH
from onejob.wire.errors import ApiError, NotFound
from onejob.wire.kinds import BY_RESOURCE
from onejob.wire.requests import DeleteOptions, Outcome, Target, WriteOptions
from tests.api.two_services import TRUSTED, with_two_services

POD = BY_RESOURCE[PODS]

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

    def report(self, key: Key, status: Doc) -> None:
        """Both ways, where the quick way may leave it to the other; the same answer."""
        target = Target(POD, key.namespace, key.name, "status")
        body = encode({"status": status})
        answers: list[Outcome | str] = []
        for writes, quick in ((self.general, None), (self.quick_service.writes, self.quick)):
            try:
                outcome = quick and quick.patch_pod(key, body, "status", TRUSTED)
                answers.append(
                    outcome or writes.patch(target, "strategic", msgspec.json.decode(body), TRUSTED)
                )
            except ApiError as error:
                answers.append(error.message)
        assert answers[0] == answers[1]

    def patch(self, key: Key, body: bytes, subresource: str) -> Outcome:
        """Both ways; the quick way must be taken and lead to the same document."""
        target = Target(POD, key.namespace, key.name, subresource)
        general = self.general.patch(target, "strategic", msgspec.json.decode(body), TRUSTED)
        quick = self.quick.patch_pod(key, body, subresource, TRUSTED)
        assert quick is not None, "the quick path declined"
        assert quick.document == general.document
        assert quick.revision == general.revision
        return quick

    def uid(self, key: Key) -> str:
        stored = self.quick_service.store.newest(key)
        assert stored is not None
        uid: str = msgspec.json.decode(stored.value)["metadata"]["uid"]
        return uid


def encode(doc: Doc) -> bytes:
    return msgspec.json.encode(doc)


def without_revision(outcome: Outcome) -> bytes:
    before, mark, after = outcome.document.rpartition(b'"resourceVersion":"%d"' % outcome.revision)
    assert mark
    return before + after


def compared(folder: Path, test: Callable[[Pair], Awaitable[None]]) -> None:
    with_two_services(folder, lambda quick, general: test(Pair(quick, general)))


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
        for _ in range(2):
            # Both draw the same names and uids.
            pair.general.rng.setstate(pair.quick_service.writes.rng.getstate())
            quick = pair.quick.create_pod("default", document, TRUSTED)
            general = pair.general.create(POD, "default", msgspec.json.decode(document), TRUSTED)
            assert quick is not None
            assert without_revision(quick) == without_revision(general)

    compared(tmp_path, test)


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {}, "finalizers": []},
        {"annotations": {"resourceVersion": "7"}},
        {"annotations": {"a": '\u00e9"\\'}},
    ],
)
def test_whatever_a_template_has_in_its_metadata_ends_up_in_the_same_place(
    tmp_path: Path, metadata: Doc
) -> None:
    async def test(pair: Pair) -> None:
        plain = encode(a_pod())
        first = pair.quick_service.writes.create(
            POD, "default", msgspec.json.decode(plain), TRUSTED
        )
        pair.quick.learn_spec(plain, first.document)
        pod = a_pod()
        pod["metadata"] = {"generateName": "job-", **metadata}
        pair.general.rng.setstate(pair.quick_service.writes.rng.getstate())
        quick = pair.quick.create_pod("default", encode(pod), TRUSTED)
        assert quick is not None
        general = pair.general.create(POD, "default", pod, TRUSTED)
        assert without_revision(quick) == without_revision(general)

    compared(tmp_path, test)


@pytest.mark.parametrize(
    "metadata",
    [
        {"name": "given"},
        {"generateName": ""},
        {"namespace": "another"},
        {"uid": "given"},
        {"managedFields": [{"manager": "m"}]},
    ],
)
def test_metadata_that_is_not_for_a_job_to_give_is_declined(tmp_path: Path, metadata: Doc) -> None:
    async def test(pair: Pair) -> None:
        plain = a_pod()
        first = pair.quick_service.writes.create(POD, "default", a_pod(), TRUSTED)
        pair.quick.learn_spec(encode(plain), first.document)
        plain["metadata"] = {"generateName": "job-", **metadata}
        assert pair.quick.create_pod("default", encode(plain), TRUSTED) is None

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
        quick = pair.quick.bind_pod(key, "n", "", TRUSTED)
        assert quick is not None
        assert quick.revision == bound.revision
        newest = pair.general.store.newest(key)
        assert newest is not None
        assert quick.document == newest.value
        for status in STATUS_PATCHES:
            body = encode({"status": status})
            first = pair.patch(key, body, "status")
            again = pair.patch(key, body, "status")
            assert again.revision == first.revision, "a write that changes nothing is none"
        freed = pair.patch(key, REMOVE_TRACKING_PATCH, "")
        assert "finalizers" not in msgspec.json.decode(freed.document)["metadata"]
        assert pair.patch(key, REMOVE_TRACKING_PATCH, "").revision == freed.revision

    compared(tmp_path, test)


_TYPES = ("PodScheduled", "Initialized", "Ready", "ContainersReady", "Mine")
_conditions = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(_TYPES), "status": st.sampled_from(["True", "False"])},
        optional={"reason": st.text(max_size=3), "message": st.just('né"w')},
    ),
    max_size=5,
    unique_by=lambda condition: str(condition["type"]),
)
_states = st.sampled_from(
    [
        {},
        {"waiting": {"reason": "Pulling"}},
        {"running": {"startedAt": "2026-01-01T12:00:00Z"}},
        {"terminated": {"exitCode": 0}},
        {"terminated": {"exitCode": 3}},
    ]
)
_statuses = st.fixed_dictionaries(
    {},
    optional={
        "phase": st.sampled_from(["Running", "Succeeded", "Failed"]),
        "conditions": _conditions,
        "message": st.text(max_size=3),
        "containerStatuses": st.lists(
            st.fixed_dictionaries({"name": st.just("c"), "state": _states}), max_size=1
        ),
        "podIP": st.just("127.0.0.1"),
    },
)


@settings(max_examples=30, deadline=None)
@given(reports=st.lists(_statuses, min_size=1, max_size=6))
def test_any_reports_lead_to_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, reports: list[Doc]
) -> None:
    async def test(pair: Pair) -> None:
        key = pair.create(a_pod())
        for status in reports:
            pair.report(key, status)
        pair.patch(key, REMOVE_TRACKING_PATCH, "")

    compared(tmp_path_factory.mktemp("any"), test)


def test_what_others_wrote_in_between_is_kept(tmp_path: Path) -> None:
    """The quick path remembers Pods as it wrote them; somebody else may have written since."""

    async def test(pair: Pair) -> None:
        key = pair.create(a_pod())
        running = encode({"status": {"phase": "Running"}})
        pair.patch(key, running, "status")
        label: Doc = {"metadata": {"labels": {"resourceVersion": "1"}}}
        for writes in (pair.general, pair.quick_service.writes):
            writes.patch(Target(POD, "default", key.name), "strategic", label, TRUSTED)
        pair.patch(key, encode({"status": {"phase": "Succeeded"}}), "status")
        freed = msgspec.json.decode(pair.patch(key, REMOVE_TRACKING_PATCH, "").document)
        assert freed["metadata"]["labels"] == {"a": "b", "resourceVersion": "1"}
        assert freed["status"]["phase"] == "Succeeded"

    compared(tmp_path, test)


def test_only_the_finalizers_that_are_named_go(tmp_path: Path) -> None:
    async def test(pair: Pair) -> None:
        pod = a_pod()
        pod["metadata"]["finalizers"] = ["example.com/first", TRACKED, "example.com/last"]
        key = pair.create(pod)
        freed = msgspec.json.decode(pair.patch(key, REMOVE_TRACKING_PATCH, "").document)
        assert freed["metadata"]["finalizers"] == ["example.com/first", "example.com/last"]

    compared(tmp_path, test)


@pytest.mark.parametrize("spec", [{"nodeName": ""}, {"schedulingGates": [{"name": "a/b"}]}])
def test_a_pod_whose_spec_speaks_of_a_node_is_bound_in_general(tmp_path: Path, spec: Doc) -> None:
    async def test(pair: Pair) -> None:
        key = pair.create(a_pod(**spec))
        assert pair.quick.bind_pod(key, "n", "", TRUSTED) is None

    compared(tmp_path, test)


@pytest.mark.parametrize(
    "labels", [{"resourceVersion": "3"}, {"resourceVersion": "33"}, {"conditions": "x"}]
)
def test_a_label_is_never_taken_for_the_revision(tmp_path: Path, labels: dict[str, str]) -> None:
    async def test(pair: Pair) -> None:
        pod = a_pod()
        pod["metadata"]["labels"] = labels
        key = pair.create(pod)
        body = encode({"status": {"phase": "Running"}})
        quick = pair.quick.patch_pod(key, body, "status", TRUSTED)
        stored = pair.quick_service.store.newest(key)
        assert stored is not None
        metadata = msgspec.json.decode(stored.value)["metadata"]
        assert metadata["labels"] == labels
        assert metadata["resourceVersion"] == str(stored.revision)
        assert (quick is None) == (labels == {"resourceVersion": "3"}), "3 is the first"

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


def test_pods_that_are_over_or_deleted_are_forgotten(tmp_path: Path) -> None:
    async def test(pair: Pair) -> None:
        keys = [pair.create(a_pod()) for _ in range(2)]
        for key in keys:
            pair.patch(key, encode({"status": {"phase": "Succeeded"}}), "status")
        assert len(pair.quick) == 2, "they still hold a finalizer"
        pair.patch(keys[0], REMOVE_TRACKING_PATCH, "")
        assert len(pair.quick) == 1
        pair.quick.forget(keys[1])
        assert len(pair.quick) == 0

    compared(tmp_path, test)


@pytest.mark.parametrize("labels", [{}, {"resourceVersion": "4"}, {"resourceVersion": "5"}])
@pytest.mark.parametrize("known_by_uid", [True, False])
def test_a_pod_that_is_over_goes_with_the_same_last_words(
    tmp_path: Path, labels: dict[str, str], known_by_uid: bool
) -> None:
    async def test(pair: Pair) -> None:
        pod = a_pod()
        pod["metadata"] = {"generateName": "job-", "namespace": "default"}
        pod["metadata"].update({"labels": labels} if labels else {})
        key = pair.create(pod)
        for writes in (pair.general, pair.quick_service.writes):
            report = Target(POD, key.namespace, key.name, "status")
            writes.patch(report, "merge", {"status": {"phase": "Failed"}}, TRUSTED)
        uid = pair.uid(key) if known_by_uid else ""
        target = Target(POD, key.namespace, key.name)
        general = pair.general.delete(target, DeleteOptions(grace_seconds=0, uid=uid))
        quick = pair.quick.delete_pod(key, uid)
        assert quick == general
        assert pair.quick_service.store.newest(key) is None

    compared(tmp_path, test)


def test_a_pod_is_deleted_the_general_way_until_nothing_holds_it(tmp_path: Path) -> None:
    async def test(pair: Pair) -> None:
        key = pair.create(a_pod())
        assert pair.quick.delete_pod(key, "") is None, "it may run"
        pair.patch(key, encode({"status": {"phase": "Succeeded"}}), "status")
        assert pair.quick.delete_pod(key, "") is None, "it was not counted"
        pair.patch(key, REMOVE_TRACKING_PATCH, "")
        assert pair.quick.delete_pod(key, "another") is None, "a namesake is meant"
        assert pair.quick_service.store.newest(key) is not None
        assert pair.quick.delete_pod(key, "") is not None
        assert pair.quick.delete_pod(key, "") is None, "it is gone"

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
