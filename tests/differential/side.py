"""API for scenarios: one server, a namespace, a fake node, and a transcript.

The scenario plays the kubelet of the node. The transcript records the server's responses.
"""

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from tests.differential.normalising import in_order, normalised, table
from tests.differential.transports import Answer, Request, Transport

NODE: Final = "ghost"

_CORE: Final = (
    "pods", "events", "configmaps", "namespaces", "nodes", "secrets", "bindings", "services",
    "limitranges", "resourcequotas", "persistentvolumeclaims",
)  # fmt: skip
_PATCHES: Final = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
_TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
#: A state that lasts this long is taken for the outcome: upstream syncs a Job once a second, and
#: the shortest wait that scenarios examine is ten.
_SETTLED_SECONDS: Final = 3.0
_POLL_SECONDS: Final = 0.5
_PATIENCE_SECONDS: Final = 150.0
_AUDIT_POLLS: Final = 60
#: In annotations that number the webhooks of all configurations.
_INDEX: Final = re.compile(r"index_(\d+)$")

Document = dict[str, Any]


class NotReached(AssertionError):
    """The awaited state was not reached; the message has the last one."""


class Side:
    def __init__(self, transport: Transport, namespace: str) -> None:
        self.namespace = namespace
        self.steps: list[Document] = []
        self._transport = transport
        #: Random name -> placeholder.
        self._names: dict[str, str] = {}

    # --- requests -------------------------------------------------------------------------

    def path(self, resource: str, name: str = "", subresource: str = "") -> str:
        """Return the path of `jobs`, `cronjobs` or a core resource in this scenario's namespace."""
        root = "/api/v1" if resource in _CORE else "/apis/batch/v1"
        spaces = [] if resource in ("namespaces", "nodes") else ["namespaces", self.namespace]
        return "/".join([root, *spaces, *filter(None, (resource, name, subresource))])

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        raw = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        sent = {"Accept": "application/json", **(headers or {})}
        if raw:
            sent.setdefault("Content-Type", "application/json")
        return await self._transport.send(Request(method, path, query or {}, raw, sent))

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        whole: bool = False,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Document:
        """Send a request and record the response: errors completely, successes on request."""
        answer = await self.send(method, path, body, query=query, headers=headers)
        document: Document = _document(answer)
        self._learn(document)
        step: Document = {"ask": f"{method} {self._short(path)}", "code": answer.code}
        if answer.warnings:
            step["warnings"] = list(answer.warnings)
        if whole or answer.code >= 400:
            step["answer"] = document
        self.steps.append(step)
        return document

    async def ask_audited(self, method: str, path: str, body: Any = None) -> None:
        """Send a request and record the annotations of its event in the audit log, too."""
        identity = f"{self.namespace}-{len(self.steps)}"
        await self.ask(method, path, body, headers={"Audit-ID": identity})
        log, needle = self._transport.audit_log, f'"{identity}"'
        for _ in range(_AUDIT_POLLS):
            for line in log.read_text().splitlines():
                if needle in line and '"ResponseComplete"' in line:
                    notes = json.loads(line).get("annotations", {})
                    self.show("annotations", _from_first_index(notes))
                    return
            await asyncio.sleep(_POLL_SECONDS)
        raise NotReached(f"no event {identity} in {log}")

    async def create(self, resource: str, document: Document, *, whole: bool = False) -> Document:
        return await self.ask("POST", self.path(resource), document, whole=whole)

    async def patch(
        self,
        resource: str,
        name: str,
        body: Any,
        *,
        subresource: str = "",
        kind: str = "merge",
        whole: bool = False,
        query: Mapping[str, str] | None = None,
    ) -> Document:
        headers = {"Content-Type": _PATCHES[kind]}
        path = self.path(resource, name, subresource)
        return await self.ask("PATCH", path, body, whole=whole, headers=headers, query=query)

    async def delete(
        self, resource: str, name: str, *, whole: bool = False, **options: Any
    ) -> Document:
        body = {"kind": "DeleteOptions", "apiVersion": "v1", **options}
        return await self.ask("DELETE", self.path(resource, name), body, whole=whole)

    async def get(self, resource: str, name: str, subresource: str = "") -> Document:
        """Return an object, without recording it. Raises NotReached if it does not exist."""
        answer = await self.send("GET", self.path(resource, name, subresource))
        if answer.code != 200:
            raise NotReached(f"GET {resource}/{name}: {answer.code} {answer.body!r}")
        return answer.json()

    async def items(self, resource: str, selector: str = "") -> list[Document]:
        query = {"labelSelector": selector} if selector else {}
        answer = await self.send("GET", self.path(resource), query=query)
        if answer.code != 200:
            raise NotReached(f"GET {resource}: {answer.code} {answer.body!r}")
        found: list[Document] = answer.json()["items"]
        for item in found:
            self._learn(item)
        return found

    async def show_table(self, resource: str, name: str = "") -> None:
        answer = await self.send("GET", self.path(resource, name), headers={"Accept": _TABLE})
        self.show(f"table of {resource}", table(answer.json()))

    async def watch(
        self, resource: str, *, until: Callable[[Document], bool], **query: str
    ) -> list[Document]:
        """Return the events up to the first for which `until` holds, or to the end of the watch."""
        return await self._watched(self.path(resource), query, until)

    async def watch_path(self, path: str, *, events: int) -> list[Document]:
        """Return the first events of a watch."""
        left = iter(range(events - 1, -1, -1))
        return await self._watched(path, {}, lambda event: next(left) == 0)

    async def _watched(
        self, path: str, query: Mapping[str, str], until: Callable[[Document], bool]
    ) -> list[Document]:
        query = {"watch": "1", "timeoutSeconds": "60", **query}
        request = Request("GET", path, query, b"", {"Accept": "application/json"})
        events: list[Document] = []
        async with aclosing(self._transport.lines(request)) as lines:
            code = int(await anext(lines))
            async for line in lines:
                if not line.strip():
                    continue
                event = json.loads(line)
                if code != 200:
                    return [{"code": code, "answer": event}]
                events.append(event)
                self._learn(event["object"])
                if until(event):
                    break
        return events

    # --- the transcript -------------------------------------------------------------------

    def show(self, what: str, value: Any) -> None:
        self.steps.append({"show": what, "value": value})

    def hide(self, text: str, placeholder: str) -> None:
        """Show a placeholder for a text that differs between servers or runs."""
        self._names[text] = placeholder

    def transcript(self) -> list[Document]:
        steps: list[Document] = normalised(self.steps, self._names)
        return steps

    def _short(self, path: str) -> str:
        return path.replace(f"/namespaces/{self.namespace}", "").rpartition("v1/")[2]

    def _learn(self, document: Any) -> None:
        metadata = document.get("metadata") if isinstance(document, dict) else None
        if isinstance(metadata, dict) and metadata.get("generateName") and metadata.get("name"):
            self._names[metadata["name"]] = metadata["generateName"] + "*"

    # --- state ----------------------------------------------------------------------------

    async def settle(self, what: str = "outcome") -> Document:
        """Wait until nothing changes any more, and record the state in the transcript."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + _PATIENCE_SECONDS
        state, since = await self.state(), loop.time()
        while loop.time() - since < _SETTLED_SECONDS:
            await asyncio.sleep(2 * _POLL_SECONDS)
            seen = await self.state()
            if seen != state:
                state, since = seen, loop.time()
            if loop.time() > give_up:
                raise NotReached(f"nothing comes to rest: {json.dumps(state)[:2000]}")
        self.show(what, state)
        return state

    async def state(self) -> Document:
        """Return the comparable parts of Jobs, CronJobs, Pods and events."""
        jobs, cronjobs, pods, events = await asyncio.gather(
            *(self.items(resource) for resource in ("jobs", "cronjobs", "pods", "events"))
        )
        state = {
            "jobs": {job["metadata"]["name"]: _job_facts(job) for job in jobs},
            "cronjobs": {one["metadata"]["name"]: _cronjob_facts(one) for one in cronjobs},
            "pods": in_order([normalised(_pod_facts(pod), self._names) for pod in pods]),
            "events": _event_facts(normalised(events, self._names)),
        }
        shown: Document = normalised(
            {key: part for key, part in state.items() if part}, self._names
        )
        return shown

    async def until(
        self,
        resource: str,
        name: str,
        holds: Callable[[Document], bool],
        *,
        seconds: float = _PATIENCE_SECONDS,
    ) -> Document:
        """Return the object, once `holds` is true for it."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + seconds
        while True:
            answer = await self.send("GET", self.path(resource, name))
            document = answer.json()
            if answer.code == 200 and holds(document):
                return document
            if loop.time() > give_up:
                raise NotReached(f"{resource}/{name} is {json.dumps(document)[:2000]}")
            await asyncio.sleep(_POLL_SECONDS)

    async def first_event(self, reason: str) -> Document:
        """Return the first event of the namespace with this reason, once it exists."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + _PATIENCE_SECONDS
        while True:
            found = [event for event in await self.items("events") if event["reason"] == reason]
            if found:
                return found[0]
            if loop.time() > give_up:
                raise NotReached(f"no event {reason}")
            await asyncio.sleep(_POLL_SECONDS)

    async def until_gone(self, resource: str, name: str) -> None:
        loop = asyncio.get_running_loop()
        give_up = loop.time() + _PATIENCE_SECONDS
        while (await self.send("GET", self.path(resource, name))).code != 404:
            if loop.time() > give_up:
                raise NotReached(f"{resource}/{name} is still there")
            await asyncio.sleep(_POLL_SECONDS)

    async def pods(self, job: str, count: int = 0) -> list[Document]:
        """Return the Job's live Pods, by index and then by age, once there are at least `count`.

        Finished Pods and terminating ones are omitted.
        """
        loop = asyncio.get_running_loop()
        give_up = loop.time() + _PATIENCE_SECONDS
        while True:
            found = [
                pod
                for pod in await self.items("pods", f"job-name={job}")
                if pod["status"].get("phase") not in ("Succeeded", "Failed")
                and "deletionTimestamp" not in pod["metadata"]
            ]
            if len(found) >= count:
                return sorted(found, key=_by_index)
            if loop.time() > give_up:
                raise NotReached(f"{len(found)} Pods of {job}, not {count}")
            await asyncio.sleep(_POLL_SECONDS)

    # --- the kubelet ----------------------------------------------------------------------

    def now(self) -> str:
        return self._transport.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def seconds(self) -> float:
        """Return the time of a monotonic clock."""
        return asyncio.get_running_loop().time()

    async def start(self, pods: Sequence[Document], *, ready: bool = True) -> None:
        """Bind the Pods to the node and report that they run."""
        for pod in pods:
            name = pod["metadata"]["name"]
            if not pod["spec"].get("nodeName"):
                await self._quiet(
                    "POST",
                    self.path("pods", name, "binding"),
                    {
                        "apiVersion": "v1",
                        "kind": "Binding",
                        "metadata": {"name": name},
                        "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
                    },
                )
            containers = [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "restartCount": 0,
                    "ready": ready,
                    "state": {"running": {"startedAt": self.now()}},
                }
                for container in pod["spec"]["containers"]
            ]
            await self.report(
                pod,
                phase="Running",
                startTime=self.now(),
                containerStatuses=containers,
                conditions=[
                    {
                        "type": "Ready",
                        "status": "True" if ready else "False",
                        "lastTransitionTime": self.now(),
                    }
                ],
            )

    async def end(self, pods: Sequence[Document], code: int = 0, **status: Any) -> None:
        """Report that all containers have exited."""
        for pod in pods:
            containers = [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "restartCount": 0,
                    "ready": False,
                    "state": {
                        "terminated": {
                            "exitCode": code,
                            "reason": "Error" if code else "Completed",
                            "startedAt": self.now(),
                            "finishedAt": self.now(),
                        }
                    },
                }
                for container in pod["spec"]["containers"]
            ]
            await self.report(
                pod,
                phase="Failed" if code else "Succeeded",
                **{"containerStatuses": containers, **status},
            )

    async def report(self, pod: Document, **status: Any) -> None:
        path = self.path("pods", pod["metadata"]["name"], "status")
        headers = {"Content-Type": _PATCHES["strategic"]}
        await self._quiet("PATCH", path, {"status": status}, headers)

    async def reap(self, code: int = 137) -> None:
        """End all Pods on the node that are being deleted."""
        for pod in await self.items("pods"):
            if "deletionTimestamp" not in pod["metadata"] or not pod["spec"].get("nodeName"):
                continue
            if pod["status"].get("phase") not in ("Succeeded", "Failed"):
                await self.end([pod], code)
            path = self.path("pods", pod["metadata"]["name"])
            await self.send("DELETE", path, {"gracePeriodSeconds": 0})

    async def _quiet(
        self, method: str, path: str, body: Any, headers: Mapping[str, str] | None = None
    ) -> None:
        answer = await self.send(method, path, body, headers=headers)
        if answer.code >= 300:
            raise NotReached(f"{method} {path}: {answer.code} {answer.body!r}")


def _from_first_index(annotations: Document) -> Document:
    """Return annotations with indexes that count from the first webhook of the scenario."""
    firsts: dict[str, int] = {}
    for key in annotations:
        if found := _INDEX.search(key):
            phase = key[: found.start()].removeprefix("failed-open.")
            firsts[phase] = min(firsts.get(phase, int(found[1])), int(found[1]))

    def renumbered(key: str) -> str:
        found = _INDEX.search(key)
        if not found:
            return key
        phase = key[: found.start()]
        number = int(found[1]) - firsts[phase.removeprefix("failed-open.")]
        return f"{phase}index_{number}"

    return {renumbered(key): text for key, text in annotations.items()}


def _document(answer: Answer) -> Any:
    try:
        return json.loads(answer.body)
    except ValueError:
        return answer.body.decode(errors="replace")


def _by_index(pod: Document) -> tuple[int, str, str]:
    metadata = pod["metadata"]
    index = metadata.get("annotations", {}).get("batch.kubernetes.io/job-completion-index", "-1")
    return int(index), metadata["creationTimestamp"], metadata["name"]


def _job_facts(job: Document) -> Document:
    metadata = job["metadata"]
    status = dict(job.get("status", {}))
    for condition in status.get("conditions", ()):
        condition.pop("lastProbeTime", None)
    return {
        **{
            key: metadata[key]
            for key in ("finalizers", "deletionTimestamp", "generation", "ownerReferences")
            if key in metadata
        },
        "status": status,
    }


def _cronjob_facts(cronjob: Document) -> Document:
    status = dict(cronjob.get("status", {}))
    for reference in status.get("active", ()):
        for key in ("uid", "resourceVersion", "namespace"):
            reference.pop(key, None)
    return {"generation": cronjob["metadata"].get("generation"), "status": status}


def _pod_facts(pod: Document) -> Document:
    metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
    return {
        **{
            key: metadata[key]
            for key in (
                "name",
                "generateName",
                "labels",
                "annotations",
                "finalizers",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "ownerReferences",
            )
            if key in metadata
        },
        **{key: spec[key] for key in ("hostname", "subdomain", "schedulingGates") if key in spec},
        "phase": status.get("phase"),
        "conditions": in_order(
            [
                {key: condition[key] for key in ("type", "status", "reason") if key in condition}
                for condition in status.get("conditions", ())
            ]
        ),
    }


def _event_facts(events: Sequence[Document]) -> dict[str, int]:
    """Return the number of occurrences of each event, as type, reason, object, source, message."""
    counts: dict[str, int] = {}
    for event in events:
        about = event["involvedObject"]
        text = " ".join(
            (
                event["type"],
                event["reason"],
                f"{about['kind']}/{about['name']}",
                event.get("source", {}).get("component", event.get("reportingComponent", "")),
                event["message"],
            )
        )
        counts[text] = counts.get(text, 0) + (event.get("count") or 1)
    return dict(sorted(counts.items()))
