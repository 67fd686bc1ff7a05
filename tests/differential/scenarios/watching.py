"""Lists, watches and tables."""

from typing import Any

from tests.differential.documents import job
from tests.differential.registry import scenario
from tests.differential.side import Document, Side


def _told(events: list[Document]) -> list[Any]:
    return [
        [event["type"], event["object"].get("metadata", {}).get("name", "")] for event in events
    ]


async def _three(it: Side) -> str:
    """Create three suspended Jobs, each with a label; return the revision before them."""
    answer = await it.send("GET", it.path("jobs"))
    for name in ("a", "b", "c"):
        document = job(name, managedBy="example.com/nobody")
        document["metadata"]["labels"] = {"app": name, "all": "yes"}
        await it.create("jobs", document)
    version: str = answer.json()["metadata"]["resourceVersion"]
    return version


@scenario
async def changes_since_a_revision(it: Side) -> None:
    before = await _three(it)
    await it.patch("jobs", "b", {"metadata": {"labels": {"x": "y"}}})
    await it.delete("jobs", "c", propagationPolicy="Background")
    events = await it.watch(
        "jobs", until=lambda event: event["type"] == "DELETED", resourceVersion=before
    )
    it.show("events", _told(events))


@scenario
async def objects_enter_and_leave_a_selection(it: Side) -> None:
    before = await _three(it)
    await it.patch("jobs", "a", {"metadata": {"labels": {"app": "b"}}})
    await it.patch("jobs", "b", {"metadata": {"labels": {"app": "z"}}})
    await it.delete("jobs", "a", propagationPolicy="Background")
    events = await it.watch(
        "jobs",
        until=lambda event: (
            event["type"] == "DELETED" and event["object"]["metadata"]["name"] == "a"
        ),
        resourceVersion=before,
        labelSelector="app=b",
    )
    it.show("events", _told(events))


@scenario
async def initial_events_and_their_end(it: Side) -> None:
    await _three(it)
    events = await it.watch(
        "jobs",
        until=lambda event: event["type"] == "BOOKMARK",
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    )
    it.show("events", sorted(_told(events)))
    it.show("annotations", events[-1]["object"]["metadata"]["annotations"])


@scenario
async def watches_that_are_refused(it: Side) -> None:
    for query in (
        {"resourceVersion": "much"},
        {"sendInitialEvents": "true"},
        {"sendInitialEvents": "true", "resourceVersionMatch": "Exact", "resourceVersion": "1"},
        {"labelSelector": "a in"},
        {"fieldSelector": "spec.nothing=1"},
        {"timeoutSeconds": "soon"},
    ):
        events = await it.watch("jobs", until=lambda _: True, **query)
        it.show(f"watch with {query}", events)


@scenario
async def lists_that_are_refused(it: Side) -> None:
    for query in (
        {"resourceVersion": "much"},
        {"resourceVersionMatch": "Exact"},
        {"resourceVersionMatch": "Perhaps", "resourceVersion": "1"},
        {"limit": "many"},
        {"continue": "nonsense"},
        {"labelSelector": "a=b=c"},
        {"fieldSelector": "spec.nothing=1"},
        {"fieldSelector": "nonsense"},
    ):
        await it.ask("GET", it.path("jobs"), query=query)


@scenario
async def pages(it: Side) -> None:
    await _three(it)
    first = await it.ask("GET", it.path("jobs"), query={"limit": "2"})
    it.show("first", [item["metadata"]["name"] for item in first["items"]])
    it.show("remaining", first["metadata"].get("remainingItemCount"))
    token = first["metadata"]["continue"]
    await it.create("jobs", job("bb", managedBy="example.com/nobody"))
    rest = await it.ask("GET", it.path("jobs"), query={"limit": "2", "continue": token})
    it.show("rest", [item["metadata"]["name"] for item in rest["items"]])


@scenario
async def selections(it: Side) -> None:
    await _three(it)
    for query in (
        {"labelSelector": "app=a"},
        {"labelSelector": "app!=a"},
        {"labelSelector": "app in (a,c),all"},
        {"labelSelector": "!app"},
        {"fieldSelector": "metadata.name=b"},
        {"fieldSelector": "status.successful=0"},
        {"fieldSelector": "metadata.name!=b"},
    ):
        found = await it.ask("GET", it.path("jobs"), query=query)
        it.show(f"{query}", [item["metadata"]["name"] for item in found.get("items", ())])


@scenario
async def tables_of_jobs_and_pods(it: Side) -> None:
    await it.create("jobs", job(completions=2, parallelism=2))
    pods = await it.pods("j", 2)
    await it.start(pods[:1])
    await it.settle()
    await it.show_table("jobs")
    await it.show_table("pods")


@scenario
async def a_pod_that_cannot_be_bound_twice(it: Side) -> None:
    await it.create("jobs", job())
    (pod,) = await it.pods("j", 1)
    name = pod["metadata"]["name"]
    target = {"apiVersion": "v1", "kind": "Node", "name": "ghost"}
    binding = {
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target
    }  # fmt: skip
    for document in (
        {**binding, "target": {}},
        {**binding, "target": {**target, "kind": "Job"}},
        binding,
        binding,
        {**binding, "metadata": {"name": "another"}},
    ):
        await it.ask("POST", it.path("pods", name, "binding"), document, whole=True)


@scenario
async def an_eviction(it: Side) -> None:
    await it.create("jobs", job())
    pods = await it.pods("j", 1)
    await it.start(pods)
    name = pods[0]["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    await it.ask("POST", it.path("pods", name, "eviction"), eviction, whole=True)
    await it.settle("evicted")
    await it.reap()
    await it.pods("j", 1)
    await it.settle()


@scenario
async def what_is_not_served(it: Side) -> None:
    for method, path in (
        ("GET", it.path("jobs", "absent")),
        ("GET", "/apis/batch/v1/nonsense"),
        ("GET", "/apis/batch/v9/jobs"),
        ("GET", "/apis/batch/v9"),
        ("GET", "/api/v9/pods"),
        ("GET", "/apis/absent.example/v1/things"),
        ("GET", "/nonsense"),
        ("POST", it.path("jobs", "absent")),
        ("PUT", it.path("jobs")),
        ("PATCH", it.path("jobs")),
        ("GET", it.path("jobs", "absent", "nonsense")),
        ("DELETE", "/apis/batch/v1/jobs"),
    ):
        await it.ask(method, path)
