"""TTL of custom resources: watch the kinds whose definitions declare how objects finish.

The objects of each of these kinds have an informer of their own, which caches none of them.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct, field

from onejob.client.base import Client, Selection
from onejob.client.events import EventRecorder, about
from onejob.informers.cache import Delta
from onejob.informers.informer import Informer
from onejob.informers.shared import AnyObject, SharedInformers
from onejob.objects.meta import Key, Meta
from onejob.planning.custom_ttl import (
    CUSTOM_TTL_ANNOTATION,
    BadRule,
    FinishRule,
    Unusable,
    custom_expiry,
    read_rule,
)
from onejob.planning.ttl import NEVER, Expires, Expiry
from onejob.wire.registry import KindRegistry, KindsChanged

_DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
_decode: Callable[[bytes], dict[str, Any]] = msgspec.json.Decoder(dict[str, Any]).decode

Document: TypeAlias = Mapping[str, Any]
Schedule: TypeAlias = Callable[[Key, Expiry | Unusable], None]


class _Followed(Struct):
    rule: FinishRule
    task: asyncio.Task[None]
    #: Objects that wait for their TTL.
    waiting: set[Key] = field(default_factory=set)


class FinishableKinds:
    """Informers of kinds with a TTL rule.

    `schedule` is called with each changed or deleted object.
    """

    def __init__(
        self,
        client: Client,
        informers: SharedInformers,
        kinds: KindRegistry,
        recorder: EventRecorder,
        *,
        schedule: Schedule,
    ) -> None:
        self._client = client
        self._kinds = kinds
        self._recorder = recorder
        self._schedule = schedule
        #: Rules by resource, which is the name of the definition; it may not be served yet.
        self._rules: dict[str, FinishRule] = {}
        self._followed: dict[str, _Followed] = {}
        self._changed = asyncio.Event()
        informers.metadata(_DEFINITIONS).on_change(self._definitions_changed)
        kinds.subscribe(self._kinds_changed)

    async def run(self) -> None:
        """Watch the kinds with a TTL rule until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                self._follow(group)
                await self._changed.wait()

    async def read(self, key: Key) -> tuple[Expiry | Unusable, str]:
        """Return the expiry of an object's newest version, and its UID. Raises NotFound."""
        rule = self._rules.get(key.resource)
        if rule is None:
            return NEVER, ""
        document = _decode(await self._client.get(key))
        return custom_expiry(rule, document), document["metadata"]["uid"]

    def _definitions_changed(self, deltas: Sequence[Delta[AnyObject]]) -> None:
        for delta in deltas:
            if _annotation(delta.old) != _annotation(delta.new):
                self._set_rule(delta.key.name, self._rule_of(delta.new))

    def _set_rule(self, name: str, rule: FinishRule | None) -> None:
        if rule is not None:
            self._rules[name] = rule
        else:
            self._rules.pop(name, None)
        self._changed.set()

    def _rule_of(self, definition: AnyObject | None) -> FinishRule | None:
        """Return the TTL rule of a definition; None if it has none.

        An invalid rule becomes an Event, and counts as none.
        """
        text = _annotation(definition)
        if definition is None or text is None:
            return None
        try:
            return read_rule(text)
        except BadRule as error:
            api_version = "apiextensions.k8s.io/v1"
            what = about(api_version, "CustomResourceDefinition", definition.metadata)
            self._recorder.record(what, "Warning", "InvalidTTLRule", str(error))
            return None

    def _kinds_changed(self, change: KindsChanged) -> None:
        if any(kind.resource in self._rules for kind in (*change.added, *change.removed)):
            self._changed.set()

    def _follow(self, group: asyncio.TaskGroup) -> None:
        """Start and stop informers, so that exactly the served kinds with a rule are watched."""
        for resource, followed in list(self._followed.items()):
            if not self._is_served(resource) or self._rules.get(resource) != followed.rule:
                del self._followed[resource]
                followed.task.cancel()
                for key in followed.waiting:
                    self._schedule(key, NEVER)
        for resource, rule in self._rules.items():
            if resource not in self._followed and self._is_served(resource):
                task = group.create_task(self._informer(resource).run(), name=f"ttl-{resource}")
                self._followed[resource] = _Followed(rule, task)

    def _is_served(self, resource: str) -> bool:
        return resource in self._kinds.by_resource and self._kinds.by_resource[resource].custom

    def _informer(self, resource: str) -> Informer[Document]:
        """Return an informer of a custom kind that caches nothing."""
        informer: Informer[Document] = Informer(
            self._client,
            Selection(resource),
            _decode,
            partial(_key, resource),
            keep=lambda document: False,
        )
        informer.on_change(partial(self._objects_changed, resource))
        informer.on_relist(partial(self._relisted, resource))
        return informer

    def _objects_changed(self, resource: str, deltas: Sequence[Delta[Document]]) -> None:
        """Pass the expiry of changed objects on; report unusable TTLs."""
        followed = self._followed.get(resource)
        if followed is None:
            return
        for delta in deltas:
            document = delta.new
            expiry = custom_expiry(followed.rule, document) if document is not None else NEVER
            if isinstance(expiry, Unusable) and document is not None:
                self._report(resource, document, expiry)
            if isinstance(expiry, Expires):
                followed.waiting.add(delta.key)
            else:
                followed.waiting.discard(delta.key)
            self._schedule(delta.key, expiry)

    def _relisted(self, resource: str, present: Mapping[Key, Document]) -> None:
        """Unschedule objects deleted between two lists.

        The informer caches none of them, so it reports no deletions.
        """
        followed = self._followed.get(resource)
        if followed is None:
            return
        for key in [key for key in followed.waiting if key not in present]:
            followed.waiting.discard(key)
            self._schedule(key, NEVER)

    def _report(self, resource: str, document: Document, unusable: Unusable) -> None:
        """Record the Event about an unusable TTL."""
        metadata = document["metadata"]
        meta = Meta(
            name=metadata["name"], namespace=metadata.get("namespace", ""), uid=metadata["uid"]
        )
        what = about(document["apiVersion"], document["kind"], meta)
        self._recorder.record(what, "Warning", "InvalidTTL", unusable.error)


def _annotation(definition: AnyObject | None) -> str | None:
    """Return the text of the TTL rule; None if there is none."""
    if definition is None:
        return None
    return definition.metadata.annotations.get(CUSTOM_TTL_ANNOTATION)


def _key(resource: str, document: Document) -> Key:
    """Return the key of a custom resource."""
    metadata = document["metadata"]
    return Key(resource, metadata.get("namespace", ""), metadata["name"])
