"""Bounds on the memory, CPU time and response size of requests.

Counted here; `python -m tests.api.worst_requests` measures.
"""

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from onejob.api import yielding
from onejob.api.decoding.bodies import decode_body, decode_patch, weight
from onejob.api.decoding.json_reading import MAX_VALUES
from onejob.api.http.negotiation import Form, Media, Representation
from onejob.api.http.representations import enclosed_yaml, list_pieces
from onejob.api.http.requests import UserRequest
from onejob.api.http.streams import Rendering, in_slices
from onejob.api.service import Service
from onejob.api.writing.context import MAX_OBJECT_BYTES
from onejob.api.writing.field_sets import in_order
from onejob.api.writing.rehearsal import rehearsed
from onejob.api.writing.writes import Writes
from onejob.api.yielding import INLINE_BYTES, Turns, Worker
from onejob.objects.meta import Key
from onejob.planning.cronjob import schedule
from onejob.planning.cronjob.schedule import MAX_SCHEDULE_LENGTH, ScheduleError, parse_schedule
from onejob.wire import names, quantity, timestamps
from onejob.wire.errors import MAX_CAUSES, ApiError, BadRequest, Conflict, Invalid, RequestTooLarge
from onejob.wire.requests import (
    NOWHERE,
    DeleteOptions,
    ListOptions,
    ListOutcome,
    Outcome,
    Target,
    WatchEvent,
    WriteOptions,
)
from tests.api import worst_cases
from tests.api.service_support import (
    CONFIGMAP,
    PERSON,
    POD,
    a_map,
    a_pod,
    a_service,
    create,
    failure,
    read,
    served,
)

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
TRUSTED = WriteOptions(trusted=True)


def a_large_map(name: str, values: int = 2000) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {f"k{n}": "v" * 10 for n in range(values)}}


# --- reading bodies ---------------------------------------------------------------------------


@pytest.mark.parametrize("item", [b"[]", b"{}", b"0", b'""', b'{"a":0}', b'{"a":0,"a":1}'])
def test_a_document_of_too_many_values_is_refused_before_it_is_read(item: bytes) -> None:
    with pytest.raises(RequestTooLarge, match="more than 100000 values"):
        decode_body(worst_cases.in_list(item), JSON)


def test_commas_and_brackets_in_texts_are_no_values() -> None:
    text = 'a,"b",\\,[{' * MAX_VALUES
    body = msgspec.json.encode({"data": {"table": text}})
    assert decode_body(body, JSON).document == {"data": {"table": text}}


def test_duplicate_fields_are_named_up_to_a_number_and_a_length() -> None:
    inner = ",".join(f'"a{n}":0,"a{n}":0' for n in range(1000))
    body = '{"' + "k" * 100_000 + '":{' + inner + "}}"
    problems = decode_body(body.encode(), JSON).problems
    assert len(problems) == 100
    assert max(map(len, problems)) < 2000
    assert problems[0].startswith('duplicate field "kkk')


def test_duplicate_keys_of_yaml_are_named_up_to_a_number_and_a_length() -> None:
    lines = [f"{'k' * 900}{n % 500}: 0" for n in range(1000)]
    problems = decode_body("\n".join(lines).encode(), YAML).problems
    assert len(problems) == 100
    assert max(map(len, problems)) < 2000


def test_texts_repeated_by_aliases_count_as_often_as_they_are_used() -> None:
    with pytest.raises(BadRequest, match="characters, aliases included"):
        decode_body(worst_cases.yaml_string_aliases(25_000, 2_000), YAML)
    with pytest.raises(BadRequest, match="characters, aliases included"):
        decode_body(b"a: &a {" + b"k" * 1000 + b": 1}\nb: [" + b"*a, " * 5000 + b"]\n", YAML)


def test_directives_of_yaml_are_few() -> None:
    with pytest.raises(BadRequest, match="too many directives"):
        decode_body(worst_cases.yaml_tag_directives(), YAML)


@pytest.mark.parametrize("field", [b"\x0a\x00", b"\x78\x00", b"\x12\x00"])
def test_a_protobuf_body_of_too_many_fields_is_refused(field: bytes) -> None:
    with pytest.raises(RequestTooLarge, match="fields"):
        decode_body(worst_cases.protobuf(field * 300_000), PROTOBUF)
    with pytest.raises(RequestTooLarge, match="fields"):
        decode_body(b"k8s\x00" + b"\x0a\x00" * 300_000, PROTOBUF)
    # The budget is each body's own.
    assert decode_body(worst_cases.protobuf(field * 1000), PROTOBUF).document["kind"] == "Pod"


def test_a_small_body_that_stands_for_much_counts_as_large() -> None:
    assert weight(b"a: [*a]", YAML) > INLINE_BYTES
    assert weight(b'[{"op":"copy"}]', "application/json-patch+json") > INLINE_BYTES
    assert weight(b'{"a":"copy*"}', JSON) == len(b'{"a":"copy*"}')


# --- answers ----------------------------------------------------------------------------------


def test_an_answer_names_the_first_causes_and_how_many_more(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        labels = {f"-{n}": "good" for n in range(500)}
        refused = await failure(create(service, a_map("m", labels=labels), CONFIGMAP))
        assert isinstance(refused, Invalid)
        causes = refused.status()["details"]["causes"]
        assert len(causes) == MAX_CAUSES + 1
        assert causes[-1]["message"] == "and 400 more errors"
        assert refused.message.endswith("and 400 more errors]")

    served(tmp_path, test)


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"a": "-" * 1_000_000}},
        {"labels": {"-" * 1_000_000: "a"}},
        {"annotations": {"-" * 1_000_000: "a"}},
        {"name": "a." * 500_000},
        {"finalizers": ["-" * 1_000_000]},
        {"creationTimestamp": "2" * 1_000_000},
    ],
    ids=lambda metadata: "".join(metadata),
)
def test_error_message_truncates_long_values(tmp_path: Path, metadata: dict[str, Any]) -> None:
    async def test(service: Service) -> None:
        refused = await failure(create(service, {"metadata": {"name": "m", **metadata}}, CONFIGMAP))
        assert len(msgspec.json.encode(refused.status())) < 20_000
        assert "more characters)" in refused.message

    served(tmp_path, test)


def test_conflicts_of_an_apply_are_named_up_to_a_number(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        def applied(manager: str, value: str) -> Any:
            body = {
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"},
                "data": {f"k{n}": value for n in range(300)},
            }  # fmt: skip
            options = WriteOptions(PERSON.user, field_manager=manager)
            return service.patch(CONFIGMAP, "default", "m", "apply", body, options)

        await applied("a", "1")
        refused = await failure(applied("b", "2"))
        assert isinstance(refused, Conflict)
        assert refused.message.startswith("Apply failed with 300 conflicts: conflicts with")
        assert refused.message.endswith("and 200 more errors")
        assert len(refused.details["causes"]) == MAX_CAUSES

    served(tmp_path, test)


# --- objects ----------------------------------------------------------------------------------


def test_an_object_is_no_larger_than_etcd_would_take(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        large = a_pod()
        large["spec"]["containers"][0]["args"] = ["x" * 1000] * 1600
        for options in (PERSON, WriteOptions(PERSON.user, dry_run=True)):
            refused = await failure(service.create(POD, "default", dict(large), options))
            assert isinstance(refused, RequestTooLarge)
            assert "etcdserver: request is too large" in refused.message
            assert str(MAX_OBJECT_BYTES) in refused.message
        before = service.store.staged_revision
        await create(service, a_pod(), POD)
        assert service.store.staged_revision == before + 1
        patch = {"metadata": {"labels": {"a": "b"}}}
        await service.patch(POD, "default", "p", "merge", patch, PERSON)

    served(tmp_path, test)


def test_an_object_that_is_too_large_already_can_be_changed_but_not_grow(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        large = a_pod(finalizers=["a/b"])
        large["spec"]["containers"][0]["args"] = ["x" * 1000] * 1600
        # Written by a version without the limit.
        await service.create(POD, "default", large, TRUSTED)
        grown = {"metadata": {"labels": {"a": "b"}}}
        refused = await failure(service.patch(POD, "default", "p", "merge", grown, PERSON))
        assert isinstance(refused, RequestTooLarge)
        freed = {"metadata": {"finalizers": None}}
        outcome = await service.patch(POD, "default", "p", "merge", freed, PERSON)
        assert "finalizers" not in read(outcome.document)["metadata"]
        # Status reports of onejob itself are never refused.
        status = {"status": {"message": "x" * 100}}
        await service.patch(POD, "default", "p", "merge", status, TRUSTED, subresource="status")

    served(tmp_path, test)


# --- large writes -----------------------------------------------------------------------------


def test_a_large_write_is_the_same_as_a_small_one_but_on_another_thread(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        large = INLINE_BYTES + 1
        for name, size in (("inline", 0), ("worker", large)):
            body = a_map(name, labels={"a": "b"})
            created = await service.create(CONFIGMAP, "default", body, PERSON, size=size)
            assert created.code == 201
            body = read(created.document)
            body["data"]["k"] = "w"
            await service.update(CONFIGMAP, "default", name, body, PERSON, size=size)
            patch = {"data": {"l": "m"}}
            await service.patch(CONFIGMAP, "default", name, "merge", patch, PERSON, size=size)
        assert service.worker.runs == 3
        inline, worker = [
            read(await service.get(CONFIGMAP, "default", name)) for name in ("inline", "worker")
        ]
        assert int(worker["metadata"]["resourceVersion"]) == service.store.revision
        for document in (inline, worker):
            for field in ("name", "uid", "resourceVersion"):
                del document["metadata"][field]
        assert worker == inline
        refused = await failure(
            service.create(CONFIGMAP, "default", a_map("worker"), PERSON, size=large)
        )
        assert refused.reason == "AlreadyExists"
        refused = await failure(service.create(CONFIGMAP, "no", a_map("x"), PERSON, size=large))
        assert refused.reason == "NotFound"

    served(tmp_path, test)


def test_a_small_patch_of_a_large_object_is_large(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await create(service, a_large_map("m"), CONFIGMAP)
        await service.patch(CONFIGMAP, "default", "m", "merge", {"data": {"a": "b"}}, PERSON)
        assert service.worker.runs == 1
        patch = {"metadata": {"finalizers": ["a/b"]}}
        await service.patch(CONFIGMAP, "default", "m", "merge", patch, PERSON)
        await service.delete(CONFIGMAP, "default", "m", DeleteOptions())
        freed = {"metadata": {"finalizers": None}}
        gone = await service.patch(CONFIGMAP, "default", "m", "merge", freed, PERSON)
        metadata = read(gone.document)["metadata"]
        assert metadata["resourceVersion"] == str(gone.revision) == str(service.store.revision)
        assert (await failure(service.get(CONFIGMAP, "default", "m"))).reason == "NotFound"

    served(tmp_path, test)


def decided_with_interference(
    folder: Path, interferences: int
) -> tuple[list[int], ApiError | None]:
    """Patch a map while another client changes it `times` times.

    Return the values seen and the error.
    """
    seen: list[int] = []
    errors: list[ApiError] = []

    async def test(service: Service) -> None:
        await create(service, {"metadata": {"name": "m"}, "data": {"n": "0"}}, CONFIGMAP)
        loop = asyncio.get_running_loop()
        serve = threading.get_ident()

        async def interfere(number: int) -> None:
            patch = {"data": {"n": str(number)}}
            await service.patch(CONFIGMAP, "default", "m", "merge", patch, PERSON)

        def decide(writes: Writes) -> Outcome:
            assert threading.get_ident() != serve
            stored = writes.store.newest(Key("configmaps", "default", "m"))
            assert stored is not None
            seen.append(int(read(stored.value)["data"]["n"]))
            if len(seen) <= interferences:
                asyncio.run_coroutine_threadsafe(interfere(len(seen)), loop).result(30)
            target = Target(CONFIGMAP, "default", "m")
            return writes.patch(target, "merge", {"data": {"mine": "yes"}}, PERSON)

        keys = (Key("configmaps", "default", "m"),)
        try:
            outcome = await rehearsed(
                service.writes, keys, lambda writes: service.worker.run(decide, writes)
            )
        except ApiError as error:
            errors.append(error)
            return
        await service.durable(outcome.revision)
        stored = read(await service.get(CONFIGMAP, "default", "m"))
        assert stored["data"] == {"n": str(interferences), "mine": "yes"}
        assert stored["metadata"]["resourceVersion"] == str(outcome.revision)

    async def serve() -> None:
        async with a_service(folder) as service:
            await test(service)

    asyncio.run(serve())
    return seen, errors[0] if errors else None


def test_a_large_write_is_decided_again_when_its_object_changed_meanwhile(tmp_path: Path) -> None:
    assert decided_with_interference(tmp_path, 2) == ([0, 1, 2], None)


def test_a_large_write_gives_up_when_its_object_never_stays_the_same(tmp_path: Path) -> None:
    seen, error = decided_with_interference(tmp_path, 99)
    assert len(seen) == 5
    assert isinstance(error, Conflict)


async def test_large_requests_wait_for_each_other_and_not_without_end() -> None:
    worker = Worker()
    free = threading.Event()
    at_work = 0
    most = 0

    def work() -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        free.wait(30)
        at_work -= 1

    running = [asyncio.create_task(worker.run(work)) for _ in range(yielding._MAX_QUEUED_REQUESTS)]
    await asyncio.sleep(0)
    refused = await failure(worker.run(work))
    assert refused.code == 429
    assert refused.retry_after_seconds == 1
    free.set()
    await asyncio.gather(*running)
    assert (most, worker.runs) == (1, yielding._MAX_QUEUED_REQUESTS)


# --- long lists -------------------------------------------------------------------------------


class Spinner:
    """Counter of the turns that other tasks get on the event loop."""

    def __init__(self) -> None:
        self.turns = 0

    async def __aenter__(self) -> "Spinner":
        self._task = asyncio.create_task(self._spin())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def _spin(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)


async def test_work_is_cut_into_turns() -> None:
    async with Spinner() as spinner:
        own = Turns(budget=100)
        for _ in range(50):
            await own.spend(20)
        assert spinner.turns == 10


def test_others_have_their_turn_while_many_objects_are_matched_or_deleted(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        for n in range(40):
            document = a_map(f"m{n}")
            document["data"]["k"] = "v" * 100_000
            await create(service, document, CONFIGMAP)
        for selection in (
            ListOptions(label_selector="a!=b"),
            ListOptions(field_selector="metadata.namespace=default"),
        ):
            async with Spinner() as spinner:
                found = await service.list(CONFIGMAP, "default", selection)
            assert len(found.documents) == 40
            assert spinner.turns >= 40 * 100_000 // yielding.YIELD_INTERVAL_BYTES - 1
        # Each of a thousand terms is evaluated on each document.
        long = ListOptions(label_selector=",".join(f"a{n}!=b" for n in range(1000)))
        async with Spinner() as spinner:
            await service.list(CONFIGMAP, "default", long)
        assert spinner.turns >= 7
        async with Spinner() as spinner:
            deleted = await service.delete_collection(
                CONFIGMAP, "default", ListOptions(), DeleteOptions()
            )
        assert len(deleted.documents) == 40
        assert spinner.turns >= 40

    served(tmp_path, test)


def test_events_are_sent_in_slices_of_bytes() -> None:
    small = [WatchEvent("ADDED", NOWHERE, n, b"x" * 100) for n in range(1000)]
    large = [WatchEvent("ADDED", NOWHERE, n, b"x" * 1_000_000) for n in range(3)]
    for events in (small, large, [*large, *small, *large], small[:1], []):
        slices = list(in_slices(events))
        assert [event for turn in slices for event in turn] == events
        assert all(turn for turn in slices)
    assert [len(turn) for turn in in_slices(large)] == [1, 1, 1]
    assert max(len(turn) for turn in in_slices(small)) < 260


@pytest.mark.parametrize(
    ("media", "form", "runs"), [("json", "", 0), ("json", "Table", 1), ("protobuf", "", 1)]
)
def test_large_documents_are_made_for_watchers_by_the_worker(
    tmp_path: Path, media: Media, form: Form, runs: int
) -> None:
    async def test(service: Service) -> None:
        request = UserRequest("GET", {}, {}, PERSON.user)
        large = a_pod("large")
        large["spec"]["containers"][0]["args"] = ["x" * 1000] * 100
        for document, expected in ((a_pod(), 0), (large, runs)):
            created = await create(service, document, POD)
            lines = Rendering(service, POD, Representation(media, form), request)
            event = WatchEvent("ADDED", NOWHERE, 1, msgspec.json.encode(created))
            pieces = list(await lines.made([event]))
            again = Rendering(service, POD, Representation(media, form), request)
            assert b"".join(pieces) == b"".join(again.pieces([event]))
            assert service.worker.runs == expected

    served(tmp_path, test)


@pytest.mark.parametrize("count", [0, 1, 300])
def test_a_list_is_written_as_yaml_in_pieces(count: int) -> None:
    pods = [{**a_pod(f"p{n}", labels={"on": "yes", "n": str(n)})} for n in range(count)]
    outcome = ListOutcome(tuple(map(msgspec.json.encode, pods)), 7, "token", 3)
    as_json = b"".join(list_pieces(outcome, POD, ""))
    pieces = list(list_pieces(outcome, POD, "", enclosed_yaml))
    assert yaml.safe_load(b"".join(pieces)) == msgspec.json.decode(as_json)
    assert max(map(len, pieces)) < 50_000
    assert len(pieces) >= count / 100


def test_long_sorts_are_done_in_runs() -> None:
    paths = [(f"f:{n * 7919 % 10_007}", "f:a") for n in range(10_007)]
    ordered = in_order(paths)
    assert not isinstance(ordered, list)
    assert list(ordered) == sorted(paths)


# --- caches of texts --------------------------------------------------------------------------


def test_long_texts_are_not_remembered() -> None:
    def sizes() -> list[int]:
        caches = (
            names._qualified_name_errors, quantity._parse, quantity._canonical,
            timestamps._canonical_time, schedule._parse,
        )  # fmt: skip
        return [cache.cache_info().currsize for cache in caches]

    before = sizes()
    names.qualified_name_errors("a" * 1000)
    quantity.parse_quantity("0" * 900)
    quantity.canonical_quantity("0" * 900)
    timestamps.canonical_time("2026-01-01T00:00:00." + "0" * 1000 + "Z")
    with pytest.raises(ScheduleError):
        parse_schedule("*," * 1000 + "* * * * *")
    assert sizes() == before


def test_a_schedule_has_a_length() -> None:
    every = ["60", "24", "32", "13", "7"]
    fields = [",".join(map(str, range(n in (2, 3), int(top)))) for n, top in enumerate(every)]
    assert parse_schedule(" ".join(fields)).next is not None
    for text in ("*," * 2000 + " * * * *", "@every " + "1h" * 1000, "0" * 5000 + " * * * *"):
        with pytest.raises(ScheduleError, match=f"longer than {MAX_SCHEDULE_LENGTH} characters"):
            parse_schedule(text)


def test_a_patch_is_counted_like_any_body() -> None:
    operations = b"[" + b",".join([b"{}"] * 200_000) + b"]"
    with pytest.raises(RequestTooLarge):
        decode_patch(operations, "application/json-patch+json")
