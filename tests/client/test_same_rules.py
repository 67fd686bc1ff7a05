"""Same rules for all writers: our own and others get the same documents and refusals.

This also holds for the writes that are evaluated together (`create_pods`, `patch_pods`).
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from onejob.api.service import Service
from onejob.api.writing.writes import Writes
from onejob.client.base import Bind, Create, Delete, Op, Patch, Replace
from onejob.client.local import LocalClient
from onejob.objects.meta import JOBS, PODS, WORKFLOWS, Key
from onejob.objects.pod_status import (
    ConditionReport,
    ContainerReport,
    IpReport,
    PodPrecondition,
    PodReport,
    PodStatusPatch,
    State,
    Terminated,
)
from onejob.planning.job.claiming import REMOVE_TRACKING_PATCH
from onejob.wire.errors import ApiError
from onejob.wire.requests import WriteOptions
from tests.api.two_services import TRUSTED, with_two_services
from tests.build import a_job, a_task, a_workflow, template

Doc = dict[str, Any]
Answer = tuple[int, str] | Doc
#: Makes a write from the object's key and its present document.
Step = Callable[[Key, Doc], Op]

#: Refusals of a template name another object than those of a single create.
GENERATED = re.compile(r"(job-|Prefix)[a-z0-9]{5}")
ANYBODY = WriteOptions(field_manager="test", field_validation="Strict")
TRACKED = "batch.kubernetes.io/job-tracking"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class OneByOne(LocalClient):
    """Client that evaluates each write by itself."""

    def _stage_run(self, op_type: type[Op], ops: Sequence[Any]) -> Any:
        return [self._stage_singly(op) for op in ops]

    def _stage_patch(self, op: Patch) -> Any:
        target = self._target(op.key, op.subresource)
        return self._writes.patch(target, op.type, msgspec.json.decode(op.body), self._options)


def encode(doc: Doc) -> bytes:
    return msgspec.json.encode(doc)


def a_pod(metadata: Doc | None = None, **spec: Any) -> Doc:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "job-",
            "namespace": "default",
            "labels": {"a": "b"},
            "finalizers": [TRACKED],
            **(metadata or {}),
        },
        **template(**spec),
    }


A_JOB: Doc = {**a_job(completions=3), "metadata": {"generateName": "job-"}}


class Pair:
    """Two servers that get the same writes, by different sorts of writers."""

    def __init__(self, ours: LocalClient, others: LocalClient) -> None:
        self._clients = (ours, others)
        self._writes = 0

    def stage(self, op: Op) -> Answer:
        self._writes += 1
        for client in self._clients:
            # A refused template draws no name.
            client._writes.rng.seed(self._writes)
        ours, others = [_answer(client, op) for client in self._clients]
        assert ours == others
        return ours

    def create(self, resource: str, doc: Doc) -> Key:
        created = self.stage(Create(resource, "default", encode(doc)))
        assert isinstance(created, dict), created
        return Key(resource, "default", created["metadata"]["name"])

    async def run(self, key: Key, steps: Sequence[Step]) -> None:
        for step in steps:
            document = msgspec.json.decode(await self._newest(key))
            if document:
                self.stage(step(key, document))

    async def _newest(self, key: Key) -> bytes:
        stored = self._clients[0]._service.store.newest(key)
        return b"{}" if stored is None else stored.value


def _answer(client: LocalClient, op: Op) -> Answer:
    try:
        document: Doc = msgspec.json.decode(client.stage(op).document)
    except ApiError as error:
        return error.code, GENERATED.sub("generated", error.message)
    document["metadata"].pop("managedFields", None)
    return document


def compared(
    folder: Path, test: Callable[[Pair], Awaitable[None]], others: WriteOptions = ANYBODY
) -> None:
    async def both(one: Service, other: Service) -> None:
        await test(Pair(LocalClient(one), OneByOne(other, others)))

    with_two_services(folder, both)


#: Compared with: users, and our own writers whose writes are evaluated one by one.
OTHERS = pytest.mark.parametrize("others", [ANYBODY, TRUSTED], ids=["users", "one by one"])


def strategic(body: Doc, subresource: str = "") -> Step:
    return lambda key, _: Patch(key, encode(body), "strategic", subresource)


def merge(body: Doc, subresource: str = "") -> Step:
    return lambda key, _: Patch(key, encode(body), "merge", subresource)


def report(status: Doc) -> Step:
    """Return a status patch as the node agent sends it, which names the Pod's UID."""
    return lambda key, pod: Patch(
        key,
        encode({"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}),
        "strategic",
        "status",
    )


def typed_report(phase: str) -> Step:
    """Return a status patch as the node agent hands it to a client in the server's process."""
    condition = ConditionReport(
        type="Ready", status="False", reason="PodCompleted", last_transition_time=NOON
    )
    other = replace(condition, type="Initialized", status="True", reason="" if phase else None)
    container = ContainerReport(
        name="c",
        image="busybox",
        image_id="",
        restart_count=0,
        ready=False,
        started=False,
        state=State(terminated=Terminated(exit_code=0, reason="Completed")),
        last_state=State(),
    )
    status = PodReport(
        phase=phase,
        pod_ips=(IpReport(ip="127.0.0.1"),),
        conditions=(other, condition),
        container_statuses=(container,) if phase == "Succeeded" else (),
    )
    return lambda key, pod: Patch(
        key,
        PodStatusPatch(metadata=PodPrecondition(uid=pod["metadata"]["uid"]), status=status),
        subresource="status",
    )


def put(change: Callable[[Doc], Any], subresource: str = "") -> Step:
    def step(key: Key, document: Doc) -> Op:
        change(document)
        document["metadata"].pop("managedFields", None)
        return Replace(key, encode(document), subresource)

    return step


def free(key: Key, _: Doc) -> Op:
    return Patch(key, REMOVE_TRACKING_PATCH)


def bind(key: Key, pod: Doc) -> Op:
    return Bind(key, "node", pod["metadata"]["uid"])


def bind_namesake(key: Key, _: Doc) -> Op:
    return Bind(key, "node", "another")


def delete(key: Key, _: Doc) -> Op:
    return Delete(key, grace_seconds=0)


def drop_ready(key: Key, pod: Doc) -> Op:
    """Only one of several.

    An empty list in place of none is a change to our own writers alone, who never write that.
    """
    types = [condition["type"] for condition in pod["status"].get("conditions", ())]
    if "Ready" not in types or len(types) == 1:
        return bind(key, pod)
    gone = {"conditions": [{"$patch": "delete", "type": "Ready"}]}
    return Patch(key, encode({"status": gone}), "strategic", "status")


def stale(key: Key, pod: Doc) -> Op:
    metadata = {"resourceVersion": "1", "uid": pod["metadata"]["uid"]}
    return Patch(key, encode({"metadata": metadata, "status": {"phase": "Failed"}}), "merge")


_TYPES = ("PodScheduled", "Initialized", "Ready", "ContainersReady", "Mine")
_conditions = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(_TYPES), "status": st.sampled_from(["True", "False"])},
        optional={"reason": st.text("ab", min_size=1, max_size=3), "message": st.just('né"w')},
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda condition: str(condition["type"]),
)
_states = st.sampled_from(
    [
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
        "message": st.text("ab", min_size=1, max_size=3),
        "containerStatuses": st.lists(
            st.builds(
                lambda state: {
                    "name": "c",
                    "ready": False,
                    "restartCount": 0,
                    "image": "busybox",
                    "imageID": "",
                    "state": state,
                },
                _states,
            ),
            min_size=1,
            max_size=1,
        ),
        "podIP": st.just("127.0.0.1"),
        "podIPs": st.lists(
            st.sampled_from([{"ip": "127.0.0.1"}, {"ip": "::1"}]), min_size=1, max_size=2
        ),
    },
)
_pod_steps = st.one_of(
    st.builds(report, _statuses),
    st.builds(typed_report, st.sampled_from(["", "Running", "Succeeded"])),
    st.sampled_from(
        [
            free,
            bind,
            bind_namesake,
            delete,
            stale,
            strategic({"metadata": {"labels": {"resourceVersion": "1"}}}),
            strategic({"metadata": {"labels": {"not a label": "x"}}}),
            strategic({"metadata": {"uid": "another"}, "status": {"phase": "Failed"}}, "status"),
            strategic({"metadata": {"finalizers": ["example.com/mine"]}}),
            strategic({"metadata": {"finalizers": ["not a name"]}}),
            strategic({"metadata": {"$patch": "replace", "name": "x"}}),
            strategic({"metadata": {"ownerReferences": None}}, "status"),
            strategic({"status": {"phase": None}}, "status"),
            drop_ready,
            strategic({"status": {"$patch": "replace", "phase": "Failed"}}, "status"),
            strategic({"status": {"phase": "Failed"}}),
            strategic({"spec": {"activeDeadlineSeconds": 7}}),
            strategic({"spec": {"containers": [{"name": "c", "image": "other"}]}}),
            strategic({"spec": {"restartPolicy": "Always"}}),
            strategic({"spec": {"activeDeadlineSeconds": 9}}, "status"),
            merge({"metadata": {"labels": None, "finalizers": None}}),
            merge({"metadata": {"generation": 7, "name": "another"}}),
            merge({"status": {"phase": "Running", "qosClass": None}}, "status"),
            put(lambda pod: pod["metadata"].setdefault("labels", {}).update(more="x")),
            put(lambda pod: pod["metadata"].update(finalizers=[])),
            put(lambda pod: pod["status"].update(phase="Running"), "status"),
            put(lambda pod: pod["status"].update(phase="Running")),
            put(lambda pod: pod["spec"].update(activeDeadlineSeconds=5)),
            put(lambda pod: pod["spec"].update(hostNetwork=True)),
        ]
    ),
)


@OTHERS
@settings(max_examples=25, deadline=None)
@given(
    own=st.sampled_from([{}, {"hostname": "job-3"}, {"schedulingGates": [{"name": "a/b"}]}]),
    steps=st.lists(_pod_steps, min_size=1, max_size=8),
)
def test_pod_writes_have_same_outcome_locally_and_over_http(
    tmp_path_factory: pytest.TempPathFactory, others: WriteOptions, own: Doc, steps: list[Step]
) -> None:
    async def test(pair: Pair) -> None:
        key = pair.create(PODS, a_pod(**own))
        await pair.run(key, steps)

    compared(tmp_path_factory.mktemp("any"), test, others)


def _condition(kind: str, status: str = "True") -> Doc:
    now = "2026-01-01T12:00:00Z"
    return {"type": kind, "status": status, "lastProbeTime": now, "lastTransitionTime": now}


def count_uncounted(key: Key, job: Doc) -> Op:
    """Only if there are some: see `drop_ready`."""
    some = "uncountedTerminatedPods" in job.get("status", {})
    gone = {"uncountedTerminatedPods": {"succeeded": None}} if some else {"succeeded": 1}
    return Patch(key, encode({"status": gone}), "merge", "status")


_job_steps = st.sampled_from(
    [
        merge({"status": {"active": 2, "ready": 1}}, "status"),
        merge({"status": {"active": 2, "ready": 3}}, "status"),
        merge({"status": {"active": -1}}, "status"),
        merge({"status": {"startTime": "2026-01-01T12:00:00Z"}}, "status"),
        merge({"status": {"uncountedTerminatedPods": {"succeeded": ["u1", "u2"]}}}, "status"),
        count_uncounted,
        merge({"status": {"uncountedTerminatedPods": {"failed": ["u1", "u1"]}}}, "status"),
        merge({"status": {"succeeded": 2}}, "status"),
        merge({"status": {"succeeded": 1}}, "status"),
        merge({"status": {"active": None, "ready": None}}, "status"),
        merge({"status": {"conditions": [_condition("SuccessCriteriaMet")]}}, "status"),
        merge({"status": {"conditions": [_condition("Failed")]}}, "status"),
        merge(
            {
                "status": {
                    "conditions": [_condition("SuccessCriteriaMet"), _condition("Complete")],
                    "completionTime": "2026-01-01T12:00:01Z",
                }
            },
            "status",
        ),
        merge({"metadata": {"resourceVersion": "1"}, "status": {"active": 1}}, "status"),
        merge({"metadata": {"labels": {"x": "y"}}}),
        merge({"metadata": {"labels": None}}),
        merge({"spec": {"parallelism": 4}}),
        merge({"spec": {"parallelism": -4}}),
        merge({"spec": {"completionMode": "Indexed"}}),
        merge({"spec": {"suspend": True}}),
        put(lambda job: job["spec"].update(parallelism=6)),
        put(lambda job: job["status"].update(active=1), "status"),
        delete,
    ]
)


@OTHERS
@settings(max_examples=15, deadline=None)
@given(steps=st.lists(_job_steps, min_size=1, max_size=8))
def test_job_writes_have_same_outcome_locally_and_over_http(
    tmp_path_factory: pytest.TempPathFactory, others: WriteOptions, steps: list[Step]
) -> None:
    async def test(pair: Pair) -> None:
        await pair.run(pair.create(JOBS, A_JOB), steps)

    compared(tmp_path_factory.mktemp("any"), test, others)


NEW_PODS: list[Doc] = [
    a_pod(),
    a_pod({"annotations": {}, "finalizers": []}),
    a_pod({"labels": {}}),
    a_pod({"labels": {"resourceVersion": "7"}, "annotations": {"a": 'é"\\'}}),
    a_pod({"labels": {"not a label": "x"}}),
    a_pod({"annotations": {"index": "1"}}, hostname="job-1"),
    a_pod({"annotations": {"index": "2"}}, hostname="job-2"),
    a_pod({"namespace": "another"}),
    a_pod({"name": "given"}),
    a_pod({"name": "Not A Name"}),
    a_pod({"generateName": ""}),
    a_pod({"generateName": "Not A Prefix"}),
    a_pod({"generateName": "dotted.prefix-"}),
    a_pod({"uid": "given", "creationTimestamp": "2020-01-01T00:00:00Z"}),
    a_pod({"resourceVersion": "5"}),
    a_pod({"managedFields": [{"manager": "m"}]}),
    a_pod({"finalizers": ["no-domain"]}),
    a_pod({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]}),
    a_pod({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": ""}]}),
    a_pod(activeDeadlineSeconds=-1),
    {**a_pod(), "status": {"phase": "Running"}},
    {**a_pod(), "kind": "Job"},
]


@OTHERS
def test_new_pods_have_one_outcome_however_often_they_were_seen(
    tmp_path: Path, others: WriteOptions
) -> None:
    async def test(pair: Pair) -> None:
        for pod in NEW_PODS * 2:
            pair.stage(Create(PODS, "default", encode(pod)))
        pair.stage(Create(PODS, "nowhere", encode({**a_pod(), "metadata": {"generateName": "j-"}})))

    compared(tmp_path, test, others)


def test_concurrent_writes_of_others_are_kept(tmp_path: Path) -> None:
    async def test(pair: Pair) -> None:
        pod = a_pod()
        pod["metadata"]["finalizers"] = ["example.com/first", TRACKED, "example.com/last"]
        key = pair.create(PODS, pod)
        pair.stage(report({"phase": "Running"})(key, await newest(pair, key)))
        people = LocalClient(pair._clients[0]._service, ANYBODY)
        label = Patch(key, encode({"metadata": {"labels": {"x": "y"}}}))
        for client in (people, pair._clients[1]):
            client.stage(label)
        pair.stage(report({"phase": "Succeeded"})(key, await newest(pair, key)))
        freed = pair.stage(Patch(key, REMOVE_TRACKING_PATCH))
        assert isinstance(freed, dict)
        assert freed["metadata"]["labels"] == {"a": "b", "x": "y"}
        assert freed["metadata"]["finalizers"] == ["example.com/first", "example.com/last"]
        assert freed["status"]["phase"] == "Succeeded"

    compared(tmp_path, test)


async def newest(pair: Pair, key: Key) -> Doc:
    document: Doc = msgspec.json.decode(await pair._newest(key))
    return document


@OTHERS
def test_defaults_of_fresh_object_are_written(tmp_path: Path, others: WriteOptions) -> None:
    async def test(pair: Pair) -> None:
        secret = {"metadata": {"name": "s"}, "data": {"a": "YQ=="}}
        key = pair.create("secrets", secret)
        for name in ("b", "c"):
            await pair.run(key, [merge({"stringData": {name: name}})])
        assert (await newest(pair, key))["data"] == {"a": "YQ==", "b": "Yg==", "c": "Yw=="}

    compared(tmp_path, test, others)


def test_writes_that_change_nothing_are_none(tmp_path: Path) -> None:
    async def test(pair: Pair) -> None:
        key = pair.create(PODS, a_pod())
        store = pair._clients[0]._service.store
        status = {"phase": "Succeeded", "conditions": [{"type": "Ready", "status": "False"}]}
        for step in (bind, report(status), free):
            pair.stage(step(key, await newest(pair, key)))
            written = store.staged_revision
            if step is not bind:
                pair.stage(step(key, await newest(pair, key)))
            assert store.staged_revision == written

    compared(tmp_path, test)


TASK = {"name": "a", "state": "Running", "message": '"resourceVersion":"3"'}
FLOW_STEPS: dict[str, list[Step]] = {
    "first and second status": [
        merge({"status": {"running": 1, "tasks": [TASK], "startTime": "2026-01-01T12:00:00Z"}},
              "status"),
        merge({"status": {"running": None, "complete": 1, "failed": None}}, "status"),
        merge({"status": {"complete": 1}}, "status"),
    ],
    "no status": [merge({"status": {}}, "status"), merge({"metadata": {}}, "status")],
    "at a revision": [
        lambda key, flow: Patch(
            key,
            encode({
                "metadata": {"resourceVersion": flow["metadata"]["resourceVersion"]},
                "status": {"waiting": 1},
            }),
            "merge",
            "status",
        ),
        merge({"metadata": {"resourceVersion": "1"}, "status": {"waiting": 2}}, "status"),
        merge({"metadata": {"resourceVersion": "1"}}, "status"),
    ],
    "other sections": [
        merge({"metadata": {"labels": {"x": "y"}}, "status": {"waiting": 1}}, "status"),
        merge({"spec": {"suspend": True}, "status": {"waiting": 2}}, "status"),
    ],
    "while it is deleted": [
        merge({"metadata": {"finalizers": ["a.example/b"]}}),
        lambda key, _: Delete(key),
        merge({"status": {"waiting": 1}}, "status"),
        merge({"metadata": {"finalizers": None}}),
        merge({"status": {"waiting": 2}}, "status"),
    ],
}  # fmt: skip


@OTHERS
@pytest.mark.parametrize("steps", FLOW_STEPS.values(), ids=FLOW_STEPS)
def test_status_of_a_workflow_is_the_same_by_every_writer(
    tmp_path: Path, steps: Sequence[Step], others: WriteOptions
) -> None:
    async def write(pair: Pair) -> None:
        key = pair.create(WORKFLOWS, a_workflow("wf", a_task("a")))
        await pair.run(key, steps)

    compared(tmp_path, write, others)


def test_status_of_a_workflow_is_written_without_decoding_the_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def write(service: Service, _: Service) -> None:
        client = LocalClient(service)
        flow = encode(a_workflow("wf", a_task("a")))
        client.stage(Create(WORKFLOWS, "default", flow))
        key = Key(WORKFLOWS, "default", "wf")
        # The reference would decode it.
        monkeypatch.delattr(Writes, "patch")
        body = encode({"status": {"running": 1, "tasks": [TASK]}})
        document = msgspec.json.decode(client.stage(Patch(key, body, "merge", "status")).document)
        assert document["status"] == {"running": 1, "tasks": [TASK]}

    with_two_services(tmp_path, write)
