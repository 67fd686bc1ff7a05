"""Verbs of the service, on the real store, in virtual time."""

import asyncio
import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.api.service import Service
from onejob.wire.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    InternalError,
    Invalid,
    NotFound,
    Timeout,
)
from onejob.wire.kinds import BY_RESOURCE
from onejob.wire.requests import (
    DeleteOptions,
    ListOptions,
    User,
    WatchEvent,
    WatchOptions,
    WriteOptions,
)
from tests import build
from tests.api.service_support import (
    CONFIGMAP,
    JOB,
    NAMESPACE,
    PERSON,
    POD,
    Doc,
    a_map,
    a_pod,
    create,
    failure,
    read,
    served,
)


def a_job(name: str = "j", **metadata: Any) -> Doc:
    return build.a_job(name, metadata=metadata)


def test_the_server_owns_identity_and_time_on_create(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        doc = a_job(uid="mine", creationTimestamp="2001-01-01T00:00:00Z", generation=9)
        doc["status"] = {"succeeded": 5}
        created = await create(service, doc)
        metadata = created["metadata"]
        assert metadata["uid"] != "mine"
        assert metadata["creationTimestamp"] == "2026-01-01T12:00:00Z"
        assert metadata["generation"] == 1
        assert metadata["resourceVersion"] == str(service.store.revision)
        assert created["status"] == {}

    served(tmp_path, test)


def test_generated_names_are_cut_and_get_five_letters(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        doc = a_map("", generateName="x" * 70)
        created = await create(service, doc, CONFIGMAP)
        name = created["metadata"]["name"]
        assert name.startswith("x" * 58)
        assert len(name) == 63
        assert set(name[58:]) <= set("bcdfghjklmnpqrstvwxz2456789")

    served(tmp_path, test)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"namespace": "other"}, BadRequest, "the namespace of the provided object does not match"),
        ({"resourceVersion": "5"}, InternalError, "resourceVersion should not be set"),
        ({"name": ""}, Invalid, "name or generateName is required"),
    ],
)
def test_bad_metadata_is_refused_on_create(
    tmp_path: Path, change: Doc, error: type[ApiError], text: str
) -> None:
    async def test(service: Service) -> None:
        doc = a_job()
        doc["metadata"].update(change)
        raised = await failure(service.create(JOB, "default", doc, PERSON))
        assert isinstance(raised, error)
        assert text in raised.message

    served(tmp_path, test)


def test_create_fails_for_existing_name_or_missing_namespace(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await create(service, a_job())
        again = await failure(service.create(JOB, "default", a_job(), PERSON))
        assert isinstance(again, AlreadyExists)
        assert again.message == 'jobs.batch "j" already exists'
        assert again.status()["details"] == {"name": "j", "group": "batch", "kind": "jobs"}
        nowhere = await failure(service.create(JOB, "nope", a_job(), PERSON))
        assert isinstance(nowhere, NotFound)
        assert nowhere.message == 'namespaces "nope" not found'

    served(tmp_path, test)


def test_a_terminating_namespace_takes_no_new_content(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await service.create(NAMESPACE, "", {"metadata": {"name": "n"}}, PERSON)
        deleted = read((await service.delete(NAMESPACE, "", "n", DeleteOptions())).document)
        assert deleted["status"]["phase"] == "Terminating"
        refused = await failure(service.create(JOB, "n", a_job(), PERSON))
        assert isinstance(refused, Forbidden)
        assert refused.message == (
            'jobs.batch "j" is forbidden: unable to create new content in namespace n because '
            "it is being terminated"
        )
        assert refused.details["causes"][0]["reason"] == "NamespaceTerminating"

    served(tmp_path, test)


def test_a_dry_run_answers_but_stores_nothing(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        before = service.store.staged_revision
        dry = WriteOptions(User("somebody"), dry_run=True)
        answer = await service.create(JOB, "default", a_job(), dry)
        assert answer.code == 201
        assert read(answer.document)["metadata"]["uid"]
        assert "resourceVersion" not in read(answer.document)["metadata"]
        assert service.store.staged_revision == before
        await create(service, a_job())
        exists = await failure(service.create(JOB, "default", a_job(), dry))
        assert isinstance(exists, AlreadyExists)
        await service.delete(JOB, "default", "j", DeleteOptions(dry_run=True))
        assert "deletionTimestamp" not in read(await service.get(JOB, "default", "j"))["metadata"]

    served(tmp_path, test)


def test_an_update_that_changes_nothing_keeps_the_revision(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        created = await create(service, a_job())
        again = await service.update(
            JOB, "default", "j", read(msgspec.json.encode(created)), PERSON
        )
        assert (
            read(again.document)["metadata"]["resourceVersion"]
            == (created["metadata"]["resourceVersion"])
        )

    served(tmp_path, test)


def test_an_update_needs_the_stored_revision_if_it_names_one(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        created = await create(service, a_job())
        created["metadata"]["labels"] = {"a": "b"}
        stale = read(msgspec.json.encode(created))
        await service.update(JOB, "default", "j", created, PERSON)
        stale["metadata"]["labels"] = {"c": "d"}
        refused = await failure(service.update(JOB, "default", "j", stale, PERSON))
        assert isinstance(refused, Conflict)
        assert refused.message.startswith('Operation cannot be fulfilled on jobs.batch "j": the')
        unconditional = a_job()
        current = read(await service.get(JOB, "default", "j"))
        unconditional["spec"] = current["spec"]
        unconditional["spec"]["parallelism"] = 3
        updated = read((await service.update(JOB, "default", "j", unconditional, PERSON)).document)
        assert updated["metadata"]["generation"] == 2

    served(tmp_path, test)


def test_identity_cannot_be_changed(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        created = await create(service, a_job())
        body = read(msgspec.json.encode(created))
        body["metadata"]["uid"] = "another"
        assert isinstance(
            await failure(service.update(JOB, "default", "j", body, PERSON)), Conflict
        )
        patch = {"metadata": {"uid": "another"}}
        refused = await failure(service.patch(JOB, "default", "j", "merge", patch, PERSON))
        assert isinstance(refused, Invalid)
        assert "metadata.uid" in refused.message
        renamed = a_job("other")
        wrong = await failure(service.update(JOB, "default", "j", renamed, PERSON))
        assert (
            wrong.message == "the name of the object (other) does not match the name on the URL (j)"
        )

    served(tmp_path, test)


def test_status_and_spec_have_their_own_endpoints(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        created = await create(service, a_job())
        status = {"metadata": {"annotations": {"a": "b"}}, "spec": {"parallelism": 9}}
        status["status"] = {"active": 1}
        patched = read(
            (
                await service.patch(
                    JOB, "default", "j", "merge", status, PERSON, subresource="status"
                )
            ).document
        )
        assert patched["status"] == {"active": 1}
        assert patched["spec"] == created["spec"]
        assert patched["metadata"]["annotations"] == {"a": "b"}
        assert patched["metadata"]["generation"] == 1
        body = {"status": {"active": 5}, "spec": {"parallelism": 4}}
        patched = read((await service.patch(JOB, "default", "j", "merge", body, PERSON)).document)
        assert patched["status"] == {"active": 1}
        assert patched["spec"]["parallelism"] == 4
        assert patched["metadata"]["generation"] == 2

    served(tmp_path, test)


def test_unknown_fields_follow_field_validation_mode(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        def with_field(name: str) -> Doc:
            doc = a_job(name)
            doc["spec"]["foo"] = 1
            return doc

        strict = WriteOptions(User("somebody"), field_validation="Strict")
        refused = await failure(service.create(JOB, "default", with_field("a"), strict))
        assert isinstance(refused, BadRequest)
        assert refused.message == (
            'Job in version "v1" cannot be handled as a Job: strict decoding error: '
            'unknown field "spec.foo"'
        )
        told = await service.create(JOB, "default", with_field("b"), PERSON)
        assert told.warnings == ('unknown field "spec.foo"',)
        assert "foo" not in read(told.document)["spec"]
        ignore = WriteOptions(User("somebody"), field_validation="Ignore")
        assert not (await service.create(JOB, "default", with_field("c"), ignore)).warnings
        patch = {"spec": {"foo": 1}}
        in_patch = await failure(service.patch(JOB, "default", "b", "merge", patch, strict))
        assert isinstance(in_patch, Invalid)
        assert in_patch.message == (
            ' "" is invalid: patch: Invalid value: "<object>": strict decoding error: '
            'unknown field "spec.foo"'
        )

    served(tmp_path, test)


# --- deletion -----------------------------------------------------------------------------


def test_a_job_deleted_without_a_policy_stays_to_orphan_its_pods(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await create(service, a_job())
        answer = read((await service.delete(JOB, "default", "j", DeleteOptions())).document)
        assert answer["kind"] == "Job"
        assert answer["metadata"]["finalizers"] == ["orphan"]
        assert answer["metadata"]["deletionGracePeriodSeconds"] == 0
        assert answer["metadata"]["generation"] == 2
        freed = {"metadata": {"finalizers": None}}
        await service.patch(JOB, "default", "j", "merge", freed, PERSON)
        assert isinstance(await failure(service.get(JOB, "default", "j")), NotFound)

    served(tmp_path, test)


def test_background_deletion_is_answered_with_a_status(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        created = await create(service, a_job())
        options = DeleteOptions(propagation="Background")
        answer = read((await service.delete(JOB, "default", "j", options)).document)
        assert answer["kind"] == "Status"
        assert answer["status"] == "Success"
        assert answer["details"] == {
            "name": "j",
            "group": "batch",
            "kind": "jobs",
            "uid": created["metadata"]["uid"],
        }

    served(tmp_path, test)


def test_foreground_deletion_adds_its_finalizer_and_background_strips_it(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await create(service, a_job(finalizers=["example.com/mine"]))
        foreground = DeleteOptions(propagation="Foreground")
        answer = read((await service.delete(JOB, "default", "j", foreground)).document)
        assert answer["metadata"]["finalizers"] == ["example.com/mine", "foregroundDeletion"]
        background = DeleteOptions(propagation="Background")
        answer = read((await service.delete(JOB, "default", "j", background)).document)
        assert answer["metadata"]["finalizers"] == ["example.com/mine"]

    served(tmp_path, test)


def test_preconditions_protect_from_deleting_something_else(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        created = await create(service, a_job())
        uid = created["metadata"]["uid"]
        refused = await failure(service.delete(JOB, "default", "j", DeleteOptions(uid="A")))
        assert refused.message == (
            'Operation cannot be fulfilled on Job.batch "j": the UID in the precondition (A) does '
            f"not match the UID in record ({uid}). The object might have been deleted and then "
            "recreated"
        )
        stale = DeleteOptions(resource_version="1")
        assert isinstance(await failure(service.delete(JOB, "default", "j", stale)), Conflict)

    served(tmp_path, test)


def test_no_finalizer_may_be_added_to_a_deleting_object(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await create(service, a_map("m", finalizers=["a.b/c"]), CONFIGMAP)
        await service.delete(CONFIGMAP, "default", "m", DeleteOptions())
        patch = {"metadata": {"finalizers": ["a.b/c", "a/b"]}}
        refused = await failure(service.patch(CONFIGMAP, "default", "m", "merge", patch, PERSON))
        assert refused.message.endswith(
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is "
            'being deleted, found new finalizers []string{"a/b"}'
        )

    served(tmp_path, test)


def test_a_scheduled_pod_is_given_its_grace_and_a_repeat_may_only_shorten_it(
    tmp_path: Path,
) -> None:
    async def test(service: Service) -> None:
        await create(service, a_pod(), POD)
        binding = {"target": {"name": "n"}}
        await service.create(POD, "default", binding, PERSON, name="p", subresource="binding")
        answer = read((await service.delete(POD, "default", "p", DeleteOptions())).document)
        assert answer["metadata"]["deletionGracePeriodSeconds"] == 30
        assert answer["metadata"]["deletionTimestamp"] == "2026-01-01T12:00:30Z"
        longer = DeleteOptions(grace_seconds=60)
        answer = read((await service.delete(POD, "default", "p", longer)).document)
        assert answer["metadata"]["deletionGracePeriodSeconds"] == 30
        shorter = DeleteOptions(grace_seconds=5)
        answer = read((await service.delete(POD, "default", "p", shorter)).document)
        assert answer["metadata"]["deletionGracePeriodSeconds"] == 5
        await service.delete(POD, "default", "p", DeleteOptions(grace_seconds=0))
        assert isinstance(await failure(service.get(POD, "default", "p")), NotFound)

    served(tmp_path, test)


def test_an_unscheduled_pod_vanishes_at_once_and_is_the_answer(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await create(service, a_pod(), POD)
        answer = read((await service.delete(POD, "default", "p", DeleteOptions())).document)
        assert answer["kind"] == "Pod"
        assert isinstance(await failure(service.get(POD, "default", "p")), NotFound)

    served(tmp_path, test)


def test_a_collection_is_deleted_by_selector(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        for name in "abc":
            await create(service, a_map(name, labels={"k": "x" if name < "c" else "y"}), CONFIGMAP)
        chosen = ListOptions(label_selector="k=x")
        gone = await service.delete_collection(CONFIGMAP, "default", chosen, DeleteOptions())
        assert [read(d)["metadata"]["name"] for d in gone.documents] == ["a", "b"]
        left = await service.list(CONFIGMAP, "default", ListOptions())
        assert [read(d)["metadata"]["name"] for d in left.documents] == ["c"]

    served(tmp_path, test)


# --- Pods ---------------------------------------------------------------------------------


def test_a_pod_is_bound_once(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await create(service, a_pod(), POD)
        binding = {"target": {"name": "n"}}

        async def bind() -> Doc:
            outcome = await service.create(
                POD, "default", dict(binding), PERSON, name="p", subresource="binding"
            )
            return read(outcome.document)

        assert (await bind())["code"] == 201
        pod = read(await service.get(POD, "default", "p"))
        assert pod["spec"]["nodeName"] == "n"
        assert pod["status"]["conditions"][0]["type"] == "PodScheduled"
        refused = await failure(bind())
        assert isinstance(refused, Conflict)
        assert refused.details["kind"] == "pods/binding"
        assert 'pod p is already assigned to node "n"' in refused.message

    served(tmp_path, test)


@pytest.mark.parametrize("seconds", [260_000_000_000, 2**63 - 1])
def test_a_grace_beyond_the_calendar_ends_with_it(tmp_path: Path, seconds: int) -> None:
    """The field is 64 bits wide, and Kubernetes accepts any number."""

    async def test(service: Service) -> None:
        pod = a_pod()
        pod["spec"]["terminationGracePeriodSeconds"] = seconds
        await create(service, pod, POD)
        binding = {"target": {"name": "n"}}
        await service.create(POD, "default", binding, PERSON, name="p", subresource="binding")
        answer = read((await service.delete(POD, "default", "p", DeleteOptions())).document)
        asked_at = datetime.fromisoformat(answer["metadata"]["deletionTimestamp"]) - timedelta(
            seconds=answer["metadata"]["deletionGracePeriodSeconds"]
        )
        assert answer["metadata"]["deletionTimestamp"] == "9999-12-31T23:59:59Z"
        assert asked_at == datetime(2026, 1, 1, 12, tzinfo=UTC)
        shorter = DeleteOptions(grace_seconds=5)
        answer = read((await service.delete(POD, "default", "p", shorter)).document)
        assert answer["metadata"]["deletionTimestamp"] == "2026-01-01T12:00:05Z"

    served(tmp_path, test)


def test_an_evicted_pod_is_marked_and_deleted_with_its_grace(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await create(service, a_pod(), POD)
        binding = {"target": {"name": "n"}}
        await service.create(POD, "default", binding, PERSON, name="p", subresource="binding")
        other = {"metadata": {"name": "q"}}
        wrong = await failure(
            service.create(POD, "default", other, PERSON, name="p", subresource="eviction")
        )
        assert wrong.message == "name in URL does not match name in Eviction object"
        await service.create(POD, "default", {}, PERSON, name="p", subresource="eviction")
        pod = read(await service.get(POD, "default", "p"))
        assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
        disruption = pod["status"]["conditions"][-1]
        assert disruption["type"] == "DisruptionTarget"
        assert disruption["reason"] == "EvictionByEvictionAPI"
        assert disruption["message"] == "Eviction API: evicting"

    served(tmp_path, test)


# --- lists and watches --------------------------------------------------------------------


def names(documents: tuple[bytes, ...]) -> list[str]:
    return [read(document)["metadata"]["name"] for document in documents]


def test_pages_show_one_moment(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        for name in "abcde":
            await create(service, a_map(name), CONFIGMAP)
        first = await service.list(CONFIGMAP, "default", ListOptions(limit=2))
        assert names(first.documents) == ["a", "b"]
        assert first.remaining == 3
        await service.delete(CONFIGMAP, "default", "c", DeleteOptions())
        await create(service, a_map("cc"), CONFIGMAP)
        token = first.continue_token
        second = await service.list(CONFIGMAP, "", ListOptions(limit=2, continue_token=token))
        assert names(second.documents) == ["c", "d"]
        assert second.revision == first.revision
        token = second.continue_token
        third = await service.list(CONFIGMAP, "", ListOptions(limit=2, continue_token=token))
        assert names(third.documents) == ["e"]
        assert third.continue_token == ""

    served(tmp_path, test)


def test_a_list_can_show_an_exact_moment_of_the_past(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await create(service, a_map("a"), CONFIGMAP)
        then = str(service.store.revision)
        await create(service, a_map("b"), CONFIGMAP)
        exact = ListOptions(resource_version=then, resource_version_match="Exact")
        assert names((await service.list(CONFIGMAP, "default", exact)).documents) == ["a"]
        newer = ListOptions(resource_version=then, resource_version_match="NotOlderThan")
        assert names((await service.list(CONFIGMAP, "default", newer)).documents) == ["a", "b"]

    served(tmp_path, test)


def test_a_page_full_of_matches_continues_where_it_stopped(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        for name in "abcdef":
            await create(service, a_map(name, labels={"odd": str(ord(name) % 2)}), CONFIGMAP)
        found: list[str] = []
        token = ""
        while True:
            page = await service.list(
                CONFIGMAP,
                "default",
                ListOptions(label_selector="odd=1", limit=1, continue_token=token),
            )
            found += names(page.documents)
            assert page.remaining is None, "with a selector nobody knows"
            token = page.continue_token
            if not token:
                break
        assert found == ["a", "c", "e"]

    served(tmp_path, test)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (ListOptions(continue_token="nonsense"), BadRequest),
        (ListOptions(resource_version="x"), BadRequest),
        (ListOptions(resource_version="999999"), Timeout),
        (ListOptions(label_selector="a b c"), BadRequest),
        (ListOptions(field_selector="junk"), BadRequest),
        (ListOptions(field_selector="spec.foo=1"), BadRequest),
    ],
)
def test_bad_list_options_are_refused(
    tmp_path: Path, options: ListOptions, error: type[ApiError]
) -> None:
    async def test(service: Service) -> None:
        assert isinstance(await failure(service.list(JOB, "default", options)), error)

    served(tmp_path, test)


def test_field_selectors_choose_by_name_and_by_the_kinds_own_fields(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        for name in "abc":
            await create(service, a_pod(name), POD)
        binding = {"target": {"name": "n"}}
        await service.create(POD, "default", binding, PERSON, name="b", subresource="binding")
        for selector, expected in [
            ("metadata.name=b", ["b"]),
            ("metadata.name!=b", ["a", "c"]),
            ("spec.nodeName=n", ["b"]),
            ("spec.nodeName=", ["a", "c"]),
            ("status.phase=Pending,spec.nodeName!=n", ["a", "c"]),
        ]:
            found = await service.list(POD, "default", ListOptions(field_selector=selector))
            assert names(found.documents) == expected, selector

    served(tmp_path, test)


async def collect(
    service: Service, options: WatchOptions, count: int, kind: Any = CONFIGMAP
) -> list[WatchEvent]:
    events: list[WatchEvent] = []
    async with asyncio.timeout(100):
        async for batch in service.watch(kind, "default", options):
            events.extend(batch)
            if len(events) >= count:
                break
    return events


def told(events: list[WatchEvent]) -> list[tuple[str, str]]:
    return [(event.type, read(event.document)["metadata"].get("name", "")) for event in events]


def test_a_watch_from_a_revision_shows_everything_after_it(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await create(service, a_map("a"), CONFIGMAP)
        start = str(service.store.revision)
        await create(service, a_map("b"), CONFIGMAP)
        await service.patch(CONFIGMAP, "default", "a", "merge", {"data": {"k": "w"}}, PERSON)
        await service.delete(CONFIGMAP, "default", "a", DeleteOptions())
        events = await collect(service, WatchOptions(resource_version=start), 3)
        assert told(events) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "a")]
        last = read(events[-1].document)
        assert last["metadata"]["resourceVersion"] == str(events[-1].revision)
        assert [event.revision for event in events] == sorted(event.revision for event in events)

    served(tmp_path, test)


def test_watch_without_revision_begins_with_existing_objects(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await create(service, a_map("a"), CONFIGMAP)
        watching = asyncio.create_task(collect(service, WatchOptions(), 2))
        await asyncio.sleep(1)
        await create(service, a_map("b"), CONFIGMAP)
        assert told(await watching) == [("ADDED", "a"), ("ADDED", "b")]

    served(tmp_path, test)


def test_initial_events_end_with_a_marked_bookmark(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await create(service, a_map("a"), CONFIGMAP)
        options = WatchOptions(send_initial_events=True, allow_bookmarks=True)
        events = await collect(service, options, 2)
        assert [event.type for event in events] == ["ADDED", "BOOKMARK"]
        bookmark = read(events[1].document)
        assert bookmark["kind"] == "ConfigMap"
        assert bookmark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert bookmark["metadata"]["resourceVersion"] == str(service.store.revision)

    served(tmp_path, test)


def test_objects_enter_and_leave_a_selected_watch(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        start = str(service.store.revision)
        await create(service, a_map("a"), CONFIGMAP)
        for value in ("x", "x2", None):
            patch = {"metadata": {"labels": {"k": value}}}
            await service.patch(CONFIGMAP, "default", "a", "merge", patch, PERSON)
        options = WatchOptions(resource_version=start, label_selector="k")
        events = await collect(service, options, 3)
        assert told(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
        assert read(events[-1].document)["metadata"]["labels"] == {"k": "x2"}

    served(tmp_path, test)


def test_bookmarks_come_only_when_asked_for_and_a_timeout_ends_the_watch(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        start = str(service.store.revision)
        quiet = WatchOptions(resource_version=start, timeout_seconds=200)
        assert [batch async for batch in service.watch(CONFIGMAP, "default", quiet)] == []
        asked = WatchOptions(resource_version=start, timeout_seconds=200, allow_bookmarks=True)
        batches = [batch async for batch in service.watch(CONFIGMAP, "default", asked)]
        assert [event.type for batch in batches for event in batch] == ["BOOKMARK"] * 3

    served(tmp_path, test)


def test_a_watch_that_is_never_idle_gets_its_bookmarks_and_ends_in_time(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await create(service, a_map("a"), CONFIGMAP)
        start = service.store.revision

        async def write() -> None:
            for number in itertools.count():
                patch = {"data": {"k": str(number)}}
                await service.patch(CONFIGMAP, "default", "a", "merge", patch, PERSON)
                await asyncio.sleep(0.25)

        writing = asyncio.create_task(write())
        options = WatchOptions(
            resource_version=str(start), timeout_seconds=200, allow_bookmarks=True
        )
        batches = [batch async for batch in service.watch(CONFIGMAP, "default", options)]
        assert asyncio.get_running_loop().time() == pytest.approx(200, abs=1)
        writing.cancel()
        events = [event for batch in batches for event in batch]
        assert sum(event.type == "BOOKMARK" for event in events) == 3
        # A bookmark is never newer than the events sent.
        shown = start
        for event in events:
            if event.type == "BOOKMARK":
                assert event.revision == shown
            shown = event.revision

    served(tmp_path, test)


def test_a_watch_from_the_forgotten_past_is_expired(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        for number in range(300):
            patch = {"data": {"k": str(number)}}
            if number == 0:
                await create(service, a_map("a"), CONFIGMAP)
            await service.patch(CONFIGMAP, "default", "a", "merge", patch, PERSON)
        await asyncio.sleep(3600)
        await service.patch(CONFIGMAP, "default", "a", "merge", {"data": {"k": "z"}}, PERSON)
        await asyncio.sleep(3600)
        assert service.store.compacted > 2
        gone = await failure(collect(service, WatchOptions(resource_version="2"), 1))
        assert isinstance(gone, Expired)
        assert gone.message == f"too old resource version: 2 ({service.store.compacted})"

    served(tmp_path, test)


# --- kinds with two names -----------------------------------------------------------------


def test_events_are_the_same_objects_under_both_of_their_names(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        core, other = BY_RESOURCE["events"], BY_RESOURCE["events.events.k8s.io"]
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": "e", "namespace": "default"},
            "regarding": {"kind": "Job", "name": "j", "namespace": "default"},
            "note": "it happened",
            "reason": "Because",
            "action": "Do",
            "type": "Normal",
            "reportingController": "example.com/c",
            "reportingInstance": "c-1",
            "eventTime": "2026-01-01T12:00:00.000000Z",
        }
        start = str(service.store.revision)
        created = read((await service.create(other, "default", dict(body), PERSON)).document)
        assert created["note"] == "it happened"
        assert created["apiVersion"] == "events.k8s.io/v1"
        seen = read(await service.get(core, "default", "e"))
        assert seen["message"] == "it happened"
        assert seen["involvedObject"]["name"] == "j"
        assert seen["apiVersion"] == "v1"
        patch = {"note": "again", "series": {"count": 2}}
        patched = await service.patch(other, "default", "e", "merge", patch, PERSON)
        assert read(patched.document)["note"] == "again"
        listed = await service.list(other, "default", ListOptions())
        assert [read(document)["note"] for document in listed.documents] == ["again"]
        events = await collect(service, WatchOptions(resource_version=start), 2, other)
        assert [read(event.document)["note"] for event in events] == ["it happened", "again"]

    served(tmp_path, test)
