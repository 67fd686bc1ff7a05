"""Hypothesis state machine: compare objects in the API with a model after the same requests.

Jobs are suspended and Pods are gated, so that no controller changes the fields of the model;
controllers may write a status, and with it a resourceVersion, at any time.
"""

import itertools
from collections.abc import Iterator
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import Struct

from tests.fuzz.connection import Answer, Api

FINALIZER = "example.com/hold"
_NAMES = st.sampled_from(["a", "b", "c"])
_VALUES = st.sampled_from(["red", "green"])
#: Number of an existing object, or of a nonexistent one.
_CHOICES = st.integers(0, 999)
_FRESHNESS = st.sampled_from(["none", "current", "stale"])
_RARELY = st.sampled_from([False, False, False, True])
_MERGE = "application/merge-patch+json"


class Known(Struct):
    """Model of one object."""

    uid: str
    version: str
    color: str
    held: bool
    deleting: bool = False
    #: A resourceVersion that a write of ours has replaced.
    stale: str = ""


class Place(Struct, frozen=True):
    path: str
    api_version: str
    kind: str
    #: Whether controllers write to it, too.
    shared: bool
    body: dict[str, Any]


_POD_SPEC = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}
PLACES = {
    "configmaps": Place("/api/v1/namespaces/{}/configmaps", "v1", "ConfigMap", False, {}),
    "jobs": Place(
        "/apis/batch/v1/namespaces/{}/jobs",
        "batch/v1",
        "Job",
        True,
        {"spec": {"suspend": True, "template": {"spec": _POD_SPEC}}},
    ),
    "pods": Place(
        "/api/v1/namespaces/{}/pods",
        "v1",
        "Pod",
        True,
        {"spec": {**_POD_SPEC, "schedulingGates": [{"name": "example.com/gate"}]}},
    ),
}
_KINDS = st.sampled_from(sorted(PLACES))


class ApiMachine(RuleBasedStateMachine):
    #: Set by the runner: the server outlives the machines.
    api: ClassVar[Api]
    _numbers: ClassVar[Iterator[int]] = itertools.count(1)

    def __init__(self) -> None:
        super().__init__()
        self.namespace = f"fuzz-{next(self._numbers)}"
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        assert self.api.ask("POST", "/api/v1/namespaces", body).code == 201
        self.known: dict[str, dict[str, Known]] = {kind: {} for kind in PLACES}
        self.began = {kind: self._list(kind)["metadata"]["resourceVersion"] for kind in PLACES}

    @initialize(held=st.booleans())
    def begin_with_one_of_each(self, held: bool) -> None:
        for kind in PLACES:
            self.create(kind, "a", "red", held, False)
            self.create(kind, "b", "green", not held, False)

    # --- rules ---

    @rule(kind=_KINDS, name=_NAMES, color=_VALUES, held=st.booleans(), dry=_RARELY)
    def create(self, kind: str, name: str, color: str, held: bool, dry: bool) -> None:
        answer = self._create(kind, {"name": name}, color, held, dry)
        if name in self.known[kind]:
            assert (answer.code, answer.reason) == (409, "AlreadyExists"), answer
            return
        assert answer.code == 201, answer
        if not dry:
            self._learn(kind, answer, held)

    @rule(kind=_KINDS, color=_VALUES, dry=_RARELY)
    def create_with_a_generated_name(self, kind: str, color: str, dry: bool) -> None:
        answer = self._create(kind, {"generateName": "made-"}, color, False, dry)
        assert answer.code == 201, answer
        name = answer.document["metadata"]["name"]
        assert name.startswith("made-")
        assert len(name) > len("made-")
        assert name not in self.known[kind]
        if not dry:
            self._learn(kind, answer, False)

    @rule(choice=_CHOICES, color=_VALUES, fresh=_FRESHNESS, dry=_RARELY)
    def patch(self, choice: int, color: str, fresh: str, dry: bool) -> None:
        kind, name = self._chosen(choice)
        metadata: dict[str, Any] = {"labels": {"color": color}}
        known = self.known[kind].get(name)
        self._set_version(metadata, known, fresh)
        answer = self._patch(kind, name, metadata, dry)
        self._written(kind, name, answer, fresh, dry, color)

    @rule(choice=_CHOICES, color=_VALUES, fresh=_FRESHNESS, dry=_RARELY)
    def replace(self, choice: int, color: str, fresh: str, dry: bool) -> None:
        kind, name = self._chosen(choice)
        found = self.api.ask("GET", self._path(kind, name))
        known = self.known[kind].get(name)
        assert found.code == (404 if known is None else 200), found
        if known is None:
            return
        document = found.document
        document["metadata"]["labels"]["color"] = color
        document["metadata"].pop("resourceVersion")
        self._set_version(document["metadata"], known, fresh)
        answer = self.api.ask("PUT", self._path(kind, name), document, **_dry(dry))
        self._written(kind, name, answer, fresh, dry, color)

    @rule(choice=_CHOICES, wrong_uid=_RARELY, dry=_RARELY)
    def delete(self, choice: int, wrong_uid: bool, dry: bool) -> None:
        kind, name = self._chosen(choice)
        known = self.known[kind].get(name)
        options: dict[str, Any] = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        if known is not None:
            uid = "00000000-0000-0000-0000-000000000000" if wrong_uid else known.uid
            options["preconditions"] = {"uid": uid}
        if dry:
            # As upstream: with a body, the query is ignored.
            options["dryRun"] = ["All"]
        answer = self.api.ask("DELETE", self._path(kind, name), options)
        if known is None:
            assert answer.code == 404, answer
        elif wrong_uid:
            assert answer.code == 409, answer
        else:
            assert answer.code == 200, answer
            if not dry:
                self._deleted(kind, name, known)

    @rule(choice=_CHOICES)
    def release(self, choice: int) -> None:
        """Remove the finalizer: an object that is being deleted is then gone."""
        kind, name = self._chosen(choice)
        known = self.known[kind].get(name)
        answer = self._patch(kind, name, {"finalizers": None}, dry=False)
        if known is None:
            assert answer.code == 404, answer
            return
        assert answer.code == 200, answer
        known.held = False
        self._moved(known, answer)
        if known.deleting:
            del self.known[kind][name]

    @precondition(lambda self: any(known.deleting for _, _, known in self._all()))
    @rule(data=st.data())
    def hold_what_is_being_deleted(self, data: st.DataObject) -> None:
        going = [(kind, name) for kind, name, known in self._all() if known.deleting]
        kind, name = data.draw(st.sampled_from(sorted(going)))
        held = {"finalizers": [FINALIZER, "example.com/another"]}
        answer = self._patch(kind, name, held, dry=False)
        assert answer.code == 422, answer

    @rule(kind=_KINDS, color=_VALUES)
    def select(self, kind: str, color: str) -> None:
        listed = self._list(kind, labelSelector=f"color={color}")
        expected = {name for name, known in self.known[kind].items() if known.color == color}
        assert _names(listed) == expected

    @rule(kind=_KINDS)
    def list_in_pages(self, kind: str) -> None:
        found: set[str] = set()
        token = ""
        while True:
            page = self._list(kind, limit="2", **({"continue": token} if token else {}))
            assert len(page["items"]) <= 2
            assert not found & _names(page)
            found |= _names(page)
            token = page["metadata"].get("continue", "")
            if not token:
                break
        assert found == self.known[kind].keys()

    # --- invariants ---

    @invariant()
    def what_is_listed_is_what_is_known(self) -> None:
        for kind, known in self.known.items():
            items = {item["metadata"]["name"]: item for item in self._list(kind)["items"]}
            if kind == "configmaps":
                items.pop("kube-root-ca.crt", None)
            assert items.keys() == known.keys()
            for name, item in items.items():
                metadata = item["metadata"]
                assert metadata["uid"] == known[name].uid
                assert metadata["labels"]["color"] == known[name].color
                assert ("deletionTimestamp" in metadata) == known[name].deleting
                assert (FINALIZER in metadata.get("finalizers", [])) == known[name].held

    def teardown(self) -> None:
        """Check that a watch from the beginning leads to the same objects."""
        for kind in PLACES:
            self._follow(kind)
        self.api.ask("DELETE", f"/api/v1/namespaces/{self.namespace}")

    def _follow(self, kind: str) -> None:
        # The last event of all: then everything before it was seen.
        self._create(kind, {"name": "last"}, "red", False, False)
        seen: dict[str, dict[str, Any]] = {}
        newest = 0
        path = self._path(kind)
        with self.api.watch(path, self.began[kind]) as events:
            for event in events:
                metadata = event["object"]["metadata"]
                name = metadata["name"]
                assert int(metadata["resourceVersion"]) > newest, event
                newest = int(metadata["resourceVersion"])
                assert (name in seen) == (event["type"] != "ADDED"), event
                if event["type"] == "DELETED":
                    del seen[name]
                else:
                    seen[name] = metadata
                if name == "last":
                    break
        del seen["last"]
        seen.pop("kube-root-ca.crt", None)
        assert {name: found["uid"] for name, found in seen.items()} == {
            name: known.uid for name, known in self.known[kind].items()
        }
        for name, metadata in seen.items():
            assert metadata["labels"]["color"] == self.known[kind][name].color

    # --- requests and their effects on the model ---

    def _chosen(self, choice: int) -> tuple[str, str]:
        there = [(kind, name) for kind, name, _ in self._all()]
        there.append((sorted(PLACES)[choice % len(PLACES)], "absent"))
        return there[choice % len(there)]

    def _all(self) -> list[tuple[str, str, Known]]:
        return [(kind, name, known) for kind in PLACES for name, known in self.known[kind].items()]

    def _path(self, kind: str, name: str = "") -> str:
        path = PLACES[kind].path.format(self.namespace)
        return f"{path}/{name}" if name else path

    def _list(self, kind: str, **query: str) -> dict[str, Any]:
        answer = self.api.ask("GET", self._path(kind), **query)
        assert answer.code == 200, answer
        return answer.document

    def _create(
        self, kind: str, names: dict[str, str], color: str, held: bool, dry: bool
    ) -> Answer:
        place = PLACES[kind]
        metadata = {**names, "labels": {"color": color}, "finalizers": [FINALIZER] * held}
        body = {"apiVersion": place.api_version, "kind": place.kind, "metadata": metadata}
        return self.api.ask("POST", self._path(kind), body | place.body, **_dry(dry))

    def _patch(self, kind: str, name: str, metadata: dict[str, Any], dry: bool) -> Answer:
        body = {"metadata": metadata}
        return self.api.ask("PATCH", self._path(kind, name), body, _MERGE, **_dry(dry))

    def _set_version(self, metadata: dict[str, Any], known: Known | None, fresh: str) -> None:
        if known is not None and fresh == "current":
            metadata["resourceVersion"] = known.version
        elif known is not None and fresh == "stale" and known.stale:
            metadata["resourceVersion"] = known.stale

    def _written(
        self, kind: str, name: str, answer: Answer, fresh: str, dry: bool, color: str
    ) -> None:
        known = self.known[kind].get(name)
        if known is None:
            assert answer.code == 404, answer
            return
        if fresh == "stale" and known.stale:
            assert (answer.code, answer.reason) == (409, "Conflict"), answer
            return
        if fresh == "current" and PLACES[kind].shared and answer.code == 409:
            # A controller was faster.
            return
        assert answer.code == 200, answer
        assert answer.document["metadata"]["labels"]["color"] == color
        if not dry:
            known.color = color
            self._moved(known, answer)

    def _learn(self, kind: str, answer: Answer, held: bool) -> None:
        metadata = answer.document["metadata"]
        known = Known(
            metadata["uid"], metadata["resourceVersion"], metadata["labels"]["color"], held
        )
        self.known[kind][metadata["name"]] = known

    def _moved(self, known: Known, answer: Answer) -> None:
        version = answer.document["metadata"]["resourceVersion"]
        assert int(version) >= int(known.version)
        if version != known.version:
            known.stale, known.version = known.version, version

    def _deleted(self, kind: str, name: str, known: Known) -> None:
        if not known.held:
            del self.known[kind][name]
            return
        if not known.deleting:
            known.deleting = True
            known.stale = known.version
            found = self.api.ask("GET", self._path(kind, name))
            known.version = found.document["metadata"]["resourceVersion"]


def _dry(dry: bool) -> dict[str, str]:
    return {"dryRun": "All"} if dry else {}


def _names(listed: dict[str, Any]) -> set[str]:
    return {item["metadata"]["name"] for item in listed["items"]} - {"kube-root-ca.crt"}
